"""The records of what a machine can do at best. SI units; every sample is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from statistics import median, quantiles
from typing import Any

from ridgeline.sensors.conditions import Conditions

KINDS = ("compute", "bandwidth", "launch", "power")
LOWER_IS_BETTER = ("launch",)
ONE_CORE = "one core"  # in `what`: a ceiling of one thread beside that of all
UNITS = {
    "compute": "flops_per_s",
    "bandwidth": "bytes_per_s",
    "launch": "time_s",
    "power": "power_w",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One roof, floor of time, or power level, as it was measured."""

    kind: str  # one of KINDS
    device: str  # "cpu", "cuda:0", "mps"
    samples: tuple[float, ...]  # in the unit of the kind, in the order they were taken
    how: str  # what ran: "torch.mm 8192x8192x8192", "FMA chains, 12 registers, AVX2"
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
    conditions: Conditions = field(default_factory=Conditions)

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
        """Distance of the 10th and the 90th percentile, as a share of the median."""
        if len(self.samples) < 2 or not self.sustained:
            return 0.0
        cuts = quantiles(self.samples, n=10, method="inclusive")
        return (cuts[-1] - cuts[0]) / self.sustained

    @property
    def key(self) -> tuple[str, ...]:
        """What this is a ceiling of: equal keys of two passports can be compared."""
        parts = (self.kind, self.device, self.path, self.precision, self.accumulator, self.level,
                 self.pattern, self.what)  # fmt: skip
        return tuple(part or "" for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the rate under the name of its unit, what it is of, and how noisy."""
        named = {
            name: getattr(self, name)
            for name in ("path", "precision", "accumulator", "level", "pattern", "what", "threads",
                         "working_set_bytes", "energy_j_per_flop", "energy_j_per_byte")
            if getattr(self, name) is not None
        }  # fmt: skip
        conditions = {
            name: getattr(self.conditions, name) for name in self.conditions.__dataclass_fields__
        }
        return {
            "kind": self.kind,
            "device": self.device,
            **named,
            **conditions,
            UNITS[self.kind]: self.best,  # after the conditions: a power ceiling is in watts, too
            "sustained": self.sustained,
            "spread": self.spread,
            "how": self.how,
            "samples": list(self.samples),
        }


def ceiling_from_dict(content: dict[str, Any]) -> Ceiling:
    """Read `Ceiling.to_dict` back; KeyError, TypeError and ValueError say that it is not one."""
    conditions = {
        name: content[name] for name in Conditions.__dataclass_fields__ if name in content
    }
    conditions["throttle_reasons"] = tuple(conditions.get("throttle_reasons", ()))
    fields = {
        name: content[name]
        for name in Ceiling.__dataclass_fields__
        if name in content and name not in ("conditions", "samples")
    }
    samples = tuple(float(sample) for sample in content["samples"])
    return Ceiling(samples=samples, conditions=Conditions(**conditions), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What could not be measured, and why."""

    what: str  # "fp8 matrix products", "CPU power"
    reason: str
