"""What work costs in joules: coefficients of a device, fitted to loads of known work.

    joules = Σ over precisions  j_per_flop · FLOPs
           + Σ over levels      j_per_byte · bytes
           + constant power · time  +  busy power · time with kernels

(Choi, Bedard, Fowler, Vuduc, IPDPS 2013). No coefficient is below zero, and every point counts by
its relative residual, so that a load of a millisecond weighs as much as one of a minute. Constant
power is what a device draws at working clocks without work: it is fitted, since an idle device
lowers its clock and draws less. Busy power is what a GPU draws beside it while kernels run on all
of it, for instructions that are no FLOPs: where points tell it. Points that cannot give the
coefficients are refused with the point that is missing.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Coefficient, EnergyModel, EnergyPoint
from ridgeline.serialize import FieldError, Name, NotNegative, Positive, from_dict
from ridgeline.units import format_change, format_percent, si

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool]]

ANY = "any"  # the precision of FLOPs of which none is named
FULL_CLOCK = 0.97  # of the highest clock: below it, something holds the clock down
NEAR = 1.25  # rates of work that differ by less are much the same load
OFF = 2.0  # times the power of such loads, or half of it: a wrong reading
LARGEST_CONDITION = 30.0  # beyond it, columns are too alike to be told apart (Belsley 1991)
LARGEST_RESIDUAL = 0.25  # on average: the points do not follow one model
DRAWS = 1000
SMALLEST = 1e-200
PURE = 0.1  # of what a point mainly does: less of anything else does not matter

Column = tuple[str, str]  # "flops" and a precision, "bytes" and a level, or "busy" or "time"
BUSY: Column = ("busy", "")
TIME: Column = ("time", "")


def fit_energy(
    points: Sequence[EnergyPoint],
    *,
    device: str,
    how: str,
    measured_at: str,
    power_cap_w: float | None = None,
    provenance: str = "measured",
) -> EnergyModel:
    """The energy model of a device; those of the points that it leaves out have a note."""
    known = flag_lower_clocks(flag_outliers(points))
    fitted = [point for point in known if not point.note]
    system = make_system(fitted)
    _check_system(fitted, system)
    coefficients = _find_coefficients(system)
    known = [_add_residual(point, coefficients) for point in known]
    mean_residual = fmean(abs(p.residual or 0.0) for p in known if not p.note)
    _check_residuals(known, mean_residual)
    return EnergyModel(
        device=device,
        j_per_flop=_pick(coefficients, "flops"),
        j_per_byte=_pick(coefficients, "bytes"),
        constant_power_w=coefficients[TIME],
        busy_power_w=coefficients.get(BUSY),
        clock_exponent=_find_clock_exponent(known, coefficients[TIME].value),
        power_cap_w=power_cap_w,
        r_squared=_r_squared(known, [p.energy_j for p in known]),
        r_squared_power=_r_squared(known, [p.power_w for p in known]),
        mean_residual=mean_residual,
        points=tuple(known),
        provenance=provenance,
        how=how,
        measured_at=measured_at,
    )


# ---------------------------------------------------------------- which points


def flag_outliers(points: Sequence[EnergyPoint]) -> list[EnergyPoint]:
    """The points; those that draw far more or less than loads of the same rates have a note.

    It takes two such neighbours that agree with each other. The worst goes first: the others are
    judged without it.
    """
    flagged = list(points)
    while True:
        usual_w = {
            number: median(powers_w)
            for number in range(len(flagged))
            if (powers_w := _neighbour_powers(flagged, number))
        }
        off = {n: abs(log(flagged[n].power_w / power_w)) for n, power_w in usual_w.items()}
        worst = max(off, key=lambda number: off[number], default=None)
        if worst is None or off[worst] < log(OFF):
            return flagged
        note = (
            f"{si(flagged[worst].power_w, 'W')} where loads of the same rates draw"
            f" {si(usual_w[worst], 'W')}: likely a wrong reading"
        )
        flagged[worst] = replace(flagged[worst], note=note)


def _neighbour_powers(points: Sequence[EnergyPoint], number: int) -> list[float]:
    """The power of other loads with nearly the same rates; none unless two or more agree."""
    one = points[number]
    if one.note:
        return []
    others = [p for n, p in enumerate(points) if n != number and not p.note and _is_near(one, p)]
    powers_w = [p.power_w for p in others]
    return powers_w if len(powers_w) > 1 and max(powers_w) < OFF * min(powers_w) else []


def _is_near(one: EnergyPoint, other: EnergyPoint) -> bool:
    rates, others = _rates(one), _rates(other)
    return rates.keys() == others.keys() and all(
        1 / NEAR < rate / others[name] < NEAR for name, rate in rates.items()
    )


def _rates(point: EnergyPoint) -> dict[Column, float]:
    """Work per second, and the clock where it is known."""
    rates = {column: amount / point.time_s for column, amount in _work(point).items()}
    return {**rates, **({("clock", ""): point.clock_hz} if point.clock_hz else {})}


def _work(point: EnergyPoint) -> dict[Column, float]:
    """What a point does: bytes, FLOPs, and the time that it takes."""
    work = {("bytes", level): amount for level, amount in point.moved_bytes.items()}
    work |= {("flops", precision): amount for precision, amount in point.flops.items()}
    work[BUSY] = point.busy_s or 0.0
    return {**{column: amount for column, amount in work.items() if amount}, TIME: point.time_s}


def flag_lower_clocks(points: Sequence[EnergyPoint]) -> list[EnergyPoint]:
    """The points; those below the highest clock that was seen have a note: they cost less."""
    highest_hz = max((p.clock_hz for p in points if p.clock_hz), default=0.0)
    flagged = []
    for point in points:
        clock_hz = point.clock_hz or highest_hz
        if not point.note and clock_hz < FULL_CLOCK * highest_hz:
            clock = f"at {format_percent(clock_hz / highest_hz)} of the highest clock"
            is_idle = len(_work(point)) == 1  # nothing but time
            note = f"idle {clock}: not the constant power of work"
            point = replace(point, note=note if is_idle else f"{clock}: not of the same fit")
        flagged.append(point)
    return flagged


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class System:
    """The equations of some points: a row for each, over its joules; columns of length 1."""

    columns: tuple[Column, ...]
    rows: Numbers
    scales: Numbers  # of the columns: a solution is multiplied by them


def _find_coefficients(system: System) -> dict[Column, Coefficient]:
    """The least-squares solution with its intervals."""
    import numpy as np

    solution = solve_nonnegative(system.rows, np.ones(len(system.rows)))
    low, high = _bootstrap(system, solution)
    rows = zip(system.columns, solution * system.scales, low, high, strict=True)
    return {
        column: Coefficient(value=float(value), interval=(float(least), float(most)))
        for column, value, least, most in rows
    }


def _find_clock_exponent(points: Sequence[EnergyPoint], constant_w: float) -> Coefficient | None:
    """How the joules of work fall with the clock, from loads that the power cap slowed down.

    A lower clock goes with a lower voltage. The interval is from the least to the most of them.
    """
    highest_hz = max((p.clock_hz for p in points if p.clock_hz), default=0.0)
    found = []
    for point in points:
        clock_hz, constant_j = point.clock_hz or highest_hz, constant_w * point.time_s
        full_j = point.energy_j * (1 + (point.residual or 0.0)) - constant_j
        is_slow = point.flops and point.residual is not None and clock_hz < FULL_CLOCK * highest_hz
        if is_slow and point.energy_j > constant_j:
            found.append(log((point.energy_j - constant_j) / full_j) / log(clock_hz / highest_hz))
    if not found or min(found) < 0:
        return None
    return Coefficient(value=median(found), interval=(min(found), max(found)))


def _pick(coefficients: Mapping[Column, Coefficient], kind: str) -> dict[str, Coefficient]:
    return {name: value for (one, name), value in coefficients.items() if one == kind}


def _add_residual(point: EnergyPoint, coefficients: Mapping[Column, Coefficient]) -> EnergyPoint:
    """Also of a point that was left out, if all of its work has a coefficient."""
    work = _work(point)
    if not work.keys() <= coefficients.keys():
        return point
    modelled_j = sum(amount * coefficients[column].value for column, amount in work.items())
    return replace(point, residual=modelled_j / point.energy_j - 1)


def _r_squared(points: Sequence[EnergyPoint], values: Sequence[float]) -> float:
    """Of the joules or watts of the points that were fitted."""
    fitted = [(value, p.residual or 0.0) for p, value in zip(points, values, strict=True)
              if not p.note]  # fmt: skip
    mean = fmean(value for value, _ in fitted)
    total = sum((value - mean) ** 2 for value, _ in fitted)
    return 1 - sum((value * residual) ** 2 for value, residual in fitted) / total if total else 0.0


def make_system(points: Sequence[EnergyPoint]) -> System:
    """The equations of points: what each column is of the joules of each."""
    import numpy as np

    works = [_work(point) for point in points]
    columns = (*sorted({c for work in works for c in work} - {TIME}), TIME)
    rows = np.array(
        [[work.get(column, 0.0) / p.energy_j for column in columns]
         for p, work in zip(points, works, strict=True)]
    ).reshape(len(points), len(columns))  # fmt: skip
    scales = 1 / np.maximum(np.sqrt((rows**2).sum(axis=0)), SMALLEST)
    return System(columns, rows * scales, scales)


def solve_nonnegative(matrix: Numbers, values: Numbers) -> Numbers:
    """The x of least squares with no part below zero (Lawson and Hanson 1974)."""
    import numpy as np

    x: Numbers = np.zeros(matrix.shape[1])
    is_free: Flags = np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(3 * len(x)):
        gradient = np.where(is_free, -inf, matrix.T @ (values - matrix @ x))
        if gradient.max() <= 1e-10:
            break
        is_free[gradient.argmax()] = True
        while (trial := _solve_free(matrix, values, is_free))[is_free].min(initial=1.0) <= 0:
            is_bound = is_free & (trial <= 0)
            x = x + (x[is_bound] / (x[is_bound] - trial[is_bound])).min() * (trial - x)
            is_free &= x > 1e-12
        x = trial
    return x


def _solve_free(matrix: Numbers, values: Numbers, is_free: Flags) -> Numbers:
    import numpy as np

    x = np.zeros(matrix.shape[1])
    x[is_free] = np.linalg.lstsq(matrix[:, is_free], values, rcond=None)[0]
    return x


def _bootstrap(system: System, solution: Numbers) -> tuple[Numbers, Numbers]:
    """95 % intervals: residuals are dealt anew to the points, and the fit is made again."""
    import numpy as np

    points, unknowns = system.rows.shape
    modelled = system.rows @ solution
    residuals = (1 - modelled) * (points / (points - unknowns)) ** 0.5
    random = np.random.default_rng(0)
    draws = [
        solve_nonnegative(system.rows, modelled + random.choice(residuals, points))
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(np.array(draws) * system.scales, [2.5, 97.5], axis=0)
    value = solution * system.scales
    return np.minimum(low, value), np.maximum(high, value)


# ---------------------------------------------------------------- refusals

NAMES = {  # of a column, and of the point that it takes; bytes are the easiest to measure alone
    "bytes": ("joules per byte ({})", "no point that only moves bytes ({})"),
    "flops": ("joules per FLOP ({})", "no point that only computes (precision {})"),
    "busy": ("busy power", "no point that keeps a GPU busy with little work"),
    "time": ("constant power", "no point that only takes time, such as spinning without work"),
}


def _check_system(points: Sequence[EnergyPoint], system: System) -> None:
    """Enough points, and points that differ in what they do."""
    import numpy as np

    names = [NAMES[kind][0].format(name) for kind, name in system.columns]
    if len(points) <= len(names):
        raise RidgelineError(
            f"{len(points)} points are too few for {len(names)} coefficients: {', '.join(names)}",
            hint=f"it takes {len(names) + 1}: such as loads that only move bytes, only compute in"
            " each precision, and one that only takes time",
        )
    _, sizes, directions = np.linalg.svd(system.rows, full_matrices=False)
    if sizes[0] <= LARGEST_CONDITION * sizes[-1]:
        return
    alike = [number for number in range(len(names)) if abs(directions[-1][number]) > 2 * PURE]
    by_kind = sorted(alike, key=lambda number: [*NAMES].index(system.columns[number][0]))
    kind, name = system.columns[min(by_kind, key=lambda n: _has_pure_point(system, n, alike))]
    raise RidgelineError(
        f"these points cannot tell {' from '.join(names[n] for n in alike)}: there is"
        f" {NAMES[kind][1].format(name)}",
        hint="add such a point; work in the same proportions, however much, tells nothing new",
    )


def _has_pure_point(system: System, number: int, alike: Sequence[int]) -> bool:
    """Whether a point does this and, of what cannot be told from it, hardly anything else.

    Every point takes time, so time is no work that a point of bytes or FLOPs should be without.
    """
    others = [n for n in alike if n != number and system.columns[n] != TIME]
    mine = system.rows[:, number]
    rest = system.rows[:, others].max(axis=1, initial=0.0)
    return bool(((mine > 0) & (rest <= PURE * mine)).any())


def _check_residuals(points: Sequence[EnergyPoint], mean: float) -> None:
    if mean <= LARGEST_RESIDUAL:
        return
    off = {p.residual or 0.0: p.label for p in points if not p.note}
    worst = max(off, key=abs)
    raise RidgelineError(
        f"these points follow no one energy model: it is off by {format_percent(mean)} on average,"
        f" and by {format_change(worst)} at {off[worst]}",
        hint="check their readings; FLOPs of another precision need a column `precision`",
    )


# ---------------------------------------------------------------- from a file


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """A load as a file has it: one of power and energy, FLOPs of one precision, bytes of DRAM."""

    label: Name
    time_s: Positive
    flops: NotNegative
    bytes: NotNegative
    power_w: Positive | None = None
    energy_j: Positive | None = None
    precision: str = ANY
    clock_hz: Positive | None = None
    temperature_c: float | None = None


COLUMNS = ", ".join(EnergyRow.__dataclass_fields__)


def read_energy_points(path: Path) -> list[EnergyPoint]:
    """The points of a CSV whose columns are fields of EnergyRow; other columns do not matter."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            points = [_read_point(f"{path}, line {rows.line_num}", row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RidgelineError(
            f"{path} cannot be read: {error}", hint=f"name a CSV with the columns {COLUMNS}"
        ) from error
    if not points:
        raise RidgelineError(f"{path} has no rows", hint="it takes one for each load")
    return points


def _read_point(where: str, cells: Mapping[str, Any]) -> EnergyPoint:
    try:
        if None in cells:
            raise FieldError("after the last one of the header has a value")
        content = {name: _read_cell(name, text) for name, text in cells.items() if text}
        row = from_dict(EnergyRow, content)
        if row.power_w is None and row.energy_j is None:
            raise FieldError("power_w or energy_j is missing")
    except FieldError as error:
        raise RidgelineError(
            f"{where}, column {error}", hint=f"the columns of such a file: {COLUMNS}"
        ) from error
    return EnergyPoint(
        label=row.label,
        time_s=row.time_s,
        energy_j=row.energy_j or (row.power_w or 0.0) * row.time_s,
        flops={row.precision: row.flops},
        moved_bytes={"dram": row.bytes},
        clock_hz=row.clock_hz,
        temperature_c=row.temperature_c,
    )


def _read_cell(name: str, text: str) -> str | float:
    """A number where there is one; a label stays a text."""
    try:
        return text.strip() if name in ("label", "precision") else float(text)
    except ValueError:
        return text
