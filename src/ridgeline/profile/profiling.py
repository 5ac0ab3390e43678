"""A step under the profilers: planned, traced, counted, joined and checked.

The order: one step traced by torch's profiler (kernels, their times, their operators), then the
plan, then the same step in a process that reads the counters (counting.py), or in one for
every group of counters (also there), then all of it joined. Time is never taken from a process
that counts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import PROGRAM, sums
from ridgeline.errors import RidgelineError
from ridgeline.machine.system import has_cupti
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.worker import Task, run_request
from ridgeline.profile.counting import (
    CuptiCapture,
    NcuCapture,
    check_fallback,
    find_ncu,
)
from ridgeline.profile.cupti import RefusedError
from ridgeline.profile.processes import (
    OnProgress,
    Session,
    Workspace,
    all_ended,
    wait_until,
)
from ridgeline.profile.profile_step import TRACE
from ridgeline.profile.request import CUPTI, NCU, Plan, ProfiledStep, Request, request_for_run
from ridgeline.profile.step_kernels import (
    AMOUNTS,
    TracedSteps,
    add_layers,
    check_counters,
    check_phases,
    compute_ratios,
    doubt_ratios,
    is_known_work,
    join_counters,
    read_traced_steps,
    sum_copies,
)
from ridgeline.provenance import collect
from ridgeline.records import (
    CaptureRequest,
    CopyTotals,
    Failure,
    ProfileCost,
    ProfileRequest,
    ProfileSummary,
    SelfTest,
)
from ridgeline.signals import interrupts_later
from ridgeline.store import MeasuredRun, ResultsFolder, Run, writing
from ridgeline.tracing import GRADIENTS, LOSS, OPTIMIZER
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

ShowPlan = Callable[[Plan], None]


def need_cuda(kind: str) -> None:
    """Counters are those of NVIDIA's GPUs."""
    if kind != "cuda":
        raise RidgelineError(
            f"there is nothing to profile on {kind}: counters and kernels are those of an NVIDIA "
            "GPU",
            hint="`ridgeline run --layers` gives the time of each layer on any device; captures "
            "from elsewhere are read by `ridgeline import`",
        )


def need_counters(tool: str) -> None:
    """What reads them must be there: PyTorch's CUPTI, or Nsight Compute."""
    if tool != CUPTI:
        try:
            find_ncu()
        except RidgelineError:
            if tool == NCU or not run_isolated(cupti_here, None).value():
                raise
    elif not run_isolated(cupti_here, None).value():
        raise RidgelineError(
            "this PyTorch has no CUPTI that can count",
            hint="install a PyTorch for CUDA 12.8 or later, or count by --tool ncu",
        )


def cupti_here(_: object, send: object) -> bool:
    """Whether the PyTorch of this process has a CUPTI that can count."""
    import torch  # noqa: F401  which loads it

    return has_cupti()


def profile(
    request: Request,
    on_progress: OnProgress = lambda what: None,
    show_plan: ShowPlan = lambda plan: None,
) -> ProfiledStep:
    """Profile a step. A dry request ends with the plan and the kernels of the trace."""
    from_s = time.monotonic()
    with _open_workspace(request, on_progress) as workspace:
        profiled = _Profile(workspace)
        profiled.start()
        return replace(profiled.run(show_plan), taken_s=time.monotonic() - from_s)


@contextmanager
def _open_workspace(request: Request, on_progress: OnProgress) -> Iterator[Workspace]:
    """A folder for the processes of a profile; none of them outlives the block."""
    with ExitStack() as stack:
        if request.keep is not None:  # files of two profiles would be taken for one another's
            with writing(request.keep, elsewhere="--keep DIR"):
                request.keep.mkdir(parents=True, exist_ok=True)
                folder = tempfile.mkdtemp(prefix="profile-", dir=request.keep)
        else:
            usual = Path(os.environ.get("TMPDIR") or "/tmp")
            with writing(usual, elsewhere="TMPDIR=DIR in the environment"):
                own = tempfile.TemporaryDirectory(prefix="ridgeline-", ignore_cleanup_errors=True)
                folder = stack.enter_context(own)
        workspace = Workspace(request, Path(folder), on_progress)
        stack.enter_context(all_ended(workspace.sessions))
        yield workspace


