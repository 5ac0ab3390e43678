"""Matrix products on the CPU: a search over shapes, through torch or numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ridgeline.machine.sampling import best_of_rounds, rate_probe, time_calls

SIDES = (384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
FORMS = ((1, 1, 1), (2, 2, 0.5), (1, 1, 4))  # square; a wide result; a long sum
SAMPLE_S = 0.003
SEARCH_ROUNDS = 5
LONGEST_S = {True: 0.03, False: 0.1}  # of one product, by quick
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # as /proc/cpuinfo has them, x86 and Arm

Product = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The best shape of one precision, ready to be sampled."""

    precision: str
    how: str
    probe: Callable[[], float]


def precisions(flags: set[str]) -> tuple[str, ...]:
    """What is worth running: bf16 without its instructions is over a hundred times slower."""
    has_bf16 = any(name in flags for name in BF16_INSTRUCTIONS)
    return ("fp32", "fp64", "bf16") if has_bf16 else ("fp32", "fp64")


def shapes() -> list[tuple[int, int, int]]:
    """M, N, K by the work they are, small first."""
    found = {
        (round(side * m), round(side * n), round(side * k)) for side in SIDES for m, n, k in FORMS
    }
    return sorted(found, key=lambda s: (s[0] * s[1] * s[2], s))


def best_product(precision: str, *, quick: bool) -> Matrix | None:
    """Try shapes until one product takes too long; None if neither library has this precision."""
    probes: dict[tuple[int, int, int], Callable[[], float]] = {}
    library = ""
    for shape in shapes():
        product = _product(precision, shape)
        if product is None:
            return None
        call, library = product
        call()  # the first call of a shape sets things up
        taken_s = min(time_calls(call, 1) for _ in range(2))
        probes[shape] = rate_probe(call, _flops(shape), sample_s=SAMPLE_S)
        if taken_s > LONGEST_S[quick]:
            break
    rates = best_of_rounds(probes, rounds=SEARCH_ROUNDS)
    shape = max(rates, key=lambda shape: rates[shape])
    how = f"{library} {shape[0]}x{shape[1]}x{shape[2]}"
    return Matrix(precision=precision, how=how, probe=probes[shape])


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use this many threads, and give it back what it had."""
    torch = _torch()
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _flops(shape: tuple[int, int, int]) -> float:
    m, n, k = shape
    return 2.0 * m * n * k


def _product(precision: str, shape: tuple[int, int, int]) -> tuple[Product, str] | None:
    """The product as a call, and what it is called."""
    m, n, k = shape
    torch = _torch()
    if torch is not None:
        kind = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}[precision]
        a, b, c = (torch.rand(size).to(kind) for size in ((m, k), (k, n), (m, n)))
        return lambda: torch.mm(a, b, out=c), "torch.mm"
    import numpy as np

    if precision not in ("fp32", "fp64"):
        return None
    dtype = np.float32 if precision == "fp32" else np.float64
    generator = np.random.default_rng(0)
    x, y, z = (generator.random(size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    return lambda: np.matmul(x, y, out=z), "numpy.matmul"


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
