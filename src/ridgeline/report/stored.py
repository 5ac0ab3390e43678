"""What a results folder stores beside runs, and whose it is: tables, counts, profiles, roofs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from ridgeline.captures.capture import sources_of
from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import datasheet_for, find_published_roofs
from ridgeline.machine.passport import EnergyModel, Passport, Passports
from ridgeline.profile.request import TIERS
from ridgeline.records import RECOMPUTE, CaptureRequest, CountRequest, RunRequest
from ridgeline.report.text import safe_name
from ridgeline.roofline.roofs import Roofs, datasheet_roofs, device_name, measured_roofs
from ridgeline.store import (
    MeasuredRun,
    ResultsFolder,
    ResultsIndex,
    Run,
    StoredCapture,
    StoredConv,
    StoredCount,
    StoredProfile,
)

if TYPE_CHECKING:
    import pandas as pd

AnyRun = MeasuredRun | StoredCapture | StoredConv  # of which a machine is known
COUNTERS, TIME = TIERS
SAME_COUNT = ("model", "digest", "batch_size", "mode", "input_size", "seq_len", "config")
EARLIER_NAME = "ideal_bytes"  # of the fused bytes, in counts of earlier versions
UNNAMED = "unnamed-device"  # the machine of captures that name no device, or several

# ---------------------------------------------------------------- tables

NEEDED_COLUMNS = {
    "ops": ("path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops", "flops",
            "read_bytes", "written_bytes"),
    "layers": ("layer", "kind", "input_shape", "time_s", "forward_s", "backward_s"),
    "kernels": ("kernel", "time_s"),
    "copies": ("layer", "phase", "moved_bytes"),
}  # fmt: skip
COUNTS = ("macs", "flops", "other_flops", "launches")


def read_table(
    run: Run, name: str, problems: list[str], *, needs: Sequence[str] | None = None
) -> pd.DataFrame | None:
    """A table of a run, its quantities as numbers; None if it has none, or none that can be used.

    `needs` are the columns that the caller uses; what is wrong goes to `problems`.
    """
    if not (run.path / f"{name}.parquet").is_file():
        return None
    try:
        table = ResultsFolder(run.path.parent.parent).read_table(run.run_id, name)
        return _check_table(table, NEEDED_COLUMNS[name] if needs is None else needs)
    except RidgelineError as error:
        problems.append(str(error))
    except (TypeError, ValueError, OverflowError) as error:
        problems.append(f"the table {name} of run {run.run_id} is passed over: {error}")
    return None


def _check_table(table: pd.DataFrame, needs: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    for column in needs:
        if column not in table:
            raise ValueError(f"it has no column {column!r}")
    numbers = [
        column
        for column in map(str, table)
        if column in COUNTS or column.endswith(("_s", "_bytes")) or column.startswith("flops_")
    ]
    quantities = [column for column in numbers if not column.endswith("_samples_s")]  # lists
    return table.assign(**{column: pd.to_numeric(table[column]) for column in quantities})


# ---------------------------------------------------------------- counts


def stored_counts(index: ResultsIndex) -> dict[str, StoredCount]:
    """Stored counts by what was counted; a later one replaces an earlier."""
    return {
        count_key(count.request, count.request.precision): count
        for count in index.counts
        if (count.path / "ops.parquet").is_file()
    }


def run_key(run: MeasuredRun) -> str:
    """The key of the count that a run needs."""
    return count_key(run.request, run.result.precision)


def count_key(request: RunRequest | CountRequest, precision: str) -> str:
    """A key that is the same for a count and for the runs that it is the count of."""
    same = {name: getattr(request, name) for name in SAME_COUNT}
    optimizer = request.optimizer if request.mode == "train" else None
    return json.dumps([same, precision, optimizer], sort_keys=True, default=str)


def uncounted(index: ResultsIndex, run_ids: Sequence[str] | None = None) -> list[MeasuredRun]:
    """Completed runs without a stored count, one of each kind."""
    counts = stored_counts(index)
    chosen = [run for run in index.runs if run_ids is None or run.run_id in run_ids]
    missing = {run_key(run): run for run in reversed(chosen) if run_key(run) not in counts}
    return list(missing.values())[::-1]


def name_recompute(ops: pd.DataFrame) -> pd.DataFrame:
    """The operators of a count, with recomputation in its own phase.

    Counts stored by earlier versions call it forward, and set it apart by `is_recomputed` alone.
    """
    if "is_recomputed" not in ops:
        return ops
    return ops.assign(phase=ops["phase"].mask(ops["is_recomputed"].eq(True), RECOMPUTE))


def rename_fused_of_layers(layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The counted layers with `own_fused_bytes`, which earlier versions did not store.

    They had the bytes of the forward pass: in inference that is all, in training not enough.
    """
    if EARLIER_NAME not in layers or "own_fused_bytes" in layers:
        return layers
    fused = layers[EARLIER_NAME] if mode == "infer" else float("nan")
    return layers.assign(own_fused_bytes=fused)


