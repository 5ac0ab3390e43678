"""Several files of one capture: metrics that were exported, or collected, in parts.

Files belong together when they tell different things of the same kernels: of the same process and
numbers, or, where the program was run once for each part, of the same kernels in the same order on
the same device. Everything else stays a capture of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.profile.capture import Capture
from ridgeline.profile.quantities import NO_BYTES, NO_FLOPS, NO_TIME

if TYPE_CHECKING:
    import pandas as pd

BETWEEN = " + "  # the names of files that were joined
_SAME = ["id", "kernel", "grid", "block"]
_QUANTITIES = ("flops_", "dram_", "l2_", "l1_")


def join_captures(captures: Sequence[Capture]) -> list[Capture]:
    """The captures, with those that belong together as one, in the place of the first."""
    found: list[Capture] = []
    for capture in captures:
        for number, other in enumerate(found):
            if belong_together(other, capture):
                found[number] = join(other, capture)
                break
        else:
            found.append(capture)
    return found


def belong_together(a: Capture, b: Capture) -> bool:
    """Whether the second tells something else about the kernels of the first."""
    if not a.metrics or not b.metrics or len(a.kernels) != len(b.kernels) or a.file == b.file:
        return False
    if not _different(a, b) or (a.compute_capability or "") != (b.compute_capability or ""):
        return False
    return all(bool((a.kernels[name].array == b.kernels[name].array).all()) for name in _SAME)


def _different(a: Capture, b: Capture) -> bool:
    """No quantity but time is in both, and there is one."""
    told = [set(_quantities(capture.kernels)) for capture in (a, b)]
    return bool(told[0] | told[1]) and not told[0] & told[1]


def _quantities(kernels: pd.DataFrame) -> list[str]:
    return [str(name) for name in kernels.columns if str(name).startswith(_QUANTITIES)]


def join(a: Capture, b: Capture) -> Capture:
    """One capture with the quantities of both; time is the first's, where it has one."""
    kernels = a.kernels.join(b.kernels[_quantities(b.kernels)])
    if a.kernel_time_s is None:
        for name in ("time_s", "counter_time_s", "time_source"):
            kernels[name] = b.kernels[name]
    return replace(
        a,
        file=f"{a.file}{BETWEEN}{b.file}",
        kernels=kernels,
        device=a.device or b.device,
        passes=max((n for n in (a.passes, b.passes) if n is not None), default=None),
        metrics=tuple(dict.fromkeys((*a.metrics, *b.metrics))),
        warnings=_remarks(a, b),
    )


def _remarks(a: Capture, b: Capture) -> tuple[str, ...]:
    """Of both, without what one lacks and the other has."""
    told = {*_quantities(a.kernels), *_quantities(b.kernels)}
    lacking = tuple(
        remark
        for remark, is_there in (
            (NO_TIME, a.kernel_time_s is not None or b.kernel_time_s is not None),
            (NO_FLOPS, any(name.startswith("flops_") for name in told)),
            (NO_BYTES, any(name.endswith("_bytes") for name in told)),
        )
        if is_there
    )
    said = [remark for remark in (*a.warnings, *b.warnings) if not remark.startswith(lacking)]
    processes = [set(c.kernels["process_id"]) for c in (a, b)]
    if processes[0] != processes[1]:
        said.append(
            f"{b.file} is of another run of the same kernels: joined by their order, time from"
            f" {a.file if a.kernel_time_s is not None else b.file}"
        )
    return tuple(dict.fromkeys(said))
