"""What is taken for granted where only data could tell."""

from __future__ import annotations

from collections.abc import Iterable

from ridgeline.onnx.row import Row
from ridgeline.onnx.uncounted import listed

LENGTHS = {  # the operand that says how long each sequence is
    "LSTM": 4, "GRU": 4, "RNN": 4, "DynamicQuantizeLSTM": 4,
    "PackedAttention": 4, "PackedMultiHeadAttention": 5,
}  # fmt: skip


def assumed_notes(rows: Iterable[Row]) -> list[str]:
    """Nodes on sequences whose lengths are not known: all are counted as the longest there is."""
    found: dict[str, dict[str, None]] = {}  # by operator: paths, each once
    for row in rows:
        place = LENGTHS.get(row.call.op_type)
        lengths = row.call.get(place) if place is not None and row.work is not None else None
        if lengths is not None and lengths.value is None:
            found.setdefault(row.call.op, {}).setdefault(row.path)
    return [
        f"{op} {listed(list(paths))}: the lengths of the sequences are data, so all are counted"
        " as full"
        for op, paths in found.items()
    ]