@dataclass(slots=True)
class _Profile:
    """One profile: who traces, and who counts."""

    workspace: Workspace
    capture: CuptiCapture | NcuCapture | None = None  # None: without counters
    tracing: Session | None = None

    @property
    def request(self) -> Request:
        return self.workspace.request

    def start(self) -> None:
        """A model's processes start to load, and leave the device alone."""
        request = self.request
        if request.tier == "counters" and not request.uses_cupti:
            self.capture = NcuCapture.choose(self.workspace)
        if request.task is None:
            return
        self.tracing = self.workspace.start("trace", TRACE)
        if request.uses_cupti:
            self.capture = CuptiCapture.load(self.workspace)
        elif isinstance(self.capture, NcuCapture) and not request.is_dry:
            self.capture.load()
        import pandas  # noqa: F401  while they load

    def run(self, show_plan: ShowPlan) -> ProfiledStep:
        """The step, traced and counted."""
        return replace(
            self._trace_and_count(show_plan),
            warnings=tuple(self.workspace.warnings),
            tool=self.capture.tool if self.capture is not None else "",
            tool_version=self.capture.version if self.capture is not None else "",
        )

    def _trace_and_count(self, show_plan: ShowPlan) -> ProfiledStep:
        from_s = time.monotonic()
        self.workspace.on_progress("getting ready")
        session = self.tracing or self.workspace.start("trace", TRACE)
        traced = self._trace(session)
        step = ProfiledStep(
            kernels=join_counters(traced.kernels, [], traced.calls),
            steps=self.request.steps,
            plan=None,
            step_time_s=traced.step_time_s,
            busy_s=traced.busy_s,
            copies=add_layers(traced.copies, traced.calls),
        )
        try:
            step = self._add_counters(step, traced, show_plan, time.monotonic() - from_s)
        except RefusedError as refused:  # ncu's processes have to load and warm up first
            from_s = time.monotonic()
            self.capture = self._switch_to_ncu(str(refused))
            self.capture.begin()
            self.capture.wait_ready()
            step = self._add_counters(step, traced, show_plan, time.monotonic() - from_s)
        session.wait()
        check_phases(step.kernels, self.request.mode, is_marked=bool(traced.calls))
        return step

    def _trace(self, session: Session) -> TracedSteps:
        """The step as torch's profiler saw it; what gets ready beside it is so by then."""
        session.begin()
        if self.capture is not None:
            self.capture.begin()
            self.capture.wait_ready()
        wait_until("ready", [session])
        self.workspace.on_progress("tracing")
        session.go()
        session.wait_done()
        if self.capture is not None and not self.capture.is_parallel:
            session.wait()  # and frees its memory
        return read_traced_steps(session.job)

    def _add_counters(
        self, step: ProfiledStep, traced: TracedSteps, show_plan: ShowPlan, ready_s: float
    ) -> ProfiledStep:
        """With counters, unless none were requested, or only the plan."""
        if self.capture is None:
            return step
        plan = self.capture.plan(traced, ready_s)
        show_plan(plan)
        if self.request.is_dry:
            return replace(step, plan=plan)
        from_s = time.monotonic()
        captures = self.capture.count(plan, traced)
        counted_s = time.monotonic() - from_s
        ratios = compute_ratios(captures)
        steps = [table[~is_known_work(table)].reset_index(drop=True) for table in captures]
        kernels = join_counters(traced.kernels, steps, traced.calls)
        self.workspace.warnings += [*doubt_ratios(ratios), *check_counters(kernels)]
        return replace(step, plan=plan, counted_s=counted_s, kernels=kernels, ratios=ratios)

    def _switch_to_ncu(self, why: str) -> NcuCapture:
        """Nsight Compute, for what the process cannot count itself."""
        assert isinstance(self.capture, CuptiCapture)
        check_fallback(self.request.tool, why)
        self.capture.session.end()
        try:
            capture = NcuCapture.choose(self.workspace)
        except RidgelineError as error:
            problem = f"{error.problem}; CUPTI cannot count either: {why}"
            raise RidgelineError(problem, hint=error.hint) from error
        capture.not_by_cupti = why
        self.workspace.warnings.append(f"Nsight Compute counted, and not CUPTI: {why}")
        if not self.request.is_dry:
            capture.load()
        return capture


