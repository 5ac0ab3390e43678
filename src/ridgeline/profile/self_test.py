"""Work of known size through the same path as the step: a copy and matrix products.

Before the step every process that counts also counts these, so each profile brings its own proof.
What the counters say over what is true must be near 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "ridgeline:test:"
SIDE = 2048  # of the matrices
COPY_BYTES = (2**30, 2**28)  # read once and written once; the smaller one where memory is short
SMALL_COPY_BYTES = 2**20
TOLERANCE = 0.05
PRODUCT_FLOPS = 2 * SIDE**3
Named = Callable[[str], AbstractContextManager[None]]


def load_known_work(kinds: Sequence[str]) -> None:
    """The same work unseen, so that libraries are loaded; of the copy, a small one."""
    _do_known_work(kinds, SMALL_COPY_BYTES, lambda work, name: work())


def copy_size() -> int:
    """Of the copy, as far as memory is free now; 0 for none."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return next((size for size in COPY_BYTES if 4 * size < free_bytes), 0)


def run_known_work(kinds: Sequence[str], copy_bytes: int, named: Named | None = None) -> None:
    """Copy, and multiply in fp32 and each of `kinds`, each in a range of its name."""
    import torch

    ranges = named or _profiled_range

    def do(work: Callable[[], Any], name: str) -> None:
        torch.cuda.synchronize()
        with ranges(f"{PREFIX}{name}"):
            work()
            torch.cuda.synchronize()

    _do_known_work(kinds, copy_bytes, do)


def _do_known_work(
    kinds: Sequence[str], copy_bytes: int, do: Callable[[Callable[[], Any], str], None]
) -> None:
    import torch

    if copy_bytes:
        source = torch.ones(copy_bytes // 4, device="cuda")
        target = torch.empty_like(source)
        # not copy_, which the copy engine does without a kernel
        do(lambda: torch.neg(source, out=target), f"copy:{copy_bytes}")
        del source, target
    for kind in dict.fromkeys(("fp32", *kinds)):
        with _tf32(kind == "tf32"):
            dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
            matrix = torch.ones(SIDE, SIDE, device="cuda", dtype=dtype)
            result = torch.empty_like(matrix)
            do(lambda: torch.mm(matrix, matrix, out=result), f"product:{kind}")  # noqa: B023
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@contextmanager
def _profiled_range(name: str) -> Iterator[None]:
    """A range that a profiler around the process listens to."""
    import torch

    torch.cuda.profiler.start()
    torch.cuda.nvtx.range_push(name)
    yield
    torch.cuda.nvtx.range_pop()
    torch.cuda.profiler.stop()


@contextmanager
def _tf32(is_on: bool) -> Iterator[None]:
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = is_on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def is_known_work(kernels: pd.DataFrame) -> pd.Series:
    """Which rows of a capture belong to the test."""
    return kernels["nvtx"].str.contains(PREFIX, regex=False)


def compute_ratios(captures: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Counted over true, for every quantity that some capture counted."""
    ratios: dict[str, float] = {}
    for kernels in captures:
        tested = kernels[is_known_work(kernels)]
        for name, rows in tested.groupby(tested["nvtx"].str.extract(f"{PREFIX}([^/ ]+)")[0]):
            what, _, detail = str(name).partition(":")
            if what == "copy" and "dram_bytes" in rows:
                ratios["copy"] = float(rows["dram_bytes"].sum(min_count=1)) / (2 * int(detail))
            elif what == "product":
                counted = _product_flops(rows, detail)
                if counted is not None:  # several groups may hold parts of it
                    so_far = ratios.get(f"product {detail}", 0.0)
                    ratios[f"product {detail}"] = so_far + counted / PRODUCT_FLOPS
    return {name: ratio for name, ratio in ratios.items() if ratio == ratio}


def _product_flops(rows: pd.DataFrame, kind: str) -> float | None:
    column = "flops_fp32_vector" if kind == "fp32" else f"flops_{kind}_matrix"
    return float(rows[column].sum(min_count=1)) if column in rows else None


def doubt_ratios(ratios: Mapping[str, float]) -> list[str]:
    """A warning wherever these counters are used; empty if they can be trusted."""
    if not ratios:
        return ["the counters were not tested: no work of known size was seen"]
    wrong = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > TOLERANCE}
    if not wrong:
        return []
    words = ", ".join(f"{name}: {ratio:.3f} of the truth" for name, ratio in wrong.items())
    return [f"these counters are off by more than {TOLERANCE:.0%} on work of known size: {words}"]
