"""Everything that a report tells, read from a results folder: runs, roofs, points, findings.

machines     a `Machine` per device that was measured or ran something: its roofs, its passport
runs         a row per completed run: views.metrics, with env, flags and the static totals
points       a row per step, phase, layer and kernel (columns: roofline.points), with `flag`
findings     what to fix first, run by run, the largest headroom first
reconciled   model beside executed work of each profiled run (columns: roofline.reconcile)
kernels      a row per kernel of each profiled run and each capture, its launches added up
energies     a row per step, phase and layer with joules (columns: roofline.floors)
predictions  a row per predicted step, beside what was measured (columns: report.predictions)
trainings    real trainings, with what came of each epoch
captures     a row per imported capture; its points are those of the whole and of its kernels
stages       what `ridgeline analyze` did or skipped, and why
problems     what could not be read or joined, in words
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.findings import COLUMNS as FINDING_COLUMNS
from ridgeline.findings import describe_joules, find_rows
from ridgeline.predict.stored import read_predictions
from ridgeline.records import CountSummary, KernelTime, MovedBytes
from ridgeline.report.configurations import Case, add_rates, find_cases
from ridgeline.report.convolutions import Convolutions, find_convolutions, join_convolutions
from ridgeline.report.executed import (
    Executed,
    captures_table,
    make_executed,
    run_kernels,
    why_executed,
    with_optimizer_kernels,
)
from ridgeline.report.predictions import join_predictions
from ridgeline.report.stored import (
    Machine,
    Machines,
    Profiles,
    describe_request,
    name_recompute,
    read_table,
    rename_fused_of_layers,
    run_key,
    stored_counts,
    stored_profiles,
)
from ridgeline.report.text import group_by, no_rows, plain, records
from ridgeline.report.views import metrics
from ridgeline.roofline.floors import SAME_SAMPLE, find_energies
from ridgeline.roofline.points import (
    CountedStep,
    MeasuredStep,
    StaticWork,
    find_capture_floors,
    find_run_floors,
    group_static_work,
    is_complete,
    join_points,
)
from ridgeline.roofline.reconcile import reconcile
from ridgeline.roofline.roofs import Roofs
from ridgeline.roofline.sanity_checks import describe_clock, find_energy_flags, find_flags
from ridgeline.store import (
    MeasuredRun,
    ResultsFolder,
    ResultsIndex,
    StoredCapture,
    StoredCount,
    StoredProfile,
    StoredTraining,
)
from ridgeline.units import format_percent, si

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Machine", "Study", "read_study"]
STAGES_FILE = "analysis.json"
BUSY = "the machine was busy"
GRAPH_MODES = ("reduce-overhead", "max-autotune")  # of the compiler
PointTables = list[tuple[MeasuredStep, Roofs, "pd.DataFrame"]]


@dataclass(frozen=True, kw_only=True)  # without slots: what is derived is found once
class Study:
    """What is stored, joined."""

    results: Path
    machines: tuple[Machine, ...]
    runs: pd.DataFrame
    points: pd.DataFrame
    findings: pd.DataFrame
    reconciled: pd.DataFrame = field(default_factory=no_rows)
    kernels: pd.DataFrame = field(default_factory=no_rows)
    energies: pd.DataFrame = field(default_factory=no_rows)
    captures: pd.DataFrame = field(default_factory=no_rows)
    profiles: Mapping[str, StoredProfile] = field(default_factory=dict)  # by profiled run
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # on counters, by run
    remarks: tuple[str, ...] = ()  # the same as sentences that name what they are of
    convolutions: Convolutions = field(default_factory=Convolutions)
    predictions: pd.DataFrame = field(default_factory=no_rows)
    trainings: tuple[StoredTraining, ...] = ()
    stages: tuple[Mapping[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    raw_runs: tuple[MeasuredRun, ...] = field(default=(), repr=False)
    raw_captures: tuple[StoredCapture, ...] = field(default=(), repr=False)  # as in `captures`

    def machine(self, env: str) -> Machine | None:
        return next((m for m in self.machines if m.env == env), None)

    def device_label(self, machine: Machine) -> str:
        """`cuda:0`, where a run or a passport says so: a capture does not know its number."""
        is_here = len(self.runs) and self.runs["env"].eq(machine.env).any()
        return machine.roofs.device if machine.passport is not None or is_here else ""

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The configurations, each with the run that stands for its repeats."""
        return tuple(find_cases(self.runs, self.points))

    @cached_property
    def case_of(self) -> dict[str, Case]:
        """The configuration of each run."""
        return {run_id: case for case in self.cases for run_id in case.run_ids}

    @cached_property
    def names(self) -> dict[str, str]:
        """`R1`, `R2`, … for the runs, in the order in which they were made."""
        run_ids = map(str, self.runs.get("run_id", ()))
        return {run_id: f"R{n}" for n, run_id in enumerate(run_ids, start=1)}

    @cached_property
    def executed(self) -> dict[str, Executed]:
        """What each profiled run executed, in their order, and then each capture; by run."""
        if self.kernels.empty:
            return {}
        steps = self.runs.reindex(columns=["run_id", "step_median_s"]).to_numpy()
        runs = [(str(run_id), self.profiles.get(run_id), step_s) for run_id, step_s in steps]
        captures = [(run.run_id, run, run.result.step_time_s) for run in self.raw_captures]
        tables = {str(run_id): table for run_id, table in self.kernels.groupby("run_id")}
        return {
            run_id: make_executed(run_id, profile, tables[run_id], step_s)
            for run_id, profile, step_s in (*runs, *captures)
            if run_id in tables
        }

    @cached_property
    def disturbed(self) -> dict[str, str]:
        """The runs during which the machine was busy, and how that shows."""
        if "disturbed" not in self.runs:
            return {}
        known = zip(self.runs["run_id"], self.runs["disturbed"], strict=True)
        return {str(run_id): str(reason) for run_id, reason in known if plain(reason)}

    def notes_on(self, points: pd.DataFrame) -> list[str]:
        """What is to be known about the times, the ceilings and the counters of each point."""
        busy = {run_id: f"{BUSY}: {reason}" for run_id, reason in self.disturbed.items()}
        bases = {machine.env: machine.roofs.basis for machine in self.machines}
        texts = []
        keys = points.reindex(columns=["run_id", "env", "provenance"])
        for run_id, env, provenance in keys.itertuples(index=False, name=None):
            counters = self.notes.get(run_id, ()) if provenance == "counter" else ()
            texts.append("; ".join(filter(None, (busy.get(run_id), bases.get(env), *counters))))
        return texts

    @property
    def energy_sentences(self) -> list[str]:
        """On each step whose measured joules are explained, the largest first; then the best."""
        if self.energies.empty:
            return []
        known = self.energies[self.energies["energy_provenance"].eq("measured")]
        steps = known[known["energy_j_per_sample"].gt(0)].drop_duplicates("run_id")
        titles = {run_id: case.title.removeprefix(f"{case.model}, ")
                  for run_id, case in self.case_of.items()}  # fmt: skip
        groups = steps.groupby(list(SAME_SAMPLE), sort=False)
        best = [_describe_front(group, titles) for _, group in groups if len(group) > 1]
        by = ["energy_j", "provenance"]  # of one step counted both ways, by counters
        ordered = known[known["energy_floor_j"].gt(0)].sort_values(by, ascending=[False, True])
        largest = records(ordered.drop_duplicates("run_id"))
        return [*(_describe_energy(step, titles[step["run_id"]]) for step in largest), *best]

    def top_findings(self, most: int = 3) -> pd.DataFrame:
        """The largest headrooms by their time, of the runs that stand for their configurations.

        A layer of a model, or its waiting for the host, appears once.
        """
        ranked = self.findings.sort_values("headroom_s", ascending=False)
        ranked = ranked[ranked["run_id"].isin([case.run_id for case in self.cases])]
        return ranked[~(ranked["model"] + "\n" + ranked["layer"]).duplicated()].head(most)


