"""Element-wise operators, normalisations and losses.

What PyTorch does not fuse backward appears as plain arithmetic.
"""

from __future__ import annotations

from typing import Any

from ridgeline.costs import elementwise as costs
from ridgeline.costs.elementwise import (
    DROPOUT,
    LOSSES,
    LOSSES_BACKWARD,
    PER_ELEMENT,
    ctc_loss,
    loss,
    power,
)
from ridgeline.costs.elementwise import elementwise as real_elementwise
from ridgeline.costs.work import Each, Phased, Work
from ridgeline.count.call import Formula, OpCall, TensorMeta, add_rows

# ---------------------------------------------------------------- element by element


def elementwise(call: OpCall, flops: int, transcendentals: int = 0) -> Work:
    """A complex product is four multiplications and two additions; other operations are two."""
    if any(t.dtype.is_complex for t in call.inputs):
        complex_flops = {"aten::mul": 6, "aten::div": 11}
        flops = complex_flops.get(call.name.removesuffix("_"), 2 * flops)
        transcendentals *= 2
    return real_elementwise(call, flops, transcendentals)


def _per_element(flops: int, transcendentals: int = 0) -> Formula:
    return lambda call: elementwise(call, flops, transcendentals)


def _add(call: OpCall) -> Work:
    """One FLOP, and one more for a factor; a factor of −1 only turns the sign."""
    return elementwise(call, 1 + (call.get("alpha", 1) not in (1, -1)))


def _clamp(call: OpCall) -> Work:
    """One comparison for each bound that is given."""
    return elementwise(call, sum(call.get(bound) is not None for bound in ("min", "max")))


def _gelu(call: OpCall) -> Work:
    name = call.name.removeprefix("aten::").removesuffix("_")
    return elementwise(call, *PER_ELEMENT[f"{name}.{call.get('approximate')}"])


def _log_sigmoid(call: OpCall) -> Work:
    """min(0, x) − log1p(exp(−|x|)). The buffer that only the CPU fills is left out."""
    n = call.out.numel
    return Work.per_element(n, 4, transcendentals=2 * n, written_bytes=call.out.nbytes)


def _log_sigmoid_backward(call: OpCall) -> Work:
    """g·1/(1 + exp(x))."""
    n, read = call.out.numel, sum(t.nbytes for t in call.inputs[:2])
    return Work.per_element(n, 3, transcendentals=n, read_bytes=read)


add_rows("pointwise", {
    **{name: _per_element(*cost) for name, cost in PER_ELEMENT.items() if "." not in name},
    "add sub rsub": _add,
    "clamp": _clamp,
    "gelu gelu_backward": _gelu,
    "pow": lambda c: elementwise(c, *power(c.get("exponent"))),
    "addcmul addcdiv": lambda c: elementwise(c, 2 if c.get("value") == 1 else 3),
    "glu": _per_element(4, 1),  # a·sigmoid(b)
    # s = sigmoid(b); g·s for a, g·a·s·(1 − s) for b
    "glu_backward": lambda c: Work.per_element(
        c.out.numel // 2, 8, transcendentals=c.out.numel // 2
    ),
    "log_sigmoid_forward": _log_sigmoid,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "complex": lambda c: Work(),
    "polar": lambda c: Work.per_element(c.out.numel, 2, transcendentals=2 * c.out.numel),
    # selections and bit operations move data and do no floating-point arithmetic
    "bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_xor"
    " logical_not bitwise_left_shift bitwise_right_shift gcd lcm where masked_fill isin":
        lambda c: Work(),
    # x/scale, + zero point, round, two bounds, − zero point, ·scale
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"
    " _fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _per_element(7),
    "max.other min.other": _per_element(1),
    "linalg_cross": lambda c: Work.per_element(c.out.numel, 3),
})  # fmt: skip
add_rows("dropout", {"native_dropout native_dropout_backward": _per_element(DROPOUT)})

# ---------------------------------------------------------------- normalisations and softmax


def _batch_norm(call: OpCall) -> Work:
    """In training the running mean and variance are updated, which the operator's schema hides.

    In inference nothing is saved: only the result is written.
    """
    is_training = bool(call.get("training", call.get("train", True)))
    written = call.out.nbytes
    if is_training:
        running = (call.get("running_mean"), call.get("running_var"))
        written = sum(t.nbytes for t in (*call.outputs, *running) if isinstance(t, TensorMeta))
    work = costs.batch_norm(call.inputs[0], is_training=is_training)
    return work.with_bytes(written=written)


