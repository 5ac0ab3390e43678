"""Stored runs and tables as the report takes them: everything that comes from a file passes here.

Whoever copies, edits or damages a results folder can put anything into it. What is not as
`ridgeline run` and `ridgeline count` write it is refused here, with the name of the field, so that
nothing behind this needs to ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.fields import (
    FLAG,
    INDEX,
    INTERVAL,
    LARGEST,
    LIST,
    MAPPING,
    NAME,
    NOT_NEGATIVE,
    NUMBER,
    NUMBERS,
    POSITIVE,
    SIZES,
    TEXT,
    TEXTS,
    WHOLE,
    WRITABLE,
    FieldError,
    Fields,
    Kind,
    check,
    shown,
)
from ridgeline.store import Run

if TYPE_CHECKING:
    import pandas as pd


def _all(prefix: str, kind: Kind, *names: str) -> dict[str, Kind]:
    return {f"{prefix}.{name}": kind for name in names}


RUN_NEEDS: Fields = {
    "asked.model": NAME,
    "asked.batch_size": WHOLE,
    **_all("asked", TEXT, "mode", "precision", "data", "label"),
    **_all("found", NAME, "backend", "precision"),
    "found.device_name": TEXT,
    "found.iters": WHOLE,
    **_all("found", POSITIVE, "samples_per_s", "samples_processed"),
    "found.elapsed_s": NOT_NEGATIVE,
    **_all("found", MAPPING, "warmup", "step_time_s"),
    "found.warmup.times_s": NUMBERS,
    **_all("found.step_time_s", POSITIVE, "median", "mean"),
    **_all("found.step_time_s", NOT_NEGATIVE, "min", "max"),
    "found.split_s.*": MAPPING,
    "found.split_s.*.median": NUMBER,
    "found.energy.windows.*": MAPPING,
}
RUN_MAY_HAVE: Fields = {
    **_all("asked", TEXT, "optimizer", "compile", "digest"),
    **_all(
        "asked", FLAG, "channels_last", "deterministic", "cudnn_benchmark", "pin_memory", "augment",
    ),
    **_all("asked", WHOLE, "grad_accum_steps", "seq_len", "prefetch_factor"),
    **_all("asked", INDEX, "device", "repeat", "seed", "workers"),
    "asked.input_size": SIZES,
    "asked.config": MAPPING,
    "asked.config.*": WRITABLE,
    **_all(
        "found", MAPPING, "describe", "split_s", "optimizer_settings", "kernels", "memory",
        "process", "conditions", "energy", "layers",
    ),
    "found.describe.input_size": SIZES,
    **_all("found.optimizer_settings", NUMBER, "lr", "momentum", "weight_decay"),
    "found.samples_per_step": WHOLE,
    "found.timed_usage": MAPPING,
    **_all("found.timed_usage", NOT_NEGATIVE, "cores", "elapsed_s", "involuntary_switches",
           "system_time_s"),
    **_all("found.step_time_s", NOT_NEGATIVE, "std", "spread"),
    "found.step_time_s.interval": INTERVAL,
    "found.step_time_s.samples": NUMBERS,
    "found.split_s.*.samples": NUMBERS,
    **_all("found", NOT_NEGATIVE, "busy_fraction", "peak_memory_bytes", "threads"),
    **_all("found.kernels", NOT_NEGATIVE, "time_s", "kernels"),
    **_all("found.memory", NOT_NEGATIVE, "reserved_bytes"),
    "found.process.*": NUMBER,
    "found.conditions.during": MAPPING,
    **_all("found.conditions.during", NUMBER, "clock_hz", "memory_clock_hz", "temperature_c"),
    "found.conditions.during.throttle_reasons": TEXTS,
    "found.energy.meter": TEXT,
    **_all(
        "found.energy", NUMBER, "energy_j_per_step", "energy_j_per_sample", "mean_power_w",
        "idle_power_w", "power_mean_w", "power_std_w", "power_min_w", "power_max_w",
        "energy_total_j", "power_samples",
    ),
    "found.energy.windows": LIST,
    "found.energy.windows.*.energy_j_per_step": NUMBER,
    "found.layers.difference": NUMBER,
    "found.layers.clock": TEXT,
    **_all("found", TEXTS, "warnings", "energy_reasons"),
    **_all("provenance", TEXT, "time", "python", "ridgeline"),
    "provenance.command": TEXTS,
    **_all("provenance", MAPPING, "host", "libraries", "backends", "commit", "ridgeline_commit",
           "environment"),
    **_all("provenance.host", TEXT, "name", "os"),
    "provenance.host.usable_cores": NUMBER,
    "provenance.libraries.*": TEXT,
    "provenance.backends.*": TEXT,
    "provenance.environment.*": TEXT,
    "provenance.commit.sha": TEXT,
    "provenance.ridgeline_commit.sha": TEXT,
}  # fmt: skip
COUNT_NEEDS: Fields = {"asked.model": NAME}
COUNT_MAY_HAVE: Fields = {
    **_all("found", MAPPING, "fused_bytes", "memory", "phases"),
    **_all("found", NOT_NEGATIVE, "params", "macs", "flops", "read_bytes", "written_bytes",
           "coverage"),
    **_all("found.fused_bytes", NOT_NEGATIVE, "read_bytes", "written_bytes"),
    "found.memory.peak_bytes": NOT_NEGATIVE,
    "found.phases.*": MAPPING,
    "found.phases.*.*": NOT_NEGATIVE,
}  # fmt: skip
PROFILE_NEEDS: Fields = {"asked.of_run": NAME, "found.status": NAME}
CAPTURE_NEEDS: Fields = {"asked.files": TEXTS, "found.status": NAME}
PROGRAM_NEEDS: Fields = {"asked.program": TEXTS, "found.status": NAME}
EXECUTED_MAY_HAVE: Fields = {
    **_all("asked", TEXT, "model", "mode", "precision", "label"),
    "asked.batch_size": WHOLE,
    **_all("found", TEXT, "reason", "hint", "device_name", "backend", "precision", "tier", "level",
           "kind", "tool", "tool_version"),
    "found.is_deduplicated": FLAG,
    **_all("found", NOT_NEGATIVE, "kernel_time_s", "busy_time_s", "step_time_s", "launches",
           "attributed_share", "layer_share"),
    "found.gap_s": NUMBER,
    **_all("found", MAPPING, "phases", "totals", "cost", "self_test", "plan", "copies"),
    **_all("found.copies", NOT_NEGATIVE, "launches", "time_s", "moved_bytes"),
    **_all("found.cost", NOT_NEGATIVE, "planned_s", "taken_s", "passes"),
    **_all("found.self_test", NOT_NEGATIVE, "copy_ratio", "product_ratio"),
    "found.self_test.is_trusted": FLAG,
    "found.self_test.date": TEXT,
    "found.warnings": TEXTS,
    **{name: kind for name, kind in RUN_MAY_HAVE.items() if name.startswith("provenance.")},
}  # fmt: skip


def check_run(run: Run) -> None:
    """Raise FieldError if a completed run is not one that `ridgeline run` stores."""
    check(_content(run), needed=RUN_NEEDS, optional=RUN_MAY_HAVE)
    if run.asked["mode"] == "train" and run.asked.get("optimizer") is None:
        raise FieldError("asked.optimizer is missing")


def check_count(run: Run) -> None:
    """Raise FieldError if a count is not one that `ridgeline count` stores."""
    check(_content(run), needed=COUNT_NEEDS, optional=COUNT_MAY_HAVE)


def check_profile(run: Run) -> None:
    """Raise FieldError if a profile of a run is not one that `ridgeline profile` stores."""
    check(_content(run), needed=PROFILE_NEEDS, optional=EXECUTED_MAY_HAVE)


def check_capture(run: Run) -> None:
    """Raise FieldError if it is not one of `ridgeline import` or `ridgeline profile -- PROGRAM`."""
    needed = PROGRAM_NEEDS if "program" in run.asked else CAPTURE_NEEDS
    check(_content(run), needed=needed, optional=EXECUTED_MAY_HAVE)


def _content(run: Run) -> dict[str, Any]:
    return {"asked": run.asked, "found": run.found, "provenance": run.provenance}


# ---------------------------------------------------------------- tables

COUNTED = "counted layers"  # `layers` of a count has other columns than that of a run
TEXT_COLUMNS = {
    "ops": ("path", "op", "kind", "phase", "dtype", "input_shapes"),
    "layers": ("layer", "kind", "input_shape"),
    COUNTED: ("path",),
    "kernels": ("kernel", "layer", "phase", "op", "input_shapes", "grid", "block"),
    "copies": ("kind", "layer", "phase", "op"),
}
NUMBER_COLUMNS = {
    "ops": ("macs", "other_flops", "flops", "read_bytes", "written_bytes"),
    "layers": ("time_s", "forward_s", "backward_s", "mean_s", "std_s"),
    COUNTED: ("own_fused_bytes",),
    "kernels": ("time_s", "launches", "dram_bytes", "l3_bytes", "l2_bytes", "l1_bytes"),
    "copies": ("launches", "time_s", "moved_bytes"),
}
LIST_COLUMNS = {"layers": ("forward_samples_s", "backward_samples_s")}
NEEDED_COLUMNS = {
    "ops": (*TEXT_COLUMNS["ops"], *NUMBER_COLUMNS["ops"]),
    "layers": (*TEXT_COLUMNS["layers"], "time_s", "forward_s", "backward_s"),
    COUNTED: ("path", "own_fused_bytes"),
    "kernels": ("kernel", "time_s"),
    "copies": ("layer", "phase", "moved_bytes"),
}
KEYS = {"layers": "layer", "kernels": "kernel"}  # never empty
NAMED_ONCE = ("layers",)
MAY_BE_NEGATIVE = ("layers",)  # a layer's own time is a difference of two


def check_table(
    name: str, table: pd.DataFrame, *, needs: Sequence[str] | None = None
) -> pd.DataFrame:
    """The table with numbers where numbers belong; FieldError if it is not one of its name.

    `needs` are the columns that a reader uses, where it does with fewer than others.
    """
    if not table.columns.is_unique:
        raise FieldError("it has two columns of the same name")
    wanted = NEEDED_COLUMNS[name] if needs is None else needs
    missing = [column for column in wanted if column not in table]
    if missing:
        raise FieldError(f"it has no column {missing[0]!r}")
    for column in TEXT_COLUMNS[name]:
        if column in table:
            _check_texts(column, table[column])
    for column in LIST_COLUMNS.get(name, ()):
        if column in table:
            _check_lists(column, table[column])
    _check_key(name, table)
    least = None if name in MAY_BE_NEGATIVE else 0.0
    numbers = {c: _numbers(c, table[c], least) for c in _number_columns(name, table)}
    return table.assign(**numbers)


def _number_columns(name: str, table: pd.DataFrame) -> list[str]:
    from ridgeline.roofline.place import flops_columns

    found = [column for column in NUMBER_COLUMNS[name] if column in table]
    return [*found, *flops_columns(table)] if name == "kernels" else found


def _check_texts(column: str, values: pd.Series) -> None:
    import pandas as pd

    if isinstance(values.dtype, pd.StringDtype):
        return
    for value in values:
        if not isinstance(value, str) and not _is_nothing(value):
            raise FieldError(f"column {column!r} has {shown(value)}, not a text")


def _is_nothing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def _check_key(name: str, table: pd.DataFrame) -> None:
    key = KEYS.get(name)
    if key is None or key not in table:
        return
    if table[key].isna().any():
        raise FieldError(f"column {key!r} has an empty cell")
    twice = table[key][table[key].duplicated()]
    if name in NAMED_ONCE and len(twice):
        raise FieldError(f"column {key!r} has {shown(twice.iloc[0])} twice")


def _numbers(column: str, values: pd.Series, least: float | None) -> pd.Series:
    """The column as numbers; what is not known stays so."""
    import numpy as np
    import pandas as pd

    try:
        found = pd.to_numeric(values)
        plain = found.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError) as error:
        wrong = next((v for v in values if not NUMBER.accepts(v)), None)
        raise FieldError(f"column {column!r} has {shown(wrong)}, not a number") from error
    known = plain[~np.isnan(plain)]
    for value in known[~(np.abs(known) <= LARGEST)][:1]:
        raise FieldError(f"column {column!r} has {value}, which is too large")
    if least is not None and len(known) and known.min() < least:
        raise FieldError(f"column {column!r} has {known.min()}, which is below zero")
    return found


def _check_lists(column: str, values: pd.Series) -> None:
    for value in values:
        items = value.tolist() if hasattr(value, "tolist") else value
        if items is not None and not NUMBERS.accepts(items):
            raise FieldError(f"column {column!r} has {shown(items)}, not a list of numbers")
