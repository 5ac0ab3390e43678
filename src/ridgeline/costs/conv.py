"""Convolutions. Padding counts as data."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.costs.matmul import product
from ridgeline.costs.work import Operand, Shape, Terms, Work, require

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def conv_terms(x: Shape, w: Shape, out: Shape, *, transposed: bool = False) -> Terms:
    """The factors of a convolution's MACs; an operand without a batch has a batch of one.

    Each output (or, transposed, each input) position meets the whole kernel, padding included.
    """
    space = len(w) - 2
    require(space >= 0 and len(x) == len(out) and len(w) - len(x) in (0, 1),
            "the ranks of a convolution differ")  # fmt: skip
    names = AXES.get(space, tuple(f"X{i}" for i in range(space)))
    positions, label = (x, "in") if transposed else (out, "out")
    places = zip(names, positions[len(positions) - space :], strict=True)
    # The weight is (Cout, Cin/g, …) or, transposed, (Cin, Cout/g, …).
    outer, inner = ("Cin", "(Cout/g)") if transposed else ("Cout", "(Cin/g)")
    return (
        ("N", x[0] if len(x) == len(w) else 1),
        (outer, w[0]),
        *((f"{axis}{label}", size) for axis, size in places),
        (inner, w[1]),
        *((f"K{axis.lower()}", size) for axis, size in zip(names, w[2:], strict=True)),
    )


def deform_conv(x: Shape, w: Shape, out: Shape, *, is_masked: bool, bias: int) -> Work:
    """A convolution on bilinear samples: 7 FLOPs for each sampled value, one more with a mask."""
    samples = x[0] * x[1] * prod(out[2:]) * prod(w[2:])
    return product(conv_terms(x, w, out), other_flops=(7 + is_masked) * samples + bias)


def conv_gradient(
    terms: Terms,
    grad: Operand,
    saved: Operand,
    result: Operand,
    *,
    bias_bytes: int = 0,
    is_complex: bool = False,
) -> Work:
    """One gradient of a convolution: reads the output's gradient and the other operand.

    It repeats the forward's multiply-adds, whatever the groups; a bias's is a sum of the output's.
    """
    work = product(terms, bias=grad.numel * bool(bias_bytes), is_complex=is_complex)
    return replace(
        work,
        read_bytes=grad.nbytes + saved.nbytes,
        written_bytes=result.bytes_of(result.numel) + bias_bytes,
    )
