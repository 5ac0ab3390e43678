"""Everything that a report tells, read from a results folder: runs, roofs, points, findings.

machines     a `Machine` per device that was measured or ran something: its roofs, its passport
runs         a row per completed run: views.metrics, with env, flags and the static totals
points       a row per step, phase, layer and kernel (columns: roofline.points), with `flag`
findings     what to fix first, run by run, the largest headroom first
reconciled   model beside executed work of each profiled run (columns: roofline.reconcile)
kernels      a row per kernel of each profiled run and each capture, its launches added up
captures     a row per imported capture; capture_points: the whole of each, and its kernels
stages       what `ridgeline analyze` did or skipped, and why
problems     what could not be read or joined, in words
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.findings import COLUMNS as FINDING_COLUMNS
from ridgeline.findings import HOST, SYSTEM, find_rows
from ridgeline.records import CountSummary
from ridgeline.report.checked import COUNTED, check_table
from ridgeline.report.counts import (
    name_recompute,
    rename_fused_of_layers,
    run_key,
    stored_counts,
)
from ridgeline.report.executed import (
    captures_table,
    run_kernels,
    why_executed,
    with_optimizer_kernels,
)
from ridgeline.report.machines import Machine, Machines
from ridgeline.report.profiles import Profiles, busy_time_s, stored_profiles
from ridgeline.report.run_facts import measured_facts, parts_of, setting_of
from ridgeline.report.text import listed, no_rows, plain
from ridgeline.report.views import metrics
from ridgeline.roofline.floors import flops_columns, roof_of
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
from ridgeline.serialize import FieldError, to_dict
from ridgeline.store import (
    MeasuredRun,
    ResultsFolder,
    ResultsIndex,
    Run,
    StoredCapture,
    StoredCount,
    StoredProfile,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Machine", "Study", "read_study"]
STAGES_FILE = "analysis.json"
BUSY = "the machine was busy"
Placed = list[tuple[MeasuredStep, Roofs, "pd.DataFrame"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is stored, joined."""

    results: Path
    machines: tuple[Machine, ...]
    runs: pd.DataFrame
    points: pd.DataFrame
    findings: pd.DataFrame
    reconciled: pd.DataFrame = field(default_factory=no_rows)
    kernels: pd.DataFrame = field(default_factory=no_rows)
    captures: pd.DataFrame = field(default_factory=no_rows)
    capture_points: pd.DataFrame = field(default_factory=no_rows)
    profiles: Mapping[str, StoredProfile] = field(default_factory=dict)  # by profiled run
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # on counters, by run
    remarks: tuple[str, ...] = ()  # the same as sentences that name what they are of
    stages: tuple[Mapping[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    raw_runs: tuple[MeasuredRun, ...] = field(default=(), repr=False)
    raw_captures: tuple[StoredCapture, ...] = field(
        default=(), repr=False
    )  # in the order of `captures`

    def machine(self, env: str) -> Machine | None:
        return next((m for m in self.machines if m.env == env), None)

    def device_told(self, machine: Machine) -> str:
        """`cuda:0`, where a run or a passport says so: a capture does not know its number."""
        is_here = len(self.runs) and self.runs["env"].eq(machine.env).any()
        return machine.roofs.device if machine.passport is not None or is_here else ""

    @property
    def every_point(self) -> pd.DataFrame:
        """The points of runs and of captures."""
        import pandas as pd

        known = [table for table in (self.points, self.capture_points) if len(table)]
        return pd.concat(known, ignore_index=True) if known else self.points

    @property
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
        keys = points.reindex(columns=["run_id", "env", "provenance"])
        return [
            "; ".join(
                filter(
                    None,
                    [busy.get(run_id), bases.get(env), *self._counter_notes(run_id, provenance)],
                )
            )
            for run_id, env, provenance in keys.itertuples(index=False, name=None)
        ]

    def _counter_notes(self, run_id: str, provenance: str) -> tuple[str, ...]:
        return self.notes.get(run_id, ()) if provenance == "counter" else ()

    def top_findings(self, most: int = 3) -> pd.DataFrame:
        """The largest headrooms of all runs, by their time; a layer appears once."""
        ranked = self.findings.sort_values("headroom_s", ascending=False)
        of_model = ranked["model"].mask(ranked["layer"].isin([HOST, SYSTEM]), "")  # told once
        return ranked[~(of_model + "\n" + ranked["layer"]).duplicated()].head(most)


def read_study(
    results: ResultsFolder,
    *,
    run_ids: Sequence[str] | None = None,
    given: Mapping[str, Roofs] | None = None,
    everywhere: Roofs | None = None,
) -> Study:
    """Read and join what a results folder holds.

    `run_ids` chooses runs. `given` are roofs by environment and `everywhere` roofs for all,
    which replace the measured ones.
    """
    import pandas as pd

    index = results.index()
    runs, problems = list(index.runs), list(index.problems)
    if run_ids is not None:
        wanted = set(run_ids)
        runs = [run for run in runs if run.run_id in wanted]
    problems += _failures(index, run_ids)
    profiles = stored_profiles(index, runs, problems, run_ids)
    machines = Machines(results, problems, given or {}, everywhere)
    reader = _Reader(results, problems, machines, profiles, stored_counts(index))
    points = join_points([table for run in runs for table in reader.points(run)])
    of_captures = join_points([table for one in profiles.captures for table in reader.capture(one)])
    points, of_captures = (
        table.assign(flag=find_flags(table, machines.given_bounds()) if len(table) else [])
        for table in (points, of_captures)
    )
    findings = reader.findings(points, runs)
    captures = captures_table(profiles.captures, of_captures)
    table = metrics(runs) if runs else pd.DataFrame()
    if runs:
        table["env"] = [machines.of(run).env for run in runs]
        table["model"] = table["arch"]
        table["clock_flag"] = [reader.clock_flag(run) for run in runs]
        table["kernel_time_s"] = reader.kernel_times(table)
        table = table.merge(reader.totals(runs), on="run_id", how="left")
        table["flag"] = find_energy_flags(table)
        points["flag"] = _with_run_flags(points, table)
    if runs or profiles.captures:
        problems += machines.unused_peaks()
    return Study(
        results=results.path,
        machines=tuple(machines.found.values()),
        runs=table,
        points=points,
        findings=findings.sort_values("headroom_s", ascending=False).reset_index(drop=True),
        reconciled=_joined(reader.reconciled),
        kernels=_joined(reader.kernels),
        captures=captures,
        capture_points=of_captures,
        profiles=profiles.of_run,
        notes=reader.notes,
        remarks=tuple(dict.fromkeys([*machines.bases(), *reader.remarks])),
        stages=read_stages(results.path, [run.run_id for run in runs]),
        problems=tuple(dict.fromkeys(problems)),
        raw_runs=tuple(runs),
        raw_captures=tuple(r for r in profiles.captures if r.run_id in set(captures["run_id"])),
    )


def _gaps_told(kernels: pd.DataFrame) -> list[str]:
    gaps = int((~is_complete(kernels)).sum())
    if not gaps:
        return []
    what = f"time, FLOPs or DRAM bytes are not known of {gaps} of {len(kernels)} kernels"
    if gaps == len(kernels):
        return [f"{what}: the point of the whole has what is known of all"]
    return [f"{what}, which the point of the whole leaves out"]


def _roofs_missed(kernels: pd.DataFrame, roofs: Roofs) -> list[str]:
    """Work that sets no floor, because nobody knows how fast it could be."""
    done = [column for column in flops_columns(kernels) if (kernels[column] > 0).any()]
    missed = [roof_of(column)[0] for column in done if roofs.peak(*roof_of(column)) is None]
    if not missed or not roofs.flats:
        return []
    return [f"no roof is known for work in {listed(missed)}: kernels with such work have no floor"]


def _joined(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables by run as one, with `run_id` first."""
    import pandas as pd

    if not tables:
        return pd.DataFrame()
    joined = pd.concat(tables, names=["run_id"])
    return joined.reset_index("run_id").reset_index(drop=True)


def _with_run_flags(points: pd.DataFrame, runs: pd.DataFrame) -> pd.Series:
    """What is wrong with a whole run is wrong with the point of its step."""
    joined = runs["flag"].str.cat(runs["clock_flag"], sep="; ").str.strip("; ")
    of_run = points["run_id"].map(dict(zip(runs["run_id"], joined, strict=True))).fillna("")
    of_step = of_run.where(points["grain"].eq("step"), "")
    return points["flag"].astype(object).str.cat(of_step, sep="; ").str.strip("; ")


def _failures(index: ResultsIndex, run_ids: Sequence[str] | None) -> list[str]:
    """Runs that failed, with their reasons; of chosen runs, those that are among them."""
    return [
        f"{run.request.model}, {run.request.mode}, {run.request.precision},"
        f" batch {run.request.batch_size}: this run failed: {run.result.reason}"
        for run in index.failed
        if run_ids is None or run.run_id in run_ids
    ]


class _Reader:
    """Reads the tables of runs, and what they share once: counts."""

    def __init__(
        self,
        results: ResultsFolder,
        problems: list[str],
        machines: Machines,
        profiles: Profiles,
        counts: Mapping[str, StoredCount],
    ) -> None:
        self.results, self.problems = results, problems
        self.machines, self.profiles = machines, profiles
        self.reconciled: dict[str, pd.DataFrame] = {}  # by run
        self.kernels: dict[str, pd.DataFrame] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        self.remarks: list[str] = []
        self._counts = counts
        self._ready: dict[tuple[Any, ...], StaticWork] = {}

    def points(self, run: MeasuredRun) -> Placed:
        """The placed pieces of one run; on the way, its kernels are set beside its count."""
        roofs = self.machines.of(run).roofs
        measured = measured_facts(run, self.profiles.of_run.get(run.run_id))
        kernels = self._kernels_of(run)
        layers = self._table(run, "layers")
        if layers is not None and kernels is not None and measured.layers_without_gaps:
            layers = with_optimizer_kernels(layers, kernels)
        prepared = self._prepared(run, measured, roofs)
        tables = find_run_floors(measured, roofs, prepared, layers, kernels)
        if kernels is not None:
            self.kernels[run.run_id] = run_kernels(kernels)
            self._reconcile(run, measured, kernels)
            name = f"{run.request.model}, batch {run.request.batch_size}, {measured.precision}"
            self._note(run.run_id, f"the profile of {name}", self.profiles.of_run.get(run.run_id))
        return [(measured, roofs, table) for table in tables]

    def _note(self, run_id: str, what: str, captured: StoredProfile | StoredCapture | None) -> None:
        """What is to be known about counters goes wherever they are used."""
        self.notes[run_id] = captured.result.warnings if captured is not None else ()
        self.remarks += [f"{what}: {note}" for note in self.notes[run_id]]

    def _kernels_of(self, run: MeasuredRun) -> pd.DataFrame | None:
        """The kernels of a run's profile, or its own."""
        profile = self.profiles.of_run.get(run.run_id)
        own = self._table(run, "kernels")
        if profile is None:
            return own
        kernels = self._table(profile, "kernels")
        if kernels is not None and kernels.empty:
            self.problems.append(f"profile {profile.run_id} has no kernels")
        elif kernels is None and not (profile.path / "kernels.parquet").is_file():
            self.problems.append(_lost(profile, "kernels"))
        return kernels

    def _reconcile(self, run: MeasuredRun, measured: MeasuredStep, kernels: pd.DataFrame) -> None:
        count = self._counts.get(run_key(run))
        counted = None if count is None else self._read_count(count)
        if counted is not None:
            self.reconciled[run.run_id] = reconcile(
                counted.ops,
                kernels,
                precision=measured.precision,
                parts=measured.parts,
                is_compiled=measured.is_compiled,
                copies=self._copies_of(run),
            )

    def _copies_of(self, run: MeasuredRun) -> pd.DataFrame | None:
        """What the driver copied in a run's profiled step; older profiles do not tell."""
        profile = self.profiles.of_run.get(run.run_id)
        if profile is None:
            return None
        copies = profile.result.copies
        if copies and copies.launches and not (profile.path / "copies.parquet").is_file():
            self.problems.append(_lost(profile, "copies"))
        return self._table(profile, "copies")

    def capture(self, run: StoredCapture) -> Placed:
        """The placed kernels of a capture, and the whole of it."""
        kernels, name = self._table(run, "kernels"), self.profiles.names[run.run_id]
        if kernels is None or kernels.empty:
            is_there = (run.path / "kernels.parquet").is_file()
            lack = "has no kernels" if is_there else "has lost its kernels.parquet: import it again"
            self.problems.append(f"the capture {name} {lack}")
            return []
        self.kernels[run.run_id] = run_kernels(kernels)
        self._note(run.run_id, f"the capture {name}", run)
        roofs = self.machines.of(run).roofs
        told = [*_gaps_told(kernels), *_roofs_missed(kernels, roofs)]
        self.notes[run.run_id] += tuple(told)
        self.problems += [f"the capture {name}: {note}" for note in told]
        return find_capture_floors(run.run_id, name, roofs, kernels)

    def kernel_times(self, runs: pd.DataFrame) -> list[float | None]:
        """What the kernels of a step take: by its profile, where there is one."""
        known = zip(runs["run_id"], runs["kernel_time_s"], strict=True)
        return [busy_time_s(self.profiles.of_run.get(run_id)) or own for run_id, own in known]

    def _prepared(
        self, run: MeasuredRun, measured: MeasuredStep, roofs: Roofs
    ) -> StaticWork | None:
        """The counted work of a run, grouped once for all runs that share it."""
        count = self._count_of(run)
        if count is None:
            return None
        key = (count.run_id, roofs.env, roofs.device, measured.parts, measured.is_compiled)
        if key not in self._ready:
            counted = self._read_count(count)
            if counted is None:
                return None
            self._ready[key] = group_static_work(
                counted,
                roofs,
                precision=measured.precision,
                parts=measured.parts,
                is_compiled=measured.is_compiled,
            )
        return self._ready[key]

    def findings(self, points: pd.DataFrame, runs: Sequence[MeasuredRun]) -> pd.DataFrame:
        """What to fix first in each run."""
        import pandas as pd

        by_run: dict[str, list[dict[str, Any]]] = {run.run_id: [] for run in runs}
        coarse = points[points["grain"].ne("kernel")]
        for row in coarse.to_dict("records"):
            by_run[str(row["run_id"])].append({str(key): value for key, value in row.items()})
        rows = []
        for run in runs:
            setting = setting_of(run, self.profiles.of_run.get(run.run_id))
            why = why_executed(self.reconciled.get(run.run_id))
            roofs = self.machines.of(run).roofs
            rows += find_rows(by_run[run.run_id], setting, roofs, executed=why)
        return pd.DataFrame(rows, columns=list(FINDING_COLUMNS))

    def clock_flag(self, run: MeasuredRun) -> str:
        roofs = self.machines.of(run).roofs
        return describe_clock(
            run.result.conditions.during.clock_hz, roofs.clock_of(run.result.precision)
        )

    def totals(self, runs: Sequence[MeasuredRun]) -> pd.DataFrame:
        """Static totals of each run's step, where it was counted."""
        import pandas as pd

        rows = []
        for run in runs:
            count = self._counts.get(run_key(run))
            counted = count.result if count is not None else CountSummary()
            whole, fused = to_dict(counted), to_dict(counted.fused_bytes)
            once = counted.phases.get("optimizer") or {}
            parts = parts_of(run)
            rows.append(
                {
                    "run_id": run.run_id,
                    "count_id": count.run_id if count is not None else None,
                    "params": counted.params,
                    "macs": _in_parts(whole, once, parts, "macs"),
                    "flops": _in_parts(whole, once, parts, "flops"),
                    "moved_bytes": _in_parts(whole, once, parts, "read_bytes", "written_bytes"),
                    "fused_bytes": _in_parts(fused, once, parts, "read_bytes", "written_bytes"),
                    "counted_peak_bytes": counted.memory.peak_bytes,
                    "coverage": counted.coverage,
                }
            )
        return pd.DataFrame(rows)

    def _count_of(self, run: MeasuredRun) -> StoredCount | None:
        count = self._counts.get(run_key(run))
        if count is None:
            self.problems.append(
                f"{run.request.model}, batch {run.request.batch_size}: not counted, so it has no"
                " place on a roofline (ridgeline count MODEL --results DIR counts it)"
            )
        return count

    def _read_count(self, count: StoredCount) -> CountedStep | None:
        ops = self._table(count, "ops")
        if ops is None:
            return None
        layers = self._table(count, "layers", COUNTED)
        fused = to_dict(count.result.fused_bytes)
        by_layer = {} if layers is None else dict(
            zip(layers["path"], layers["own_fused_bytes"].astype(float), strict=True)
        )  # fmt: skip
        return CountedStep(
            ops=name_recompute(ops),
            fused_bytes=_sum(fused, "read_bytes", "written_bytes"),
            layer_fused_bytes=by_layer,
        )

    def _table(self, run: Run, name: str, kind: str | None = None) -> pd.DataFrame | None:
        """A table of a run; None, with a word, where it is not what its name or `kind` says."""
        if not (run.path / f"{name}.parquet").is_file():
            return None
        try:
            table = self.results.read_table(run.run_id, name)
            if kind == COUNTED:
                table = rename_fused_of_layers(table, run.request.mode)
            return check_table(kind or name, table)
        except RidgelineError as error:
            self.problems.append(str(error))
        except FieldError as error:
            self.problems.append(f"the table {name} of run {run.run_id} is passed over: {error}")
        return None


def _lost(profile: StoredProfile, name: str) -> str:
    return f"profile {profile.run_id} has lost its {name}.parquet: profile it again"


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


def _sum(content: Mapping[str, Any], *names: str) -> float | None:
    values = [content.get(name) for name in names]
    return None if None in values else float(sum(values))  # type: ignore[arg-type]


def _in_parts(
    whole: Mapping[str, Any], once: Mapping[str, Any], parts: int, *names: str
) -> float | None:
    """A total of a step of several batches, whose optimizer runs once."""
    total, optimizer = _sum(whole, *names), _sum(once, *names) or 0.0
    return None if total is None else total + (parts - 1) * max(total - optimizer, 0.0)