def _log_softmax(call: OpCall) -> Work:
    n, dim = call.out.numel, call.get("dim")
    return costs.softmax(n, rows=n // call.out.shape[dim] if n and call.out.shape else 1)


def _batch_norm_backward(call: OpCall) -> Phased:
    is_training = call.get("train", True)
    return _norm_backward(
        call, costs.BATCH_NORM_TRAINING_BACKWARD if is_training else costs.BATCH_NORM_BACKWARD
    )


def _layer_norm_backward(call: OpCall) -> Phased:
    flops, sums = costs.LAYER_NORM_BACKWARD
    return _norm_backward(call, (flops + isinstance(call.get("weight"), TensorMeta), sums))


def _norm_backward(call: OpCall, flops: tuple[int, int]) -> Phased:
    needed = call.get("output_mask") or (True, True, True)
    weight = call.get("weight", call.get("gamma"))
    phases = costs.norm_backward(
        flops,
        max(call.inputs, key=lambda t: t.numel),
        wants_input=needed[0],
        wants_weight=any(needed[1:]),
        read_bytes=_read_backward(call),
        weight_bytes=sum(needed[1:]) * weight.nbytes if any(needed[1:]) else 0,
    )
    return phases or {"input-grad": Work()}


def _read_backward(call: OpCall) -> int:
    """All operands but the statistics that are not in use."""
    train = call.get("train", True)
    unused = ("running_mean", "running_var") if train else ("save_mean", "save_invstd")
    idle = [call.get(name) for name in unused]
    return call.read_bytes - sum(t.nbytes for t in idle if isinstance(t, TensorMeta))


add_rows("norm", {
    "native_batch_norm": _batch_norm,
    "native_layer_norm native_group_norm": lambda c: costs.layer_norm(
        c.inputs[0].numel, c.outputs[1].numel, affine=len(c.inputs) - 1
    ),
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm_backward native_group_norm_backward": _layer_norm_backward,
    "_weight_norm_interface": lambda c: costs.weight_norm(c.inputs[0].numel, c.outputs[1].numel),
    "_weight_norm_interface_backward": lambda c: Work.per_element(c.inputs[0].numel, 6),
})  # fmt: skip
add_rows("softmax", {
    "_softmax _safe_softmax": lambda c: costs.softmax(c.out.numel),
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _per_element(*costs.SOFTMAX_BACKWARD),
    "_log_softmax_backward_data": _per_element(*costs.LOG_SOFTMAX_BACKWARD),
})  # fmt: skip

# ---------------------------------------------------------------- losses

NONE, MEAN = 0, 1  # PyTorch's numbers for reduction; 2 is sum


def _loss(call: OpCall, n: int, each: Each, **shown: Any) -> Work:
    reduction = call.get("reduction", MEAN)
    return loss(n, each, is_reduced=reduction != NONE, is_mean=reduction == MEAN, **shown)


def _weighted(call: OpCall) -> int:
    """One product more for each set of weights."""
    return sum(isinstance(call.get(name), TensorMeta) for name in ("weight", "pos_weight"))


def _elements(call: OpCall) -> int:
    return max(t.numel for t in call.inputs)


def _elementwise_loss(each: Each) -> Formula:
    flops, transcendentals = each
    return lambda c: _loss(c, _elements(c), (flops + _weighted(c), transcendentals))


def _elementwise_backward(each: Each) -> Formula:
    flops, transcendentals = each
    return lambda c: Work.per_element(
        _elements(c), flops + _weighted(c), transcendentals=transcendentals * _elements(c)
    )


def _nll_loss(call: OpCall) -> Work:
    """−log p of each target; reads one log-probability per target, not all of them."""
    scores, target = call.inputs[:2]
    read = scores.bytes_of(target.numel) + sum(t.nbytes for t in call.inputs[1:])
    return _loss(call, target.numel, (1 + _weighted(call), 0), name="targets", read_bytes=read)


def _nll_loss_backward(call: OpCall) -> Work:
    """Writes a gradient that is zero but for one entry per target; the scores are not read."""
    grad, _scores, *rest = call.inputs
    each = (1 + _weighted(call), 0)
    read = grad.nbytes + sum(t.nbytes for t in rest)
    return loss(
        rest[0].numel, each, is_reduced=False, is_mean=False, name="targets", read_bytes=read
    )


add_rows("loss", {
    **{name: _elementwise_loss(each) for name, each in LOSSES.items()},
    **{name: _elementwise_backward(each) for name, each in LOSSES_BACKWARD.items()},
    "nll_loss_forward nll_loss2d_forward": _nll_loss,
    "nll_loss_backward nll_loss2d_backward": _nll_loss_backward,
    "_ctc_loss": lambda c: ctc_loss(c.outputs[-1].numel, recursions=1),
    "_ctc_loss_backward": lambda c: ctc_loss(c.get("log_alpha").numel, recursions=2),
})  # fmt: skip
