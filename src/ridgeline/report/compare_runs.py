"""One configuration on two sides: by how much its times differ, and whether that is noise.

Times are skewed samples. A side is one or several runs, each with its samples. What steps of one
process have in common (where its memory lies, how warm the device was) does not show inside of it.
So a side of several runs is resampled in two stages: runs first, then samples within each run that
was drawn.

Two or three runs say little about how runs differ, and no test on them can reach 5 %. So their
interval is stretched by Student's t over the normal quantile. In trials with lognormal runs, equal
sides were then told apart in about 5 % of cases or fewer from three runs a side on; with two, in
12 %.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import erfc, exp, sqrt
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.measure.statistics import CONFIDENCE, LEAST_FOR_INTERVAL, RESAMPLES
from ridgeline.provenance import speed_variables
from ridgeline.records import Commit
from ridgeline.report.views import disturbance
from ridgeline.serialize import to_dict
from ridgeline.store import MeasuredRun
from ridgeline.units import format_percent

if TYPE_CHECKING:
    import pandas as pd

Array = Any  # of numpy
Group = Sequence[Sequence[float]]  # samples of each run
Runs = Sequence[MeasuredRun]

STEP, SAMPLE = "step", "sample"
LEAST_RUNS = 4  # on both sides, for a test on runs: three against three cannot reach 5 %
METHOD = "normal approximation"
# 0.975 quantiles of Student's t with 1, 2, … degrees of freedom, and of the normal distribution
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
Z_QUANTILE = 1.960
CLOCK_DIFFERS = 0.03  # as a share; a clock that moves by less is the same one
CLOCK_EXPLAINS = 0.03  # the ratio of clocks is that of times, within this
WARMER_C = 5.0
BUSIER = 0.05
NOT_SETTINGS = (  # of the request: names, and what does not change a step
    "command", "label", "repeat", "precision", "backend", "layers", "energy", "energy_time_s",
    "layer_energy",
)  # fmt: skip
RESULT_SETTINGS = ("precision", "backend", "device_name", "device_uuid", "threads")
NOT_PROVENANCE = ("time", "command", "environment")  # the first two differ between any two runs
NOT_SET = "not set"  # an environment variable
SHOWN_SHA = 10

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTest:
    """The test of Mann and Whitney: is a value of one group more often the larger one?"""

    u: float  # pairs in which the second group's value is larger; a tie counts half
    p: float  # two-sided
    method: str  # METHOD
    of: str  # "steps" or "medians of runs"
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One quantity on two sides. Times: lower is better."""

    before: float  # median of the runs' medians
    after: float
    interval: tuple[float, float] | None  # of the ratio, 95 %; None for too few samples
    test: RankTest
    runs: tuple[int, int]
    is_judged: bool = True  # False: the samples say more about the machine than about the runs

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def share(self) -> float:
        """0.1 is ten per cent more on the second side."""
        return self.ratio - 1

    @property
    def is_shown(self) -> bool:
        """Whether interval and test both say that this is more than noise."""
        if not self.is_judged or self.interval is None or self.test.p >= 1 - CONFIDENCE:
            return False
        low, high = self.interval
        return low > 1 or high < 1

    @property
    def verdict(self) -> str:
        if not self.is_judged:
            return NOT_JUDGED
        if not self.is_shown:
            return NO_DIFFERENCE
        return SLOWER if self.ratio > 1 else FASTER

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; changes are shares: 0.05 is five per cent more on the second side."""
        return {
            "before": self.before,
            "after": self.after,
            "change": self.share,
            "interval": [end - 1 for end in self.interval] if self.interval else None,
            "is_shown": self.is_shown,
            "test": {"name": "Mann-Whitney U", **asdict(self.test)},
            "runs": list(self.runs),
        }


def compare_groups(
    before: Group, after: Group, *, of: str = "steps", seed: int = 0, is_judged: bool = True
) -> Change:
    """The ratio of two medians of positive samples, with its interval and a test."""
    logs = _interval(before, after, np.log, seed=seed)
    return Change(
        before=center(before),
        after=center(after),
        interval=(exp(logs[0]), exp(logs[1])) if logs else None,
        test=_test(before, after, of),
        runs=(len(before), len(after)),
        is_judged=is_judged,
    )


def difference_interval(
    before: Group, after: Group, *, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the difference of two medians; None for too few samples."""
    return _interval(before, after, np.asarray, seed=seed)