def read_study(
    results: ResultsFolder,
    *,
    run_ids: Sequence[str] | None = None,
    user_roofs: Mapping[str, Roofs] | None = None,
    everywhere: Roofs | None = None,
    index: ResultsIndex | None = None,
) -> Study:
    """Read and join what a results folder holds.

    `run_ids` chooses runs. `user_roofs` are roofs by environment and `everywhere` roofs for all,
    which replace the measured ones. `index` is that of the folder, if the caller has it.
    """
    index = results.index() if index is None else index
    chosen = None if run_ids is None else set(run_ids)
    runs = [run for run in index.runs if chosen is None or run.run_id in chosen]
    problems = [*index.problems]
    problems += [
        f"{describe_request(run.request)}: this run failed: {run.result.reason}"
        for run in index.failed
        if chosen is None or run.run_id in chosen
    ]
    profiles = stored_profiles(index, runs, problems, run_ids)
    machines = Machines(results, problems, user_roofs or {}, everywhere)
    reader = _Reader(problems, machines, profiles, stored_counts(index))
    of_runs = [table for run in runs for table in reader.read_run(run)]
    of_captures = [table for one in profiles.captures for table in reader.read_capture(one)]
    points = join_points([*of_runs, *of_captures])
    points = points.assign(flag=find_flags(points) if len(points) else [])
    convolutions = join_convolutions(index.convolutions, index.conv_networks, runs, machines)
    predictions = join_predictions(read_predictions(results.path, problems), runs)
    findings = reader.find(points, runs, convolutions.losses)
    table = reader.table(runs)
    energies = no_rows()
    if runs:
        energies = _find_energies(points, table, runs, machines)
        points["flag"] = _add_run_flags(points, table)
    captures = captures_table(profiles.captures, points)
    if runs or profiles.captures:
        problems += machines.unused_peaks()
    return Study(
        results=results.path,
        machines=tuple(machines.machines.values()),
        runs=table,
        points=points,
        findings=findings.sort_values("headroom_s", ascending=False).reset_index(drop=True),
        reconciled=_join_tables(reader.reconciled),
        kernels=_join_tables(reader.kernels),
        energies=energies,
        captures=captures,
        profiles=profiles.of_run,
        notes=reader.notes,
        remarks=tuple(dict.fromkeys([*machines.bases(), *reader.remarks])),
        convolutions=convolutions,
        predictions=predictions,
        trainings=tuple(t for t in index.trainings if chosen is None or t.run_id in chosen),
        stages=read_stages(results.path, [run.run_id for run in runs]),
        problems=tuple(dict.fromkeys(problems)),
        raw_runs=tuple(runs),
        raw_captures=tuple(r for r in profiles.captures if r.run_id in set(captures["run_id"])),
    )


