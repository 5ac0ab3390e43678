"""Recurrent layers where PyTorch runs them as one operator.

Elsewhere (on meta tensors, where ridgeline usually counts) they appear as their products
and element-wise steps, which give the same MACs.
"""

from __future__ import annotations

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import Work, aten

BIAS_AND_SUM = 3  # additions per gate: input bias, hidden bias, input part + hidden part
CELL = {
    # gates: FLOPs and transcendentals of one hidden unit after its gates' sums
    1: (0, 1),  # tanh (ReLU is a comparison instead)
    3: (10, 3),  # GRU: two sigmoids, r·h inside the third gate, (h − n)·z + n
    4: (13, 5),  # LSTM: three sigmoids, f·c + i·g, o·tanh(c)
}


@aten("mkldnn_rnn_layer", kind="recurrent")
def mkldnn_layer(call: OpCall) -> Work:
    """One layer, one direction: every step multiplies the input's and the hidden weights."""
    x, w_input, w_hidden = call.inputs[:3]
    steps = x.numel // x.shape[-1]
    return _layer(steps, w_input.shape, w_hidden.shape)


def _layer(steps: int, w_input: tuple[int, ...], w_hidden: tuple[int, ...]) -> Work:
    rows, hidden = w_hidden[0], w_hidden[1]
    gates = rows // hidden
    flops, transcendentals = CELL[gates]
    return Work(
        macs=steps * rows * (w_input[1] + hidden),
        other_flops=steps * (BIAS_AND_SUM * rows + flops * hidden),
        transcendentals=steps * transcendentals * hidden,
        factor=2,
        terms=(("steps", steps), ("G·H", rows), ("(I+H)", w_input[1] + hidden)),
    )


@aten("_cudnn_rnn miopen_rnn _lstm_mps", kind="recurrent")
def fused_rnn(call: OpCall) -> Work:
    """All layers and directions: the matrices among the weights, each used at every step."""
    x, parameters = call.inputs[0], call.get("weight", call.get("params"))
    steps = x.numel // x.shape[-1]
    matrices = [w.shape for w in parameters if len(w.shape) == 2]
    weights = sum(rows * columns for rows, columns in matrices)
    outputs = steps * sum(rows for rows, _ in matrices)
    terms = (("steps", steps), ("weights", weights))
    return Work(macs=steps * weights, other_flops=4 * outputs, factor=2, terms=terms)


@aten("_thnn_fused_lstm_cell", kind="recurrent")
def lstm_cell(call: OpCall) -> Work:
    """The element-wise part of an LSTM step; its products are separate operators."""
    return _cell(call, gates=4)


@aten("_thnn_fused_gru_cell", kind="recurrent")
def gru_cell(call: OpCall) -> Work:
    return _cell(call, gates=3)


def _cell(call: OpCall, *, gates: int) -> Work:
    n = call.outputs[0].numel
    flops, transcendentals = CELL[gates]
    biased = call.get("input_bias") is not None
    flops += gates * (BIAS_AND_SUM if biased else 1)
    return Work(
        other_flops=flops * n,
        transcendentals=transcendentals * n,
        factor=flops,
        terms=(("n", n),),
    )
