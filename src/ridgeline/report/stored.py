"""What a results folder stores beside runs: tables, counts, profiles, captures; whose they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from ridgeline.captures.capture import sources_of
from ridgeline.errors import RidgelineError
from ridgeline.profile.request import TIERS
from ridgeline.records import RECOMPUTE, CountRequest, RunRequest
from ridgeline.serialize import LARGEST, FieldError, is_number, show_value
from ridgeline.store import (
    MeasuredRun,
    ResultsFolder,
    ResultsIndex,
    Run,
    StoredCapture,
    StoredCount,
    StoredProfile,
)

if TYPE_CHECKING:
    import pandas as pd

COUNTERS, TIME = TIERS
SAME_COUNT = ("model", "digest", "batch_size", "mode", "input_size", "seq_len", "config")
EARLIER_NAME = "ideal_bytes"  # of the fused bytes, in counts of earlier versions

# ---------------------------------------------------------------- tables

NEEDED_COLUMNS = {
    "ops": ("path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops", "flops",
            "read_bytes", "written_bytes"),
    "layers": ("layer", "kind", "input_shape", "time_s", "forward_s", "backward_s"),
    "kernels": ("kernel", "time_s"),
    "copies": ("layer", "phase", "moved_bytes"),
}  # fmt: skip
COUNTS = ("macs", "flops", "other_flops", "launches")
MAY_BE_NEGATIVE = ("layers",)  # a layer's own time is a difference of two


def read_table(
    run: Run, name: str, problems: list[str], *, needs: Sequence[str] | None = None
) -> pd.DataFrame | None:
    """A table of a run, its quantities as numbers; None if it has none, or none that can be used.

    `needs` are the columns that the caller uses; what is wrong goes to `problems`.
    """
    if not (run.path / f"{name}.parquet").is_file():
        return None
    try:
        table = ResultsFolder(run.path.parent.parent).read_table(run.run_id, name)
        return _check_table(name, table, NEEDED_COLUMNS[name] if needs is None else needs)
    except RidgelineError as error:
        problems.append(str(error))
    except FieldError as error:
        problems.append(f"the table {name} of run {run.run_id} is passed over: {error}")
    return None


def _check_table(name: str, table: pd.DataFrame, needs: Sequence[str]) -> pd.DataFrame:
    for column in needs:
        if column not in table:
            raise FieldError(f"it has no column {column!r}")
    least = -LARGEST if name in MAY_BE_NEGATIVE else 0.0
    quantities = [str(column) for column in table if _is_quantity(str(column))]
    return table.assign(**{column: _read_numbers(table[column], least) for column in quantities})


def _is_quantity(column: str) -> bool:
    if column.endswith("_samples_s"):  # lists
        return False
    return column in COUNTS or column.endswith(("_s", "_bytes")) or column.startswith("flops_")


def _read_numbers(values: pd.Series, least: float) -> pd.Series:
    """The column as numbers; what is not known stays so."""
    import numpy as np
    import pandas as pd

    try:
        numbers = pd.to_numeric(values)
        known = numbers.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError) as error:
        wrong = next((v for v in values if not is_number(v)), None)
        raise FieldError(f"column {values.name!r} has {show_value(wrong)}, not a number") from error
    for value in known[(known < least) | (np.abs(known) > LARGEST)][:1]:
        why = "which is below zero" if value < least else "which is too large"
        raise FieldError(f"column {values.name!r} has {value}, {why}")
    return numbers


# ---------------------------------------------------------------- counts


def stored_counts(index: ResultsIndex) -> dict[str, StoredCount]:
    """Stored counts by what was counted; a later one replaces an earlier."""
    return {
        count_key(count.request, count.request.precision): count
        for count in index.counts
        if (count.path / "ops.parquet").is_file()
    }


def run_key(run: MeasuredRun) -> str:
    """The key of the count that a run needs."""
    return count_key(run.request, run.result.precision)


def count_key(request: RunRequest | CountRequest, precision: str) -> str:
    """A key that is the same for a count and for the runs that it is the count of."""
    same = {name: getattr(request, name) for name in SAME_COUNT}
    optimizer = request.optimizer if request.mode == "train" else None
    return json.dumps([same, precision, optimizer], sort_keys=True, default=str)


def uncounted(index: ResultsIndex, run_ids: Sequence[str] | None = None) -> list[MeasuredRun]:
    """Completed runs without a stored count, one of each kind."""
    counts = stored_counts(index)
    missing: dict[str, MeasuredRun] = {}
    for run in index.runs:
        key = run_key(run)
        if key not in counts and (run_ids is None or run.run_id in run_ids):
            missing.setdefault(key, run)
    return list(missing.values())


def name_recompute(ops: pd.DataFrame) -> pd.DataFrame:
    """The operators of a count, with recomputation in its own phase.

    Counts stored by earlier versions call it forward, and set it apart by `is_recomputed` alone.
    """
    if "is_recomputed" not in ops:
        return ops
    return ops.assign(phase=ops["phase"].mask(ops["is_recomputed"].eq(True), RECOMPUTE))


def rename_fused_of_layers(layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The counted layers with `own_fused_bytes`, which earlier versions did not store.

    They had the bytes of the forward pass: in inference that is all, in training not enough.
    """
    if EARLIER_NAME not in layers or "own_fused_bytes" in layers:
        return layers
    fused = layers[EARLIER_NAME] if mode == "infer" else float("nan")
    return layers.assign(own_fused_bytes=fused)


