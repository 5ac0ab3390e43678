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
from ridgeline.fields import (
    FLAG,
    INDEX,
    LIST,
    MAPPING,
    NAME,
    NOT_NEGATIVE,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    FieldError,
    Fields,
    check,
)
from ridgeline.machine.ceiling import Ceiling, Missing, ceiling_from_dict
from ridgeline.store import atomic_write_text, to_json, writing

NEEDED: Fields = {
    "machine": NAME,
    "measured_at": TEXT,
    "is_quick": FLAG,
    "ceilings": LIST,
    "ceilings.*": MAPPING,
    "ceilings.*.kind": TEXT,
    "ceilings.*.device": TEXT,
    "ceilings.*.how": TEXT,
    "ceilings.*.samples": NUMBERS,
    "missing": LIST,
    "missing.*": MAPPING,
    "missing.*.what": TEXT,
    "missing.*.reason": TEXT,
    "description": MAPPING,
    "description.gpus.*": MAPPING,
    "description.cpu.caches.*": MAPPING,
    "description.cpu.caches.*.level": INDEX,
    "provenance": MAPPING,
}
OPTIONAL: Fields = {
    **{
        f"ceilings.*.{name}": TEXT
        for name in ("path", "precision", "accumulator", "level", "pattern", "what", "power_state")
    },
    **{
        f"ceilings.*.{name}": NUMBER
        for name in ("threads", "working_set_bytes", "energy_j_per_flop", "energy_j_per_byte",
                     "clock_hz", "memory_clock_hz", "temperature_c", "power_w")
    },
    "ceilings.*.throttle_reasons": TEXTS,
    "description.os": TEXT,
    "description.cpu": MAPPING,
    "description.cpu.model": TEXT,
    "description.cpu.usable_cores": NUMBER,
    "description.cpu.caches": LIST,
    "description.cpu.caches.*.kind": TEXT,
    "description.cpu.caches.*.size_bytes": NOT_NEGATIVE,
    "description.cpu.caches.*.instances": NOT_NEGATIVE,
    "description.memory": MAPPING,
    "description.memory.total_bytes": NOT_NEGATIVE,
    "description.drivers": MAPPING,
    "description.drivers.*": TEXT,
    "description.gpus": LIST,
    **{f"description.gpus.*.{name}": TEXT for name in ("kind", "name", "uuid", "driver")},
    "description.gpus.*.index": INDEX,
    **{
        f"description.gpus.*.{name}": NOT_NEGATIVE
        for name in ("compute_units", "memory_bytes", "l2_bytes")
    },
    "provenance.command": TEXTS,
    "provenance.libraries": MAPPING,
    "provenance.libraries.*": TEXT,
}  # fmt: skip


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
        check(content, needed=NEEDED, optional=OPTIONAL)
        return Passport(
            name=content["machine"],
            measured_at=_time(content["measured_at"]),
            is_quick=content["is_quick"],
            ceilings=tuple(_ceiling(n, c) for n, c in enumerate(content["ceilings"])),
            missing=tuple(Missing(**m) for m in content["missing"]),
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


def _ceiling(number: int, content: dict[str, Any]) -> Ceiling:
    """A roof is above zero: what it is divided by."""
    ceiling = ceiling_from_dict(content)
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
