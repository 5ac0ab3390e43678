"""What a profile will do and how long it will take, before it is done.

The costs are those of an H200. Inside of the process (CUPTI 13.0), counters are set up once for all
kernels. By ncu (2025.3) instrumented code is cheap to run and dear to make:
once for every function. The chip's counters are set up anew for every kernel; those of its memory
and of products by whole groups of warps (Hopper's) cost most. A kernel that has to run again also
saves and restores the memory in use. ncu holds a lock from its first kernel until it ends, so
processes count one after the other, their ends included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.profile.metrics import (
    CUPTI,
    NCU,
    TOOL_NAMES,
    counts_warp_groups,
    is_of_tensors,
)
from ridgeline.profile.passes import SASS, Group
from ridgeline.profile.step_mark import ALL, DISTINCT
from ridgeline.profile.traced import TracedSteps
from ridgeline.units import format_time

INSTRUMENTED_S = 0.009  # a kernel in a single pass, with instrumented code …
FUNCTION_S = 0.05  # … which is made for every function
COUNTED_S = 0.009  # a kernel in a single pass, with the chip's counters …
MEMORY_S, TENSORS_S, WARP_GROUPS_S = 0.012, 0.002, 0.019  # … of these kinds, beside one another
AGAIN_S = 0.01  # each further pass, without what follows
RESTORE_S_PER_BYTE = 0.05e-9  # saving and restoring memory, once a kernel
FIRST_S = 1.0  # the first kernel, and the work of known size
END_S = 0.6  # a process that has counted: writing, ending
# what counting each kind of work once costs: measured on a step of ResNet-50 (docs/results)
SHORTCUT = "FLOPs of a measured step were the same so, DRAM bytes within 2.4 %"
INSIDE_S = 2.5  # inside of the process: set up once, for all kernels …
INSIDE_KERNEL_S = 0.0011  # … of which each takes so long in a pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a step will be counted."""

    groups: tuple[Group, ...]
    launches: int  # kernels of the step
    distinct: int  # kernels of operators that differ
    products: int  # of these, kernels of operators that may use tensor cores
    functions: int  # that differ
    memory_bytes: int  # of the step, at its peak
    start_s: float  # until a process is ready to count, under ncu
    is_parallel: bool  # processes get ready side by side and count one after the other
    picks: str  # ALL or DISTINCT
    missing: tuple[str, ...] = ()
    tool: str = NCU
    not_by_cupti: str = ""  # for this reason, where that was tried

    @property
    def passes(self) -> int:
        return sum(group.passes for group in self.groups)

    @property
    def kernels(self) -> int:
        return self.launches if self.picks == ALL else self.distinct

    @property
    def time_s(self) -> float:
        """All that is still to come: the processes that count."""
        if self.tool == CUPTI:  # which is ready by now
            return INSIDE_S + self.passes * self.launches * INSIDE_KERNEL_S
        starts = 0.0 if self.is_parallel else self.start_s * len(self.groups)
        return starts + sum(FIRST_S + self._kernels_s(group) + END_S for group in self.groups)

    def _kernels_s(self, group: Group) -> float:
        if SASS in group.metrics[0]:
            return self.functions * FUNCTION_S + self.kernels * INSTRUMENTED_S
        of_tensors = [name for name in group.metrics if is_of_tensors([name])]
        has_others = len(of_tensors) < len(group.metrics)
        one_s = COUNTED_S + MEMORY_S * has_others + TENSORS_S * bool(of_tensors)
        one_s += WARP_GROUPS_S * any(map(counts_warp_groups, of_tensors))
        if group.passes > 1:
            one_s += AGAIN_S * group.passes + RESTORE_S_PER_BYTE * self.memory_bytes
        is_of_few = self.picks == DISTINCT and not has_others
        return (self.products if is_of_few else self.kernels) * one_s

    def to_dict(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "metrics": [list(group.metrics) for group in self.groups],
            "passes": self.passes,
            "launches": self.launches,
            "distinct_launches": self.distinct,
            "picks": self.picks,
            "planned_s": self.time_s,
            "is_parallel": self.is_parallel,
            "missing": list(self.missing),
            "not_by_cupti": self.not_by_cupti or None,
        }

    def __str__(self) -> str:
        metrics = sum(len(group.metrics) for group in self.groups)
        what = f"{self.launches} kernels" + (
            f", of which {self.distinct} that differ are counted ({SHORTCUT})"
            if self.picks == DISTINCT
            else ""
        )
        groups = f"{len(self.groups)} groups, " if self.tool == NCU else ""
        text = (
            f"{metrics} metrics in {groups}{self.passes} passes, read by {TOOL_NAMES[self.tool]}; "
            f"{what}; about {format_time(self.time_s)}"
        )
        text += f"; not by CUPTI: {self.not_by_cupti}" if self.not_by_cupti else ""
        return text + (f"; not on this chip: {', '.join(self.missing)}" if self.missing else "")


def planned(
    traced: TracedSteps,
    *,
    groups: tuple[Group, ...],
    tool: str,
    picks: str = ALL,
    missing: tuple[str, ...] = (),
    memory_bytes: int = 0,
    start_s: float = 0.0,
    is_parallel: bool = True,
    not_by_cupti: str = "",
) -> Plan:
    """The plan for a traced step."""
    return Plan(
        groups=groups, launches=len(traced.kernels), distinct=traced.distinct,
        products=traced.products, functions=int(traced.kernels["kernel"].nunique()),
        memory_bytes=memory_bytes, start_s=start_s, is_parallel=is_parallel, picks=picks,
        missing=missing, tool=tool, not_by_cupti=not_by_cupti,
    )  # fmt: skip


def fitting(plans: Sequence[Plan], budget_s: float | None) -> Plan:
    """The first plan that fits the budget; they are given from the most exact to the cheapest."""
    if budget_s is None:
        return plans[0]
    for plan in plans:
        if plan.time_s <= budget_s:
            return plan
    least = min(plan.time_s for plan in plans)
    raise RidgelineError(
        f"no way of counting fits {format_time(budget_s)}",
        hint=f"the shortest takes about {format_time(least)}: give --budget "
        f"{int(least) + 1}s or more, or --tier time, which needs no counters",
    )
