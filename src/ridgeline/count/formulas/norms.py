"""Normalisations and softmax. n is the number of elements normalised.

Statistics cost n for the mean and 3·n for the variance. Batch norm's scale and shift are
folded per channel, so applying it is 2 FLOPs an element; where the statistics differ from
row to row (layer, group norm) it is 2, and 2 more with a weight and bias.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Phased, Work, aten

STATISTICS = 4


def _per_element(n: int, flops: int, groups: int) -> Work:
    return Work(
        other_flops=flops * n, transcendentals=groups, factor=flops, terms=(("n", n),)
    )


@aten("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm",
      "_batch_norm_with_update", "_native_batch_norm_legit_functional", kind="norm")
def batch_norm(call: OpCall) -> Work:
    x = call.inputs[0]
    if not call.get("training", call.get("train", True)):
        return _per_element(x.numel, 2, _channels(x))
    work = _per_element(x.numel, STATISTICS + 2, _channels(x))
    return replace(work, written_bytes=sum(t.nbytes for t in call.outputs) + _running_bytes(call))


def _running_bytes(call: OpCall) -> int:
    """Running mean and variance are updated in place, which the operator's schema hides."""
    running = (call.get("running_mean"), call.get("running_var"))
    return sum(t.nbytes for t in running if isinstance(t, TensorMeta))


@aten("_native_batch_norm_legit_no_training", "_batch_norm_no_update", kind="norm")
def batch_norm_inference(call: OpCall) -> Work:
    x = call.inputs[0]
    return _per_element(x.numel, 2, _channels(x))


def _channels(x: TensorMeta) -> int:
    return x.shape[1] if len(x.shape) > 1 else 1


@aten("native_layer_norm", "native_group_norm", kind="norm")
def layer_norm(call: OpCall) -> Work:
    x, affine = call.inputs[0], len(call.inputs) > 1
    groups = call.outputs[1].numel if len(call.outputs) > 1 else 0
    return _per_element(x.numel, STATISTICS + 2 + 2 * affine, groups)


@aten("_fused_rms_norm", "rms_norm", kind="norm")
def rms_norm(call: OpCall) -> Work:
    """Mean of squares, one product with its inverse root, one more with a weight."""
    x, affine = call.inputs[0], len(call.inputs) > 1
    groups = call.outputs[1].numel if len(call.outputs) > 1 else x.numel // x.shape[-1]
    return _per_element(x.numel, 3 + affine, groups)


@aten("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward",
      "batch_norm_backward", kind="norm")
def batch_norm_backward(call: OpCall) -> Phased:
    """Two sums per channel (4·n), then three multiply-adds an element for the input."""
    return _norm_backward(call, sums=4, apply=5)


@aten("native_layer_norm_backward", "native_group_norm_backward", kind="norm")
def layer_norm_backward(call: OpCall) -> Phased:
    return _norm_backward(call, sums=4, apply=8)


@aten("_fused_rms_norm_backward", kind="norm")
def rms_norm_backward(call: OpCall) -> Phased:
    return _norm_backward(call, sums=2, apply=6)


def _norm_backward(call: OpCall, *, sums: int, apply: int) -> Phased:
    """The sums are the weight's and bias's gradients; the input's gradient reads the same data."""
    wanted = call.get("output_mask") or (True, True, True)
    results = [out for out in call.outputs if out.numel > 0]
    x = max(call.inputs, key=lambda t: t.numel)
    small = sum(t.nbytes for t in results if t.numel < x.numel)
    phases: Phased = {}
    if wanted[0]:
        phases["input-grad"] = Work(
            other_flops=apply * x.numel,
            written_bytes=x.numel * x.dtype.itemsize,
            factor=apply,
            terms=(("n", x.numel),),
        )
    if any(wanted[1:]):
        phases["weight-grad"] = Work(
            other_flops=sums * x.numel,
            read_bytes=0 if wanted[0] else None,  # one kernel: the data were read above
            written_bytes=small,
            factor=sums,
            terms=(("n", x.numel),),
        )
    return phases or {"input-grad": Work()}


@aten("_softmax", "_safe_softmax", "softmax", kind="softmax")
def softmax(call: OpCall) -> Work:
    """Maximum, subtraction, sum, division; one exponential."""
    n = call.out.numel
    return Work(other_flops=4 * n, transcendentals=n, factor=4, terms=(("n", n),))


@aten("_log_softmax", "log_softmax", kind="softmax")
def log_softmax(call: OpCall) -> Work:
    n, dim = call.out.numel, call.get("dim")
    rows = n // call.out.shape[dim] if n and call.out.shape else 1
    return Work(other_flops=4 * n, transcendentals=n + rows, factor=4, terms=(("n", n),))


@aten("_softmax_backward_data", kind="softmax")
def softmax_backward(call: OpCall) -> Work:
    """y·(g − Σ g·y)."""
    n = call.out.numel
    return Work(other_flops=4 * n, factor=4, terms=(("n", n),))


@aten("_log_softmax_backward_data", kind="softmax")
def log_softmax_backward(call: OpCall) -> Work:
    """g − exp(y)·Σ g."""
    n = call.out.numel
    return Work(other_flops=3 * n, transcendentals=n, factor=3, terms=(("n", n),))


@aten("_weight_norm_interface", kind="norm")
def weight_norm(call: OpCall) -> Work:
    v = call.inputs[0]
    return Work(
        other_flops=3 * v.numel, transcendentals=call.outputs[1].numel, factor=3, terms=(("n", v.numel),)
    )


@aten("_weight_norm_interface_backward", kind="norm")
def weight_norm_backward(call: OpCall) -> Work:
    n = call.inputs[0].numel
    return Work(other_flops=6 * n, factor=6, terms=(("n", n),))
