"""How cost grows with batch and input size, and the largest batch that fits.

Polynomials are found by counting at several sizes.

Counting is exact, so a polynomial through enough counts is exact too, and one count more
tells whether it is. Where sizes round (a stride that does not divide) no polynomial fits
all sizes; the step between the sizes keeps to those that divide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from math import isfinite

from ridgeline.count.records import Settings
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.units import format_bytes
from ridgeline.workloads import resolve

BATCHES = (2, 3, 4, 5)  # one sample alone cannot be normalised in training
IMAGE_STEP = 32  # the stride of most vision networks
SIZES_TRIED = 6  # a degree of four at most, and one count to check it
QUANTITIES = ("macs", "flops", "moved_bytes", "peak_bytes")

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Coefficients from the constant up, in one variable."""

    variable: str
    coefficients: tuple[Fraction, ...]

    def __call__(self, x: int) -> Fraction:
        return sum((c * x**power for power, c in enumerate(self.coefficients)), Fraction(0))

    def plus(self, other: Polynomial, times: Fraction) -> Polynomial:
        pairs = zip_longest(self.coefficients, other.coefficients, fillvalue=Fraction(0))
        return Polynomial(self.variable, tuple(own + times * one for own, one in pairs))

    def __str__(self) -> str:
        terms = [
            _term(float(c), self.variable, power)
            for power, c in reversed(list(enumerate(self.coefficients)))
            if c
        ]
        return " + ".join(terms).replace("+ -", "− ") or "0"


