"""A comparison in words, and as rows of text for any kind of table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ridgeline.machine.compare import label
from ridgeline.report.compare import Compared, Part
from ridgeline.report.compare_machines import MachineComparison
from ridgeline.report.compare_sides import Comparison
from ridgeline.report.markup import markdown, markdown_line
from ridgeline.report.two_samples import FASTER, NO_DIFFERENCE, NOT_JUDGED, SLOWER, Change
from ridgeline.units import format_bytes, format_change, format_time, si

NOTHING = "–"
TOP = 10  # parts that are shown, unless asked otherwise
LEAST_P = 0.001
OTHERS: dict[
    str, tuple[str, Callable[[float], str]]
] = {  # of compare.QUANTITIES: a title, and how to write one
    "samples_per_s": ("samples/s", lambda value: f"{value:.4g}" if value < 1e4 else f"{value:.0f}"),
    "energy_j_per_sample": ("J/sample", lambda value: si(value, "J")),
    "peak_memory_bytes": ("peak memory", format_bytes),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A title, a header and rows, all text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def percents(interval: tuple[float, float] | None) -> str:
    """Of a ratio: `+2.8 … +3.7 %`."""
    if interval is None:
        return NOTHING
    low, high = (format_change(end - 1) for end in interval)
    return f"{low.removesuffix(' %')} … {high}"


def p_value(p: float) -> str:
    return f"<{LEAST_P}" if p < LEAST_P else f"{p:.3f}"


def sentence(row: Compared) -> str:
    """The verdict in words: `B is slower: 3.2 % more time per step (95 % interval …)`."""
    change = row.time
    details = f"95 % interval {percents(change.interval)}; {_tested(change)}"
    if not change.is_judged:
        return f"not judged: {row.why_not_judged}: {format_change(change.share)} time per {row.per}"
    if change.verdict == NO_DIFFERENCE:
        return f"no difference shown: {format_change(change.share)} time per {row.per} ({details})"
    more = "more" if change.verdict == SLOWER else "less"
    by = f"{100 * abs(change.share):.1f} % {more} time per {row.per}"
    return f"B is {change.verdict}: {by} ({details})"


def _tested(change: Change) -> str:
    test = change.test
    equals = "p " if test.p < LEAST_P else "p = "
    counts = f"{test.counts[0]} and {test.counts[1]} {test.of}"
    return f"{equals}{p_value(test.p)}, Mann–Whitney, {test.method}, on {counts}"


def summary(found: Comparison) -> str:
    """One line about all configurations."""
    if len(found.rows) == 1:
        return f"{found.rows[0].name}: {sentence(found.rows[0])}"
    counts = [f"{found.count(SLOWER)} slower", f"{found.count(FASTER)} faster",
              f"{found.count(NO_DIFFERENCE)} with no difference shown"]  # fmt: skip
    if found.count(NOT_JUDGED):
        counts.append(f"{found.count(NOT_JUDGED)} not judged")
    mean = format_change(found.mean_ratio - 1)
    return f"{len(found.rows)} configurations: {', '.join(counts)}; geometric mean {mean} time"


# ---------------------------------------------------------------- tables


def configurations(found: Comparison) -> Table:
    """A row per configuration; of what is beside the time, the change."""
    beside = [name for name in OTHERS if any(name in row.others for row in found.rows)]
    per = " / ".join(sorted({row.per for row in found.rows}, reverse=True))
    titles = ("configuration", "verdict", f"A, {per}", f"B, {per}", "change", "95 % interval", "p")
    return Table(
        title="",
        header=(*titles, *(OTHERS[name][0] for name in beside)),
        rows=tuple((*_row(row), *(_beside(row, name) for name in beside)) for row in found.rows),
    )


def _row(row: Compared) -> tuple[str, ...]:
    change = row.time
    return (
        row.name,
        change.verdict,
        format_time(change.before),
        format_time(change.after),
        format_change(change.share),
        percents(change.interval),
        p_value(change.test.p),
    )


def _beside(row: Compared, name: str) -> str:
    return format_change(row.others[name].share) if name in row.others else NOTHING


def details(row: Compared, top: int = TOP) -> list[Table]:
    """Of one configuration: what is beside the time, then phases and layers that differ most."""
    others = tuple(
        (title, form(change.before), form(change.after), format_change(change.share),
         percents(change.interval))
        for name, (title, form) in OTHERS.items()
        if (change := row.others.get(name)) is not None
    )  # fmt: skip
    header = ("", "A", "B", "change", "95 % interval")
    tables = [Table(title="beside the time", header=header, rows=others)]
    tables.append(_parts("phase", row.phases, row, len(row.phases)))
    tables.append(_parts("layer", row.layers, row, top))
    return [table for table in tables if table.rows]


def _parts(kind: str, parts: tuple[Part, ...], row: Compared, top: int) -> Table:
    both = [part for part in parts if part.is_on_both]
    shown = both[:top]
    some = f", {len(shown)} of {len(both)}" if len(shown) < len(both) else ""
    return Table(
        title=f"{kind}s by their share in the difference{some}",
        header=(kind, "A", "B", "difference", "95 % interval", f"of A's {row.per}"),
        rows=tuple(_part_row(part, row.time.before) for part in shown),
    )


def _part_row(part: Part, whole_s: float) -> tuple[str, ...]:
    interval = part.interval_s
    return (
        part.name,
        format_time(part.before_s or 0.0),
        format_time(part.after_s or 0.0),
        signed_time(part.difference_s),
        f"{signed_time(interval[0])} … {signed_time(interval[1])}" if interval else NOTHING,
        format_change(part.difference_s / whole_s),
    )


def signed_time(time_s: float) -> str:
    sign = "+" if time_s > 0 else "−" if time_s < 0 else ""
    return sign + format_time(abs(time_s))


def alone(row: Compared) -> list[str]:
    """Phases and layers that one side lacks, with the time they take on the other."""
    lines = []
    for side, has in (("A", "before_s"), ("B", "after_s")):
        parts = [p for p in (*row.phases, *row.layers)
                 if not p.is_on_both and getattr(p, has) is not None]  # fmt: skip
        if parts:
            time = format_time(sum(getattr(part, has) for part in parts))
            names = ", ".join(part.name for part in parts[:TOP])
            more = f" and {len(parts) - TOP} more" if len(parts) > TOP else ""
            lines.append(f"only in {side}, {time} together: {names}{more}")
    return lines


def ceilings(found: MachineComparison) -> Table:
    """A row per roof that both machines have."""
    from ridgeline.machine.ceiling import UNITS

    units = {"flops_per_s": "FLOP/s", "bytes_per_s": "B/s", "time_s": "s", "power_w": "W"}
    rows = []
    for d in found.differences:
        unit = "OP/s" if d.before.precision == "int8" else units[UNITS[d.before.kind]]
        rows.append((d.before.device, label(d.before), si(d.before.best, unit),
                     si(d.after.best, unit), format_change(d.change), d.explanation))  # fmt: skip
    header = ("device", "ceiling", "A", "B", "change", "why")
    return Table(title="", header=header, rows=tuple(rows))


# ---------------------------------------------------------------- lines and Markdown


def explanations(found: Comparison | MachineComparison) -> list[str]:
    """What else differs between the sides, and what only one of them has."""
    if isinstance(found, MachineComparison):
        return [f"differs: {text}" for text in found.settings]
    busy = [row for row in found.rows if not row.time.is_judged and len(found.rows) > 1]
    lines = [f"{row.name}: not judged: {row.why_not_judged}" for row in busy]
    lines += [f"{row.name}: {text}" for row in found.rows for text in row.conditions]
    lines += [f"differs: {setting}" for setting in found.settings]
    lines += [f"only in A: {name}" for name in found.only_before]
    lines += [f"only in B: {name}" for name in found.only_after]
    return lines


def as_markdown(found: Comparison | MachineComparison, *, top: int = TOP) -> str:
    """For a pull request."""
    parts = [f"### A: {markdown(found.before)}, B: {markdown(found.after)}"]
    if isinstance(found, MachineComparison):
        parts.append(_markdown(ceilings(found)))
    else:
        parts += [markdown_line(summary(found)), _markdown(configurations(found))]
        for row in found.rows:
            parts += _markdown_details(row, len(found.rows) > 1, top)
    if lines := explanations(found):
        parts.append("**What else differs**")
        parts.append("\n".join(f"- {markdown_line(line)}" for line in lines))
    if found.notes:
        parts.append("\n".join(f"> note: {markdown(note)}  " for note in found.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_details(row: Compared, are_many: bool, top: int) -> list[str]:
    """All of it for one configuration; of several, only the layers that were asked for."""
    if are_many and not row.layers:
        return []
    heading = f"{markdown(row.name)}: " if are_many else ""
    tables = [table for table in details(row, top) if not are_many or table.header[0] == "layer"]
    return [*(f"**{heading}{table.title}**\n\n{_markdown(table)}" for table in tables),
            *(f"- {markdown_line(line)}" for line in alone(row))]  # fmt: skip


def _markdown(table: Table) -> str:
    numbers = ["---:" if name not in ("configuration", "verdict", "why") else "---"
               for name in table.header[1:]]  # fmt: skip
    lines = [table.header, ("---", *numbers), *table.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    safe = markdown(text)
    return f"**{safe}**" if text in (SLOWER, FASTER) else safe
