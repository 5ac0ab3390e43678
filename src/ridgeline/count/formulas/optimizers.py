"""Operators on lists of tensors, and optimizers that run as one operator."""

from __future__ import annotations

from typing import Any

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Entry, Work, aten
from ridgeline.count.per_element import ADAGRAD, ADAM, PER_ELEMENT, SGD

FUSED = {
    "_fused_adam_": ADAM,
    "_fused_adamw_": ADAM,
    "_fused_sgd_": SGD,
    "_fused_adagrad_": ADAGRAD,
}
UNCHANGED = ("grads", "state_steps")
"""Lists that the operators say they write into, but only read: steps are counted beforehand."""


def _fused_extras(call: OpCall) -> int:
    """FLOPs an element of what an optimizer does only when asked."""
    decays = bool(call.get("weight_decay"))
    # AdamW scales the weight; the others add the weight, scaled, to the gradient.
    decay = (1 if "adamw" in call.name else 2) * decays
    momentum = 2 * bool(call.get("momentum"))
    lookahead = 2 * bool(call.get("nesterov"))
    return decay + momentum + lookahead + bool(call.get("amsgrad")) + bool(call.get("maximize"))


def foreach_entry(name: str) -> Entry | None:
    """The formula of a `_foreach_` operator: that of its element-wise form on every tensor."""
    base = name.removeprefix("aten::_foreach_").removesuffix("_")
    known = {**PER_ELEMENT, "add": (1, 0), "sub": (1, 0), "copy": (0, 0), "zero": (0, 0)}
    known |= {"addcmul": (2, 0), "addcdiv": (2, 0), "pow": (1, 0), "norm": (2, 0), "clone": (0, 0)}
    if base not in known:
        return None
    flops, transcendentals = known[base]

    def formula(call: OpCall) -> Work:
        return _over_list(call, flops + _scaled(call), transcendentals)

    return Entry("foreach", formula)


def _scaled(call: OpCall) -> int:
    """One more FLOP an element where a factor other than 1 is applied."""
    if "addc" not in call.name:
        return int("add" in call.name and call.get("alpha", 1) not in (1, -1))
    scalars = call.get("scalars")
    if scalars is None:
        return int(call.get("value", 1) != 1)
    return int(not isinstance(scalars, list | tuple) or any(s != 1 for s in scalars))


def _over_list(call: OpCall, flops: int, transcendentals: int) -> Work:
    first = next(value for value in call.args if isinstance(value, list | tuple))
    n = sum(t.numel for t in _list(first) if t.is_float)
    read: int | None = None
    if call.name == "aten::_foreach_zero_":
        read = 0
    elif call.name == "aten::_foreach_copy_":
        read = sum(t.nbytes for t in _list(call.args[1]))
    return Work(
        other_flops=flops * n,
        transcendentals=transcendentals * n,
        read_bytes=read,
        written_bytes=_written(call),
        factor=flops,
        terms=(("n", n),),
    )


def _written(call: OpCall) -> int | None:
    """In place the first list is written; an operator that returns nothing shows no outputs."""
    if call.name.endswith("_"):
        return sum(t.nbytes for t in _list(call.args[0]))
    return None


def _list(value: Any) -> list[TensorMeta]:
    return [t for t in value if isinstance(t, TensorMeta)]


@aten(*FUSED, kind="optimizer")
def fused_optimizer(call: OpCall) -> Work:
    """One pass over weights, gradients and state; all but the gradients are written back."""
    name = call.name.removeprefix("aten::")
    flops, roots = FUSED[name]
    n = sum(t.numel for t in _list(call.get("self")))
    flops += _fused_extras(call)
    kept = [key for key in call.signature.written if key not in UNCHANGED]
    return Work(
        other_flops=flops * n,
        transcendentals=roots * n,
        written_bytes=sum(t.nbytes for key in kept for t in _list(call.get(key) or [])),
        factor=flops,
        terms=(("n", n),),
    )


@aten("_amp_foreach_non_finite_check_and_unscale_", kind="optimizer")
def unscale(call: OpCall) -> Work:
    n = sum(t.numel for t in _list(call.args[0]))
    return Work(
        other_flops=2 * n,
        written_bytes=sum(t.nbytes for t in _list(call.args[0])),
        factor=2,
        terms=(("n", n),),
    )