# ---------------------------------------------------------------- profiles and captures


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The counters and traces that are stored."""

    of_run: dict[str, StoredProfile] = field(default_factory=dict)  # the newest good one
    captures: tuple[StoredCapture, ...] = ()  # imported, or of a program; oldest first
    names: dict[str, str] = field(default_factory=dict)  # of all captures by id, no two alike


def stored_profiles(
    index: ResultsIndex,
    runs: Iterable[MeasuredRun],
    problems: list[str],
    run_ids: Sequence[str] | None = None,
) -> Profiles:
    """Profiles of `runs`, and captures: all, or those among `run_ids`.

    A profile that failed is a problem, unless a later one of the same run did not.
    """
    known = {run.run_id for run in runs}
    of_run: dict[str, StoredProfile] = {}
    failures: dict[str, str] = {}
    for profile in index.profiles:
        parent, is_ok = profile.request.of_run, profile.result.status == "ok"
        if is_ok and parent in known:
            of_run[parent] = profile
            failures.pop(parent, None)
        elif is_ok and run_ids is None:
            problems.append(f"profile {profile.run_id} is of the run {parent}, which is not here")
        elif not is_ok and (run_ids is None or parent in known):
            hint = f" ({profile.result.hint})" if profile.result.hint else ""
            reason = f"its profile failed: {profile.result.reason or 'unknown'}{hint}"
            failures[parent] = f"{describe_request(profile.request)}: {reason}"
    problems += failures.values()
    chosen = [run for run in index.captures if run_ids is None or run.run_id in run_ids]
    return Profiles(of_run=of_run, captures=tuple(chosen), names=names_of(index.captures))


def describe_request(request: RunRequest) -> str:
    """`resnet50, train, amp, batch 32`."""
    return f"{request.model}, {request.mode}, {request.precision}, batch {request.batch_size}"


def label_of(capture: StoredCapture) -> str:
    """The label of a capture, or the name of its first file or its program."""
    names = [PurePath(source).name for source in sources_of(capture)]
    return capture.request.label or next(iter(names), "") or capture.run_id


def file_names(capture: StoredCapture) -> str:
    """`flops.csv + bytes.csv`."""
    return " + ".join(PurePath(source).name for source in sources_of(capture))


def names_of(captures: Sequence[StoredCapture]) -> dict[str, str]:
    """Captures by their labels; those that share one also by their files, else by their ids."""
    names = {one.run_id: label_of(one) for one in captures}
    for describe in (file_names, lambda one: one.run_id.rpartition("-")[2]):
        often = Counter(names.values())
        for one in captures:
            if often[names[one.run_id]] > 1:
                names[one.run_id] = f"{label_of(one)} ({describe(one)})"
    return names


# ---------------------------------------------------------------- machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device with its roofs."""

    roofs: Roofs
    datasheet: Roofs | None = None
    passport: Passport | None = None
    note: str = ""  # of its owner

    @property
    def env(self) -> str:
        return self.roofs.env

    @property
    def energy_model(self) -> EnergyModel | None:
        """Its energy coefficients; of some threads of a CPU there are none."""
        if self.passport is None or self.roofs.whole_env:
            return None
        return self.passport.energy_model(self.roofs.device)

    @property
    def published(self) -> Roofs | None:
        """The datasheet's roofs, where they are not the only ones."""
        return None if self.roofs.source == "datasheet" else self.datasheet


