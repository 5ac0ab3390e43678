"""The records of one profile: what is requested, which metrics are counted, and what is planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import (
    TENSOR_PREFIX,
    TensorCounter,
    parse_tensor_counter,
    remove_overlaps,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import Device, Host, ProfileOptions
from ridgeline.settings import one_of
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.measure.worker import Task
    from ridgeline.store import MeasuredRun

TIERS = ("counters", "time")
LEVELS = ("dram", "hierarchical")
AUTO, CUPTI, NCU = "auto", "cupti", "ncu"
TOOLS = (AUTO, CUPTI, NCU)  # that read the counters
TOOL_NAMES = {CUPTI: "CUPTI", NCU: "Nsight Compute"}
DURATION = "gpu__time_duration.sum"
DRAM = (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes.sum",))  # what a chip has
CACHES = {"lts__t_bytes.sum": "L2 bytes", "l1tex__t_bytes.sum": "L1 bytes"}
SASS = "__sass_"  # counted by instrumented code, never beside the chip's own counters
VECTOR = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
KINDS = {  # what tensor cores take in, by the precision of the step
    "fp32": ("tf32",),  # none is expected; a kernel that uses them all the same must be seen
    "tf32": ("tf32",),
    "amp": ("fp16",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
    "": ("fp16", "bf16", "tf32", "fp8"),  # a program of which nothing is known
}

# ---------------------------------------------------------------- requests


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
    metrics: tuple[str, ...] = ()  # that the user names, in addition

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
            iters=self.steps, warmup_iters=self.warmup, metrics=self.metrics,
        )  # fmt: skip

    @property
    def uses_cupti(self) -> bool:
        """Whether the process of the step reads the counters itself, as that of a model can."""
        return self.task is not None and self.tier == "counters" and self.tool != NCU

    @property
    def has_marks(self) -> bool:
        """Whether operators can be numbered: nothing may look into compiled code."""
        return self.task is None or self.task.settings.compile is None


def request_for_run(run: MeasuredRun, task: Task, **options: Any) -> Request:
    """What to profile for a stored run: the same step, on the same device."""
    devices = run.made.host.devices
    device = next((one for one in devices if one.index == task.settings.device), Device())
    return Request(
        task=task,
        memory_bytes=run.result.memory.reserved_bytes or 0,
        device_bytes=device.memory_bytes or 0,
        device=run.result.device_name,
        **options,
    )


def request_for_program(
    program: Sequence[str], precision: str, host: Host, **options: Any
) -> Request:
    """What to profile of a user's program, which may use any device: its name if all have one."""
    names = {device.name for device in host.devices if device.kind == "cuda"}
    device = names.pop() if len(names) == 1 else ""
    return Request(program=tuple(program), program_precision=precision, device=device, **options)


# ---------------------------------------------------------------- what comes of them


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
    plan: Plan | None  # None: no counters
    taken_s: float = 0.0  # all of it, getting ready included
    counted_s: float = 0.0  # of it, the counting: what plan.time_s estimates
    step_time_s: float | None = None  # of unprofiled marked steps
    busy_s: float | None = None  # of all steps, in which at least one kernel or copy ran
    copies: pd.DataFrame | None = None  # of all steps; None: there was no trace
    ratios: Mapping[str, float] = field(default_factory=dict)  # of the self-test
    tool: str = ""  # that read the counters
    tool_version: str = ""
    warnings: tuple[str, ...] = ()


# ---------------------------------------------------------------- the metrics of a chip


@dataclass(frozen=True, slots=True)
class ChosenMetrics:
    """The metrics of a step, and what is left out because the chip does not have it."""

    metrics: tuple[str, ...]
    missing: tuple[str, ...] = ()
    named: tuple[str, ...] = ()  # of the metrics, those that the user names
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what a total consists of

    def ncu_groups(self) -> tuple[tuple[str, ...], ...]:
        """The metrics as Nsight Compute counts them, a process for each group.

        Instrumented instructions stand alone. Memory and time go with two counters of tensor
        cores, and further pairs of these follow. A total of several instructions is counted by its
        parts: on an H200 it takes three passes, and each of these groups takes one.
        """
        chosen = [name for name in self.metrics if name not in self.named]
        instructions = [name for name in chosen if SASS in name]
        tensors = [
            part
            for name in chosen
            if is_of_tensors([name])
            for part in self.parts.get(name, (name,))
        ]
        others = [name for name in chosen if SASS not in name and not is_of_tensors([name])]
        pairs = [tensors[start : start + 2] for start in range(0, len(tensors), 2)] or [[]]
        time = [DURATION] if self.named else []  # a table needs one metric that is known
        groups = (instructions, others + pairs[0], *pairs[1:], [*self.named, *time])
        return tuple(tuple(group) for group in groups if group)


