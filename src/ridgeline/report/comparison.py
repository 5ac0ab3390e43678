"""What differs between two sides, and whether that is noise: numbers, records, JSON and words.

Times are skewed samples. A side is one or several runs, each with its samples. What steps of one
process have in common (where its memory lies, how warm the device was) does not show inside of it.
So a side of several runs is resampled in two stages: runs first, then samples within each run that
was drawn.

Few runs say little about how runs differ. So their interval is stretched by Student's t over the
normal quantile. In trials with lognormal runs, equal sides were then told apart in 5 % of cases or
fewer, but for two runs a side that differ by more than their steps: there in 10 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, fsum, log
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.machine.sampling import CONFIDENCE, LEAST_FOR_INTERVAL, RESAMPLES
from ridgeline.report.text import counted, markdown, markdown_line, markdown_table
from ridgeline.store import MeasuredRun
from ridgeline.units import format_bytes, format_change, format_time, si

if TYPE_CHECKING:
    import pandas as pd

Array = Any  # of numpy
Group = Sequence[Sequence[float]]  # samples of each run

RUN, LABEL, MODEL, COMMIT, FOLDER = "run", "label", "model", "commit", "folder"
SWEEP = "sweep"  # a value of one
KINDS = (RUN, LABEL, MODEL, COMMIT)  # that may be written in front: `label:before`
FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
NOT_JUDGED = "not judged"
VERDICTS = (SLOWER, FASTER, NO_DIFFERENCE, NOT_JUDGED)
# 0.975 quantiles of Student's t with 1, 2, … degrees of freedom, and of the normal distribution
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
Z_QUANTILE = 1.960
NOTHING = "–"
TOP = 10  # layers that are shown by default
OTHERS: dict[str, tuple[str, Callable[[float], str]]] = {  # beside the time: title and format
    "samples_per_s": ("samples/s", lambda value: f"{value:.4g}" if value < 1e4 else f"{value:.0f}"),
    "energy_j_per_sample": ("J/sample", lambda value: si(value, "J")),
    "peak_memory_bytes": ("peak memory", format_bytes),
}
TEXT_COLUMNS = ("configuration", "verdict")


# ---------------------------------------------------------------- statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One quantity on two sides. Times: lower is better."""

    before: float  # median of the runs' medians
    after: float
    interval: tuple[float, float] | None  # of the ratio, 95 %; None for too few samples
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
        """Whether the interval says that this is more than noise."""
        if not self.is_judged or self.interval is None:
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
            "runs": list(self.runs),
        }


def compare_groups(before: Group, after: Group, *, is_judged: bool = True) -> Change:
    """The ratio of two medians of positive samples, with its interval."""
    logs = find_interval(before, after, np.log)
    return Change(
        before=center(before),
        after=center(after),
        interval=(exp(logs[0]), exp(logs[1])) if logs else None,
        runs=(len(before), len(after)),
        is_judged=is_judged,
    )


def center(group: Group) -> float:
    """The median of the runs' medians: one run that went astray does not move it far."""
    return float(median(median(run) for run in group))


def find_interval(
    before: Group, after: Group, scale: Callable[[Any], Any] = np.asarray
) -> tuple[float, float] | None:
    """95 % interval of the difference of two centers on a scale; None for too few samples."""
    if any(len(group) == 1 and len(group[0]) < LEAST_FOR_INTERVAL for group in (before, after)):
        return None
    rng = np.random.default_rng(0)
    # always in the same order, so that swapped sides draw the same and mirror each other
    ordered = sorted((before, after), key=lambda group: [list(run) for run in group])
    centers = [scale(_draw_centers(group, rng)) for group in ordered]
    drawn = centers[1] - centers[0] if ordered[0] is before else centers[0] - centers[1]
    tail = 100 * (1 - CONFIDENCE) / 2
    middle = scale(center(after)) - scale(center(before))
    ends = np.percentile(drawn, [tail, 100 - tail])
    low, high = middle + _stretch(len(before), len(after)) * (ends - middle)
    return float(low), float(high)


def _draw_centers(group: Group, rng: np.random.Generator) -> Array:
    """RESAMPLES centers of the group, each from runs and samples drawn again."""
    values = [np.sort(np.asarray(run, dtype=float)) for run in group]
    chosen = rng.integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.empty(chosen.shape)
    for number, run in enumerate(values):
        here = chosen == number
        medians[here] = draw_medians(run, rng, int(here.sum()))
    return np.median(medians, axis=1)


