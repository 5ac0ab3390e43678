"""The work behind `ridgeline analyze`: stage after stage, each kept when it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.api import spec
from ridgeline.cli import INTERRUPTED, show_analysis
from ridgeline.cli.interrupts import import_figures, import_tables, interrupts_raised
from ridgeline.cli.measured import SOME_FAILED, Asked, Done, Runner, raise_last, tell_failed
from ridgeline.cli.progress import StageProgress, stage_progress
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Answer, Work, attempt, run_isolated, stdout_to_stderr
from ridgeline.pipeline.count import CountFound, CountTask, count_task
from ridgeline.pipeline.machine import DeviceTask, MachineTask, device_task, machine_task
from ridgeline.pipeline.outputs import Outputs, write_figures, write_points, write_report
from ridgeline.pipeline.profile import profile_stage
from ridgeline.pipeline.stages import Stages
from ridgeline.records import WorkloadSpec
from ridgeline.report.study import read_study
from ridgeline.report.views import write_views
from ridgeline.settings import Settings, check_mode
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder

if TYPE_CHECKING:
    from ridgeline.report.study import Study

QUICK_ITERS = 10
MACHINE_S = {"cpu": (120.0, 15.0), "cuda": (75.0, 40.0), "mps": (60.0, 20.0)}  # full, quick
RUN_S = {False: 30.0, True: 15.0}  # by quick
COUNT_S, REPORT_S, PROFILE_S = 3.0, 8.0, 35.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The command line, parsed."""

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]  # none: to be chosen
    mode: str
    settings: tuple[Settings, ...]  # one per precision
    input_size: tuple[int, ...] | None
    seq_len: int | None
    config: dict[str, Any]
    is_quick: bool
    with_counters: bool
    remeasure: bool
    repeats: int
    label: str | None
    title: str | None
    notebook: bool
    results: Path
    in_process: bool
    as_json: bool
    quiet: bool
    debug: bool

    def spec(self, model: str) -> WorkloadSpec:
        chosen = spec(model, 1, self.input_size, self.seq_len, self.config)
        return replace(chosen, mode=self.mode)

    def asked(self, model: str, batch_sizes: tuple[int, ...]) -> Asked:
        """What `ridgeline run` would be asked for one model."""
        settings = self.settings
        if self.is_quick:
            settings = tuple(replace(s, iters=s.iters or QUICK_ITERS) for s in settings)
        return Asked(
            models=(model,),
            batch_sizes=batch_sizes,
            mode=self.mode,
            settings=settings,
            input_size=self.input_size,
            seq_len=self.seq_len,
            config=self.config,
            repeats=self.repeats,
            find_max_batch=False,
            label=self.label,
            results=self.results,
            in_process=self.in_process,
            as_json=self.as_json,
            quiet=self.quiet,
            debug=self.debug,
            has_lines=False,
        )

    @property
    def configurations(self) -> int:
        batches = len(self.batch_sizes) or (1 if self.is_quick else 2)
        return len(self.models) * len(self.settings) * batches * self.repeats