class Machines:
    """Finds the machine of each run; what is wrong goes to `problems`.

    `user_roofs` are roofs by environment and `everywhere` roofs for all: in place of measured ones.
    """

    def __init__(
        self,
        results: ResultsFolder,
        problems: list[str],
        user_roofs: Mapping[str, Roofs],
        everywhere: Roofs | None,
    ) -> None:
        self.problems, self.user_roofs, self.everywhere = problems, user_roofs, everywhere
        self.machines: dict[tuple[str, str, str, str], Machine] = {}
        self._of_run: dict[tuple[str, str, str, int | None], Machine] = {}
        self._passports = _read_passports(results, problems)
        self._notes = Passports(results.path)

    def of(self, run: AnyRun) -> Machine:
        """The machine that a run ran on."""
        name, device = str(run.result.device_name), device_of(run)
        cores = str(run.made.host.usable_cores if device == "cpu" else None)
        same = (name, device, cores, threads_of(run))
        if same not in self._of_run:
            machine = self._replace_roofs(self._find(run))
            name = machine.roofs.whole_env or machine.env
            machine = replace(machine, note=self._notes.note(name))
            key = (name, device, cores, machine.env)  # all cores, however many were named
            self._of_run[same] = self.machines.setdefault(key, machine)
        return self._of_run[same]

    def _find(self, run: AnyRun) -> Machine:
        device, name = device_of(run), run.result.device_name or ""
        for passport in self._passports:
            if _is_of(passport, device, name, run):
                return _machine(passport, device, threads_of(run))
        sheet = datasheet_for(name) if name else None
        unnamed = UNNAMED if isinstance(run.request, CaptureRequest) else device
        env = safe_name((name or unnamed).lower(), otherwise="unknown")
        if device == "cpu" and sheet is not None:  # a chip with a GPU, whose datasheet that is
            env, sheet = f"{env}-cpu", None
        if sheet is not None:
            entries = list(sheet.ceilings(device))
            roofs = datasheet_roofs(entries, env=env, device=device, device_name=name)
            self._report(
                env,
                f"{name} was not measured; its roofs are those of its datasheet"
                " (ridgeline machine measure gives better ones)",
            )
            fitted = (p for p in self._passports if p.name == env and not p.ceilings)  # to a file
            return Machine(roofs=roofs, datasheet=roofs, passport=next(fitted, None))
        self._report(
            env,
            f"no roofs are known for {name or 'a device without a name'}: run `ridgeline machine"
            " measure` on it, or give --peak-compute and --peak-bw",
        )
        return Machine(roofs=Roofs(env=env, device=device, device_name=name, source="none"))

    def _report(self, env: str, problem: str) -> None:
        """Roofs that were given are not missed."""
        chosen = self.user_roofs.get(env) or self.everywhere
        if chosen is None or not chosen.flats or not chosen.bandwidth:
            self.problems.append(problem)

    def _replace_roofs(self, machine: Machine) -> Machine:
        """With the roofs that the user gave instead of those measured; the others stay."""
        old = machine.roofs
        of_whole = self.user_roofs.get(old.whole_env, self.everywhere)  # it may be some threads
        chosen = self.user_roofs.get(machine.env, of_whole)
        if chosen is None or not chosen.is_known:
            return machine
        is_slope_left = "dram" in old.bandwidth and "dram" not in chosen.bandwidth
        are_left = is_slope_left or not old.flats.keys() <= chosen.flats.keys()
        roofs = replace(
            old,
            source=chosen.source,
            others=old.source if are_left else "",
            basis=old.basis if are_left else "",
            compute={**old.compute, **chosen.compute},
            integer={**old.integer, **chosen.integer},
            bandwidth={**old.bandwidth, **chosen.bandwidth},
            clocks_hz={k: v for k, v in old.clocks_hz.items() if k not in chosen.compute},
        )
        return replace(machine, roofs=roofs)

    def bases(self) -> list[str]:
        """How ceilings of some threads were found, machine by machine."""
        every = [machine.roofs for machine in self.machines.values()]
        return [f"{roofs.env}: {roofs.basis}" for roofs in every if roofs.basis]

    def unused_peaks(self) -> list[str]:
        """Roofs that the user gave for machines that are not here."""
        here = [machine.env for machine in self.machines.values()]
        whole = [machine.roofs.whole_env for machine in self.machines.values()]
        return [
            f"the peaks of {env!r} were not used: the machines here are {', '.join(here) or 'none'}"
            for env in self.user_roofs
            if env not in (*here, *whole)
        ]


def device_of(run: AnyRun) -> str:
    """`cpu`, `mps`, `cuda:0`. A capture does not know its number."""
    kind = run.result.backend or "cuda"
    number = getattr(run.request, "device", 0)
    return f"cuda:{number}" if kind == "cuda" else kind


def threads_of(run: AnyRun) -> int | None:
    """Threads of the operators on a CPU; None on other devices, and where it is not stored."""
    result = run.result
    return getattr(result, "threads", None) if result.backend == "cpu" else None


def _machine(passport: Passport, device: str, threads: int | None) -> Machine:
    roofs = measured_roofs(passport, device, threads)
    entries = find_published_roofs(passport).get(device) if not roofs.whole_env else None
    sheet = None
    if entries:
        sheet = datasheet_roofs(entries, env=passport.name, device=device,
                                device_name=roofs.device_name)  # fmt: skip
    return Machine(roofs=roofs, datasheet=sheet, passport=passport)


def _is_of(passport: Passport, device: str, name: str, run: AnyRun) -> bool:
    """Whether a passport has roofs of the device that a run used.

    A GPU is known by its name; a processor by its model and, where both say so, its cores.
    """
    is_same = device_name(passport, device) == name
    if not is_same or not any(c.device == device for c in passport.ceilings):
        return False
    cores = {passport.description.cpu.usable_cores, run.made.host.usable_cores} - {None}
    return device != "cpu" or len(cores) < 2


def _read_passports(results: ResultsFolder, problems: list[str]) -> list[Passport]:
    """All passports of the folder, the latest first."""
    passports, readable = Passports(results.path), []
    for name in passports.names():
        try:
            readable.append(passports.read(name))
        except RidgelineError as error:
            problems.append(str(error))
    return sorted(readable, key=lambda p: p.measured_at, reverse=True)
