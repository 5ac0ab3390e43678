"""What a machine can do at best: the record of a ceiling, and how one is sampled.

SI units; every sample is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median, quantiles
from time import perf_counter
from typing import Any, TypeVar

from ridgeline.sensors.conditions import Conditions
from ridgeline.serialize import from_dict

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


def ceiling_from_dict(content: Mapping[str, Any], where: str = "") -> Ceiling:
    """Read `Ceiling.to_dict` back; FieldError or ValueError say that it is not one."""
    ceiling = from_dict(Ceiling, content, where)
    return replace(ceiling, conditions=from_dict(Conditions, content, where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What could not be measured, and why."""

    what: str  # "fp8 matrix products", "CPU power"
    reason: str


# ---------------------------------------------------------------- sampling
# Many short samples, by turns, all of them kept. A busy neighbour lasts longer than a sample. So
# probes take turns, round after round: what disturbs one disturbs them all, and the best of each
# comes from a quiet moment. Clock and synchronisation are arguments; tests need no device.

Key = TypeVar("Key", bound=Hashable)

Clock = Callable[[Callable[[], object], int], float]
"""Runs a call so many times and answers the seconds that one took."""

LEAST_SAMPLES = 10


def in_rounds(
    probes: Mapping[Key, Callable[[], float]],
    *,
    rounds: int,
    after_probe: Callable[[Key], None] = lambda key: None,
    after_round: Callable[[], None] = lambda: None,
) -> dict[Key, tuple[float, ...]]:
    """One sample of every probe, then the next round: `rounds` samples each, in their order."""
    samples: dict[Key, list[float]] = {key: [] for key in probes}
    for _ in range(rounds):
        for key, probe in probes.items():
            samples[key].append(probe())
            after_probe(key)
        after_round()
    return {key: tuple(taken) for key, taken in samples.items()}


def best_of_rounds(probes: Mapping[Key, Callable[[], float]], *, rounds: int) -> dict[Key, float]:
    """The highest rate that each probe has reached."""
    return {key: max(taken) for key, taken in in_rounds(probes, rounds=rounds).items()}


def time_calls(
    call: Callable[[], object],
    calls: int,
    *,
    sync: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = perf_counter,
) -> float:
    """Seconds of `calls` calls, from an idle device to an idle device."""
    sync()
    start_s = clock()
    for _ in range(calls):
        call()
    sync()
    return clock() - start_s


def calls_per_sample(
    call: Callable[[], object],
    *,
    sample_s: float,
    sync: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = perf_counter,
) -> int:
    """How many calls last about `sample_s`; finding out is also the warm-up."""
    calls = 1
    while (taken_s := time_calls(call, calls, sync=sync, clock=clock)) < sample_s:
        calls = max(2 * calls, int(calls * min(100.0, sample_s / max(taken_s, 1e-9))))
    return calls


def rate_probe(
    call: Callable[[], object],
    work_per_call: float,
    *,
    sync: Callable[[], object] = lambda: None,
    sample_s: float = 0.01,
    clock: Callable[[], float] = perf_counter,
) -> Callable[[], float]:
    """A probe for `in_rounds`: each call of it is one sample of the rate of `call`."""
    calls = calls_per_sample(call, sample_s=sample_s, sync=sync, clock=clock)
    return lambda: calls * work_per_call / time_calls(call, calls, sync=sync, clock=clock)


def host_clock(synchronize: Callable[[], object]) -> Clock:
    """Times with the host's monotonic clock, for what the host itself does."""
    return lambda call, times: time_calls(call, times, sync=synchronize) / times


def sample_seconds(
    call: Callable[[], object], clock: Clock, *, samples: int = 15, sample_s: float = 0.02
) -> list[float]:
    """Seconds of one call, sampled; each sample repeats the call for about `sample_s`."""
    first = clock(call, 1)  # compiles and warms up
    first = min(first, clock(call, 2))
    times = max(1, round(sample_s / max(first, 1e-7)))
    times = max(1, round(sample_s / max(clock(call, times), 1e-7)))
    return [clock(call, times) for _ in range(samples)]