def _term(coefficient: float, variable: str, power: int) -> str:
    number = f"{coefficient:.4g}".replace("e+0", "e").replace("e+", "e")
    if power == 0:
        return number
    return f"{number}·{variable}" + (str(power).translate(_SUPERSCRIPT) if power > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Formulas of one quantity each, in the batch N and, where it can vary, the size S."""

    by_batch: dict[str, Polynomial]
    by_size: dict[str, Polynomial]
    size_name: str  # what S is: "input size" or "tokens"
    size: int  # where the batch was varied
    sizes: tuple[int, ...]  # where the size was varied
    notes: tuple[str, ...] = ()

    @property
    def misfits(self) -> tuple[str, ...]:
        """A line for each quantity that no polynomial fits at the sizes that were counted."""
        varied = {"N": self.by_batch, **({"S": self.by_size} if self.sizes else {})}
        return tuple(
            f"{quantity} by {variable}: no polynomial fits these sizes"
            for variable, formulas in varied.items()
            for quantity in QUANTITIES
            if quantity not in formulas
        )


def fit(variable: str, xs: Sequence[int], ys: Sequence[int]) -> Polynomial | None:
    """The polynomial of lowest degree through all points, if one point fewer gives it too.

    Newton's form: each further point adds a multiple of (x − x0)·(x − x1)·…
    """
    found, basis = Polynomial(variable, ()), Polynomial(variable, (Fraction(1),))
    for x, y in zip(xs[:-1], ys[:-1], strict=True):
        found = found.plus(basis, (y - found(x)) / basis(x))
        if all(found(x) == y for x, y in zip(xs, ys, strict=True)):
            return found
        shifted = Polynomial(variable, (Fraction(0), *basis.coefficients))
        basis = shifted.plus(basis, Fraction(-x))
    return None


def growth(
    spec: WorkloadSpec, settings: Settings, *, progress: Callable[[], None] = lambda: None
) -> Growth:
    """Count the workload at several batches and sizes and return the formulas that fit."""
    from ridgeline.count.counting import count_workload  # imports torch

    def counted(at: WorkloadSpec) -> CountResult:
        progress()
        return count_workload(at, settings)

    batches = [counted(replace(spec, batch_size=batch)) for batch in BATCHES]
    name, base, sizes, vary = _size_axis(spec)
    notes, counts = [], []
    try:
        counts = [counted(vary(size)) for size in sizes]
    except RidgelineError as error:
        notes.append(f"the {name} cannot vary: {error.problem}")
    return Growth(
        by_batch=_fits("N", BATCHES, batches),
        by_size=_fits("S", sizes, counts) if counts else {},
        size_name=name,
        size=base,
        sizes=tuple(sizes) if counts else (),
        notes=tuple(notes),
    )


def _fits(variable: str, xs: Sequence[int], results: list[CountResult]) -> dict[str, Polynomial]:
    fits: dict[str, Polynomial] = {}
    for quantity in QUANTITIES:
        polynomial = fit(variable, xs, [_quantity(r, quantity) for r in results])
        if polynomial is not None:
            fits[quantity] = polynomial
    return fits


def _quantity(result: CountResult, name: str) -> int:
    source = result.memory if name == "peak_bytes" else result.total
    return int(getattr(source, name))


def _size_axis(
    spec: WorkloadSpec,
) -> tuple[str, int, list[int], Callable[[int], WorkloadSpec]]:
    """What varies, from where, and how: tokens, or the side of a square image."""
    chosen = resolve(spec).describe
    tokens = chosen.get("seq_len")
    if isinstance(tokens, int):
        step = max(tokens // SIZES_TRIED, 1)
        sizes = [step * n for n in range(1, SIZES_TRIED + 1)]
        return "tokens", tokens, sizes, lambda size: replace(spec, seq_len=size)
    base = _side(chosen.get("input_size"))
    sizes = [base + IMAGE_STEP * n for n in range(SIZES_TRIED)]
    return "input size", base, sizes, lambda size: replace(spec, input_size=(size,))


def _side(input_size: object) -> int:
    sides = input_size if isinstance(input_size, list | tuple) else [input_size]
    return sides[-1] if sides and isinstance(sides[-1], int) else 224


# ---------------------------------------------------------------- the largest batch

LARGEST_BATCH = 1 << 20
Try = tuple[int, float]  # a batch, and its peak in bytes
MOST_GROWTH = 16  # from one try to the next: a line through two small batches says little


def max_batch(peak_bytes: Callable[[int], float], limit_bytes: int, *, within: float = 0.0) -> int:
    """The largest batch with `peak_bytes(batch) <= limit_bytes`.

    Peak memory grows with the batch, nearly in a straight line, so a line through two counts
    gives the place to look, and the count at that place and beside it decides. A peak may be
    infinite: of a batch that was tried and did not fit, nothing more is known.

    Trying takes seconds where counting takes none. `within` is how much smaller than the largest
    the answer may be, as a share of it: tries end when the next one could not tell more than that;
    0 is exact.
    """
    low, high = (1, peak_bytes(1)), (2, peak_bytes(2))
    if low[1] > limit_bytes:
        raise RidgelineError(
            f"one sample needs {format_bytes(low[1])}, more than {format_bytes(limit_bytes)}",
            hint="try a smaller input, a lower precision, or an optimizer with less state",
        )
    pushes = 0
    while high[1] <= limit_bytes and high[0] < LARGEST_BATCH:
        remaining = int((limit_bytes - high[1]) / max(_slope(low, high), 1))
        least = max(1, int(within * high[0])) << pushes if within else high[0]
        pushes += remaining < least  # the line said that this was all, and it was not
        guess = min(high[0] + max(remaining, least), MOST_GROWTH * high[0], LARGEST_BATCH)
        low, high = high, (guess, peak_bytes(guess))
    if high[1] <= limit_bytes:
        return high[0]
    while high[0] - low[0] > max(1, within * low[0]):  # `low` fits and `high` does not
        guess = _guess_between(limit_bytes, low, high)
        tried = (guess, peak_bytes(guess))
        if tried[1] > limit_bytes:
            high = tried
            continue
        low = tried
        if isfinite(high[1]) and guess + 1 < high[0]:
            neighbour = (guess + 1, peak_bytes(guess + 1))
            low, high = (neighbour, high) if neighbour[1] <= limit_bytes else (low, neighbour)
    return low[0]


def _slope(low: Try, high: Try) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def _guess_between(limit: int, low: Try, high: Try) -> int:
    """Where the line between two counts meets the limit, strictly between them.

    Without a second count there is no line: then it is the middle.
    """
    if not isfinite(high[1]):
        return (low[0] + high[0]) // 2
    guess = low[0] + int((limit - low[1]) / max(_slope(low, high), 1e-9))
    return min(max(guess, low[0] + 1), high[0] - 1)