# ---------------------------------------------------------------- in a results folder

OnStored = Callable[[Run], None]  # is called with what is stored, at once
NAMED_SUM = ".sum"  # of a metric that the user named
_NO_MODULES = (LOSS, GRADIENTS, OPTIMIZER)  # parts of a step that stand where a layer would


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """A counted step."""

    run_id: str
    of_run: str  # the unprofiled run of the same step
    summary: ProfileSummary
    kernels: pd.DataFrame
    problems: tuple[str, ...] = ()  # with counting what the model must do

    @property
    def totals(self) -> Mapping[str, float | None]:
        """Executed FLOPs by kind and bytes by level; None where it was not counted."""
        return self.summary.totals

    def __str__(self) -> str:
        launches = self.summary.launches or 0.0
        kernel_s, step_s = self.summary.kernel_time_s or 0.0, self.summary.step_time_s or 0.0
        return (
            f"{launches:.0f} kernels, {format_time(kernel_s)} in a step of "
            f"{format_time(step_s)}; {self.run_id}"
        )


def profile_run(
    results: ResultsFolder,
    run: MeasuredRun,
    task: Task,
    options: Mapping[str, Any],
    *,
    label: str = "",
    on_progress: OnProgress = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    on_stored: OnStored = lambda run: None,
) -> Run | None:
    """Profile the step of a run and store what came of it or why nothing did; a dry one nothing."""
    stored_request = _profile_request(run, task, options, label)
    name = f"{task.spec.model.rpartition('/')[2]}-bs{task.spec.batch_size}"
    try:
        request = request_for_run(run, task, **options)
        profiled = profile(request, on_progress, show_plan)
    except RidgelineError as error:
        if not options.get("is_dry"):
            failure = Failure(
                reason=error.problem, hint=error.hint, device_name=run.result.device_name,
                backend="cuda",
            )  # fmt: skip
            _store(results, name, stored_request, failure, {}, on_stored)
        raise
    if request.is_dry:
        return None
    summary = summarise(request, profiled, run)
    return _store(results, name, stored_request, summary, tables_of(profiled), on_stored)


def profile_program(
    results: ResultsFolder,
    request: Request,
    *,
    label: str = "",
    on_progress: OnProgress = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    on_stored: OnStored = lambda run: None,
) -> Run | None:
    """Profile a program of the user's and store it as a capture; a dry request stores nothing."""
    profiled = profile(request, on_progress, show_plan)
    if request.is_dry:
        return None
    stored_request = CaptureRequest(
        command="profile", program=request.program, label=label, profile=request.options
    )  # fmt: skip
    summary = summarise(request, profiled, None)
    name, tables = script_name(request.program), tables_of(profiled)
    return _store(results, name, stored_request, summary, tables, on_stored)


def script_name(program: Sequence[str]) -> str:
    """What a user would call it: `train.py` of `python -u train.py --lr 0.1`."""
    scripts = [Path(part).name for part in program if part.endswith((".py", ".sh"))]
    return scripts[0] if scripts else Path(program[0]).name


def _profile_request(
    run: MeasuredRun, task: Task, options: Mapping[str, Any], label: str
) -> ProfileRequest:
    """The request of a run, which run it was, and how its step is counted."""
    step = vars(run_request(task, label=label)) | {"command": "profile"}
    counted = Request(task=task, **options).options
    return ProfileRequest(**step, of_run=run.run_id, profile=counted)


def _store(
    results: ResultsFolder,
    name: str,
    request: ProfileRequest | CaptureRequest,
    result: ProfileSummary | Failure,
    tables: Mapping[str, pd.DataFrame],
    on_stored: OnStored,
) -> Run:
    with interrupts_later():  # what is stored is also reported
        run_id = results.save_run(f"profile-{name}", request, result, collect(), tables=tables)
        run = results.read_run(run_id)
        on_stored(run)
    return run


