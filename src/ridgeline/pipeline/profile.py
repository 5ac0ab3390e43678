"""The stage that counts what the hardware did, where there is something to count with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.tasks import Task
from ridgeline.pipeline.count import spec_of
from ridgeline.pipeline.stages import Stages
from ridgeline.profile.metrics import AUTO
from ridgeline.profile.profiling import Standby, need_counters, standing_by
from ridgeline.profile.request import Plan, request_for_run
from ridgeline.profile.storage import profile_run
from ridgeline.settings import Settings
from ridgeline.store import ResultsFolder, Run

NOT_ASKED = "it was not asked for"
NO_GPU = "counters are those of NVIDIA GPUs"
OPTIONS: dict[str, Any] = {"level": "hierarchical"}
Start = Callable[[str], None]


def profile_stage(
    stages: Stages,
    results: ResultsFolder,
    runs: Sequence[tuple[Run, Settings]],
    *,
    device: str,
    is_wanted: bool,
    start: Start = lambda what: None,
    tell: Callable[[str], None] = lambda what: None,
) -> list[Run]:
    """Profile each run, or say why not; what fails is a failed stage and nothing more."""
    why_not = _why_not(device, is_wanted=is_wanted)
    if why_not:
        stages.skip("profile", why_not)
        return []
    done: list[Run] = []
    failures: list[str] = []
    jobs = [
        (run, Task(spec=spec_of(run.asked), settings=replace(settings, iters=None)))
        for run, settings in runs
    ]
    with stages.begin("profile") as stage, ExitStack() as stack:
        ahead = _LoadedAhead(stack)
        for (run, task), following in zip(jobs, [*jobs[1:], None], strict=True):
            start(f"counters: {run.asked['model']}, batch {run.asked['batch_size']}")
            load = partial(ahead.load, following)
            try:
                with ahead.in_turn(tell) as standby:
                    made = profile_run(
                        results,
                        run,
                        task,
                        OPTIONS,
                        on_progress=tell,
                        show_plan=load,
                        standby=standby,
                    )
            except RidgelineError as error:
                failures.append(str(error).replace("\n", " "))
                if not done:  # what ails the first will ail the others
                    break
            else:
                done += [made] if made is not None else []
        stage.reason = f"counters of {len(done)} runs"
        if failures:
            stage.status = "done" if done else "failed"
            stage.reason = "; ".join([*([stage.reason] if done else []), *dict.fromkeys(failures)])
    return done


@dataclass(slots=True)
class _LoadedAhead:
    """The processes of the next profile, which load while the kernels of this one are counted."""

    stack: ExitStack
    standby: Standby | None = None

    def load(self, following: tuple[Run, Task] | None, _: Plan) -> None:
        """They leave the device alone, and ncu, until it is their turn."""
        if following is not None and self.standby is None:  # a second plan may be shown
            with suppress(RidgelineError):
                request = request_for_run(*following, **OPTIONS)
                self.standby = self.stack.enter_context(standing_by(request))

    @contextmanager
    def in_turn(self, tell: Callable[[str], None]) -> Iterator[Standby | None]:
        """What was loaded for this profile; its processes end with the block."""
        standby, self.standby = self.standby, None
        with self.stack.pop_all():
            if standby is not None:
                standby.workspace.on_progress = tell
            yield standby


def _why_not(device: str, *, is_wanted: bool) -> str:
    if not is_wanted:
        return NOT_ASKED
    if not device.startswith("cuda"):
        return NO_GPU
    try:
        need_counters(AUTO)
    except RidgelineError as error:
        return str(error).replace("\n", " ")
    return ""
