"""A machine's ceilings as a file: its passport. Written once, read by everything after it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description
from ridgeline.machine.sampling import spread
from ridgeline.records import Conditions, Provenance
from ridgeline.serialize import (
    INLINE,
    STORED,
    FieldError,
    Limit,
    Name,
    NotNegative,
    Positive,
    from_dict,
    to_dict,
)
from ridgeline.store import atomic_write_text, to_json, writing

# History of the format, newest first.
# 1  2026-11-19  also energy models, which an older reader passes over
# 1  2026-11-15  name, time, ceilings with samples, missing, description, provenance
PASSPORT_VERSION = 1

MEMORY_LEVELS = ("l1", "l2", "l3", "dram")
KINDS = ("compute", "bandwidth", "launch", "power")
LOWER_IS_BETTER = ("launch",)
ONE_CORE = "one core"  # in `what`: a ceiling of one thread, where another is of all
UNITS = dict(zip(KINDS, ("flops_per_s", "bytes_per_s", "time_s", "power_w"), strict=True))

COMPILER = re.compile(r"\bC by (.+?), \d+-bit vectors")
LONG_WORDS = re.compile(
    r"(?<=\bC) by .+?(?=, \d+-bit vectors)|, a thread's share of the described cache [^,]+$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One roof, floor of time, or power level, as it was measured. SI units."""

    kind: str  # one of KINDS
    device: str  # "cpu", "cuda:0", "mps"
    path: str | None = None  # compute: "matrix" or "vector"
    precision: str | None = None  # compute: "fp32", "bf16", "int8"
    accumulator: str | None = None  # compute: the precision of the sum
    level: str | None = None  # bandwidth: "l1", "l2", "l3", "dram", "host-to-device"
    pattern: str | None = None  # bandwidth: "read", "copy", "triad"; pinned or pageable
    what: str | None = None  # launch: "kernel", "graph replay"; power: "idle", "compute"
    threads: int | None = None
    working_set_bytes: int | None = None
    energy_j_per_flop: float | None = None  # power: over the rate while it was drawn
    energy_j_per_byte: float | None = None
    conditions: Conditions = field(default_factory=Conditions, metadata=INLINE)
    how: str  # what ran: "torch.mm 8192x8192x8192", "FMA chains, 12 registers, AVX2"
    samples: tuple[float, ...]  # in the unit of the kind, in the order they were taken

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no kind of ceiling; there are {', '.join(KINDS)}")
        if not self.samples or not all(isfinite(sample) for sample in self.samples):
            raise ValueError(f"a {self.kind} ceiling needs samples that are finite numbers")

    @property
    def best(self) -> float:
        """The best sample: what the device can do for a moment."""
        return min(self.samples) if self.kind in LOWER_IS_BETTER else max(self.samples)

    @property
    def sustained(self) -> float:
        """The median sample: what it does for as long as the measurement lasted."""
        return median(self.samples)

    @property
    def spread(self) -> float:
        return spread(self.samples)

    @property
    def brief_how(self) -> str:
        """What ran, without what is the same in many rows of a table."""
        return LONG_WORDS.sub("", self.how)

    @property
    def compiler(self) -> str:
        """What compiled the C that ran; empty if nothing did."""
        match = COMPILER.search(self.how)
        return match[1] if match else ""

    @property
    def key(self) -> tuple[str, ...]:
        """What this is a ceiling of: equal keys of two passports can be compared."""
        parts = (self.kind, self.device, self.path, self.precision, self.accumulator, self.level,
                 self.pattern, self.what)  # fmt: skip
        return tuple(part or "" for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: what it is of, the rate under the name of its unit, and how noisy."""
        content = {
            name: value
            for name, value in to_dict(self).items()
            if value is not None or name in Conditions.__dataclass_fields__
        }
        rate = {UNITS[self.kind]: self.best}  # of a power ceiling, instead of its conditions'
        return {**content, **rate, "sustained": self.sustained, "spread": self.spread}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What could not be measured, and why."""

    what: str  # "fp8 matrix products", "CPU power"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A fitted number, with its 95 % interval by bootstrap."""

    value: NotNegative
    interval: tuple[NotNegative, NotNegative]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPoint:
    """A load of known work that ran for a time and took joules, and how a fit describes it."""

    label: str
    time_s: Positive
    energy_j: Positive
    flops: Mapping[str, NotNegative] = field(default_factory=dict)  # by precision
    moved_bytes: Mapping[str, NotNegative] = field(default_factory=dict)  # by memory level
    busy_s: NotNegative | None = None  # of the time, with kernels on all of a GPU
    clock_hz: float | None = None
    temperature_c: float | None = None
    residual: float | None = None  # modelled over measured joules, less 1; None: not modelled
    note: str = ""  # why the fit leaves it out

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyModel:
    """Joules of work on a device: Σ j_per_flop · FLOPs + Σ j_per_byte · bytes + power · time.

    The bytes of a cache are those that do not come from the memory behind it.
    """

    device: str
    j_per_flop: Mapping[str, Coefficient] = field(default_factory=dict)  # by precision
    j_per_byte: Mapping[str, Coefficient] = field(default_factory=dict)  # by memory level
    constant_power_w: Coefficient
    busy_power_w: Coefficient | None = None  # beside it, while kernels run on all of a GPU
    clock_exponent: Coefficient | None = None  # joules of work are as clock ** exponent
    power_cap_w: Positive | None = None
    r_squared: float  # of joules, which grow with time whatever the model says
    r_squared_power: float  # of watts: the stricter of the two
    mean_residual: NotNegative  # the mean of the absolute residuals that were fitted
    points: tuple[EnergyPoint, ...]  # also those that were left out
    provenance: str = "measured"  # or "imported"
    how: str  # the meter and what it counts, or the file
    measured_at: str

    @property
    def working_power_w(self) -> float:
        """What a device draws while it works, beside its FLOPs and bytes."""
        busy_w = self.busy_power_w.value if self.busy_power_w else 0.0
        return self.constant_power_w.value + busy_w


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


Time = Annotated[str, Limit("a time in ISO form", _is_time)]  # it becomes part of a path


@dataclass(frozen=True, slots=True, kw_only=True)
class Passport:
    """What one machine can do, when and how that was measured."""

    name: Name = field(metadata={"key": "machine"})
    measured_at: Time  # with its zone
    is_quick: bool
    ceilings: tuple[Ceiling, ...]
    missing: tuple[Missing, ...] = field(default=(), metadata=STORED)
    energy: tuple[EnergyModel, ...] = ()
    description: Description = field(default_factory=Description, metadata=STORED)
    provenance: Provenance = field(default_factory=Provenance, metadata=STORED)

    @property
    def noise(self) -> float:
        """How steady the machine was: the widest spread, or fall from best to median, of any roof.

        Matrix products are left out, which a power cap moves on a quiet machine too, and so are
        transfers, which depend on the host.
        """
        steady = (c for c in self.ceilings if c.path == "vector" or c.level in MEMORY_LEVELS)
        return max((max(c.spread, c.best / c.sustained - 1) for c in steady if c.sustained),
                   default=0.0)  # fmt: skip

    def find(self, **fields: str) -> list[Ceiling]:
        """Ceilings whose fields have these values: `find(kind="compute", precision="bf16")`."""
        return [
            c for c in self.ceilings if all(getattr(c, name) == v for name, v in fields.items())
        ]

    def energy_model(self, device: str) -> EnergyModel | None:
        """The energy model of a device, where one was fitted."""
        return next((m for m in self.energy if m.device == device), None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; energy models only where there are any."""
        content = to_dict(self)
        content["ceilings"] = [c.to_dict() for c in self.ceilings]
        content["description"] = self.description.to_dict()
        if not self.energy:
            del content["energy"]
        return {"schema_version": PASSPORT_VERSION, "noise": self.noise, **content}


def read_passport(path: Path) -> Passport:
    """The passport in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.get("schema_version", 0) if isinstance(content, dict) else 0
        if version > PASSPORT_VERSION:
            raise RidgelineError(
                f"{path} is a passport of version {version}; this ridgeline reads "
                f"{PASSPORT_VERSION}",
                hint="update ridgeline",
            )
        passport = from_dict(Passport, content)
        for number, one in enumerate(passport.ceilings):  # which rates are divided by
            if one.kind != "power" and (one.sustained <= 0 or min(one.samples) < 0):
                raise FieldError(f"ceilings.{number}.samples are not numbers above zero")
        return passport
    except FileNotFoundError:
        raise RidgelineError(
            f"there is no passport {path}", hint="`ridgeline machine list` shows those there are"
        ) from None
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise RidgelineError(
            f"{path} cannot be read as a passport: {error}",
            hint="measure the machine again (`ridgeline machine measure`), or restore the file",
        ) from error


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
        """Store a passport; the one it replaces is kept in `earlier/` with the time of its file."""
        path = self.path(passport.name)
        text = to_json(passport.to_dict()).encode()
        if path.exists() and path.read_bytes() != text:
            written = datetime.fromtimestamp(path.stat().st_mtime)
            earlier = self.folder / "earlier"
            with writing(self.folder):
                earlier.mkdir(exist_ok=True)
                shutil.copyfile(path, earlier / f"{path.stem}-{written:%Y-%m-%dT%H%M%S}.json")
        atomic_write_text(path, text.decode())
        return path

    def note(self, name: str) -> str:
        """What its owner wrote about a machine: a zone, a cable; empty if nothing."""
        path = self.folder / f"{name}.note.txt"
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""

    def write_note(self, name: str, text: str) -> Path:
        """Keep a note beside the passport; the machine need not have one."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise RidgelineError(
                f"{name!r} is no name of a machine",
                hint="`ridgeline machine list` and the report name the machines",
            )
        path = self.folder / f"{name}.note.txt"
        atomic_write_text(path, text.strip() + "\n")
        return path

    def read(self, name: str) -> Passport:
        """By name, or by the path of a file from anywhere."""
        if name.endswith(".json"):
            return read_passport(Path(name))
        if not self.path(name).exists():
            known = ", ".join(self.names()) or "none yet"
            raise RidgelineError(
                f"there is no passport of {name!r} in {self.folder}",
                hint=f"passports here: {known}; `ridgeline machine measure` makes one",
            )
        return read_passport(self.path(name))


def peaks(passport: Passport) -> dict[str, Any]:
    """The `peaks.json` that roofline scripts read: peak_gbps, and peak_gflops by precision."""
    devices = sorted({c.device for c in passport.ceilings}, key=lambda d: (d == "cpu", d))
    device = devices[0] if devices else ""  # the accelerator that it is named after, or the CPU
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