def summarise(request: Request, profiled: ProfiledStep, run: MeasuredRun | None) -> ProfileSummary:
    """What came out, without the kernels themselves. `run` is the unprofiled one of the step."""
    tables = tables_of(profiled)
    kernels, copies = tables["kernels"], tables.get("copies")
    time_s = float(kernels["time_s"].sum())
    busy_s = None if profiled.busy_s is None else profiled.busy_s / profiled.steps
    # without a run, of the marked steps before the one that was traced
    step_s = profiled.step_time_s if run is None else run.result.step_time_s.median
    layer = kernels["layer"]
    return ProfileSummary(
        status="ok",
        provenance="counter" if request.tier == "counters" else "measured",
        device_name=request.device or None if run is None else run.result.device_name,
        backend="cuda",
        precision=None if run is None else run.result.precision,
        kind=PROGRAM if request.task is None else None,
        tier=request.tier,
        level=request.level,
        tool=profiled.tool or None,
        tool_version=profiled.tool_version or None,
        iters=profiled.steps,
        kernel_time_s=time_s,
        step_time_s=step_s,
        busy_time_s=busy_s,
        gap_s=None if step_s is None else max(step_s - (time_s if busy_s is None else busy_s), 0.0),
        launches=float(kernels["launches"].sum()),
        copies=None
        if copies is None
        else CopyTotals(**{name: float(copies[name].sum()) for name in AMOUNTS}),
        attributed_share=_time_share(kernels, kernels["phase"].ne("")),
        layer_share=_time_share(kernels, layer.ne("") & ~layer.isin(_NO_MODULES)),
        phases=_sum_phases(kernels),
        totals=sums(kernels),
        plan=None if profiled.plan is None else profiled.plan.to_dict(),
        cost=ProfileCost(
            planned_s=0.0 if profiled.plan is None else profiled.plan.time_s,
            counted_s=profiled.counted_s,
            taken_s=profiled.taken_s,
            passes=0 if profiled.plan is None else profiled.plan.passes,
        ),
        self_test=_summarise_self_test(profiled),
        warnings=profiled.warnings,
    )


def tables_of(profiled: ProfiledStep) -> dict[str, pd.DataFrame]:
    """The kernels and the copies of one step; without a trace there are no copies."""
    tables = {"kernels": average_kernels(profiled.kernels, profiled.steps)}
    if profiled.copies is not None:
        tables["copies"] = sum_copies(profiled.copies, profiled.steps)
    return tables


def average_kernels(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The kernels of one step, on average over several."""
    if steps == 1:
        return kernels
    amounts = [
        name
        for name in map(str, kernels)
        if name.startswith("flops_")
        or name.endswith(("_bytes", "_s", NAMED_SUM))
        or name == "launches"
    ]
    return kernels.assign(**{name: kernels[name] / steps for name in amounts})


def _time_share(kernels: pd.DataFrame, is_known: pd.Series) -> float:
    whole_s = float(kernels["time_s"].sum())
    return float(kernels.loc[is_known, "time_s"].sum()) / whole_s if whole_s else 0.0


def _sum_phases(kernels: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    flops = [name for name in map(str, kernels) if name.startswith("flops_")]
    return {
        str(phase): {
            "launches": float(rows["launches"].sum()),
            "time_s": float(rows["time_s"].sum()),
            "flops": float(rows[flops].sum().sum()) if flops else None,
        }
        for phase, rows in kernels.groupby("phase", sort=False)
        if phase
    }


def _summarise_self_test(profiled: ProfiledStep) -> SelfTest | None:
    if profiled.plan is None:
        return None
    ratios = profiled.ratios
    products = [ratio for name, ratio in ratios.items() if name.startswith("product")]
    return SelfTest(
        copy_ratio=ratios.get("copy"),
        product_ratio=max(products, key=lambda r: abs(r - 1)) if products else None,
        ratios=ratios,
        is_trusted=not doubt_ratios(ratios),
    )
