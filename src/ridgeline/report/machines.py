"""The machines of a study: which device ran something, and which roofs are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import datasheet_for, find_published_roofs
from ridgeline.machine.passport import Passport, Passports
from ridgeline.records import CaptureRequest, RunRequest, RunResult
from ridgeline.roofline.roofs import Roofs, datasheet_roofs, device_name, measured_roofs
from ridgeline.store import MeasuredRun, ResultsFolder, StoredCapture

UNNAMED = "unnamed-device"  # the machine of captures that name no device, or several


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device with its roofs."""

    roofs: Roofs
    datasheet: Roofs | None = None
    passport: Passport | None = None

    @property
    def env(self) -> str:
        return self.roofs.env


def device_of(run: MeasuredRun | StoredCapture) -> str:
    """`cpu`, `mps`, `cuda:0`. A capture does not know its number."""
    kind = run.result.backend or "cuda"
    number = run.request.device if isinstance(run.request, RunRequest) else 0
    return f"cuda:{number}" if kind == "cuda" else kind


def threads_of(run: MeasuredRun | StoredCapture) -> int | None:
    """Threads of the operators on a CPU; None on other devices, and where it is not stored."""
    if not isinstance(run.result, RunResult) or run.result.backend != "cpu":
        return None
    return run.result.threads


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

    def of(self, run: MeasuredRun | StoredCapture) -> Machine:
        """The machine that a run ran on."""
        device = device_of(run)
        cores = run.made.host.usable_cores if device == "cpu" else None
        name, threads = str(run.result.device_name), threads_of(run)
        same = (name, device, str(cores), threads)
        if same not in self._of_run:
            machine = self._replace_roofs(self._find(run))
            key = (name, device, str(cores), machine.env)  # all cores, however many were named
            self._of_run[same] = self.machines.setdefault(key, machine)
        return self._of_run[same]

    def _find(self, run: MeasuredRun | StoredCapture) -> Machine:
        device, name = device_of(run), run.result.device_name or ""
        for passport in self._passports:
            if _is_of(passport, device, name, run):
                return _machine(passport, device, threads_of(run))
        sheet = datasheet_for(name) if device != "cpu" and name else None
        env = _slug(name or (UNNAMED if isinstance(run.request, CaptureRequest) else device))
        if sheet is not None:
            entries = list(sheet.ceilings(device))
            roofs = datasheet_roofs(entries, env=env, device=device, device_name=name)
            self._report(
                env,
                f"{name} was not measured; its roofs are those of its datasheet"
                " (ridgeline machine measure gives better ones)",
            )
            return Machine(roofs=roofs, datasheet=roofs)
        unknown = (
            f"{name}: run `ridgeline machine measure` on it, or" if name
            else "captures of several devices, or of one without a name:"
        )  # fmt: skip
        self._report(env, f"no roofs are known for {unknown} give --peak-compute and --peak-bw")
        return Machine(roofs=Roofs(env=env, device=device, device_name=name, source="none"))

    def _report(self, env: str, problem: str) -> None:
        """Roofs that were given are not missed."""
        chosen = self.user_roofs.get(env) or self.everywhere
        if chosen is None or not chosen.flats or not chosen.bandwidth:
            self.problems.append(problem)

    def _replace_roofs(self, machine: Machine) -> Machine:
        """With the roofs that the user gave instead of those measured; the others stay."""
        chosen = self._user_roofs(machine)
        if chosen is None or not (chosen.flats or chosen.bandwidth):
            return machine
        old = machine.roofs
        roofs = replace(
            old,
            source=chosen.source,
            others=old.source if _are_left(old, chosen) else "",
            basis=old.basis if _are_left(old, chosen) else "",
            compute={**old.compute, **chosen.compute},
            integer={**old.integer, **chosen.integer},
            bandwidth={**old.bandwidth, **chosen.bandwidth},
            clocks_hz={k: v for k, v in old.clocks_hz.items() if k not in chosen.compute},
        )
        return replace(machine, roofs=roofs)

    def _user_roofs(self, machine: Machine) -> Roofs | None:
        """The roofs that the user gave for a machine, or for that of which it is some threads."""
        names = (machine.env, machine.roofs.whole_env)
        return next(
            (self.user_roofs[name] for name in names if name in self.user_roofs), self.everywhere
        )

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


def _are_left(old: Roofs, chosen: Roofs) -> bool:
    """Whether flat roofs, or that of DRAM, are not among those chosen."""
    is_slope_left = "dram" in old.bandwidth and "dram" not in chosen.bandwidth
    return is_slope_left or not old.flats.keys() <= chosen.flats.keys()


def _machine(passport: Passport, device: str, threads: int | None) -> Machine:
    roofs = measured_roofs(passport, device, threads)
    entries = find_published_roofs(passport).get(device) if not roofs.whole_env else None
    sheet = None
    if entries:
        sheet = datasheet_roofs(entries, env=passport.name, device=device,
                                device_name=roofs.device_name)  # fmt: skip
    return Machine(roofs=roofs, datasheet=sheet, passport=passport)


def _is_of(passport: Passport, device: str, name: str, run: MeasuredRun | StoredCapture) -> bool:
    """Whether a passport has roofs of the device that a run used.

    A GPU is known by its name; a processor by its model and, where both say so, its cores.
    """
    if not any(c.device == device for c in passport.ceilings):
        return False
    if device_name(passport, device) != name:
        return False
    if device != "cpu":
        return True
    there = passport.description.cpu.usable_cores
    here = run.made.host.usable_cores
    return there is None or here is None or there == here


def _read_passports(results: ResultsFolder, problems: list[str]) -> list[Passport]:
    """All passports of the folder, the latest first."""
    passports, readable = Passports(results.path), []
    for name in passports.names():
        try:
            readable.append(passports.read(name))
        except RidgelineError as error:
            problems.append(str(error))
    return sorted(readable, key=lambda p: p.measured_at, reverse=True)


def _slug(text: str) -> str:
    safe = (c if c.isalnum() or c in "._-" else "-" for c in text.lower())
    return "".join(safe).strip("-") or "unknown"
