"""Layer times as a table: what each module is, what it took, and how that adds up."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import stdev
from typing import Any

import pandas as pd
from torch import nn

from ridgeline.measure.layers import LayerTimes

ROOT = "(model)"
CHANNELS = ("in_channels", "out_channels", "groups")
GEOMETRY = ("kernel_size", "stride", "padding")


def layer_table(module: nn.Module, times: LayerTimes) -> pd.DataFrame:
    """A row per module that was called, in their order, then what belongs to none.

    `time_s` is a module's own time, beside its children's: medians of the samples of forward and
    backward. The sum over all rows is the step of this pass. `total_time_s` includes the children.
    `percentage` is `time_s` of the sum of all `time_s`. `mean_s` and `std_s` follow a single
    disturbed sample, so no share is made of them.
    """
    modules = {path or ROOT: part for path, part in module.named_modules()}
    rows = [_row(path, modules[path], times) for path in modules if path in times.seen]
    outside = {owner for owner, _ in times.samples_s if owner not in modules}
    rows += [_row(name, None, times) for name in sorted(outside)]
    table = pd.DataFrame(rows).astype(dict.fromkeys(CHANNELS, "Int64"))
    table["percentage"] = 100 * table["time_s"] / table["time_s"].sum()
    table["total_time_s"] = [_total_s(table, path) for path in table["layer"]]
    return table


def _row(path: str, part: nn.Module | None, times: LayerTimes) -> dict[str, Any]:
    seen = times.seen.get(path)
    forward_s, backward_s = times.time_s(path, "forward"), times.time_s(path, "backward")
    samples = {stage: times.samples_s.get((path, stage), ()) for stage in ("forward", "backward")}
    whole = [sum(taken) for taken in zip(*_of(path, times), strict=False)]
    return {
        "layer": path,
        "kind": type(part).__name__ if part is not None else "",
        "depth": 0 if path == ROOT else path.count(".") + 1,
        "is_leaf": part is not None and next(part.children(), None) is None,
        "calls": seen.calls if seen else 0,
        "input_shape": _text(seen.input_shape) if seen else None,
        "output_shape": _text(seen.output_shape) if seen else None,
        **_geometry(part),
        "parameters": _parameters(part),
        "forward_s": forward_s,
        "backward_s": backward_s,
        "time_s": times.time_s(path),
        "mean_s": sum(map(sum, _of(path, times))) / len(times.steps_s),
        "std_s": stdev(whole) if len(whole) > 1 else 0.0,
        "forward_samples_s": list(samples["forward"]),
        "backward_samples_s": list(samples["backward"]),
    }


def _of(path: str, times: LayerTimes) -> Iterator[tuple[float, ...]]:
    return (taken for (owner, _), taken in times.samples_s.items() if owner == path)


def _parameters(part: nn.Module | None) -> int:
    """Of the module itself. (An empty container is as false as an empty list.)"""
    return 0 if part is None else sum(p.numel() for p in part.parameters(recurse=False))


def _total_s(table: pd.DataFrame, path: str) -> float:
    if path == ROOT:
        own = ~table["layer"].str.startswith("(") | (table["layer"] == ROOT)
    else:
        own = (table["layer"] == path) | table["layer"].str.startswith(path + ".")
    return float(table.loc[own, "time_s"].sum())


def _geometry(part: nn.Module | None) -> dict[str, Any]:
    """What tells one convolution or product from another; None where a layer has no such thing."""
    channels = {
        "in_channels": getattr(part, "in_channels", getattr(part, "in_features", None)),
        "out_channels": getattr(part, "out_channels", getattr(part, "out_features", None)),
        "groups": getattr(part, "groups", None),
    }
    sizes = {name: _text(getattr(part, name, None)) for name in GEOMETRY}
    whole = {name: value if isinstance(value, int) else None for name, value in channels.items()}
    return whole | sizes


def _text(value: Any) -> str | None:
    """`3x3`, `same`, `1`; None for what is no size."""
    if isinstance(value, tuple):
        return "x".join(str(part) for part in value)
    return str(value) if isinstance(value, int | str) else None
