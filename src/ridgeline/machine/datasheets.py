"""What the makers publish for the devices of a passport: the second roof, always labelled."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ridgeline.machine.passport import Ceiling, Passport
from ridgeline.serialize import from_dict

KINDS = ("gpu", "laptop-gpu", "soc", "cpu")
PUBLISHED, DERIVED = "published", "derived"
PROVENANCE = "datasheet"
OF_ONE_PART = ("published", "variants", "assumes")  # keys that variants do not share
MEMORY_SHARES = (0.85, 1.1)  # reported over nominal memory: firmware and ECC take some of it

_NOISE = (  # what a driver or /proc/cpuinfo adds to a product's name
    r"\((r|tm|nvgpu)\)|[®™]",
    r"@\s*[\d.]+\s*ghz",
    r"\b\d+-cores?\b",
    r"^\d+th gen\b",
    r"\bwith radeon.*",
    r"\b(nvidia|geforce|tesla|amd|intel|cpu|gpu|processor)\b",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most arithmetic per second of one path and precision, dense."""

    path: str  # "matrix" or "vector"
    precision: str
    accumulator: str | None = None  # of the sum; None for vectors, or if not stated
    flops_per_s: float
    confidence: str  # PUBLISHED or DERIVED
    flops_per_cycle: int | None = None  # of one unit; None where the units differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """What the documents say about one device: what a driver calls a device, not a board of two."""

    name: str
    driver_names: tuple[str, ...]
    family: str  # the file it is from: "nvidia_geforce"
    kind: str  # one of KINDS
    architecture: str
    compute_capability: str | None = None  # "9.0", "gfx942"
    unit: str  # what `units` counts: "SM", "CU", "GPU core", "core"
    units: int
    boost_clock_hz: float | None = None
    matrix_clock_hz: float | None = None  # where matrix peaks are stated at another clock
    memory_bytes: int | None = None  # None: depends on what was bought
    dram_bytes_per_s: float
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    tdp_w: float | None = None
    peaks: tuple[Peak, ...]
    confidence: str  # DERIVED: some of units, clock or peaks are not from the maker
    note: str | None = None
    source: str
    assumes: str | None = None  # where several parts have this name: which one it is

    def peak(self, path: str, precision: str, accumulator: str | None = None) -> Peak | None:
        """The peak of a path and precision; without an accumulator the one that sums in fp32."""
        fitting = [
            p for p in self.peaks
            if (p.path, p.precision) == (path, precision) and accumulator in (None, p.accumulator)
        ]  # fmt: skip
        return min(fitting, key=lambda p: p.accumulator != "fp32", default=None)

    def ceilings(self, device: str = "cuda:0") -> list[dict[str, Any]]:
        """The roofs as the passport writes them, labelled with their provenance and source."""
        label = {"provenance": PROVENANCE, "name": self.name, "source": self.source,
                 "assumes": self.assumes}  # fmt: skip

        def entry(kind: str, confidence: str, **fields: Any) -> dict[str, Any]:
            return {"kind": kind, "device": device, **fields, "confidence": confidence, **label}

        entries = [
            entry("compute", peak.confidence, path=peak.path, precision=peak.precision,
                  accumulator=peak.accumulator, flops_per_s=peak.flops_per_s,
                  clock_hz=peak.flops_per_s / (peak.flops_per_cycle * self.units)
                  if peak.flops_per_cycle else None)  # where the units differ
            for peak in self.peaks
        ]  # fmt: skip
        sure = PUBLISHED if self.kind != "cpu" else self.confidence
        rate = self.dram_bytes_per_s
        entries.append(entry("bandwidth", sure, level="dram", pattern="any", bytes_per_s=rate))
        if self.tdp_w is not None:
            entries.append(entry("power", PUBLISHED, what="limit", power_w=self.tdp_w))
        return entries

    def has(self, *, units: int | None, memory_bytes: int | None) -> bool:
        """Whether a device with so many units, and so much memory, may be this one."""
        least, most = MEMORY_SHARES
        share = memory_bytes / self.memory_bytes if memory_bytes and self.memory_bytes else 1.0
        return units in (None, self.units) and least <= share <= most


def list_datasheets() -> list[Datasheet]:
    """Every device with a datasheet, by family and in the order of the files."""
    return [main for main, *_ in _parts()]


