"""A file in another dtype: each node as if in that of the model, and what the dtype changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ridgeline.count.result import OpCost
from ridgeline.onnx.dtypes import dtype_of
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.pieces import OTHER_DTYPE, Piece, Place
from ridgeline.records import Cost

BITS = {dtype.name: dtype.bits for dtype in map(dtype_of, range(1, 24))}
FLOATS = ("fp", "bf", "tf", "complex")  # how the names of floating-point types begin


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDtypes:
    """The floating-point types of a model, and the one that it has most of."""

    known: frozenset[str]
    main: str

    @classmethod
    def of(cls, ops: Iterable[OpCost]) -> ModelDtypes:
        names = Counter(op.dtype for op in ops if op.dtype.startswith(FLOATS))
        main = names.most_common(1)[0][0] if names else "fp32"
        return cls(known=frozenset(names), main=main)

    def is_other(self, tensor: Tensor) -> bool:
        return tensor.is_float and tensor.dtype.name not in self.known

    def others(self, op: OpCost) -> list[Tensor]:
        """What of a node's operands and results is in another type."""
        call = op.call
        if not isinstance(call, NodeCall) or self.main not in BITS:  # PyTorch, or tf32
            return []
        return [tensor for tensor in (*call.inputs, *call.outputs) if self.is_other(tensor)]

    def bytes_of(self, tensor: Tensor) -> int:
        if not self.is_other(tensor):
            return tensor.nbytes
        return (tensor.numel * BITS[self.main] + 7) // 8


def in_model_dtype(op: OpCost, piece: Piece, dtypes: ModelDtypes) -> tuple[Piece, list[Piece]]:
    """The node as if in the model's type, and what its own type changes."""
    call, others = op.call, dtypes.others(op)
    if not others or not isinstance(call, NodeCall):
        return piece, []
    what = f"{others[0].dtype.name} for {dtypes.main}"
    if call.op_type == "Cast" and all(t.is_float for t in (*call.inputs, *call.outputs)):
        return replace(piece, cost=Cost()), [replace(piece, cost=op.cost)]
    wide = replace(
        op.cost,
        read_bytes=_scaled(op.cost.read_bytes, {t.ident: t for t in call.inputs}.values(), dtypes),
        written_bytes=_scaled(op.cost.written_bytes, call.outputs, dtypes),
    )
    return replace(piece, cost=wide), [replace(piece, op=what, cost=op.cost - wide)]


def _scaled(moved: int, tensors: Iterable[Tensor], dtypes: ModelDtypes) -> int:
    some = list(tensors)
    own = sum(tensor.nbytes for tensor in some)
    return moved * sum(map(dtypes.bytes_of, some)) // own if own else moved


def of_dtype(changes: Iterable[Piece]) -> list[tuple[str, Place]]:
    return [(OTHER_DTYPE, Place([], [change])) for change in changes]
