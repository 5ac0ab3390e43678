"""Everything that a report tells, read from a results folder: runs, roofs, points, findings.

machines   a `Machine` per device that was measured or ran something: its roofs, its passport
runs       a row per completed run: views.metrics, with env, flags and the static totals
points     a row per step, phase, layer and kernel (columns: roofline.points), with `flag`
findings   what to fix first, run by run, the largest headroom first
stages     what `ridgeline analyze` did or skipped, and why
problems   what could not be read or joined, in words
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.fields import FieldError
from ridgeline.machine.datasheets import datasheet_for
from ridgeline.machine.passport import Passport, Passports
from ridgeline.machine.published import published
from ridgeline.report.checked import COUNTED, NEEDED_COLUMNS, check_table
from ridgeline.report.counts import run_key, stored_counts
from ridgeline.report.run_facts import device_of, measured_facts, parts_of, setting_of
from ridgeline.report.views import measured_runs, metrics
from ridgeline.roofline.findings import COLUMNS as FINDING_COLUMNS
from ridgeline.roofline.findings import HOST, SYSTEM, find_rows
from ridgeline.roofline.gate import clock_flag, energy_flags, flags
from ridgeline.roofline.points import (
    Counted,
    Measured,
    Prepared,
    finished,
    prepare,
    raw_points,
)
from ridgeline.roofline.roofs import Roofs, datasheet_roofs, device_name, measured_roofs
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    import pandas as pd

STAGES_FILE = "analysis.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device with its roofs."""

    roofs: Roofs
    datasheet: Roofs | None = None
    passport: Passport | None = None

    @property
    def env(self) -> str:
        return self.roofs.env


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is stored, joined."""

    results: Path
    machines: tuple[Machine, ...]
    runs: pd.DataFrame
    points: pd.DataFrame
    findings: pd.DataFrame
    stages: tuple[Mapping[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    raw_runs: tuple[Run, ...] = field(default=(), repr=False)

    def machine(self, env: str) -> Machine | None:
        return next((m for m in self.machines if m.env == env), None)

    def top_findings(self, most: int = 3) -> pd.DataFrame:
        """The largest headrooms of all runs, as shares of their steps; a layer appears once."""
        ranked = self.findings.sort_values("share", ascending=False)
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

    runs, problems = measured_runs(results)
    if run_ids is not None:
        wanted = set(run_ids)
        runs = [run for run in runs if run.run_id in wanted]
    problems += _failures(results, run_ids)
    reader = _Reader(results, problems, given or {}, everywhere)
    points = finished([table for run in runs for table in reader.points(run)])
    points["flag"] = flags(points) if len(points) else []
    findings = reader.findings(points, runs)
    table = metrics(runs) if runs else pd.DataFrame()
    if runs:
        table["env"] = [reader.machine(run).env for run in runs]
        table["model"] = table["arch"]
        table["clock_flag"] = [reader.clock_flag(run) for run in runs]
        table = table.merge(reader.totals(runs), on="run_id", how="left")
        table["flag"] = energy_flags(table)
        points["flag"] = _with_run_flags(points, table)
        problems += reader.unused_peaks()
    return Study(
        results=results.path,
        machines=tuple(reader.machines.values()),
        runs=table,
        points=points,
        findings=findings.sort_values("headroom_s", ascending=False).reset_index(drop=True),
        stages=read_stages(results.path, [run.run_id for run in runs]),
        problems=tuple(dict.fromkeys(problems)),
        raw_runs=tuple(runs),
    )


def _with_run_flags(points: pd.DataFrame, runs: pd.DataFrame) -> pd.Series:
    """What is wrong with a whole run is wrong with the point of its step."""
    joined = runs["flag"].str.cat(runs["clock_flag"], sep="; ").str.strip("; ")
    of_run = points["run_id"].map(dict(zip(runs["run_id"], joined, strict=True))).fillna("")
    of_step = of_run.where(points["grain"].eq("step"), "")
    return points["flag"].astype(object).str.cat(of_step, sep="; ").str.strip("; ")


def _failures(results: ResultsFolder, run_ids: Sequence[str] | None) -> list[str]:
    """Runs that failed, with their reasons; of chosen runs, those that are among them."""
    found = []
    for run_id in results.run_ids() if run_ids is None else run_ids:
        try:
            run = results.read_run(run_id)
        except RidgelineError:
            continue
        if run.asked.get("command") == "run" and run.found.get("status") == "failed":
            what = ", ".join(str(run.asked.get(name)) for name in ("model", "mode", "precision"))
            batch, reason = run.asked.get("batch_size"), run.found.get("reason")
            found.append(f"{what}, batch {batch}: this run failed: {reason}")
    return found


class _Reader:
    """Reads what runs share once: passports, counts."""

    def __init__(
        self,
        results: ResultsFolder,
        problems: list[str],
        given: Mapping[str, Roofs],
        everywhere: Roofs | None,
    ) -> None:
        self.results, self.problems = results, problems
        self.given, self.everywhere = given, everywhere
        self.machines: dict[tuple[str, str, str], Machine] = {}
        self._passports = _readable_passports(results, problems)
        self._counts = stored_counts(results, problems)
        self._ready: dict[tuple[Any, ...], Prepared] = {}

    def machine(self, run: Run) -> Machine:
        """The machine that a run ran on."""
        device = device_of(run)
        cores = (run.provenance.get("host") or {}).get("usable_cores") if device == "cpu" else None
        key = (str(run.found.get("device_name")), device, str(cores))
        if key not in self.machines:
            self.machines[key] = self._replaced(self._find_machine(run))
        return self.machines[key]

    def _find_machine(self, run: Run) -> Machine:
        device, name = device_of(run), str(run.found.get("device_name") or "")
        for passport in self._passports:
            if _is_of(passport, device, name, run):
                return _machine(passport, device)
        sheet = datasheet_for(name) if device != "cpu" else None
        env = _slug(name or device)
        if sheet is not None:
            entries = list(sheet.ceilings(device))
            roofs = datasheet_roofs(entries, env=env, device=device, device_name=name)
            self.problems.append(
                f"{name} was not measured; its roofs are those of its datasheet"
                " (ridgeline machine measure gives better ones)"
            )
            return Machine(roofs=roofs, datasheet=roofs)
        self.problems.append(
            f"no roofs are known for {name or device}: run `ridgeline machine measure` on it,"
            " or give --peak-compute and --peak-bw"
        )
        return Machine(roofs=Roofs(env=env, device=device, device_name=name, source="none"))

    def _replaced(self, machine: Machine) -> Machine:
        """With the roofs that the user gave instead of those measured; the others stay."""
        given = self.given.get(machine.env) or self.everywhere
        if given is None:
            return machine
        old = machine.roofs
        roofs = replace(
            old,
            source=given.source,
            compute={**old.compute, **given.compute},
            bandwidth={**old.bandwidth, **given.bandwidth},
            clocks_hz={k: v for k, v in old.clocks_hz.items() if k not in given.compute},
        )
        return replace(machine, roofs=roofs)

    def unused_peaks(self) -> list[str]:
        """Roofs that the user gave for machines that are not here."""
        here = [machine.env for machine in self.machines.values()]
        return [
            f"the peaks of {env!r} were not used: the machines here are {', '.join(here) or 'none'}"
            for env in self.given
            if env not in here
        ]

    def points(self, run: Run) -> list[tuple[Measured, Roofs, pd.DataFrame]]:
        """The placed pieces of one run."""
        roofs, measured = self.machine(run).roofs, measured_facts(run)
        tables = raw_points(
            measured,
            roofs,
            self._prepared(run, measured, roofs),
            self._table(run, "layers"),
            self._table(run, "kernels"),
        )
        return [(measured, roofs, table) for table in tables]

    def _prepared(self, run: Run, measured: Measured, roofs: Roofs) -> Prepared | None:
        """The counted work of a run, grouped once for all runs that share it."""
        count = self._count_of(run)
        if count is None:
            return None
        key = (count.run_id, roofs.env, roofs.device, measured.parts, measured.is_compiled)
        if key not in self._ready:
            counted = self._read_count(count)
            if counted is None:
                return None
            self._ready[key] = prepare(
                counted,
                roofs,
                precision=measured.precision,
                parts=measured.parts,
                is_compiled=measured.is_compiled,
            )
        return self._ready[key]

    def findings(self, points: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
        """What to fix first in each run."""
        import pandas as pd

        by_run: dict[str, list[dict[str, Any]]] = {run.run_id: [] for run in runs}
        coarse = points[points["grain"].ne("kernel")]
        for row in coarse.to_dict("records"):
            by_run[str(row["run_id"])].append({str(key): value for key, value in row.items()})
        rows = [
            found
            for run in runs
            for found in find_rows(by_run[run.run_id], setting_of(run), self.machine(run).roofs)
        ]
        return pd.DataFrame(rows, columns=list(FINDING_COLUMNS))

    def clock_flag(self, run: Run) -> str:
        during = (run.found.get("conditions") or {}).get("during") or {}
        roofs = self.machine(run).roofs
        return clock_flag(during.get("clock_hz"), roofs.clock_of(str(run.found["precision"])))

    def totals(self, runs: Sequence[Run]) -> pd.DataFrame:
        """Static totals of each run's step, where it was counted."""
        import pandas as pd

        rows = []
        for run in runs:
            count = self._counts.get(run_key(run))
            found = count.found if count is not None else {}
            ideal = found.get("ideal_bytes") or {}
            once = (found.get("phases") or {}).get("optimizer") or {}
            parts = parts_of(run)
            rows.append(
                {
                    "run_id": run.run_id,
                    "count_id": count.run_id if count is not None else None,
                    "params": found.get("params"),
                    "macs": _in_parts(found, once, parts, "macs"),
                    "flops": _in_parts(found, once, parts, "flops"),
                    "moved_bytes": _in_parts(found, once, parts, "read_bytes", "written_bytes"),
                    "ideal_bytes": _in_parts(ideal, once, parts, "read_bytes", "written_bytes"),
                    "counted_peak_bytes": (found.get("memory") or {}).get("peak_bytes"),
                    "coverage": found.get("coverage"),
                }
            )
        return pd.DataFrame(rows)

    def _count_of(self, run: Run) -> Run | None:
        count = self._counts.get(run_key(run))
        if count is None:
            self.problems.append(
                f"{run.asked['model']}, batch {run.asked['batch_size']}: not counted, so it has no"
                " place on a roofline (ridgeline count MODEL --results DIR counts it)"
            )
        return count

    def _read_count(self, count: Run) -> Counted | None:
        ops = self._table(count, "ops")
        if ops is None:
            return None
        layers = self._table(count, "layers", COUNTED)
        ideal = count.found.get("ideal_bytes") or {}
        by_layer = {} if layers is None else dict(
            zip(layers["path"], layers["ideal_bytes"].astype(float), strict=True)
        )  # fmt: skip
        return Counted(
            ops=ops,
            ideal_bytes=_sum(ideal, "read_bytes", "written_bytes"),
            layer_ideal_bytes=by_layer,
        )

    def _table(self, run: Run, name: str, kind: str | None = None) -> pd.DataFrame | None:
        """A table of a run; None, with a word, where it is not what its name or `kind` says."""
        if not (run.path / f"{name}.parquet").is_file():
            return None
        columns = list(NEEDED_COLUMNS[kind]) if kind else None
        try:
            table = self.results.read_table(run.run_id, name, columns=columns)
            return check_table(kind or name, table)
        except RidgelineError as error:
            self.problems.append(str(error))
        except FieldError as error:
            self.problems.append(f"the table {name} of run {run.run_id} is passed over: {error}")
        return None


