"""Recurrent layers: every step multiplies the input's and the hidden weights.

PyTorch's appear as their products and element-wise steps, which give the same MACs.
"""

from __future__ import annotations

from ridgeline.costs.work import Each, Work

BIAS_AND_SUM = 3  # additions per gate: input bias, hidden bias, input part + hidden part


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