def read_metric_names(path: Path) -> tuple[str, ...]:
    """The metrics in a file: names between spaces, commas or lines; # begins a comment."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RidgelineError(f"{path} cannot be read: {error}", hint="name a text file") from error
    words = re.split(r"[\s,]+", re.sub(r"#.*", "", text))
    names = [word if "." in word else f"{word}.sum" for word in words if word]
    wrong = [name for name in names if not re.fullmatch(r"[a-z][a-z0-9]*__\w+(\.\w+)+", name)]
    if wrong or not names:
        what = f"{wrong[0]!r} is no metric of Nsight Compute" if wrong else "it names no metric"
        raise RidgelineError(
            f"{path}: {what}",
            hint="names look like smsp__inst_executed.sum: `ncu --query-metrics` lists them;"
            " those of nvprof, such as flop_count_sp, are others",
        )
    return tuple(dict.fromkeys(names))


def choose_metrics(
    known: Iterable[str], precision: str, level: str = "dram", named: Sequence[str] = ()
) -> ChosenMetrics:
    """The metrics of a step; `known` are those of the chip, without endings.

    `named` are further ones that the user names.
    """
    known = frozenset(known)
    sums = frozenset(f"{name}.sum" for name in known)
    missing: list[str] = []
    traffic = next((names for names in DRAM if sums.issuperset(names)), ())
    if not traffic:
        missing.append("DRAM bytes")
    metrics = [*_vector(sums), *traffic, *([DURATION] if DURATION in sums else ())]
    counters = [counter for counter in map(parse_tensor_counter, sums) if counter is not None]
    parts: dict[str, tuple[str, ...]] = {}
    for kind in KINDS[precision]:
        chosen = remove_overlaps([one for one in counters if kind in one.src.split("_")])
        metrics += sorted(one.name for one in chosen)
        totals = [one for one in chosen if not one.op]
        divided = {c.name: tensor_parts(counters, c.src, c.dst, c.sparsity) for c in totals}
        parts |= {name: members for name, members in divided.items() if len(members) > 1}
        if not chosen and precision:
            missing.append(f"tensor-core work in {kind}")
    if level == "hierarchical":
        metrics += [name for name in CACHES if name in sums]
        missing += [what for name, what in CACHES.items() if name not in sums]
    here = [name for name in named if name.partition(".")[0] in known and name not in metrics]
    missing += [name for name in named if name.partition(".")[0] not in known]
    once = dict.fromkeys([*metrics, *here])  # one counter may serve several kinds
    return ChosenMetrics(tuple(once), tuple(missing), tuple(here), parts)


def _vector(known: frozenset[str]) -> tuple[str, ...]:
    """Additions, products and both in one, of each width; packed ones where a chip has them."""
    operations = [f"{letter}{name}" for letter in "fdh" for name in ("add", "mul", "fma")]
    operations += ["fadd2", "fmul2", "ffma2"]
    return tuple(name for one in operations if (name := VECTOR.format(one)) in known)


def is_of_tensors(metrics: Sequence[str]) -> bool:
    """Whether nothing but tensor-core work is counted."""
    return all(name.startswith(TENSOR_PREFIX) for name in metrics)


def tensor_parts(
    known: Iterable[TensorCounter], src: str, dst: str = "", sparsity: str = ""
) -> tuple[str, ...]:
    """What such work consists of, by instruction; none contains another."""
    found = [
        c for c in known
        if c.op and c.src == src and dst in ("", c.dst) and c.sparsity == sparsity
    ]  # fmt: skip
    divided = {c.op for c in found if c.dst}  # the results of which are told apart
    return tuple(sorted(c.name for c in found if c.dst or c.op not in divided))
