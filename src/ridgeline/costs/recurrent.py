"""Recurrent layers: every step multiplies the input's and the hidden weights.

On meta tensors, where ridgeline usually counts, PyTorch's appear as their products and
element-wise steps, which give the same MACs.
"""

from __future__ import annotations

from ridgeline.costs.work import Each, Work

BIAS_AND_SUM = 3  # additions per gate: input bias, hidden bias, input part + hidden part
CELL: dict[int, Each] = {
    # gates: FLOPs and transcendentals of one hidden unit after its gates' sums
    1: (0, 1),  # tanh (ReLU is a comparison instead)
    3: (10, 3),  # GRU: two sigmoids, r·h inside the third gate, (h − n)·z + n
    4: (13, 5),  # LSTM: three sigmoids, f·c + i·g, o·tanh(c)
}


def recurrent_layer(
    *, steps: int, gate_rows: int, size: int, hidden: int, cell: Each, additions: int = BIAS_AND_SUM
) -> Work:
    """Steps of all sequences and directions; `cell` is the cost of a hidden unit."""
    flops, transcendentals = cell
    return Work(
        macs=steps * gate_rows * (size + hidden),
        other_flops=steps * (additions * gate_rows + flops * hidden),
        transcendentals=steps * transcendentals * hidden,
        factor=2,
        terms=(("steps", steps), ("G·H", gate_rows), ("(I+H)", size + hidden)),
    )


def recurrent_weights(steps: int, matrices: list[tuple[int, ...]]) -> Work:
    """All layers and directions: the matrices among the weights, each used at every step."""
    weights = sum(rows * columns for rows, columns in matrices)
    outputs = steps * sum(rows for rows, _ in matrices)
    terms = (("steps", steps), ("weights", weights))
    return Work(macs=steps * weights, other_flops=4 * outputs, factor=2, terms=terms)


def recurrent_cell(n: int, gates: int, *, is_biased: bool) -> Work:
    """The element-wise part of a step; its products are separate operators."""
    flops, transcendentals = CELL[gates]
    flops += gates * (BIAS_AND_SUM if is_biased else 1)
    return Work.per_element(n, flops, transcendentals=transcendentals * n)