def center(group: Group) -> float:
    """The median of the runs' medians: one run that went astray does not move it far."""
    return float(median(median(run) for run in group))


def _interval(
    before: Group, after: Group, scale: Callable[[Any], Any], *, seed: int
) -> tuple[float, float] | None:
    """Of the difference between the two centers on a scale."""
    if not (_is_enough(before) and _is_enough(after)):
        return None
    rng = np.random.default_rng(seed)
    # always in the same order, so that swapped sides draw the same and mirror each other
    is_swapped = _as_lists(before) > _as_lists(after)
    first, second = (after, before) if is_swapped else (before, after)
    drawn = -scale(_draw_centers(first, rng)) + scale(_draw_centers(second, rng))
    drawn = -drawn if is_swapped else drawn
    tail = 100 * (1 - CONFIDENCE) / 2
    middle = scale(center(after)) - scale(center(before))
    ends = np.percentile(drawn, [tail, 100 - tail])
    low, high = middle + _stretch(len(before), len(after)) * (ends - middle)
    return float(low), float(high)


def _is_enough(group: Group) -> bool:
    return len(group) > 1 or len(group[0]) >= LEAST_FOR_INTERVAL


def _as_lists(group: Group) -> list[list[float]]:
    return [[float(sample) for sample in run] for run in group]


def _draw_centers(group: Group, rng: np.random.Generator) -> Array:
    """RESAMPLES centers of the group, each from runs and samples drawn again."""
    values = [np.sort(np.asarray(run, dtype=float)) for run in group]
    chosen = rng.integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.empty(chosen.shape)
    for number, run in enumerate(values):
        here = chosen == number
        medians[here] = _draw_medians(run, rng, int(here.sum()))
    return np.median(medians, axis=1)


def _draw_medians(ordered: Array, rng: np.random.Generator, size: int) -> Array:
    """Medians of samples drawn with replacement from `ordered`, without drawing all of them.

    A drawn value is the one at place floor(n·u) for a uniform u, and order is kept. So the k-th
    smallest drawn value is at the place of the k-th smallest u, which has a beta distribution.
    """
    n = len(ordered)
    lower, upper = (n + 1) // 2, n // 2 + 1  # the same one where n is odd
    high = rng.beta(upper, n - upper + 1, size)
    # the k-th of the k + 1 smallest is the largest of k uniform numbers below the last
    low = high if lower == upper else high * rng.beta(lower, 1, size)
    indices = [np.minimum((n * u).astype(int), n - 1) for u in (low, high)]
    return (ordered[indices[0]] + ordered[indices[1]]) / 2


def _stretch(*runs: int) -> float:
    """How much wider the interval is for coming from so few runs; 1 for a run on each side."""
    freedom = sum(count - 1 for count in runs)
    if not freedom or min(runs) >= LEAST_RUNS:
        return 1.0
    return T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] / Z_QUANTILE


def _test(before: Group, after: Group, of: str) -> RankTest:
    """On the medians of runs where both sides have enough of them, else on all samples."""
    if min(len(before), len(after)) >= LEAST_RUNS:
        medians = [[median(run) for run in group] for group in (before, after)]
        return rank_test(medians[0], medians[1], of="medians of runs")
    return rank_test([s for run in before for s in run], [s for run in after for s in run], of=of)