def _machine(passport: Passport, device: str) -> Machine:
    roofs = measured_roofs(passport, device)
    entries = published(passport).get(device)
    sheet = None
    if entries:
        sheet = datasheet_roofs(entries, env=passport.name, device=device,
                                device_name=roofs.device_name)  # fmt: skip
    return Machine(roofs=roofs, datasheet=sheet, passport=passport)


def _is_of(passport: Passport, device: str, name: str, run: Run) -> bool:
    """Whether a passport has roofs of the device that a run used.

    A GPU is known by its name; a processor by its model and, where both say so, its cores.
    """
    if not any(c.device == device for c in passport.ceilings):
        return False
    if device_name(passport, device) != name:
        return False
    if device != "cpu":
        return True
    there = (passport.description.get("cpu") or {}).get("usable_cores")
    here = (run.provenance.get("host") or {}).get("usable_cores")
    return there is None or here is None or there == here


def _readable_passports(results: ResultsFolder, problems: list[str]) -> list[Passport]:
    """All passports of the folder, the latest first."""
    passports, found = Passports(results.path), []
    for name in passports.names():
        try:
            found.append(passports.read(name))
        except RidgelineError as error:
            problems.append(str(error))
    return sorted(found, key=lambda p: p.measured_at, reverse=True)


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


def _slug(text: str) -> str:
    kept = (c if c.isalnum() or c in "._-" else "-" for c in text.lower())
    return "".join(kept).strip("-") or "unknown"
