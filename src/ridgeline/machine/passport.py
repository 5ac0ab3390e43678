"""A machine's ceilings as a file: its passport. Written once, read by everything after it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.ceiling import Ceiling, Missing, ceiling_from_dict
from ridgeline.serialize import FieldError, Index, Name, NotNegative, from_dict
from ridgeline.store import atomic_write_text, to_json, writing

# History of the format, newest first.
# 1  2026-11-15  name, time, ceilings with samples, missing, description, provenance
PASSPORT_VERSION = 1

AGAIN = "measure the machine again: ridgeline machine measure"
MEMORY_LEVELS = ("l1", "l2", "l3", "dram")
DRIFT = 0.05  # a roof that moved by more than this share is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Passport:
    """What one machine can do, when and how that was measured."""

    name: str
    measured_at: str  # ISO time with its zone
    is_quick: bool
    ceilings: tuple[Ceiling, ...]
    missing: tuple[Missing, ...] = ()
    description: Mapping[str, Any] = field(default_factory=dict)  # as `machine describe` gives it
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def noise(self) -> float:
        """How steady the machine was: the widest spread, or fall from best to median, of any roof.

        Matrix products are left out, which a power cap moves on a quiet machine too, and so are
        transfers, which depend on the host.
        """
        named = (c for c in self.ceilings if c.path == "vector" or c.level in MEMORY_LEVELS)
        steady = [c for c in named if c.sustained]
        return max((max(c.spread, c.best / c.sustained - 1) for c in steady), default=0.0)

    def find(self, **wanted: str) -> list[Ceiling]:
        """Ceilings whose fields have these values: `find(kind="compute", precision="bf16")`."""
        return [
            c for c in self.ceilings if all(getattr(c, name) == v for name, v in wanted.items())
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": PASSPORT_VERSION,
            "machine": self.name,
            "measured_at": self.measured_at,
            "is_quick": self.is_quick,
            "noise": self.noise,
            "ceilings": [c.to_dict() for c in self.ceilings],
            "missing": [{"what": m.what, "reason": m.reason} for m in self.missing],
            "description": self.description,
            "provenance": self.provenance,
        }


# What is read of a description and a provenance, which a passport otherwise keeps as they are.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    level: Index
    kind: str | None = None
    size_bytes: NotNegative | None = None
    instances: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cpu:
    model: str | None = None
    usable_cores: float | None = None
    caches: tuple[_Cache, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    total_bytes: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    kind: str | None = None
    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    index: Index | None = None
    compute_units: NotNegative | None = None
    memory_bytes: NotNegative | None = None
    l2_bytes: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    os: str | None = None
    cpu: _Cpu | None = None
    memory: _Memory | None = None
    drivers: Mapping[str, str | None] = field(default_factory=dict)
    gpus: tuple[_Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provenance:
    command: tuple[str, ...] = ()
    libraries: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A passport as its file has it."""

    machine: Name
    measured_at: str
    is_quick: bool
    ceilings: tuple[Mapping[str, Any], ...]
    missing: tuple[Missing, ...]
    description: _Description
    provenance: _Provenance


def passport_from_dict(content: Any, *, where: str) -> Passport:
    """Read `Passport.to_dict` back; `where` names it in errors."""
    try:
        version = content["schema_version"]
        if version > PASSPORT_VERSION:
            raise RidgelineError(
                f"{where} is a passport of version {version}; this ridgeline reads "
                f"{PASSPORT_VERSION}",
                hint="update ridgeline",
            )
        stored = from_dict(_Stored, content)
        return Passport(
            name=stored.machine,
            measured_at=_time(stored.measured_at),
            is_quick=stored.is_quick,
            ceilings=tuple(_ceiling(n, c) for n, c in enumerate(stored.ceilings)),
            missing=stored.missing,
            description=content["description"],
            provenance=content["provenance"],
        )
    except FieldError as error:
        raise RidgelineError(f"{where} is not a passport: {error}", hint=AGAIN) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RidgelineError(
            f"{where} is not a passport: {type(error).__name__} {error}",
            hint=AGAIN,
        ) from error


def _time(text: str) -> str:
    """When it was measured; ValueError if that is no time, since it becomes part of a path."""
    datetime.fromisoformat(text)
    return text


def _ceiling(number: int, content: Mapping[str, Any]) -> Ceiling:
    """A roof is above zero: what it is divided by."""
    ceiling = ceiling_from_dict(content, f"ceilings.{number}")
    if ceiling.kind != "power" and (ceiling.sustained <= 0 or min(ceiling.samples) < 0):
        raise FieldError(f"ceilings.{number}.samples are not numbers above zero")
    return ceiling


def read_passport(path: Path) -> Passport:
    """The passport in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RidgelineError(
            f"there is no passport {path}", hint="`ridgeline machine list` shows those there are"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RidgelineError(
            f"{path} cannot be read as a passport: {error}",
            hint="measure the machine again, or restore the file from a copy",
        ) from error
    return passport_from_dict(content, where=str(path))


@dataclass(frozen=True, slots=True)
class Passports:
    """The passports of a results folder."""

    results: Path

    @property
    def folder(self) -> Path:
        return self.results / "machines"

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def write(self, passport: Passport) -> Path:
        """Store a passport; the one it replaces is kept beside it under its date."""
        path = self.path(passport.name)
        if path.exists():
            self._keep_earlier(path, passport.measured_at)
        atomic_write_text(path, to_json(passport.to_dict()))
        return path

    def _keep_earlier(self, path: Path, measured_at: str) -> None:
        """Copy the file unless it is of the same measurement; it need not be a passport."""
        try:
            before = read_passport(path).measured_at
        except RidgelineError:
            before = f"unreadable-before-{measured_at}"
        if before == measured_at:
            return
        stamp = re.sub(r"[^\w.-]", "", before.replace("+", "_"))
        with writing(self.folder):
            earlier = self.folder / "earlier"
            earlier.mkdir(exist_ok=True)
            shutil.copyfile(path, earlier / f"{path.stem}-{stamp}.json")

    def read(self, name: str) -> Passport:
        """By name, or by the path of a file from anywhere."""
        given = Path(name)
        if given.suffix == ".json":
            return read_passport(given)
        if not self.path(name).exists():
            known = ", ".join(self.names()) or "none yet"
            raise RidgelineError(
                f"there is no passport of {name!r} in {self.folder}",
                hint=f"passports here: {known}; `ridgeline machine measure` makes one",
            )
        return read_passport(self.path(name))


def peaks(passport: Passport) -> dict[str, Any]:
    """The `peaks.json` that roofline scripts read: peak_gbps, and peak_gflops by precision."""
    device = _first_device(passport)
    compute: dict[str, float] = {}
    for ceiling in passport.find(kind="compute", device=device):
        name = ceiling.precision or ""
        if name != "int8":  # integer operations are no FLOPs
            compute[name] = max(compute.get(name, 0.0), ceiling.best / 1e9)
    dram = [c.best / 1e9 for c in passport.find(kind="bandwidth", level="dram", device=device)]
    return {
        passport.name: {
            "description": f"measured by ridgeline on {passport.measured_at}",
            "peak_gbps": max(dram, default=None),
            "peak_gflops": compute,
        }
    }


def _first_device(passport: Passport) -> str:
    """The accelerator that a passport is named after, or the processor."""
    devices = sorted({c.device for c in passport.ceilings}, key=lambda d: (d == "cpu", d))
    return devices[0] if devices else ""
