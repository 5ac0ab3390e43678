"""From what was read to a capture: quantities, names of devices, remarks; or a refusal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import BYTES, FLOPS, TEXTS, Capture, total
from ridgeline.profile.quantities import find
from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.repeated import once
from ridgeline.profile.reading.soundness import sound
from ridgeline.profile.reading.source import Read
from ridgeline.profile.reading.traces import several

if TYPE_CHECKING:
    import pandas as pd

COLLECT = (
    "collect gpu__time_duration.sum, dram__bytes_read.sum, dram__bytes_write.sum,"
    " sm__ops_path_tensor_src_* and"
    " smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum; `ridgeline profile` does"
)


def from_counters(file: str, kind: str, read: Read, log: Log) -> Capture:
    """A capture of Nsight Compute."""
    import numpy as np

    launches = read.launches
    if not len(launches):
        raise log.refusal(file, "holds no kernels")
    texts, metrics = launches.frames()
    metrics, unsound = sound(metrics)
    texts, metrics, repeated = once(texts, metrics)
    capability = _first(launches, "compute_capability")
    times = [launches.times[row] for row in texts.index]
    with np.errstate(over="ignore"):  # which is said below
        found = find(metrics, compute_capability=capability)
        numbers, too_large = sound(
            found.table.mul(times, axis=0) if max(times) > 1 else found.table
        )
    if not found.metrics:
        raise _nothing_usable(file, read, log, metrics, unsound)
    kernels = with_all_columns(texts, numbers, times).reset_index(drop=True)
    return Capture(
        file=file,
        kind=kind,
        kernels=kernels,
        device=_device(launches, capability),
        compute_capability=capability,
        passes=_passes(launches),
        metrics=found.metrics,
        warnings=(
            *read.remarks, *unsound, *repeated, *found.remarks, *too_large, *_endless(kernels),
            *_several(launches), *_gaps(kernels[:-1] if log.is_cut else kernels),
            *_unshown(kernels), *log.remarks(),
        ),
    )  # fmt: skip


def with_all_columns(
    texts: pd.DataFrame, numbers: pd.DataFrame, times: Sequence[int]
) -> pd.DataFrame:
    """A table of kernels with time by the counters; numbers are of all launches of a row."""
    table = texts.assign(launches=times, layer="", phase="", op="")
    has_time = "counter_time_s" in numbers
    table["counter_time_s"] = numbers["counter_time_s"] if has_time else float("nan")
    table["time_s"] = table["counter_time_s"]
    table["time_source"] = "counter" if has_time else ""
    others = [name for name in numbers.columns if name != "counter_time_s"]
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers[others])


def _nothing_usable(
    file: str, read: Read, log: Log, metrics: pd.DataFrame, unsound: Sequence[str]
) -> RidgelineError:
    count = len(read.launches)
    kernels = f"{count:,} kernel{'s' if count > 1 else ''}"
    if unsound:
        problem = f"has {kernels} and nothing that can be used: {unsound[0]}"
        return log.refusal(file, problem, "capture and export it again")
    if len(metrics.columns):
        return log.refusal(file, f"has {kernels} and no values: all are nan or n/a")
    if read.has_rules:
        return log.refusal(
            file,
            f"has {kernels} with a rule and no metric",
            f"export it with --page raw, or capture it again with metrics: {COLLECT}",
        )
    return log.refusal(
        file, f"has {kernels} and no metric that tells FLOPs, bytes or time", COLLECT
    )


def _first(launches: Launches, name: str) -> str | None:
    """What all kernels agree on, or the first of several."""
    return next(iter(launches.about[name]), None)


def _device(launches: Launches, capability: str | None) -> str | None:
    return _first(launches, "device") or (f"CC {capability}" if capability else None)


def _passes(launches: Launches) -> int | None:
    numbers = [re.match(r"\d+", text) for text in launches.about["passes"]]
    return max((int(number[0]) for number in numbers if number), default=None)


def _several(launches: Launches) -> list[str]:
    """Told by their names where these differ, else by their numbers."""
    names = launches.about["device"] or launches.about["compute_capability"]
    return several(list(names if len(names) > 1 else launches.about["device_number"]))


def _endless(kernels: pd.DataFrame) -> list[str]:
    """Columns whose sum is no number."""
    columns = ("time_s", *FLOPS.values(), *BYTES)
    return [
        f"the sum of {name} is too large for a number"
        for name in columns
        if name in kernels and kernels[name].notna().any() and total(kernels, name) is None
    ]


def _gaps(kernels: pd.DataFrame) -> list[str]:
    """Columns that some kernels have no value in."""
    said = []
    for name in kernels.columns:
        if not str(name).startswith(("flops_", "dram_bytes", "l2_", "l1_", "time_s")):
            continue
        missing = int(kernels[name].isna().sum())
        if 0 < missing < len(kernels):
            said.append(f"{name} is not known of {missing:,} of {len(kernels):,} kernels")
    return said


def _unshown(kernels: pd.DataFrame) -> Sequence[str]:
    """Tensor work of types that have no place in the short table and in --json."""
    said = []
    for name in kernels.columns:
        found = re.fullmatch(r"flops_(\w+)_matrix", str(name))
        amount = total(kernels, str(name)) if found and name not in FLOPS.values() else None
        if found and amount:
            said.append(f"tensor {found[1]} work is in the table of kernels only: {amount:.4g}")
    return said
