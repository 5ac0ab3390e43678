"""Activations named by an attribute: of fused products and of recurrent layers."""

from __future__ import annotations

from ridgeline.count.onnx.formulas.pointwise import PER_ELEMENT, gelu_cost
from ridgeline.count.onnx.node import NodeCall

_BY_NAME = {name.lower(): cost for name, cost in PER_ELEMENT.items()} | {
    "": (0, 0), "none": (0, 0), "identity": (0, 0), "clip": (2, 0), "affine": (2, 0),
    "scaledtanh": (2, 1), "silu": (4, 1), "swish": (4, 1), "swiglu": (5, 1),
    "gelu": gelu_cost(tanh=False), "quickgelu": (5, 1), "fastgelu": gelu_cost(tanh=True),
}  # fmt: skip


def activation_cost(name: str) -> tuple[int, int]:
    """FLOPs and transcendentals of one element; one FLOP for a name that is not known."""
    return _BY_NAME.get(name.lower(), (1, 0))


def fused_activation(
    call: NodeCall, *, attribute: str = "activation", default: str = ""
) -> tuple[int, int]:
    return activation_cost(str(call.attr(attribute, default) or ""))
