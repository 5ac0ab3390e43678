"""A comparison of two sides: what it says, as a record, as JSON, as tables of text, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any

from ridgeline.machine.compare import Difference, label
from ridgeline.machine.passport import LOWER_IS_BETTER, UNITS, Passport
from ridgeline.report.compare_runs import (
    FASTER,
    NO_DIFFERENCE,
    NOT_JUDGED,
    SLOWER,
    ComparedRuns,
    Part,
    Setting,
)
from ridgeline.report.markup import markdown, markdown_line, markdown_table
from ridgeline.store import MeasuredRun
from ridgeline.units import format_bytes, format_change, format_time, si

if TYPE_CHECKING:
    import pandas as pd

RUN, LABEL, MODEL, COMMIT, MACHINE, FOLDER = "run", "label", "model", "commit", "machine", "folder"
KINDS = (RUN, LABEL, MODEL, COMMIT, MACHINE)  # that may be written in front: `label:before`
VERDICTS = (SLOWER, FASTER, NO_DIFFERENCE, NOT_JUDGED)
NOTHING = "–"
TOP = 10  # layers that are shown by default
LEAST_P = 0.001
OTHERS: dict[str, tuple[str, Callable[[float], str]]] = {  # of QUANTITIES: title and format
    "samples_per_s": ("samples/s", lambda value: f"{value:.4g}" if value < 1e4 else f"{value:.0f}"),
    "energy_j_per_sample": ("J/sample", lambda value: si(value, "J")),
    "peak_memory_bytes": ("peak memory", format_bytes),
}
CEILING_UNITS = {"flops_per_s": "FLOP/s", "bytes_per_s": "B/s", "time_s": "s", "power_w": "W"}
TEXT_COLUMNS = ("configuration", "verdict", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One side of a comparison: runs, or a passport."""

    text: str  # as the user wrote it
    kind: str  # one of KINDS, or FOLDER
    runs: tuple[MeasuredRun, ...] = ()
    passport: Passport | None = None
    problems: tuple[str, ...] = ()  # why runs of its folder were passed over

    def __str__(self) -> str:
        if self.passport is not None:
            return f"{self.text} (passport of {self.passport.measured_at[:10]})"
        count = len(self.runs)
        return f"{self.text} ({self.kind}, {count} run{'s' if count > 1 else ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides with runs. Rows are sorted: shown differences first, the largest first."""

    before: Selection
    after: Selection
    rows: tuple[ComparedRuns, ...]
    only_before: tuple[str, ...]  # configurations that the other side lacks
    only_after: tuple[str, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]

    @property
    def mean_ratio(self) -> float:
        """The geometric mean over the configurations."""
        return exp(fsum(log(row.time.ratio) for row in self.rows) / len(self.rows))

    def count(self, verdict: str) -> int:
        return sum(row.time.verdict == verdict for row in self.rows)

    def slower_by_more_than(self, share: float) -> list[str]:
        """The configurations that are shown to be slower, and by more than this share."""
        return [_name_change(row) for row in self.rows
                if row.time.verdict == SLOWER and row.time.share > share]  # fmt: skip

    def undecided(self, share: float) -> list[str]:
        """Those with a larger change, and too few samples to show it."""
        return [_name_change(row) for row in self.rows
                if row.time.is_judged and row.time.interval is None
                and row.time.share > share]  # fmt: skip

    def not_judged(self) -> list[str]:
        """Those during which the machine was busy, whatever their change: it may hide another."""
        return [f"{_name_change(row)}: {row.why_not_judged}" for row in self.rows
                if not row.time.is_judged]  # fmt: skip

    def table(self) -> pd.DataFrame:
        """A row per configuration."""
        import pandas as pd

        rows = [
            {"configuration": row.name, "verdict": row.time.verdict, "per": row.per,
             **row.time.to_dict()}
            for row in self.rows
        ]  # fmt: skip
        return pd.DataFrame(rows).drop(columns=["test", "is_shown"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; changes are shares."""
        return {
            "before": _side_dict(self.before) | {"runs": [r.run_id for r in self.before.runs]},
            "after": _side_dict(self.after) | {"runs": [r.run_id for r in self.after.runs]},
            "configurations": [row.to_dict() for row in self.rows],
            "mean_change": self.mean_ratio - 1,
            "verdicts": {name: self.count(name) for name in VERDICTS},
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "settings": {s.name: [s.before, s.after] for s in self.settings},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return as_markdown(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineComparison:
    """Two passports; the largest change first."""

    before: Selection
    after: Selection
    differences: tuple[Difference, ...]
    settings: tuple[str, ...]  # drivers, caps and libraries that differ
    notes: tuple[str, ...]

    def slower_by_more_than(self, share: float) -> list[str]:
        """The roofs that are worse by more than this share, and by more than their noise."""
        return [
            f"the {label(d.before)} roof of {d.before.device}, {format_change(d.change)}"
            for d in self.differences
            if d.before.kind != "power"
            and _loss(d) > max(share, d.before.spread, d.after.spread)
        ]  # fmt: skip

    def undecided(self, share: float) -> list[str]:
        """None: a roof is compared with its own noise."""
        return []

    def not_judged(self) -> list[str]:
        """None: a roof is the best of many rounds, which a busy moment does not move."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "before": _side_dict(self.before),
            "after": _side_dict(self.after),
            "differences": [
                {"ceiling": label(d.before), "device": d.before.device, "before": d.before.best,
                 "after": d.after.best, "change": d.change, "explanation": d.explanation}
                for d in self.differences
            ],
            "settings": list(self.settings),
            "notes": list(self.notes),
        }  # fmt: skip

    __str__ = Comparison.__str__


def _name_change(row: ComparedRuns) -> str:
    return f"{row.name}, {format_change(row.time.share)}"


def _loss(difference: Difference) -> float:
    """By what share the second machine has less, or takes longer."""
    return difference.change * (1 if difference.before.kind in LOWER_IS_BETTER else -1)


def _side_dict(side: Selection) -> dict[str, Any]:
    return {"name": side.text, "kind": side.kind}


# ---------------------------------------------------------------- in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def format_interval(interval: tuple[float, float] | None) -> str:
    """Of a ratio: `+2.8 … +3.7 %`."""
    if interval is None:
        return NOTHING
    low, high = (format_change(end - 1) for end in interval)
    return f"{low.removesuffix(' %')} … {high}"


def format_p(p: float) -> str:
    return f"<{LEAST_P}" if p < LEAST_P else f"{p:.3f}"


def sentence(row: ComparedRuns) -> str:
    """The verdict in words: `B is slower: 3.2 % more time per step (95 % interval …)`."""
    change, test = row.time, row.time.test
    by = f"{format_change(change.share)} time per {row.per}"
    if not change.is_judged:
        return f"not judged: {row.why_not_judged}: {by}"
    p = "p " if test.p < LEAST_P else "p = "
    details = (
        f"95 % interval {format_interval(change.interval)}; {p}{format_p(test.p)}, Mann–Whitney, "
        f"{test.method}, on {test.counts[0]} and {test.counts[1]} {test.of}"
    )
    if change.verdict == NO_DIFFERENCE:
        return f"no difference shown: {by} ({details})"
    more = "more" if change.verdict == SLOWER else "less"
    by = f"{100 * abs(change.share):.1f} % {more} time per {row.per}"
    return f"B is {change.verdict}: {by} ({details})"


def summary(comparison: Comparison) -> str:
    """One line about all configurations."""
    rows, count = comparison.rows, comparison.count
    if len(rows) == 1:
        return f"{rows[0].name}: {sentence(rows[0])}"
    counts = [f"{count(SLOWER)} slower", f"{count(FASTER)} faster",
              f"{count(NO_DIFFERENCE)} with no difference shown"]  # fmt: skip
    if count(NOT_JUDGED):
        counts.append(f"{count(NOT_JUDGED)} not judged")
    mean = format_change(comparison.mean_ratio - 1)
    return f"{len(rows)} configurations: {', '.join(counts)}; geometric mean {mean} time"


# ---------------------------------------------------------------- tables


def main_table(comparison: Comparison | MachineComparison) -> Table:
    """A row per configuration, or per roof that both machines have."""
    if isinstance(comparison, MachineComparison):
        return _ceilings_table(comparison)
    others = [name for name in OTHERS if any(name in row.others for row in comparison.rows)]
    per = " / ".join(sorted({row.per for row in comparison.rows}, reverse=True))
    titles = ("configuration", "verdict", f"A, {per}", f"B, {per}", "change", "95 % interval", "p")
    rows = tuple(
        (row.name, row.time.verdict, format_time(row.time.before), format_time(row.time.after),
         format_change(row.time.share), format_interval(row.time.interval),
         format_p(row.time.test.p),
         *(format_change(row.others[name].share) if name in row.others else NOTHING
           for name in others))
        for row in comparison.rows
    )  # fmt: skip
    return Table(title="", header=(*titles, *(OTHERS[name][0] for name in others)), rows=rows)


def _ceilings_table(comparison: MachineComparison) -> Table:
    rows = []
    for d in comparison.differences:
        unit = "OP/s" if d.before.precision == "int8" else CEILING_UNITS[UNITS[d.before.kind]]
        rows.append((d.before.device, label(d.before), si(d.before.best, unit),
                     si(d.after.best, unit), format_change(d.change), d.explanation))  # fmt: skip
    header = ("device", "ceiling", "A", "B", "change", "why")
    return Table(title="", header=header, rows=tuple(rows))


def details(comparison: Comparison | MachineComparison, top: int = TOP) -> Iterable[Table | str]:
    """Tables and lines that follow the main one.

    All tables of a single configuration; of several, the layers that were asked for.
    """
    rows = comparison.rows if isinstance(comparison, Comparison) else ()
    for row in rows:
        if len(rows) == 1:
            yield from _detail_tables(row, top)
        elif row.layers:
            yield _parts_table("layer", row.layers, row, top, f"{row.name}: ")
        if len(rows) == 1 or row.layers:
            yield from one_sided_parts(row)


def _detail_tables(row: ComparedRuns, top: int) -> Iterable[Table]:
    others = tuple(
        (title, form(change.before), form(change.after), format_change(change.share),
         format_interval(change.interval))
        for name, (title, form) in OTHERS.items()
        if (change := row.others.get(name)) is not None
    )  # fmt: skip
    tables = [
        Table(title="beside the time", header=("", "A", "B", "change", "95 % interval"),
              rows=others),
        _parts_table("phase", row.phases, row, len(row.phases)),
        _parts_table("layer", row.layers, row, top),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def _parts_table(
    kind: str, parts: tuple[Part, ...], row: ComparedRuns, top: int, heading: str = ""
) -> Table:
    both = [part for part in parts if part.is_on_both]
    rows = tuple(
        (part.name, format_time(part.before_s or 0.0), format_time(part.after_s or 0.0),
         signed_time(part.difference_s),
         " … ".join(map(signed_time, part.interval_s)) if part.interval_s else NOTHING,
         format_change(part.difference_s / row.time.before))
        for part in both[:top]
    )  # fmt: skip
    of_all = f", {top} of {len(both)}" if top < len(both) else ""
    return Table(
        title=f"{heading}{kind}s by their share in the difference{of_all}",
        header=(kind, "A", "B", "difference", "95 % interval", f"of A's {row.per}"),
        rows=rows,
    )


def signed_time(time_s: float) -> str:
    sign = "+" if time_s > 0 else "−" if time_s < 0 else ""
    return sign + format_time(abs(time_s))


def one_sided_parts(row: ComparedRuns) -> Iterable[str]:
    """Phases and layers that one side lacks, with the time they take on the other."""
    for side, other in (("A", "after_s"), ("B", "before_s")):
        parts = [part for part in (*row.phases, *row.layers) if getattr(part, other) is None]
        if parts:
            time = format_time(sum(abs(part.difference_s) for part in parts))
            names = ", ".join(part.name for part in parts[:TOP])
            more = f" and {len(parts) - TOP} more" if len(parts) > TOP else ""
            yield f"only in {side}, {time} together: {names}{more}"


def explanations(comparison: Comparison | MachineComparison) -> list[str]:
    """Other differences between the sides, and what only one of them has."""
    if isinstance(comparison, MachineComparison):
        return [f"differs: {text}" for text in comparison.settings]
    rows = comparison.rows
    busy = [row for row in rows if not row.time.is_judged and len(rows) > 1]
    return [
        *(f"{row.name}: not judged: {row.why_not_judged}" for row in busy),
        *(f"{row.name}: {text}" for row in rows for text in row.conditions),
        *(f"differs: {setting}" for setting in comparison.settings),
        *(f"only in A: {name}" for name in comparison.only_before),
        *(f"only in B: {name}" for name in comparison.only_after),
    ]


# ---------------------------------------------------------------- Markdown


def as_markdown(comparison: Comparison | MachineComparison, *, top: int = TOP) -> str:
    """For a pull request."""
    parts = [f"### A: {markdown(comparison.before)}, B: {markdown(comparison.after)}"]
    if isinstance(comparison, Comparison):
        parts.append(markdown_line(summary(comparison)))
    for block in (main_table(comparison), *details(comparison, top)):
        parts.append(f"- {markdown_line(block)}" if isinstance(block, str) else _markdown(block))
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