def draw_medians(ordered: Array, rng: np.random.Generator, size: int) -> Array:
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
    return T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] / Z_QUANTILE if freedom else 1.0


# ---------------------------------------------------------------- records


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
        return asdict(self) | {"difference_s": self.difference_s if self.is_on_both else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """One configuration on two sides. Parts are sorted by what they add to the difference."""

    name: str  # "resnet50, batch 32, train, amp"
    per: str  # times are of a "step", or of a "sample" where the sides' steps differ in size
    time: Change
    others: Mapping[str, Change]  # of OTHERS, those that all runs have
    phases: tuple[Part, ...]
    layers: tuple[Part, ...]  # none if they were not timed on both sides
    conditions: tuple[str, ...]  # that differed while the steps were timed
    warnings: tuple[str, ...]  # of the runs
    run_ids: tuple[tuple[str, ...], tuple[str, ...]]
    why_not_judged: str = ""  # empty if it is judged

    @property
    def change(self) -> str:
        return f"{self.name}, {format_change(self.time.share)}"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One side of a comparison."""

    text: str  # as the user wrote it
    kind: str  # one of KINDS, or FOLDER
    runs: tuple[MeasuredRun, ...] = ()
    problems: tuple[str, ...] = ()  # why runs of its folder were passed over

    def __str__(self) -> str:
        count = len(self.runs)
        return f"{self.text} ({self.kind}, {count} run{'s' if count > 1 else ''})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.text, "kind": self.kind, "runs": [run.run_id for run in self.runs]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides. Rows are sorted: shown differences first, the largest first."""

    before: Selection
    after: Selection
    rows: tuple[ComparedRuns, ...]
    only_before: tuple[str, ...]  # configurations that the other side lacks
    only_after: tuple[str, ...]
    settings: Mapping[str, tuple[str, str]]  # that differ, with what each side has
    notes: tuple[str, ...]

    @property
    def mean_ratio(self) -> float:
        """The geometric mean over the configurations."""
        return exp(fsum(log(row.time.ratio) for row in self.rows) / len(self.rows))

    def count(self, verdict: str) -> int:
        return sum(row.time.verdict == verdict for row in self.rows)

    def slower_by_more_than(self, share: float) -> list[str]:
        """The configurations that are shown to be slower, and by more than this share."""
        slower = [row for row in self.rows if row.time.verdict == SLOWER]
        return [row.change for row in slower if row.time.share > share]

    def undecided(self, share: float) -> list[str]:
        """Those with a larger change, and too few samples to show it."""
        few = [row for row in self.rows if row.time.is_judged and row.time.interval is None]
        return [row.change for row in few if row.time.share > share]

    def not_judged(self) -> list[str]:
        """Those during which the machine was busy, whatever their change: it may hide another."""
        busy = [row for row in self.rows if not row.time.is_judged]
        return [f"{row.change}: {row.why_not_judged}" for row in busy]

    def table(self) -> pd.DataFrame:
        """A row per configuration."""
        import pandas as pd

        rows = [
            {"configuration": row.name, "verdict": row.time.verdict, "per": row.per,
             **row.time.to_dict()}
            for row in self.rows
        ]  # fmt: skip
        return pd.DataFrame(rows).drop(columns="is_shown")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; changes are shares."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "configurations": [row.to_dict() for row in self.rows],
            "mean_change": self.mean_ratio - 1,
            "verdicts": {name: self.count(name) for name in VERDICTS},
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "settings": {name: list(pair) for name, pair in self.settings.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return as_markdown(self)


# ---------------------------------------------------------------- in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A title, a header and rows, all text."""

    title: str = ""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def format_interval(interval: tuple[float, float] | None) -> str:
    """Of a ratio: `+2.8 … +3.7 %`."""
    if interval is None:
        return NOTHING
    low, high = (format_change(end - 1) for end in interval)
    return f"{low.removesuffix(' %')} … {high}"


def summary(comparison: Comparison) -> str:
    """One line about all configurations."""
    counts = {verdict: comparison.count(verdict) for verdict in VERDICTS}
    texts = [f"{n} {verdict}" for verdict, n in counts.items() if n]
    mean = format_change(comparison.mean_ratio - 1)
    number_of = counted(len(comparison.rows), "configuration")
    return f"{number_of}: {', '.join(texts)}; geometric mean {mean} time"


def main_table(comparison: Comparison) -> Table:
    """A row per configuration."""
    others = [name for name in OTHERS if any(name in row.others for row in comparison.rows)]
    per = " / ".join(sorted({row.per for row in comparison.rows}, reverse=True))
    titles = ("configuration", "verdict", f"A, {per}", f"B, {per}", "change", "95 % interval")
    rows = tuple(
        (row.name, row.time.verdict, format_time(row.time.before), format_time(row.time.after),
         format_change(row.time.share), format_interval(row.time.interval),
         *(format_change(row.others[name].share) if name in row.others else NOTHING
           for name in others))
        for row in comparison.rows
    )  # fmt: skip
    return Table(header=(*titles, *(OTHERS[name][0] for name in others)), rows=rows)


def details(comparison: Comparison, top: int = TOP) -> Iterable[Table]:
    """What follows the main table: all of a single configuration; of several, their layers."""
    rows = comparison.rows
    tables = [_parts_table("layer", row.layers, row, top, f"{row.name}: ") for row in rows]
    if len(rows) == 1:
        tables = [
            _others_table(rows[0]),
            _parts_table("phase", rows[0].phases, rows[0], len(rows[0].phases)),
            _parts_table("layer", rows[0].layers, rows[0], top),
        ]
    return [table for table in tables if table.rows]


def _others_table(row: ComparedRuns) -> Table:
    rows = tuple(
        (title, form(change.before), form(change.after), format_change(change.share),
         format_interval(change.interval))
        for name, (title, form) in OTHERS.items()
        if (change := row.others.get(name)) is not None
    )  # fmt: skip
    return Table(title="beside the time", rows=rows,
                 header=("", "A", "B", "change", "95 % interval"))  # fmt: skip


def _parts_table(
    kind: str, parts: tuple[Part, ...], row: ComparedRuns, top: int, heading: str = ""
) -> Table:
    rows = tuple(
        (part.name, *(NOTHING if s is None else format_time(s) for s in
                      (part.before_s, part.after_s)),
         signed_time(part.difference_s),
         " … ".join(map(signed_time, part.interval_s)) if part.interval_s else NOTHING,
         format_change(part.difference_s / row.time.before))
        for part in parts[:top]
    )  # fmt: skip
    of_all = f", {top} of {len(parts)}" if top < len(parts) else ""
    return Table(
        title=f"{heading}{kind}s by their share in the difference{of_all}",
        header=(kind, "A", "B", "difference", "95 % interval", f"of A's {row.per}"),
        rows=rows,
    )


def signed_time(time_s: float) -> str:
    sign = "+" if time_s > 0 else "−" if time_s < 0 else ""
    return sign + format_time(abs(time_s))


def explanations(comparison: Comparison) -> list[str]:
    """Other differences between the sides, and what only one of them has."""
    rows = comparison.rows
    return [
        *(f"{row.name}: not judged: {row.why_not_judged}" for row in rows if row.why_not_judged),
        *(f"{row.name}: {text}" for row in rows for text in row.conditions),
        *(f"differs: {name}: {a} → {b}" for name, (a, b) in comparison.settings.items()),
        *(f"only in A: {name}" for name in comparison.only_before),
        *(f"only in B: {name}" for name in comparison.only_after),
    ]


def as_markdown(comparison: Comparison, *, top: int = TOP) -> str:
    """For a pull request."""
    parts = [
        f"### A: {markdown(comparison.before)}, B: {markdown(comparison.after)}",
        markdown_line(summary(comparison)),
    ]
    parts += [_markdown(table) for table in (main_table(comparison), *details(comparison, top))]
    if lines := explanations(comparison):
        parts.append("**What else differs**")
        parts.append("\n".join(f"- {markdown_line(line)}" for line in lines))
    if comparison.notes:
        parts.append("\n".join(f"> note: {markdown(note)}  " for note in comparison.notes))
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    sides = "".join("l" if name in TEXT_COLUMNS else "r" for name in table.header[1:])
    text = markdown_table(table.header, table.rows, f"l{sides}")
    for verdict in (SLOWER, FASTER):
        text = text.replace(f"| {verdict} |", f"| **{verdict}** |")
    return f"**{markdown(table.title)}**\n\n{text}" if table.title else text
