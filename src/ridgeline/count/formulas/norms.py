"""Normalisations and softmax. n is the number of elements normalised.

Statistics cost n for the mean and 3·n for the variance. Batch norm's scale and shift are
folded per channel, so applying it is 2 FLOPs an element; where the statistics differ from
row to row (layer, group norm) it is 2, and one more for each of weight and bias. One root
for each mean and variance. The updates of the running statistics, a few FLOPs a channel, are
left out.
"""

from __future__ import annotations

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Phased, Work, aten
from ridgeline.count.per_element import (
    BATCH_NORM_BACKWARD,
    BATCH_NORM_TRAINING_BACKWARD,
    LAYER_NORM_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    RMS_NORM,
    RMS_NORM_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    STATISTICS,
)


@aten(
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm",
    "_batch_norm_with_update _native_batch_norm_legit_functional",
    kind="norm",
)
def batch_norm(call: OpCall) -> Work:
    x = call.inputs[0]
    if not call.get("training", call.get("train", True)):
        return batch_norm_inference(call)
    written = sum(t.nbytes for t in call.outputs) + _running_bytes(call)
    return Work.per_element(
        x.numel, STATISTICS + 2, transcendentals=_channels(x), written_bytes=written
    )


def _running_bytes(call: OpCall) -> int:
    """Running mean and variance are updated in place, which the operator's schema hides."""
    running = (call.get("running_mean"), call.get("running_var"))
    return sum(t.nbytes for t in running if isinstance(t, TensorMeta))


@aten("_native_batch_norm_legit_no_training _batch_norm_no_update", kind="norm")
def batch_norm_inference(call: OpCall) -> Work:
    """Nothing is saved: only the result is written."""
    x = call.inputs[0]
    written = call.out.nbytes
    return Work.per_element(x.numel, 2, transcendentals=_channels(x), written_bytes=written)


def _channels(x: TensorMeta) -> int:
    return x.shape[1] if len(x.shape) > 1 else 1


@aten("native_layer_norm native_group_norm", kind="norm")
def layer_norm(call: OpCall) -> Work:
    x, affine = call.inputs[0], len(call.inputs) - 1
    return Work.per_element(x.numel, STATISTICS + 2 + affine, transcendentals=call.outputs[1].numel)


@aten("_fused_rms_norm rms_norm", kind="norm")
def rms_norm(call: OpCall) -> Work:
    """Mean of squares, one product with its inverse root, one more with a weight."""
    x, affine = call.inputs[0], len(call.inputs) > 1
    groups = call.outputs[1].numel if len(call.outputs) > 1 else x.numel // x.shape[-1]
    return Work.per_element(x.numel, RMS_NORM + affine, transcendentals=groups)


@aten(
    "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward",
    "batch_norm_backward",
    kind="norm",
)
def batch_norm_backward(call: OpCall) -> Phased:
    """Σg and Σg·(x − mean) per channel; then (g − mean(g) − (x − mean)·c)·scale.

    With fixed statistics the input's gradient is g·scale and needs no sums.
    """
    apply, sums = BATCH_NORM_BACKWARD
    if not call.get("train", True):
        return _norm_backward(call, sums=sums, apply=apply, input_needs_sums=False)
    apply, sums = BATCH_NORM_TRAINING_BACKWARD
    return _norm_backward(call, sums=sums, apply=apply, input_needs_sums=True)


@aten("native_layer_norm_backward native_group_norm_backward", kind="norm")
def layer_norm_backward(call: OpCall) -> Phased:
    """y = (x − mean)·r, h = g·w. Weight, bias: Σg·y, Σg. Input: (h − mean(h) − y·mean(h·y))·r."""
    affine = isinstance(call.get("weight"), TensorMeta)
    apply, sums = LAYER_NORM_BACKWARD
    return _norm_backward(call, sums=sums, apply=apply + affine, input_needs_sums=False)


@aten("_fused_rms_norm_backward", kind="norm")
def rms_norm_backward(call: OpCall) -> Phased:
    """y = x·r. Weight: Σg·y. Input: h = g·w; (h − y·mean(h·y))·r."""
    affine = isinstance(call.get("weight"), TensorMeta)
    apply, sums = RMS_NORM_BACKWARD
    return _norm_backward(call, sums=sums, apply=apply + affine, input_needs_sums=False)


def _norm_backward(call: OpCall, *, sums: int, apply: int, input_needs_sums: bool) -> Phased:
    """The sums are the weight's and bias's gradients; the input's gradient reads the same data."""
    wanted = call.get("output_mask") or (True, True, True)
    x = max(call.inputs, key=lambda t: t.numel)
    per_element = apply if any(wanted[1:]) or not input_needs_sums else apply + sums
    phases: Phased = {}
    if wanted[0]:
        phases["input-grad"] = Work(
            other_flops=per_element * x.numel,
            read_bytes=_read_backward(call),
            written_bytes=x.numel * x.dtype.itemsize,
            factor=per_element,
            terms=(("n", x.numel),),
        )
    if any(wanted[1:]):
        weight = call.get("weight", call.get("gamma"))
        phases["weight-grad"] = Work(
            other_flops=sums * x.numel,
            read_bytes=0 if wanted[0] else _read_backward(call),  # one kernel reads the data once
            written_bytes=sum(wanted[1:]) * weight.nbytes,
            factor=sums,
            terms=(("n", x.numel),),
        )
    return phases or {"input-grad": Work()}


def _read_backward(call: OpCall) -> int:
    """All operands but the statistics that are not in use."""
    train = call.get("train", True)
    unused = ("running_mean", "running_var") if train else ("save_mean", "save_invstd")
    idle = [call.get(name) for name in unused]
    return call.read_bytes - sum(t.nbytes for t in idle if isinstance(t, TensorMeta))


@aten("_softmax _safe_softmax _masked_softmax softmax", kind="softmax")
def softmax(call: OpCall) -> Work:
    n = call.out.numel
    return Work.per_element(n, SOFTMAX, transcendentals=n)


@aten("_log_softmax log_softmax", kind="softmax")
def log_softmax(call: OpCall) -> Work:
    n, dim = call.out.numel, call.get("dim")
    rows = n // call.out.shape[dim] if n and call.out.shape else 1
    return Work.per_element(n, SOFTMAX, transcendentals=n + rows)


@aten("_softmax_backward_data _masked_softmax_backward", kind="softmax")
def softmax_backward(call: OpCall) -> Work:
    flops, exponentials = SOFTMAX_BACKWARD
    n = call.out.numel
    return Work.per_element(n, flops, transcendentals=exponentials * n)


@aten("_log_softmax_backward_data", kind="softmax")
def log_softmax_backward(call: OpCall) -> Work:
    flops, exponentials = LOG_SOFTMAX_BACKWARD
    n = call.out.numel
    return Work.per_element(n, flops, transcendentals=exponentials * n)


@aten("_weight_norm_interface", kind="norm")
def weight_norm(call: OpCall) -> Work:
    """v·(g/|v|): squares and their sum, a root and a quotient for each norm, a product."""
    v, norms = call.inputs[0], call.outputs[1]
    return Work(
        other_flops=3 * v.numel + norms.numel,
        transcendentals=norms.numel,
        factor=3,
        terms=(("n", v.numel),),
    )


@aten("_weight_norm_interface_backward", kind="norm")
def weight_norm_backward(call: OpCall) -> Work:
    n = call.inputs[0].numel
    return Work.per_element(n, 6)
