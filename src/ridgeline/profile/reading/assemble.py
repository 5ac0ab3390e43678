"""From what was read to a capture: quantities, names of devices, remarks; or a refusal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import BYTES, FLOPS, TEXTS, Capture, in_words, total
from ridgeline.profile.counter_ways import is_of_bytes, is_of_flops, is_of_time
from ridgeline.profile.quantities import NO_BYTES, NO_FLOPS, NO_TIME, UNUSABLE, Quantities, find
from ridgeline.profile.reading.counters import Counters
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.long import UNCOUNTED
from ridgeline.profile.reading.named_metrics import MISFITS
from ridgeline.profile.reading.plausible import excesses
from ridgeline.profile.reading.repeated import once
from ridgeline.profile.reading.soundness import sound
from ridgeline.profile.reading.source import Read
from ridgeline.profile.reading.tensor_names import unseen_tensors
from ridgeline.profile.reading.traces import device_of_all, several
from ridgeline.profile.reading.unitless import SCALED

if TYPE_CHECKING:
    import pandas as pd

GENERAL = {NO_TIME: is_of_time, NO_FLOPS: is_of_flops, NO_BYTES: is_of_bytes}
PARTS = ("dram_read_bytes", "dram_write_bytes")  # of a quantity, none by themselves
COLLECT = (
    "collect gpu__time_duration.sum, dram__bytes_read.sum, dram__bytes_write.sum,"
    " sm__ops_path_tensor_src_* (before compute capability 7.5 sm__inst_executed_pipe_tensor.sum)"
    " and smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum; `ridgeline profile` does"
)


def counted(file: str, kind: str, read: Read, log: Log) -> Counters:
    """What Nsight Compute counted, each kernel once."""
    launches = read.launches
    if not len(launches):
        uncounted = [remark for remark in read.remarks if remark.startswith(UNCOUNTED)]
        if uncounted:
            hint = "export it again; the column Invocations has the numbers"
            raise log.refusal(file, f"has no kernel to count: {uncounted[0]}", hint)
        raise log.refusal(file, "holds no kernels")
    texts, told = launches.frames()
    metrics, unsound = sound(told)
    wrong = [str(name) for name in told.columns if told[name].count() > metrics[name].count()]
    texts, metrics, repeated = once(texts, metrics)
    return Counters(
        file=file,
        kind=kind,
        texts=texts.reset_index(drop=True),
        metrics=metrics.reset_index(drop=True),
        times=launches.times_of(texts.index),
        about=launches.about,
        has_rules=read.has_rules,
        remarks=(*read.remarks, *unsound, *repeated),
        unsound=tuple(unsound),
        left_out=(*launches.left_out, *wrong),
        logs=(log,),
    )


def from_counters(counters: Counters) -> Capture:
    """A capture of Nsight Compute."""
    import numpy as np

    times = counters.times
    with np.errstate(over="ignore"):  # which is said below
        found = find(counters.metrics, compute_capability=counters.capabilities)
        numbers, too_large = sound(
            found.table.mul(times, axis=0) if max(times) > 1 else found.table
        )
    if not any(numbers[name].notna().any() for name in numbers.columns if name not in PARTS):
        raise _nothing_usable(counters, too_large or _unmade(counters.metrics, found))
    kernels = with_all_columns(counters.texts, numbers, times)
    beyond = excesses(kernels)
    for excess in beyond:
        if excess.is_of_all and excess.is_known:
            problem = f"cannot be right: {excess}"
            raise counters.logs[0].refusal(
                counters.file, problem, "export it again with --print-units base"
            )
    is_cut = any(log.is_cut or log.is_bare for log in counters.logs)
    said = (
        *counters.remarks, *_made(found, counters), *too_large, *_endless(kernels),
        *_several(counters.about), *_gaps(kernels[:-1] if is_cut else kernels), *_unshown(kernels),
        *unseen_tensors(kernels, counters), *map(str, beyond),
        *(remark for log in counters.logs for remark in log.remarks()),
    )  # fmt: skip
    return Capture(
        file=counters.file,
        kind=counters.kind,
        kernels=kernels,
        device=device_of_all(counters.about["device"], counters.about["compute_capability"]),
        compute_capability=None if counters.is_of_several_chips else counters.capability,
        passes=_passes(counters.about),
        metrics=found.metrics,
        warnings=tuple(dict.fromkeys(said)),
    )


def with_all_columns(
    texts: pd.DataFrame, numbers: pd.DataFrame, times: Sequence[int]
) -> pd.DataFrame:
    """A table of kernels with time by the counters; numbers are of all launches of a row."""
    table = texts.assign(launches=times, layer="", phase="", op="", device=_devices(texts))
    has_time = "counter_time_s" in numbers
    table["counter_time_s"] = numbers["counter_time_s"] if has_time else float("nan")
    table["time_s"] = table["counter_time_s"]
    table["time_source"] = "counter" if has_time else ""
    others = [name for name in numbers.columns if name != "counter_time_s"]
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers[others])


def _nothing_usable(counters: Counters, unmade: Sequence[str]) -> RidgelineError:
    file, log, count = counters.file, counters.logs[0], len(counters.texts)
    kernels = f"{count:,} kernel{'s' if count > 1 else ''}"
    misfits = [remark for remark in counters.remarks if remark.startswith((MISFITS, SCALED))]
    for reasons, hint in (
        (counters.unsound, "capture and export it again"),
        (misfits, "export it again with --print-units base"),
        (unmade, COLLECT),
    ):
        if reasons:
            problem = f"has {kernels} and nothing that can be used: {'; '.join(reasons)}"
            return log.refusal(file, problem, hint)
    if len(counters.metrics.columns):
        return log.refusal(file, f"has {kernels} and no values: none is a number")
    if counters.has_rules:
        return log.refusal(
            file,
            f"has {kernels} with a rule and no metric",
            f"export it with --page raw, or capture it again with metrics: {COLLECT}",
        )
    return log.refusal(
        file, f"has {kernels} and no metric that tells FLOPs, bytes or time", COLLECT
    )


def _made(found: Quantities, counters: Counters) -> list[str]:
    """How quantities were made; what was left out for its values or units, was collected."""
    general = {
        f"{what}:": f"{what}: {UNUSABLE}"
        for what, is_of in GENERAL.items()
        if any(map(is_of, counters.left_out))
    }
    return [
        next((said for start, said in general.items() if remark.startswith(start)), remark)
        for remark in found.remarks
    ]


def _unmade(metrics: pd.DataFrame, found: Quantities) -> list[str]:
    """Why metrics that have values make no quantity."""
    there = [str(name) for name in metrics.columns[metrics.notna().any()]]
    said = [remark for remark in found.remarks if not remark.startswith(tuple(GENERAL))]
    said += [f"{name} without time or cycles" for name in there if ".per_" in name]
    return (said or [f"{name} alone tells nothing" for name in there]) if there else []


def _devices(texts: pd.DataFrame) -> pd.Series[str]:
    """Of each kernel its name, or the compute capability where only that is told."""
    named = texts["device"]
    is_named = named.ne("")
    if is_named.all():
        return named
    versions = texts["compute_capability"]
    shown = {text: f"CC {text}" if text else "" for text in versions.unique()}
    return named.where(is_named, versions.map(shown))


def _passes(about: Mapping[str, Collection[str]]) -> int | None:
    numbers = [re.match(r"\d+", text) for text in about["passes"]]
    return max((int(number[0]) for number in numbers if number), default=None)


def _several(about: Mapping[str, Collection[str]]) -> list[str]:
    """Told by their names where these differ, else by their chips, else by their numbers."""
    names, versions = about["device"], about["compute_capability"]
    if len(names) < 2 and len(versions) > 1:
        return several(list(versions), "compute capability ")
    return several(list(names if len(names) > 1 else about["device_number"]))


def _endless(kernels: pd.DataFrame) -> list[str]:
    """Columns whose sum is no number."""
    columns = ("time_s", *FLOPS.values(), *BYTES)
    return [
        f"the sum of {in_words(name)} is too large for a number"
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
            what = in_words(str(name))
            verb = "is" if name == "time_s" else "are"
            said.append(f"{what} {verb} not known of {missing:,} of {len(kernels):,} kernels")
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
