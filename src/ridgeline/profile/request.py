"""What is to be profiled, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.settings import one_of
from ridgeline.measure.tasks import Task
from ridgeline.profile.metrics import AUTO, CUPTI, LEVELS, NCU, TIERS, TOOLS

if TYPE_CHECKING:
    from ridgeline.store import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model or a program, what to count of its step, and what is known of the device."""

    task: Task | None = None  # a model …
    program: tuple[str, ...] = ()  # … or a program of the user's
    precision_told: str = ""  # of the program, where the user says it
    tier: str = "counters"
    level: str = "dram"
    tool: str = AUTO
    budget_s: float | None = None
    deduplicate: bool = False
    steps: int = 1
    warmup: int = 3
    is_dry: bool = False
    memory_bytes: int = 0  # of one process, where known
    device_bytes: int = 0
    device: str = ""  # its name, for what is remembered of it
    keep: Path | None = None  # where traces and ncu's files stay

    def __post_init__(self) -> None:
        one_of("tier", self.tier, TIERS)
        one_of("level", self.level, LEVELS)
        one_of("tool", self.tool, TOOLS)
        if self.deduplicate and self.tool == CUPTI:
            raise RidgelineError(
                "--deduplicate is for --tool ncu: CUPTI counts every kernel in the same time",
                hint="leave one of them out",
            )

    @property
    def precision(self) -> str:
        return self.task.settings.precision if self.task is not None else self.precision_told

    @property
    def mode(self) -> str:
        return self.task.spec.mode if self.task is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """What was asked, beside the step itself."""
        return {
            "tier": self.tier,
            "level": self.level,
            "tool": self.tool,
            "precision": self.precision or None,
            "budget_s": self.budget_s,
            "deduplicate": self.deduplicate,
            "iters": self.steps,
            "warmup_iters": self.warmup,
        }

    @property
    def counts_inside(self) -> bool:
        """Whether the process of the step is to read the counters itself; a model's can."""
        return self.task is not None and self.tier == "counters" and self.tool != NCU

    @property
    def has_marks(self) -> bool:
        """Whether operators can be numbered: nothing may look into compiled code."""
        return self.task is None or self.task.settings.compile is None


def request_of(run: Run, task: Task, **asked: Any) -> Request:
    """What to profile for a stored run: the same step, on the same device."""
    request = request_for(task, run.provenance.get("host") or {}, **asked)
    memory_bytes = int((run.found.get("memory") or {}).get("reserved_bytes") or 0)
    device = str(run.found.get("device_name") or "")
    return replace(request, memory_bytes=memory_bytes, device=device)


def request_of_program(
    program: Sequence[str], precision: str, host: Mapping[str, Any], **asked: Any
) -> Request:
    """What to profile of a user's program, which may use any device: its name if all have one."""
    names = {str(d.get("name") or "") for d in host.get("devices") or () if d.get("kind") == "cuda"}
    device = names.pop() if len(names) == 1 else ""
    return Request(program=tuple(program), precision_told=precision, device=device, **asked)


def request_for(task: Task, host: Mapping[str, Any], **asked: Any) -> Request:
    """What to profile before there is a run: of the device, what its driver says."""
    chosen = [d for d in host.get("devices") or () if d.get("index") == task.settings.device]
    device: Mapping[str, Any] = chosen[0] if chosen else {}
    return Request(
        task=task,
        device_bytes=int(device.get("memory_bytes") or 0),
        device=str(device.get("name") or ""),
        **asked,
    )
