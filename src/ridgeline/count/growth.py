"""How cost grows with batch and input size.

Counting is exact, so a polynomial through enough counts is exact too, and one count more
tells whether it is. Where sizes round (a stride that does not divide) no polynomial fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ridgeline.count.records import Settings
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import resolve

BATCHES = (2, 3, 4, 5)  # one sample alone cannot be normalised in training
USUAL_SIDE = 224
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

    def __str__(self) -> str:
        numbers = enumerate(self.coefficients)
        terms = [self._term(float(number), power) for power, number in numbers if number]
        return " + ".join(reversed(terms)).replace("+ -", "− ") or "0"

    def _term(self, number: float, power: int) -> str:
        text = f"{number:.4g}".replace("e+0", "e").replace("e+", "e")
        exponent = str(power).translate(_SUPERSCRIPT) if power > 1 else ""
        return f"{text}·{self.variable}{exponent}" if power else text


Formulas = dict[str, Polynomial | None]  # by quantity; None where no polynomial fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Formulas of one quantity each, in the batch N and, where it can vary, the size S."""

    by_batch: Formulas
    by_size: Formulas
    size_name: str  # what S is: "input size" or "tokens"
    size: int  # where the batch was varied
    sizes: tuple[int, ...]  # where the size was varied
    notes: tuple[str, ...] = ()


def fit(variable: str, xs: Sequence[int], ys: Sequence[int]) -> Polynomial | None:
    """The polynomial of lowest degree through all points, if one point fewer gives it too.

    Newton's form: each further point adds a multiple of (x − x0)·(x − x1)·…
    """
    import numpy as np
    from numpy.polynomial.polynomial import polyadd, polymul, polyval

    found, basis = np.array([Fraction(0)]), np.array([Fraction(1)])
    for x, y in zip(xs[:-1], ys[:-1], strict=True):
        found = polyadd(found, (y - polyval(x, found)) / polyval(x, basis) * basis)
        polynomial = Polynomial(variable, tuple(found))
        if [polynomial(x) for x in xs] == list(ys):
            return polynomial
        basis = polymul(basis, [Fraction(-x), Fraction(1)])
    return None


def growth(
    spec: WorkloadSpec, settings: Settings, *, progress: Callable[[], None] = lambda: None
) -> Growth:
    """Count the workload at several batches and sizes and return the formulas that fit."""
    from ridgeline.count.counting import count_workload  # imports torch

    def fits(variable: str, specs: Mapping[int, WorkloadSpec]) -> Formulas:
        """The polynomials through the counts of these specs."""
        counts = []
        for at in specs.values():
            progress()
            counts.append(_quantities(count_workload(at, settings)))
        return {name: fit(variable, [*specs], [one[name] for one in counts]) for name in QUANTITIES}

    by_batch = fits("N", {batch: replace(spec, batch_size=batch) for batch in BATCHES})
    name, base, sizes = _size_axis(spec)
    found = Growth(by_batch=by_batch, by_size={}, size_name=name, size=base, sizes=())
    try:
        return replace(found, by_size=fits("S", sizes), sizes=tuple(sizes))
    except RidgelineError as error:
        return replace(found, notes=(f"the {name} cannot vary: {error.problem}",))


def _quantities(result: CountResult) -> dict[str, int]:
    return {
        **{name: getattr(result.total, name) for name in QUANTITIES[:-1]},
        "peak_bytes": result.memory.peak_bytes,
    }


def _size_axis(spec: WorkloadSpec) -> tuple[str, int, dict[int, WorkloadSpec]]:
    """What varies, from where, and each size: tokens, or the side of a square image."""
    chosen = resolve(spec).describe
    tokens = chosen.get("seq_len")
    if isinstance(tokens, int):
        step = max(tokens // SIZES_TRIED, 1)
        lengths = [step * n for n in range(1, SIZES_TRIED + 1)]
        return "tokens", tokens, {length: replace(spec, seq_len=length) for length in lengths}
    size = chosen.get("input_size")
    base = size[-1] if isinstance(size, list | tuple) and size else USUAL_SIDE
    sides = [base + IMAGE_STEP * n for n in range(SIZES_TRIED)]
    return "input size", base, {side: replace(spec, input_size=(side,)) for side in sides}
