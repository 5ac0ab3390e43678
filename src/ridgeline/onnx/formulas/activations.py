"""Activations named by an attribute: of fused products and of recurrent layers."""

from __future__ import annotations

from ridgeline.count.per_element import PER_ELEMENT as OF_PYTORCH
from ridgeline.count.per_element import Each
from ridgeline.onnx.formulas.pointwise import PER_ELEMENT, gelu_cost
from ridgeline.onnx.node import NodeCall

SILU = OF_PYTORCH["silu"]
MORE = (SILU[0] + 1, SILU[1])  # and a product: with a number, or with the other half
_BY_NAME = {name.lower(): cost for name, cost in PER_ELEMENT.items()} | {
    "": (0, 0), "none": (0, 0), "identity": (0, 0), "clip": (2, 0), "affine": (2, 0),
    "scaledtanh": (2, 1), "silu": SILU, "swish": SILU, "swiglu": MORE,
    "gelu": gelu_cost(tanh=False), "quickgelu": MORE, "fastgelu": gelu_cost(tanh=True),
}  # fmt: skip


def activation_cost(name: str) -> Each:
    """FLOPs and transcendentals of one element; one FLOP for a name that is not known."""
    return _BY_NAME.get(name.lower(), (1, 0))


def fused_activation(call: NodeCall, *, attribute: str = "activation", default: str = "") -> Each:
    return activation_cost(str(call.attr(attribute, default) or ""))