# ---------------------------------------------------------------- profiles and captures


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The counters and traces that are stored."""

    of_run: dict[str, StoredProfile] = field(default_factory=dict)  # the newest good one
    captures: tuple[StoredCapture, ...] = ()  # imported, or of a program; oldest first
    names: dict[str, str] = field(default_factory=dict)  # of all captures by id, no two alike


def stored_profiles(
    index: ResultsIndex,
    runs: Iterable[MeasuredRun],
    problems: list[str],
    run_ids: Sequence[str] | None = None,
) -> Profiles:
    """Profiles of `runs`, and captures: all, or those among `run_ids`.

    A profile that failed is a problem, unless a later one of the same run did not.
    """
    known = {run.run_id for run in runs}
    of_run: dict[str, StoredProfile] = {}
    failures: dict[str, str] = {}
    for profile in index.profiles:
        parent, is_ok = profile.request.of_run, profile.result.status == "ok"
        if is_ok and parent in known:
            of_run[parent] = profile
            failures.pop(parent, None)
        elif is_ok and run_ids is None:
            problems.append(f"profile {profile.run_id} is of the run {parent}, which is not here")
        elif not is_ok and (run_ids is None or parent in known):
            failures[parent] = _describe_failure(profile)
    problems += failures.values()
    chosen = [run for run in index.captures if run_ids is None or run.run_id in run_ids]
    return Profiles(of_run=of_run, captures=tuple(chosen), names=names_of(index.captures))


def _describe_failure(profile: StoredProfile) -> str:
    """`resnet50, train, amp, batch 32: its profile failed: …`."""
    request, result = profile.request, profile.result
    what = f"{request.model}, {request.mode}, {request.precision}, batch {request.batch_size}"
    hint = f" ({result.hint})" if result.hint else ""
    return f"{what}: its profile failed: {result.reason or 'unknown'}{hint}"


def label_of(capture: StoredCapture) -> str:
    """The label of a capture, or the name of its first file or its program."""
    names = [PurePath(source).name for source in sources_of(capture)]
    return capture.request.label or next(iter(names), "") or capture.run_id


def file_names(capture: StoredCapture) -> str:
    """`flops.csv + bytes.csv`."""
    return " + ".join(PurePath(source).name for source in sources_of(capture))


def names_of(captures: Iterable[StoredCapture]) -> dict[str, str]:
    """Captures by their labels; those that share one also by what distinguishes them.

    `two (a.csv)`: that is the file's name, else its path, else the time, else the end of the id.
    """
    names: dict[str, str] = {}
    alike = list(captures)
    for describe in CAPTURE_DETAILS:
        names |= {run.run_id: _name_capture(run, describe(run)) for run in alike}
        often = Counter(names.values())
        alike = [run for run in alike if often[names[run.run_id]] > 1]
    return names


CAPTURE_DETAILS: tuple[Callable[[StoredCapture], Sequence[str]], ...] = (
    lambda capture: (),
    lambda capture: (file_names(capture),),
    lambda capture: (" + ".join(sources_of(capture)),),
    lambda capture: (file_names(capture), capture.made.time[:19].replace("T", " ")),
    lambda capture: (file_names(capture), capture.run_id.rpartition("-")[2]),
)


def _name_capture(capture: StoredCapture, details: Sequence[str]) -> str:
    label = label_of(capture)
    text = ", ".join(detail for detail in details if detail and detail != label)
    return f"{label} ({text})" if text else label