def rank_test(before: Sequence[float], after: Sequence[float], *, of: str = "steps") -> RankTest:
    """Mann and Whitney's U of the second group; p by the normal approximation with ties."""
    n, m = len(before), len(after)
    _, rank, count = np.unique([*before, *after], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[rank]  # from 1; equal values share their mean
    u = float(ranks[n:].sum()) - m * (m + 1) / 2
    ties = float((count**3 - count).sum()) / ((n + m) * max(1, n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)  # 0 if all values are equal
    z = max(0.0, abs(u - n * m / 2) - 0.5) / sqrt(variance) if variance > 0 else 0.0
    return RankTest(u=u, p=erfc(z / sqrt(2)), method=METHOD, of=of, counts=(n, m))


# ---------------------------------------------------------------- one configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A phase or a layer on two sides; None on the side that lacks it."""

    name: str
    before_s: float | None
    after_s: float | None
    interval_s: tuple[float, float] | None = None  # of the difference, 95 %

    @property
    def difference_s(self) -> float:
        """The second side's time without the first's."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)

    @property
    def is_on_both(self) -> bool:
        return self.before_s is not None and self.after_s is not None

    def to_dict(self) -> dict[str, Any]:
        known = {"difference_s": self.difference_s if self.is_on_both else None}
        return asdict(self) | known


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting or version that is not the same on both sides."""

    name: str
    before: str  # several, if the runs of the side differ: "2.10.0, 2.11.0"
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """One configuration on two sides. Parts are sorted by what they add to the difference."""

    name: str  # "resnet50, batch 32, train, amp"
    per: str  # times are of a STEP, or of a SAMPLE where the sides' steps have different sizes
    time: Change
    others: Mapping[str, Change]  # of QUANTITIES, those that all runs have
    phases: tuple[Part, ...]
    layers: tuple[Part, ...]  # none if they were not timed on both sides
    conditions: tuple[str, ...]  # that differed while the steps were timed
    warnings: tuple[str, ...]  # of the runs
    run_ids: tuple[tuple[str, ...], tuple[str, ...]]
    disturbed: tuple[str, ...] = ()  # sides on which the machine was busy: "A (…)"

    @property
    def why_not_judged(self) -> str:
        """Empty if it is judged."""
        busy = f"the machine was busy during {' and '.join(self.disturbed)}"
        return busy if self.disturbed else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "configuration": self.name,
            "verdict": self.time.verdict,
            "per": self.per,
            "time_s": self.time.to_dict(),
            **{name: change.to_dict() for name, change in self.others.items()},
            "phases": [part.to_dict() for part in self.phases],
            "layers": [part.to_dict() for part in self.layers],
            "conditions": list(self.conditions),
            "warnings": list(self.warnings),
            "why_not_judged": self.why_not_judged or None,
            "runs": {"before": list(self.run_ids[0]), "after": list(self.run_ids[1])},
        }


def compare_runs(
    name: str, before: Runs, after: Runs, *, layers: Mapping[str, pd.DataFrame] | None = None
) -> ComparedRuns:
    """Compare runs of one configuration; `layers` has tables by run id, where there are any."""
    sides, tables = (before, after), layers or {}
    runs = [*before, *after]
    per = STEP if len({samples_per_step(run) for run in runs}) == 1 else SAMPLE
    disturbed = tuple(text for side, of in zip("AB", sides, strict=True)
                      for text in _name_disturbance(side, of))  # fmt: skip

    def gather(read: Callable[[MeasuredRun], Parts]) -> list[dict[str, list[list[float]]]]:
        return [_gather(read, of, per) for of in sides]

    times = gather(lambda run: {STEP: run.result.step_time_s.samples})
    time = compare_groups(times[0][STEP], times[1][STEP], is_judged=not disturbed)
    timed = gather(lambda run: layer_samples(tables[run.run_id]) if run.run_id in tables else {})
    return ComparedRuns(
        name=name,
        per=per,
        time=time,
        others=_compare_quantities(before, after, is_judged=not disturbed),
        phases=_compare_parts(*gather(phase_samples)),
        layers=_compare_parts(*timed) if all(timed) else (),
        conditions=find_conditions(before, after, time.ratio),
        warnings=tuple(dict.fromkeys(text for run in runs for text in run.result.warnings)),
        run_ids=(tuple(r.run_id for r in before), tuple(r.run_id for r in after)),
        disturbed=disturbed,
    )


def _name_disturbance(side: str, runs: Runs) -> tuple[str, ...]:
    """`A (other programs had the processor)`, if the machine was busy in half of its runs or more.

    In fewer, the median of the runs' medians is that of a quiet one.
    """
    reasons = [reason for run in runs if (reason := disturbance(run))]
    if 2 * len(reasons) < len(runs):
        return ()
    return (f"{side} ({'; '.join(dict.fromkeys(reasons))})",)


def samples_per_step(run: MeasuredRun) -> int:
    return run.result.samples_per_step or run.request.batch_size


# ---------------------------------------------------------------- quantities other than time


def _read_throughput(run: MeasuredRun) -> list[float]:
    """Samples per second of the median step, as everywhere: the mean follows a single slow step."""
    return [samples_per_step(run) / run.result.step_time_s.median]


def _read_energy(run: MeasuredRun) -> list[float]:
    """Joules per sample of every window; of the run as a whole if its windows are not known."""
    energy = run.result.energy
    if energy is None:
        return []
    if not energy.windows:
        return [energy.energy_j_per_sample or 0.0]
    return [window.energy_j_per_step / samples_per_step(run) for window in energy.windows]


def _read_memory(run: MeasuredRun) -> list[float]:
    return [run.result.peak_memory_bytes or 0.0]


AT_ANY_LOAD = ("peak_memory_bytes",)  # a busy machine does not change it
QUANTITIES: dict[str, tuple[Callable[[MeasuredRun], list[float]], str]] = {  # and of what
    "samples_per_s": (_read_throughput, "runs"),
    "energy_j_per_sample": (_read_energy, "windows"),
    "peak_memory_bytes": (_read_memory, "runs"),
}


def _compare_quantities(before: Runs, after: Runs, *, is_judged: bool) -> dict[str, Change]:
    """Those that all runs have; no ratio can be made of a zero."""
    changes = {}
    for name, (read, of) in QUANTITIES.items():
        groups = [[read(run) for run in runs] for runs in (before, after)]
        if all(values and min(values) > 0 for group in groups for values in group):
            judge = is_judged or name in AT_ANY_LOAD
            changes[name] = compare_groups(groups[0], groups[1], of=of, is_judged=judge)
    return changes


# ---------------------------------------------------------------- phases and layers

Parts = Mapping[str, Sequence[float]]  # samples of each part of a run's step


def _gather(
    read: Callable[[MeasuredRun], Parts], runs: Runs, per: str
) -> dict[str, list[list[float]]]:
    """The samples of each part, run by run, on the scale of `per`."""
    parts: dict[str, list[list[float]]] = {}
    for run in runs:
        scale = 1.0 if per == STEP else 1 / samples_per_step(run)
        for name, samples in read(run).items():
            parts.setdefault(name, []).append([scale * sample for sample in samples])
    return parts


def _compare_parts(
    before: dict[str, list[list[float]]], after: dict[str, list[list[float]]]
) -> tuple[Part, ...]:
    """Parts of both sides first, the largest difference first."""
    parts = []
    for name in dict.fromkeys([*before, *after]):
        left, right = before.get(name), after.get(name)
        parts.append(Part(
            name=name,
            before_s=center(left) if left else None,
            after_s=center(right) if right else None,
            interval_s=difference_interval(left, right) if left and right else None,
        ))  # fmt: skip
    return tuple(sorted(parts, key=lambda part: (not part.is_on_both, -abs(part.difference_s))))


def phase_samples(run: MeasuredRun) -> Parts:
    """Time of each phase in each step."""
    return {name: part.samples or (part.median,) for name, part in run.result.split_s.items()}


def layer_samples(table: pd.DataFrame) -> Parts:
    """Time of each layer in each timed step; its one known time where it has no samples.

    Needs columns layer and time_s, and takes forward_samples_s and backward_samples_s.
    """
    layers = {}
    for row in table.to_dict("records"):
        stages = [row.get(f"{stage}_samples_s") for stage in ("forward", "backward")]
        timed = [list(stage) for stage in stages if stage is not None and len(stage)]
        sums = [sum(step) for step in zip(*timed, strict=False)]
        layers[str(row["layer"])] = sums or [row["time_s"]]
    return layers


# ---------------------------------------------------------------- settings


def find_settings(before: Runs, after: Runs) -> tuple[Setting, ...]:
    """Settings, device, versions, commits and environment variables that differ between sides."""
    variables = sorted({
        name for run in (*before, *after) for name in speed_variables(run.made.environment)
    })  # fmt: skip
    left, right = _read_values(before, variables), _read_values(after, variables)
    return tuple(
        Setting(name=name, before=_join(left.get(name)), after=_join(right.get(name)))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    )


def _join(values: set[str] | None) -> str:
    return ", ".join(sorted(values)) if values else "not known"


def _read_values(runs: Runs, variables: Sequence[str]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for run in runs:
        recorded = {name: run.made.environment.get(name, NOT_SET) for name in variables}
        for name, value in {**_read_settings(run), **recorded}.items():
            values.setdefault(name, set()).add(setting_text(value))
    return values


def _read_settings(run: MeasuredRun) -> dict[str, Any]:
    request, made = to_dict(run.request), to_dict(run.made)
    origin = {name: value for name, value in made.items() if name not in NOT_PROVENANCE}
    for name in ("commit", "ridgeline_commit"):
        origin[name] = _commit_text(getattr(run.made, name))
    return {
        **{name: value for name, value in request.items() if name not in NOT_SETTINGS},
        **{name: getattr(run.result, name) for name in RESULT_SETTINGS},
        **{_shorten(name): value for name, value in _flatten(origin)},
    }


def _flatten(content: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(content, list | tuple):
        content = dict(enumerate(content))
    if not isinstance(content, Mapping):
        yield prefix, content
        return
    for name, item in content.items():
        yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))


def _shorten(name: str) -> str:
    """`torch` of `libraries.torch`, `device 0 driver` of `host.devices.0.driver`."""
    words = name.replace("host.devices.", "device ").split(".")
    if words[0] == "backends":  # that torch was built with: `cuda`, `cudnn`
        return f"torch's {' '.join(words[1:])}"
    return " ".join(words[1:] if words[0] == "libraries" else words)


def _commit_text(commit: Commit | None) -> str | None:
    if commit is None:
        return None
    return f"{commit.sha[:SHOWN_SHA]}{' with changes' if commit.is_dirty else ''}"


def setting_text(value: Any) -> str:
    """A setting as people write it: `none`, `yes`, `224x224`, `a=1,b=2`."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "x".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={json.dumps(value[key])}" for key in sorted(value))
    return str(value)


# ---------------------------------------------------------------- conditions


def find_conditions(before: Runs, after: Runs, ratio: float) -> tuple[str, ...]:
    """Clocks, limits, temperature and idle time that differ; `ratio` is that of the times."""
    lines = []
    clocks = _read_medians(before, after, lambda run: run.result.conditions.during.clock_hz)
    if clocks and all(clocks) and abs(clocks[1] / clocks[0] - 1) > CLOCK_DIFFERS:
        explains = abs(ratio * clocks[1] / clocks[0] - 1) < CLOCK_EXPLAINS
        lines.append(f"clock {clocks[0] / 1e6:.0f} → {clocks[1] / 1e6:.0f} MHz"
                     + (" explains it" if explains else ""))  # fmt: skip
    left, right = (
        {reason for run in runs for reason in run.result.conditions.during.throttle_reasons}
        for runs in (before, after)
    )
    for when, new in (("before", left - right), ("after", right - left)):
        if new:
            lines.append(f"held down by {', '.join(sorted(new))} only {when}")
    warm = _read_medians(before, after, lambda run: run.result.conditions.during.temperature_c)
    if warm and abs(warm[1] - warm[0]) > WARMER_C:
        lines.append(f"temperature {warm[0]:.0f} → {warm[1]:.0f} °C")
    busy = _read_medians(before, after, lambda run: run.result.busy_fraction)
    if busy and abs(busy[1] - busy[0]) > BUSIER:
        shares = " → ".join(map(format_percent, busy))
        lines.append(f"the device was busy {shares} of the time")
    return tuple(lines)


def _read_medians(
    before: Runs, after: Runs, read: Callable[[MeasuredRun], float | None]
) -> tuple[float, float] | None:
    """Of both sides, if both know it."""
    left, right = (
        [value for run in runs if (value := read(run)) is not None] for runs in (before, after)
    )
    return (median(left), median(right)) if left and right else None