def _join_tables(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables by run as one, with `run_id` first."""
    import pandas as pd

    if not tables:
        return pd.DataFrame()
    joined = pd.concat(tables, names=["run_id"])
    return joined.reset_index("run_id").reset_index(drop=True)


def _add_run_flags(points: pd.DataFrame, runs: pd.DataFrame) -> pd.Series:
    """What is wrong with a whole run is wrong with the point of its step."""
    joined = runs["flag"].str.cat(runs["clock_flag"], sep="; ").str.strip("; ")
    of_run = points["run_id"].map(dict(zip(runs["run_id"], joined, strict=True))).fillna("")
    of_step = of_run.where(points["grain"].eq("step"), "")
    return points["flag"].astype(object).str.cat(of_step, sep="; ").str.strip("; ")


def _describe_energy(step: Mapping[str, Any], title: str) -> str:
    """A measured step: its joules, their floor, and what they are for."""
    parts = {"FLOPs": "flops_share", "bytes": "bytes_share", "busy power": "busy_share",
             "constant power": "constant_share"}  # fmt: skip
    shares = {what: float(step[column]) for what, column in parts.items() if step[column]}
    texts = [f"{format_percent(share)} {what}" for what, share in shares.items()]
    left = 1 - sum(shares.values())
    texts += [f"{format_percent(left)} not explained"] if left > 0 else []
    finding = f"; {step['finding']}" if step["finding"] else ""
    return (
        f"{step['model']}, {title} on {step['env']}:"
        f" a step takes {si(step['energy_j'], 'J')}, its energy floor is"
        f" {si(step['energy_floor_j'], 'J')} ({format_percent(step['energy_efficiency'])});"
        f" modelled parts: {', '.join(texts)}{finding}"
    )


def _describe_front(steps: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Of the steps of one network: which takes the fewest joules, which the least time."""
    rows = records(steps)
    frugal, fast = (min(rows, key=itemgetter(name))
                    for name in ("energy_j_per_sample", "time_s_per_sample"))  # fmt: skip
    texts = [
        f"{what}: {titles[step['run_id']]} ({si(step['energy_j_per_sample'], 'J')} in"
        f" {si(step['time_s_per_sample'], 's')} a sample)"
        for what, step in (("fewest joules", frugal), ("least time", fast))
    ]
    front = [titles[row["run_id"]] for row in rows if row["is_on_front"]]
    return (
        f"{frugal['model']} on {frugal['env']}: {'; '.join(texts)}."
        f" No other step has both less time and fewer joules than: {'; '.join(front)}"
    )


def _find_energies(
    points: pd.DataFrame, table: pd.DataFrame, runs: Sequence[MeasuredRun], machines: Machines
) -> pd.DataFrame:
    """Energies by the coefficients of each run's machine, with a sentence on each measured step."""
    models = {run.run_id: model for run in runs if (model := machines.of(run).energy_model)}
    energies = find_energies(points, table, models)
    texts = []
    for row in records(energies):
        model = models.get(str(row["run_id"]))
        if model and row["grain"] == "step" and row["energy_provenance"] == "measured":
            prices = {name: one.value for name, one in model.j_per_flop.items()}
            texts.append(describe_joules(row, prices, model.power_cap_w))
        else:
            texts.append("")
    return energies.assign(finding=texts)


class _Reader:
    """Reads the tables of runs, and what they share once: counts."""

    def __init__(
        self,
        problems: list[str],
        machines: Machines,
        profiles: Profiles,
        counts: Mapping[str, StoredCount],
    ) -> None:
        self.problems, self.machines, self.profiles = problems, machines, profiles
        self.reconciled: dict[str, pd.DataFrame] = {}  # by run
        self.kernels: dict[str, pd.DataFrame] = {}
        self.steps: dict[str, MeasuredStep] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        self.remarks: list[str] = []
        self._counts = counts
        self._counted: dict[str, CountedStep | None] = {}  # by the key of its run
        self._grouped: dict[tuple[Any, ...], StaticWork] = {}

    def read_run(self, run: MeasuredRun) -> PointTables:
        """The points of one run; on the way, its kernels are compared with its count."""
        roofs = self.machines.of(run).roofs
        profile = self.profiles.of_run.get(run.run_id)
        measured = _measured(run, profile)
        kernels = self._read_kernels(run, profile)
        layers = read_table(run, "layers", self.problems)
        if layers is not None and kernels is not None and measured.layers_without_gaps:
            layers = with_optimizer_kernels(layers, kernels)
        work = self._group_count(run, measured, roofs)
        tables = find_run_floors(measured, roofs, work, layers, kernels)
        self.steps[run.run_id] = measured
        if kernels is not None:
            self.kernels[run.run_id] = run_kernels(kernels)
            if counted := self._counted.get(run_key(run)):
                self.reconciled[run.run_id] = reconcile(
                    counted.ops,
                    kernels,
                    precision=measured.precision,
                    parts=measured.parts,
                    is_compiled=measured.is_compiled,
                    copies=read_table(profile, "copies", self.problems) if profile else None,
                )
            name = f"{run.request.model}, batch {run.request.batch_size}, {measured.precision}"
            self._note(run.run_id, f"the profile of {name}", profile)
        return [(measured, roofs, table) for table in tables]

    def _note(self, run_id: str, what: str, captured: StoredProfile | StoredCapture | None) -> None:
        """Warnings of counters go wherever these are used."""
        self.notes[run_id] = captured.result.warnings if captured is not None else ()
        self.remarks += [f"{what}: {note}" for note in self.notes[run_id]]

    def _read_kernels(self, run: MeasuredRun, profile: StoredProfile | None) -> pd.DataFrame | None:
        """The kernels of a run's profile, or its own."""
        kernels = read_table(profile or run, "kernels", self.problems)
        if profile is not None and (kernels is None or kernels.empty):
            self.problems.append(f"profile {profile.run_id} has no kernels: profile it again")
        return kernels

    def read_capture(self, run: StoredCapture) -> PointTables:
        """The points of a capture: its kernels, and the whole of it."""
        kernels = read_table(run, "kernels", self.problems)
        name = self.profiles.names[run.run_id]
        if kernels is None or kernels.empty:
            self.problems.append(f"the capture {name} has no kernels: import it again")
            return []
        self.kernels[run.run_id] = run_kernels(kernels)
        self._note(run.run_id, f"the capture {name}", run)
        roofs = self.machines.of(run).roofs
        if gaps := int((~is_complete(kernels)).sum()):
            note = f"time, FLOPs or DRAM bytes are not known of {gaps} of {len(kernels)} kernels"
            if gaps < len(kernels):  # else, the point of the whole has what is known of all
                note += ", which the point of the whole leaves out"
            self.notes[run.run_id] += (note,)
            self.problems.append(f"the capture {name}: {note}")
        return find_capture_floors(run.run_id, name, roofs, kernels)

    def _group_count(
        self, run: MeasuredRun, measured: MeasuredStep, roofs: Roofs
    ) -> StaticWork | None:
        """The counted work of a run, read and grouped once for all runs that share it."""
        count = run_key(run)
        if count not in self._counts:
            self.problems.append(
                f"{run.request.model}, batch {run.request.batch_size}: not counted, so it has no"
                " place on a roofline (ridgeline count MODEL --results DIR counts it)"
            )
            return None
        if count not in self._counted:
            self._counted[count] = _read_counted(self._counts[count], self.problems)
        counted = self._counted[count]
        key = (count, roofs.env, roofs.device, measured.parts, measured.is_compiled)
        if counted is not None and key not in self._grouped:
            self._grouped[key] = group_static_work(
                counted,
                roofs,
                precision=measured.precision,
                parts=measured.parts,
                is_compiled=measured.is_compiled,
            )
        return self._grouped.get(key)

    def find(
        self, points: pd.DataFrame, runs: Sequence[MeasuredRun], losses: pd.DataFrame
    ) -> pd.DataFrame:
        """What to fix first in each run; `losses` are those of algorithms of convolutions."""
        import pandas as pd

        coarse = records(points[points["grain"].ne("kernel")])
        by_run = group_by(coarse, (row["run_id"] for row in coarse))
        rows = []
        for run in runs:
            step, roofs = self.steps[run.run_id], self.machines.of(run).roofs
            why = why_executed(self.reconciled.get(run.run_id))
            rows += find_rows(by_run.get(run.run_id, []), step, roofs, executed=why)
        rows += find_convolutions(losses, runs, self.machines)
        return pd.DataFrame(rows, columns=list(FINDING_COLUMNS))

    def table(self, runs: Sequence[MeasuredRun]) -> pd.DataFrame:
        """study.runs: the metrics of each run, its machine, flags, and the work of its step."""
        import pandas as pd

        if not runs:
            return pd.DataFrame()
        table = metrics(runs)
        table["env"] = [self.machines.of(run).env for run in runs]
        table["device"] = [self.machines.of(run).roofs.device for run in runs]
        table["model"] = table["arch"]
        table["clock_flag"] = [
            describe_clock(
                run.result.conditions.during.clock_hz,
                self.machines.of(run).roofs.clock_of(run.result.precision),
            )
            for run in runs
        ]
        table["kernel_time_s"] = [self.steps[run.run_id].kernel_time_s for run in runs]
        totals = pd.DataFrame([_totals(run, self._counts.get(run_key(run))) for run in runs])
        table = table.merge(totals, on="run_id", how="left")
        table["flag"] = find_energy_flags(table)
        return add_rates(table)


# ---------------------------------------------------------------- one run, as roofline takes it


def _measured(run: MeasuredRun, profile: StoredProfile | None) -> MeasuredStep:
    request, result = run.request, run.result
    layers, split, kernels = result.layers, result.split_s, _step_kernels(run, profile)
    usage = result.timed_usage if result.backend == "cpu" else None
    return MeasuredStep(
        run_id=run.run_id,
        model=request.model,
        mode=request.mode,
        precision=result.precision,
        batch_size=request.batch_size,
        label=request.label,
        step_time_s=float(result.step_time_s.median),
        phase_times_s={
            phase: float(split[phase].median)
            for phase in ("forward", "backward", "optimizer")
            if phase in split and split[phase].median
        },
        kernel_launches=None if kernels.kernels is None else round(kernels.kernels),
        kernel_time_s=kernels.time_s,
        layer_sum_s=layers.sum_s if layers else None,
        system_s=usage.system_time_s / result.iters if usage and usage.system_time_s else None,
        cores=float(usage.cores or 1.0) if usage else 1.0,
        parts=request.batches_per_step,
        is_compiled=bool(request.compile),
        is_channels_last=request.channels_last,
        is_tuned=request.cudnn_benchmark,
        is_graph=request.compile in GRAPH_MODES,
        layers_without_gaps=layers is not None and "gaps" in (layers.clock or ""),
    )


def _step_kernels(run: MeasuredRun, profile: StoredProfile | None) -> KernelTime:
    """Time and number of a step's kernels. A profile knows them better.

    Runs of older versions counted copies by the driver as kernels.
    """
    if profile is None or not profile.result.kernel_time_s:
        return run.result.kernels or KernelTime()
    time_s = profile.result.busy_time_s or profile.result.kernel_time_s
    return KernelTime(time_s=time_s, kernels=profile.result.launches)


# ---------------------------------------------------------------- counts


def _read_counted(count: StoredCount, problems: list[str]) -> CountedStep | None:
    ops = read_table(count, "ops", problems)
    if ops is None:
        return None
    layers = read_table(count, "layers", problems, needs=("path",))
    by_layer: dict[str, float] = {}
    if layers is not None:
        layers = rename_fused_of_layers(layers, count.request.mode)
        by_layer = dict(zip(layers["path"], layers["own_fused_bytes"].astype(float), strict=True))
    return CountedStep(
        ops=name_recompute(ops),
        fused_bytes=_sum_moved(count.result.fused_bytes),
        layer_fused_bytes=by_layer,
    )


def _totals(run: MeasuredRun, count: StoredCount | None) -> dict[str, Any]:
    """Static totals of a run's step, where it was counted. Of a step of several batches, the
    optimizer runs once.
    """
    counted = count.result if count is not None else CountSummary()
    once = counted.phases.get("optimizer") or {}
    moved_once = once.get("read_bytes", 0.0) + once.get("written_bytes", 0.0)
    parts = run.request.batches_per_step

    def add_parts(total: float | None, optimizer: float) -> float | None:
        return None if total is None else float(total) + (parts - 1) * max(total - optimizer, 0.0)

    return {
        "run_id": run.run_id,
        "count_id": count.run_id if count is not None else None,
        "params": counted.params,
        "macs": add_parts(counted.macs, once.get("macs", 0.0)),
        "flops": add_parts(counted.flops, once.get("flops", 0.0)),
        "moved_bytes": add_parts(_sum_moved(counted), moved_once),
        "fused_bytes": add_parts(_sum_moved(counted.fused_bytes), moved_once),
        "counted_peak_bytes": counted.memory.peak_bytes,
        "coverage": counted.coverage,
    }


def _sum_moved(moved: MovedBytes | CountSummary) -> float | None:
    if moved.read_bytes is None or moved.written_bytes is None:
        return None
    return float(moved.read_bytes + moved.written_bytes)


def read_stages(results: Path, run_ids: Sequence[str]) -> tuple[Mapping[str, str], ...]:
    """What `ridgeline analyze` did, stage by stage; nothing if it was not about these runs."""
    try:
        content = json.loads((results / STAGES_FILE).read_text(encoding="utf-8"))
        if not set(run_ids) <= set(content["runs"]):
            return ()
        return tuple(
            {key: str(stage[key]) for key in ("stage", "status", "reason")}
            for stage in content["stages"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
