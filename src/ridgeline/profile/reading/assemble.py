"""From what was read to a capture: quantities, names of devices, remarks; or a refusal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import FLOPS, TEXTS, Capture
from ridgeline.profile.quantities import find
from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.source import Read

if TYPE_CHECKING:
    import pandas as pd

COLLECT = (
    "collect gpu__time_duration.sum, dram__bytes_read.sum, dram__bytes_write.sum,"
    " sm__ops_path_tensor_src_* and"
    " smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum; `ridgeline profile` does"
)


def from_counters(file: str, kind: str, read: Read, log: Log) -> Capture:
    """A capture of Nsight Compute."""
    launches = read.launches
    if not len(launches):
        raise log.refusal(file, "holds no kernels")
    texts, metrics = launches.frames()
    capability = _only(launches, "compute_capability")
    found = find(metrics, compute_capability=capability)
    if not found.metrics:
        raise _nothing_usable(file, read, log, metrics)
    kernels = with_all_columns(texts, found.table, launches.times)
    return Capture(
        file=file,
        kind=kind,
        kernels=kernels,
        device=_device(launches, capability),
        compute_capability=capability,
        passes=_passes(launches),
        metrics=found.metrics,
        warnings=(
            *read.remarks, *found.remarks, *_several(launches), *_gaps(kernels), *_unshown(kernels),
            *log.remarks(),
        ),
    )  # fmt: skip


def with_all_columns(
    texts: pd.DataFrame, numbers: pd.DataFrame, times: Sequence[int]
) -> pd.DataFrame:
    """A table of kernels with time by the counters; numbers are of one launch each."""
    table = texts.assign(launches=times, layer="", phase="", op="")
    if max(times) > 1:
        numbers = numbers.mul(table["launches"], axis=0)
    has_time = "counter_time_s" in numbers
    table["counter_time_s"] = numbers["counter_time_s"] if has_time else float("nan")
    table["time_s"] = table["counter_time_s"]
    table["time_source"] = "counter" if has_time else ""
    others = [name for name in numbers.columns if name != "counter_time_s"]
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers[others])


def _nothing_usable(file: str, read: Read, log: Log, metrics: pd.DataFrame) -> RidgelineError:
    count = len(read.launches)
    kernels = f"{count:,} kernel{'s' if count > 1 else ''}"
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


def _only(launches: Launches, name: str) -> str | None:
    """What all kernels agree on, or the first of several."""
    return next(iter(launches.about[name]), None)


def _device(launches: Launches, capability: str | None) -> str | None:
    return _only(launches, "device") or (f"CC {capability}" if capability else None)


def _passes(launches: Launches) -> int | None:
    numbers = [re.match(r"\d+", text) for text in launches.about["passes"]]
    return max((int(number[0]) for number in numbers if number), default=None)


def _several(launches: Launches) -> list[str]:
    devices = launches.about["device"] or launches.about["compute_capability"]
    if len(devices) < 2:
        return []
    return [f"kernels of several devices are added up: {', '.join(devices)}"]


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
        if found and name not in FLOPS.values() and kernels[name].sum() > 0:
            said.append(
                f"tensor {found[1]} work is in the table of kernels only: {kernels[name].sum():.4g}"
            )
    return said
