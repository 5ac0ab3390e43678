"""The CPU's kernels in numba: for a machine without a C compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """What numba.njit is, to those who check types."""

    def __call__(self, function: Function, /) -> Function: ...


CHAIN = 16  # multiply-adds to each element that is loaded; must match the body below
ELEMENTS = 2048  # stays in the nearest cache

# Sums may be reordered, or they would wait for each other. Chains may only be fused.
_summing = cast(Decorator, numba.njit(nogil=True, fastmath={"reassoc", "nsz", "contract"}))
_fusing = cast(Decorator, numba.njit(nogil=True, fastmath={"contract"}))
_plain = cast(Decorator, numba.njit(nogil=True))


@_summing
def _read(b: Any, passes: int) -> float:
    total = 0.0
    for _ in range(passes):
        for i in range(b.size):
            total += b[i]
    return total


@_plain
def _copy(a: Any, b: Any, passes: int) -> None:
    for _ in range(passes):
        for i in range(a.size):
            a[i] = b[i]


@_fusing
def _triad(a: Any, b: Any, c: Any, s: float, passes: int) -> None:
    for _ in range(passes):
        for i in range(a.size):
            a[i] = b[i] + s * c[i]


@_fusing
def _chains(x: Any, m: Any, a: Any, passes: int) -> None:
    for _ in range(passes):
        for i in range(x.size):
            t = x[i]
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            t = t * m + a
            x[i] = t


def how() -> str:
    """What ran."""
    return f"numba {numba.__version__}"


def functions() -> dict[str, Callable[[Any, int], float]]:
    """The kernels by name, `function(memory, passes) -> work`; the first call compiles."""
    return {
        "memory_read": _memory(1, lambda x, passes: _read(x[0], passes)),
        "memory_copy": _memory(2, lambda x, passes: _copy(x[1], x[0], passes)),
        "memory_triad": _memory(3, lambda x, passes: _triad(x[2], x[0], x[1], 3.0, passes)),
        "vector_fp32": _vector(np.float32),
        "vector_fp64": _vector(np.float64),
    }


def _memory(arrays: int, run: Callable[[Any, int], object]) -> Callable[[Any, int], float]:
    """A kernel on the memory, split in equal arrays of fp64."""

    def kernel(memory: Any, passes: int) -> float:
        size = memory.size // arrays // 64 * 64
        parts = [memory[i * size : (i + 1) * size].view(np.float64) for i in range(arrays)]
        run(parts, passes)
        return float(passes * arrays * size)

    return kernel


def _vector(kind: Any) -> Callable[[Any, int], float]:
    """Chains of multiply-adds on numbers that tend to 1."""

    def kernel(memory: Any, passes: int) -> float:
        _chains(np.ones(ELEMENTS, dtype=kind), kind(0.5), kind(0.5), passes)
        return 2.0 * CHAIN * ELEMENTS * passes

    return kernel
