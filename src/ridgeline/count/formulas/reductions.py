"""Reductions, scans, sorts and transforms: cost by the elements read."""

from __future__ import annotations

from math import log2, prod

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import Formula, Work, aten


def _reduction(flops: int, transcendentals_out: int) -> Formula:
    """So many FLOPs per element read, so many transcendentals per result."""

    def formula(call: OpCall) -> Work:
        n = call.inputs[0].numel
        if not call.inputs[0].is_float and not call.out.is_float:
            return Work(terms=(("n", n),), factor=0)
        return Work(
            other_flops=flops * n,
            transcendentals=transcendentals_out * call.out.numel,
            factor=flops,
            terms=(("n", n),),
        )

    return formula


_PER_INPUT = {
    "sum": (1, 0), "nansum": (1, 0), "prod": (1, 0), "amax": (1, 0), "amin": (1, 0), "max": (1, 0),
    "min": (1, 0), "aminmax": (2, 0), "_aminmax": (2, 0), "argmax": (1, 0), "argmin": (1, 0),
    "var": (4, 0), "var_mean": (4, 0), "std": (4, 1), "std_mean": (4, 1), "cumsum": (1, 0),
    "cumprod": (1, 0), "cummax": (1, 0), "cummin": (1, 0), "_cummax_helper": (1, 0),
    "_cummin_helper": (1, 0), "trace": (1, 0), "count_nonzero": (1, 0), "mode": (1, 0),
    "median": (1, 0), "nanmedian": (1, 0), "kthvalue": (1, 0),
}  # fmt: skip
for _name, _cost in _PER_INPUT.items():
    aten(_name, kind="reduce")(_reduction(*_cost))


@aten("max.other min.other", kind="pointwise")
def binary_extreme(call: OpCall) -> Work:
    n = call.out.numel
    return Work(other_flops=n * call.is_float, terms=(("n", n),))


@aten("mean", kind="reduce")
def mean(call: OpCall) -> Work:
    n, results = call.inputs[0].numel, call.out.numel
    return Work(other_flops=n + results, terms=(("n", n),))


@aten("norm linalg_vector_norm native_norm", kind="reduce")
def norm(call: OpCall) -> Work:
    """A power and an addition (or their like) per element, a root per result."""
    n, results = call.inputs[0].numel, call.out.numel
    order = call.get("ord", call.get("p"))
    order = 2 if order is None else order
    if order in (0, 1, float("inf"), float("-inf")):
        return Work(other_flops=2 * n, factor=2, terms=(("n", n),))
    powers = 0 if order == 2 else n
    return Work(other_flops=2 * n, transcendentals=powers + results, factor=2, terms=(("n", n),))


@aten("dist", kind="reduce")
def dist(call: OpCall) -> Work:
    """The norm of a difference."""
    n = max(t.numel for t in call.inputs)
    return Work(other_flops=3 * n, transcendentals=1, factor=3, terms=(("n", n),))


@aten("renorm", kind="reduce")
def renorm(call: OpCall) -> Work:
    """The norm of each slice, and a scale."""
    x = call.inputs[0]
    slices = x.shape[call.get("dim")]
    n = x.numel
    return Work(other_flops=3 * n, transcendentals=slices, factor=3, terms=(("n", n),))


@aten("logsumexp", kind="reduce")
def logsumexp(call: OpCall) -> Work:
    n, results = call.inputs[0].numel, call.out.numel
    return Work(other_flops=3 * n, transcendentals=n + results, factor=3, terms=(("n", n),))


@aten("logcumsumexp", kind="reduce")
def logcumsumexp(call: OpCall) -> Work:
    n = call.inputs[0].numel
    return Work(other_flops=3 * n, transcendentals=2 * n, factor=3, terms=(("n", n),))


@aten("all any equal is_nonzero allclose _is_all_true _is_any_true", kind="reduce")
def truth(call: OpCall) -> Work:
    return Work()


@aten("sort argsort msort", kind="sort")
def sort(call: OpCall) -> Work:
    """n·log2(length) comparisons."""
    x = call.inputs[0]
    dim = call.get("dim", -1)
    length = x.shape[dim if isinstance(dim, int) else -1] if x.shape else 1
    comparisons = x.numel * _log2(length)
    return Work(other_flops=comparisons * x.is_float, terms=(("n·log2", comparisons),))


@aten("topk", kind="sort")
def topk(call: OpCall) -> Work:
    """Each element is compared with a heap of k."""
    x = call.inputs[0]
    comparisons = x.numel * max(_log2(call.get("k")), 1)
    return Work(other_flops=comparisons * x.is_float, terms=(("n·log2", comparisons),))


def _log2(size: int) -> int:
    return max(size - 1, 0).bit_length()


@aten("searchsorted bucketize", kind="sort")
def searchsorted(call: OpCall) -> Work:
    """A bisection of the sorted values for each result."""
    ordered = call.get("boundaries", call.get("sorted_sequence"))
    steps = call.out.numel * _log2(ordered.shape[-1] + 1)
    return Work(other_flops=steps * call.is_float, terms=(("n·log2", steps),))


@aten(
    "histc histogram bincount unique_dim _unique _unique2 unique_consecutive",
    "unique_dim_consecutive",
    kind="sort",
)
def histogram(call: OpCall) -> Work:
    return Work()


@aten("_fft_c2c _fft_r2c _fft_c2r", kind="fft")
def fft(call: OpCall) -> Work:
    """5·n·log2(n) for a complex transform of n points, half of that where one side is real."""
    big = max((*call.inputs, call.out), key=lambda t: t.numel)
    dims = call.get("dim")
    points = prod(big.shape[d] for d in dims)
    real = call.name != "aten::_fft_c2c"
    exact = 5 * big.numel * log2(points) if points > 1 else 0
    flops = round(exact / 2 if real else exact)
    name = "5·n·log2(points)/2" if real else "5·n·log2(points)"
    return Work(other_flops=flops, terms=((name, flops),))


@aten("linalg_cross", kind="pointwise")
def cross(call: OpCall) -> Work:
    return Work(other_flops=3 * call.out.numel, factor=3, terms=(("n", call.out.numel),))