@dataclass(slots=True)
class Analysis:
    """The stages of one analysis and what came of them."""

    wanted: Wanted
    stages: Stages = field(default_factory=Stages)
    done: Done = field(default_factory=Done)
    machine: str | None = None
    outputs: Outputs = field(default_factory=Outputs)
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        """All stages; what is done stays done, whatever happens next."""
        wanted = self.wanted
        check_mode(wanted.mode)
        specs = tuple(wanted.spec(model) for model in wanted.models)
        results = ResultsFolder(wanted.results)
        results.check_writable()
        try:
            with interrupts_raised():
                self._answer(results, self._do_stages(specs, results))
        except KeyboardInterrupt:
            self._interrupted(results)

    def _do_stages(self, specs: tuple[WorkloadSpec, ...], results: ResultsFolder) -> Study | None:
        device = self._device(specs)
        import_tables()
        import_figures()
        with stage_progress(self._expected_s(device), quiet=self.wanted.quiet) as progress:
            self._measure_machine(device, progress)
            counted = self._count(specs, progress)
            self._run_models(results, counted, progress)
            self._profile(results, device, progress)
            return self._join(results, progress)

    def _device(self, specs: tuple[WorkloadSpec, ...]) -> str:
        """The device that will be used; a model or a device that is not there ends it here."""
        first = self.wanted.settings[0]
        task = DeviceTask(
            specs=specs,
            backend=first.backend,
            device=first.device,
            precisions=tuple(s.precision for s in self.wanted.settings),
        )
        device: str = self._do(device_task, task, lambda what: None)
        return device

    def _do(self, work: Work[Answer], task: Any, hear: Callable[[Any], None]) -> Answer:
        """In a process of its own, unless asked otherwise: torch stays out of this one."""
        if not self.wanted.in_process:
            return run_isolated(work, task, hear).value()
        with stdout_to_stderr():
            return attempt(work, task, hear).value()

    def _expected_s(self, device: str) -> float:
        runs_s = self.wanted.configurations * RUN_S[self.wanted.is_quick]
        has_counters = self.wanted.with_counters and device.startswith("cuda")
        runs_s += PROFILE_S * self.wanted.configurations if has_counters else 0.0
        return self._machine_s(device) + COUNT_S * len(self.wanted.models) + runs_s + REPORT_S

    def _machine_s(self, device: str) -> float:
        full_s, quick_s = MACHINE_S[device.partition(":")[0]]
        return quick_s if self.wanted.is_quick else full_s

    def _measure_machine(self, device: str, progress: StageProgress) -> None:
        progress.expect(self._machine_s(device))
        progress.start("machine")
        task = MachineTask(
            results=self.wanted.results,
            device=device,
            quick=self.wanted.is_quick,
            remeasure=self.wanted.remeasure,
        )
        with self.stages.begin("machine") as stage:
            found = self._do(machine_task, task, lambda what: progress.update(what, 0, 0))
            self.machine = found.name
            stage.status = "cached" if found.is_cached else "done"
            stage.reason = found.note

    def _count(self, specs: tuple[WorkloadSpec, ...], progress: StageProgress) -> CountFound:
        wanted, first = self.wanted, self.wanted.settings[0]
        progress.expect(COUNT_S * len(specs))
        progress.start("counting")
        task = CountTask(
            results=wanted.results,
            specs=specs,
            batch_sizes=wanted.batch_sizes,
            backend=first.backend,
            device=first.device,
            precisions=tuple(s.precision for s in wanted.settings),
            optimizer=first.optimizer,
            machine=self.machine,
            is_quick=wanted.is_quick,
        )
        found: CountFound | None = None
        with self.stages.begin("count") as stage:
            found = self._do(count_task, task, lambda what: progress.update(what, 0, 0))
            stage.reason = "; ".join(found.problems) or f"{found.counted} configurations counted"
            if found.problems:
                stage.status = "failed" if not found.counted else "done"
                self.problems += found.problems
        if found is not None:
            return found
        batches = wanted.batch_sizes or (1,)
        return CountFound(batch_sizes=dict.fromkeys(wanted.models, batches), counted=0, problems=())

    def _run_models(
        self, results: ResultsFolder, counted: CountFound, progress: StageProgress
    ) -> None:
        with self.stages.begin("run") as stage:
            for model in self.wanted.models:
                asked = self.wanted.asked(model, counted.batch_sizes[model])
                Runner(asked, results, self.done, _PerRun(progress, self.wanted.is_quick)).run()
            failed = [run for run in self.done.runs if run.found["status"] != "ok"]
            ok = len(self.done.runs) - len(failed)
            stage.reason = f"{ok} runs with their layers"
            if failed or self.done.errors:
                stage.status = "done" if ok else "failed"
                whys = [str(run.found.get("reason")) for run in failed]
                whys += [error.problem for error in self.done.errors]
                stage.reason += f", {len(whys)} failed: {'; '.join(dict.fromkeys(whys))}"

    def _profile(self, results: ResultsFolder, device: str, progress: StageProgress) -> None:
        """Counters of every configuration, once."""
        by_precision = {settings.precision: settings for settings in self.wanted.settings}
        runs = [
            (run, by_precision[run.asked["precision"]])
            for run in self.done.runs
            if run.found["status"] == "ok" and run.asked["repeat"] == 1
        ]

        def start(what: str) -> None:
            progress.expect(PROFILE_S)
            progress.start(what)

        profile_stage(
            self.stages,
            results,
            runs,
            device=device,
            is_wanted=self.wanted.with_counters,
            start=start,
            tell=lambda what: progress.update(what, 0, 0),
        )

    @property
    def run_ids(self) -> list[str]:
        return [run.run_id for run in self.done.runs if run.found["status"] == "ok"]

    def _join(self, results: ResultsFolder, progress: StageProgress) -> Study | None:
        """Points, figures and the report; nothing where no run was completed."""
        if not self.run_ids:
            self.stages.skip("roofline", "no run was completed")
            self.stages.skip("report", "no run was completed")
            return None
        progress.expect(REPORT_S)
        progress.start("report")
        write_views(results)
        study = read_study(results, run_ids=[run.run_id for run in self.done.runs])
        with self.stages.begin("roofline") as stage:
            write_points(study, self.outputs)
            write_figures(study, self.outputs, tell=lambda what: progress.update(what, 0, 0))
            stage.reason = f"{len(study.points)} points, {len(self.outputs.figures)} figures"
        self.stages.write(results.path, self.run_ids)
        with self.stages.begin("report"):
            write_report(
                replace(study, stages=self.stages.told()),
                self.outputs,
                title=self.wanted.title,
                notebook=self.wanted.notebook,
                tell=lambda what: progress.update(what, 0, 0),
            )
        self.stages.write(results.path, self.run_ids)
        return study

    def _interrupted(self, results: ResultsFolder) -> None:
        kept = len(self.run_ids)
        if kept:
            with suppress(KeyboardInterrupt), interrupts_later():
                write_views(results)
            print(
                f"ridgeline: interrupted; runs kept: {kept}; `ridgeline report` tells about them",
                file=sys.stderr,
            )
        else:
            print("ridgeline: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)

    def _answer(self, results: ResultsFolder, study: Study | None) -> None:
        wanted = self.wanted
        if wanted.as_json:
            content = show_analysis.as_json(self, results, study)
            print(json.dumps(content, indent=2, allow_nan=False))
        elif study is not None:
            show_analysis.show(self, study)
        self._end()

    def _end(self) -> None:
        """The exit code, with the reason where nothing came of it."""
        failed = [run for run in self.done.runs if run.found["status"] != "ok"]
        if self.run_ids and not failed and not self.done.errors:
            if self.outputs.page is None:
                stage = next(s for s in reversed(self.stages.done) if s.status == "failed")
                raise RidgelineError(
                    f"the {stage.stage} stage failed: {stage.reason}",
                    hint="the runs are kept; `ridgeline report` tries again",
                )
            return
        if self.done.errors:
            raise_last(self.done.errors)
        tell_failed(self.done.runs)
        sys.exit(SOME_FAILED)


class _PerRun(StageProgress):
    """Lets the runner's progress move the bar of the whole analysis."""

    def __init__(self, bar: StageProgress, is_quick: bool) -> None:
        self._bar, self._is_quick = bar, is_quick

    def start(self, what: str, *, advance: bool = True) -> None:
        if advance:
            self._bar.expect(RUN_S[self._is_quick])
        self._bar.start(what)

    def update(self, what: str, done: int, total: int) -> None:
        self._bar.update(what, done, total)