def datasheet_for(
    device_name: str, *, units: int | None = None, memory_bytes: int | None = None
) -> Datasheet | None:
    """The datasheet of the device a driver calls `device_name`; None if there is not exactly one.

    The number of SMs (compute units, cores) and the memory, where the caller knows them, tell parts
    of one name apart. A GPU that differs from all entries of its name in these is not in the table.
    Where only the name is known and several parts carry it, `assumes` says which one this is.
    """
    name = _normalise(device_name)
    named = [
        parts for parts in _parts()
        if name in map(_normalise, (parts[0].name, *parts[0].driver_names))
    ]  # fmt: skip
    if len(named) == 1 and named[0][0].kind == "cpu":
        return named[0][0]  # a virtual machine shows some of the cores, two sockets show more
    fitting = [
        fit for parts in named
        if (fit := [one for one in parts if one.has(units=units, memory_bytes=memory_bytes)])
    ]  # fmt: skip
    if len(fitting) != 1:
        return None
    main, *others = fitting[0]
    return main if others else replace(main, assumes=None)


@cache
def _normalise(name: str) -> str:
    """A product's name without vendor, marks, clock and punctuation; every other word counts."""
    text = name.casefold().strip()
    for noise in _NOISE:
        text = re.sub(noise, " ", text)
    text = re.sub(r"[-_/,()]+", " ", text)
    return " ".join("laptop" if word == "mobile" else word for word in text.split())


# Reading


@cache
def _parts() -> tuple[tuple[Datasheet, ...], ...]:
    """Each datasheet, followed by the other parts that are sold and reported under its name."""
    folder = files("ridgeline.machine") / "datasheets"
    families = {
        file.name.removesuffix(".toml"): tomllib.loads(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    }
    rates = families.pop("rates")
    sheets = []
    for family, content in families.items():
        for entry in content["device"]:
            shared = {key: entry[key] for key in entry if key not in OF_ONE_PART}
            every = [entry, *(shared | other for other in entry.get("variants", ()))]
            sheets.append(tuple(_datasheet(one, rates[one["rates"]], family) for one in every))
    return tuple(sheets)


def _datasheet(entry: Mapping[str, Any], rates: Mapping[str, Any], family: str) -> Datasheet:
    content = {"confidence": PUBLISHED, **rates, **entry, "family": family}
    rate = entry.get("dram_bytes_per_s")
    if rate is None:
        rate = entry["memory_channels"] * entry["memory_transfers_per_s"] * 8
    content |= {"dram_bytes_per_s": float(rate), "peaks": list(_peaks(content))}
    return from_dict(Datasheet, content)


def _peaks(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A peak per rate of the architecture: the printed one, else units × FLOP per cycle × clock."""
    printed = {_key(peak): float(peak["flops_per_s"]) for peak in entry.get("published", ())}
    for rate in entry["flops_per_cycle"]:
        clock_hz = entry.get("boost_clock_hz")
        if rate["path"] == "matrix":
            clock_hz = entry.get("matrix_clock_hz", clock_hz)
        if _key(rate) in printed:
            flops_per_s, confidence = printed[_key(rate)], entry["confidence"]
        elif clock_hz is not None:
            flops_per_s, confidence = float(entry["units"] * rate["flops"] * clock_hz), DERIVED
        else:
            continue  # neither a figure nor a clock: no roof is better than a guess
        yield {**rate, "flops_per_cycle": rate["flops"] or None, "flops_per_s": flops_per_s,
               "confidence": confidence}  # fmt: skip


def _key(figure: Mapping[str, Any]) -> tuple[str, str, str]:
    return figure["path"], figure["precision"], figure.get("accumulator", "")


Published = dict[str, list[dict[str, Any]]]


def find_published_roofs(passport: Passport) -> Published:
    """Datasheet ceilings of each device that has a datasheet, by the device's name."""
    roofs: Published = {}
    for gpu in passport.description.gpus:
        sheet = datasheet_for(gpu.name, units=gpu.compute_units, memory_bytes=gpu.memory_bytes)
        if sheet is not None and gpu.index is not None:
            device = "mps" if gpu.kind == "mps" else f"cuda:{gpu.index}"
            roofs[device] = list(sheet.ceilings(device))
    return roofs


def find_datasheet_rate(ceiling: Ceiling, sheets: Published) -> float | None:
    """The published counterpart of a measured ceiling, where there is one."""
    for entry in sheets.get(ceiling.device, []):
        if entry["kind"] != ceiling.kind:
            continue
        if ceiling.kind == "bandwidth" and entry["level"] == ceiling.level:
            return float(entry["bytes_per_s"])
        same = (entry.get("path"), entry.get("precision")) == (ceiling.path, ceiling.precision)
        if ceiling.kind == "compute" and same:
            return float(entry["flops_per_s"])
    return None
