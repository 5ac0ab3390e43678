"""LSTM, GRU and RNN: one node is a whole layer, in one or two directions."""

from __future__ import annotations

from ridgeline.onnx.formulas.activations import activation_cost
from ridgeline.onnx.formulas.fits import must, must_have
from ridgeline.onnx.formulas.registry import MS, Work, op
from ridgeline.onnx.node import MalformedError, NodeCall

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {
    "RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")
}  # fmt: skip
# beyond the activations, for each hidden unit: GRU's r·h, (h − n)·z + n; LSTM's f·c + i·g, o·h
COMBINED = {"RNN": 0, "GRU": 4, "LSTM": 4}


@op("LSTM GRU RNN", kind="recurrent")
def recurrent(call: NodeCall) -> Work:
    """Every token of every sequence meets the input's and the hidden weights.

    Tokens beyond a sequence's length are not computed where the lengths are known.
    """
    x, w, r = call.given(0), call.given(1), call.given(2)
    if len(x.shape) != 3 or len(w.shape) != 3 or len(r.shape) != 3:
        raise MalformedError("a recurrent layer's operands have three dimensions")
    directions, rows, size = w.shape
    hidden = r.shape[2]
    must_have(call, 1, (directions, rows, call.x.shape[2]))
    must_have(call, 2, (directions, rows, hidden))
    return _layer(call, directions, rows, size, hidden)


def _layer(call: NodeCall, directions: int, rows: int, size: int, hidden: int) -> Work:
    kind = call.op_type.removeprefix("DynamicQuantize")
    both = call.attr("direction", "forward") == "bidirectional"
    must(directions == 1 + both, f"weights of {directions} directions")
    must(hidden == call.whole("hidden_size", hidden), f"hidden weights are of {hidden} units")
    must(rows == GATES[kind] * hidden, f"{rows} rows are not {GATES[kind]} gates of {hidden}")
    _check_beside(call, directions, rows, hidden)
    steps = _tokens(call) * directions
    flops, transcendentals = _cell(call)
    biased = call.has(3)
    additions = 1 + 2 * biased  # of input and hidden part, and both biases
    peepholes = 6 if kind == "LSTM" and call.has(7) else 0  # a product and a sum for i, o, f
    clipped = 2 * GATES[kind] if "clip" in call.attributes else 0
    per_unit = flops + peepholes + clipped
    return Work(
        macs=steps * rows * (size + hidden),
        other_flops=steps * (additions * rows + per_unit * hidden),
        transcendentals=steps * transcendentals * hidden,
        factor=2,
        terms=(("steps", steps), ("G·H", rows), ("(I+H)", size + hidden)),
    )


def _check_beside(call: NodeCall, directions: int, rows: int, hidden: int) -> None:
    """Biases, lengths, first states and peepholes."""
    is_batch_first = bool(call.attr("layout", 0))
    batch = call.x.shape[0 if is_batch_first else 1]
    state = (batch, directions, hidden) if is_batch_first else (directions, batch, hidden)
    shapes = {3: (directions, 2 * rows), 4: (batch,), 5: state, 6: state,
              7: (directions, 3 * hidden)}  # fmt: skip
    for place, shape in shapes.items():
        must_have(call, place, shape)


def _tokens(call: NodeCall) -> int:
    """Of all sequences together."""
    x, lengths = call.x, call.get(4)
    first, second = x.shape[:2]
    longest = second if call.attr("layout", 0) else first
    if lengths is not None and lengths.value is not None:
        known = [int(n) for n in lengths.value.ravel()]
        must(all(0 <= n <= longest for n in known), f"lengths of {known} in {longest} steps")
        return sum(known)
    return first * second


def _cell(call: NodeCall) -> tuple[int, int]:
    """FLOPs and transcendentals of one hidden unit after its gates' sums."""
    kind = call.op_type.removeprefix("DynamicQuantize")
    given = [n.decode(errors="replace") if isinstance(n, bytes) else str(n)
             for n in call.attr("activations", [])]  # fmt: skip
    names = tuple(given[: len(DEFAULTS[kind])]) or DEFAULTS[kind]
    if len(names) < len(DEFAULTS[kind]):
        names = DEFAULTS[kind]
    uses = {"RNN": (1,), "GRU": (2, 1), "LSTM": (3, 1, 1)}[kind]
    flops = transcendentals = 0
    for name, times in zip(names, uses, strict=True):
        one, trans = activation_cost(name)
        flops, transcendentals = flops + times * one, transcendentals + times * trans
    return flops + COMBINED[kind], transcendentals


@op("DynamicQuantizeLSTM", kind="recurrent", domain=MS)
def quantised_lstm(call: NodeCall) -> Work:
    """The weights are stored turned: (directions, input, 4·hidden)."""
    w, r = call.given(1), call.given(2)
    directions, size, rows = w.shape
    must_have(call, 1, (directions, call.x.shape[2], rows))
    must_have(call, 2, (directions, r.shape[1], rows))
    return _layer(call, directions, rows, size, r.shape[1])
