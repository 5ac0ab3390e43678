"""The records of one profile: what is requested, what is planned, and the profiled step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.measure.worker import Task
from ridgeline.profile.metrics import AUTO, LEVELS, NCU, TIERS, TOOL_NAMES, TOOLS
from ridgeline.records import Device, Host, ProfileOptions
from ridgeline.settings import one_of
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.store import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model or a program, what to count of its step, and what is known of the device."""

    task: Task | None = None  # a model …
    program: tuple[str, ...] = ()  # … or a program of the user's
    program_precision: str = ""  # where the user names it
    tier: str = "counters"
    level: str = "dram"
    tool: str = AUTO
    steps: int = 1
    warmup: int = 3
    is_dry: bool = False
    memory_bytes: int = 0  # of one process, where known
    device_bytes: int = 0
    device: str = ""  # its name
    keep: Path | None = None  # where traces and ncu's files stay

    def __post_init__(self) -> None:
        one_of("tier", self.tier, TIERS)
        one_of("level", self.level, LEVELS)
        one_of("tool", self.tool, TOOLS)

    @property
    def precision(self) -> str:
        return self.task.settings.precision if self.task is not None else self.program_precision

    @property
    def mode(self) -> str:
        return self.task.spec.mode if self.task is not None else ""

    @property
    def options(self) -> ProfileOptions:
        """What is stored of it, beside the step itself."""
        return ProfileOptions(
            tier=self.tier, level=self.level, tool=self.tool, precision=self.precision or None,
            iters=self.steps, warmup_iters=self.warmup,
        )  # fmt: skip

    @property
    def uses_cupti(self) -> bool:
        """Whether the process of the step reads the counters itself, as that of a model can."""
        return self.task is not None and self.tier == "counters" and self.tool != NCU

    @property
    def has_marks(self) -> bool:
        """Whether operators can be numbered: nothing may look into compiled code."""
        return self.task is None or self.task.settings.compile is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a step will be counted, and how long that takes."""

    tool: str
    groups: tuple[tuple[str, ...], ...]  # metrics; by Nsight Compute a process counts each group
    passes: int  # of CUPTI, over the whole step; by Nsight Compute at least one for each group
    launches: int  # kernels of the step
    time_s: float  # all that is still to come
    is_parallel: bool  # processes warm up side by side
    missing: tuple[str, ...] = ()  # quantities that this chip has no counters for
    not_by_cupti: str = ""  # for this reason, where that was tried

    def to_dict(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "metrics": [list(group) for group in self.groups],
            "passes": self.passes,
            "launches": self.launches,
            "planned_s": self.time_s,
            "is_parallel": self.is_parallel,
            "missing": list(self.missing),
            "not_by_cupti": self.not_by_cupti or None,
        }

    def __str__(self) -> str:
        metrics = sum(map(len, self.groups))
        parts = f"{len(self.groups)} groups" if self.tool == NCU else f"{self.passes} passes"
        text = (
            f"{metrics} metrics in {parts}, read by {TOOL_NAMES[self.tool]}; "
            f"{self.launches} kernels; about {format_time(self.time_s)}"
        )
        text += f"; not by CUPTI: {self.not_by_cupti}" if self.not_by_cupti else ""
        return text + (f"; not on this chip: {', '.join(self.missing)}" if self.missing else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """The kernels of a step with their counters, and what it took to get them."""

    kernels: pd.DataFrame
    steps: int = 1  # that they are the kernels of
    plan: Plan | None  # None: no counters, or a program without marks
    taken_s: float = 0.0  # all of it, getting ready included
    standby_s: float = 0.0  # before that: its processes loaded, and the run was measured
    counted_s: float = 0.0  # of it, the counting: what plan.time_s estimates
    step_time_s: float | None = None  # of unprofiled marked steps
    busy_s: float | None = None  # of all steps, in which at least one kernel or copy ran
    copies: pd.DataFrame | None = None  # of all steps; None: there was no trace
    ratios: Mapping[str, float] = field(default_factory=dict)  # of the self-test
    tool: str = ""  # that read the counters
    tool_version: str = ""
    warnings: tuple[str, ...] = ()


def request_for_run(run: MeasuredRun, task: Task, **options: Any) -> Request:
    """What to profile for a stored run: the same step, on the same device."""
    request = request_for_task(task, run.made.host, **options)
    memory_bytes = run.result.memory.reserved_bytes or 0
    return replace(request, memory_bytes=memory_bytes, device=run.result.device_name)


def request_for_task(task: Task, host: Host, **options: Any) -> Request:
    """What to profile before there is a run: of the device, what its driver says."""
    devices = (device for device in host.devices if device.index == task.settings.device)
    device = next(devices, Device())
    return Request(
        task=task, device_bytes=device.memory_bytes or 0, device=device.name, **options
    )  # fmt: skip


def request_for_program(
    program: Sequence[str], precision: str, host: Host, **options: Any
) -> Request:
    """What to profile of a user's program, which may use any device: its name if all have one."""
    names = {device.name for device in host.devices if device.kind == "cuda"}
    device = names.pop() if len(names) == 1 else ""
    return Request(program=tuple(program), program_precision=precision, device=device, **options)
