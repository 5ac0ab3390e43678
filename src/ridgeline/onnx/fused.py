"""Nodes of onnxruntime that are several at once, as the parts that they are.

Its optimizer puts an activation into the product before it, a sum into the norm behind it. Each
part has its own FLOPs, and the function that it has as a node by itself; what is read and written
stays with the main one, so the parts add up to the node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ridgeline.count.per_element import BATCH_NORM
from ridgeline.count.result import OpCost
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.pieces import Piece
from ridgeline.records import Cost

OWN_DOMAINS = "com.microsoft"  # how the names of onnxruntime's domains begin

REQUANTISING = "DequantizeLinear"
NORM = "BatchNormalization"  # onnxruntime writes one as a convolution of each channel


@dataclass(frozen=True, slots=True)
class Fused:
    """What a node is in the main, and the places of its further operands."""

    main: str
    summed: tuple[int, ...] = ()  # another tensor of the network, as of a residual
    added: tuple[int, ...] = ()  # the bias of a product before it
    bias: int | None = None  # of a product, a part of that
    of_integers: bool = False  # all FLOPs but its own make integers of numbers, or the reverse
    each: int = 0  # its own FLOPs for each result, if of integers


NODES = {
    "FusedConv": Fused("Conv", summed=(3,), bias=2),
    "NhwcFusedConv": Fused("Conv", summed=(3,), bias=2),
    "Conv": Fused("Conv", summed=(3,), bias=2),  # of blocks of channels
    "FusedGemm": Fused("Gemm", bias=2),
    "FusedMatMul": Fused("MatMul"),
    "TransposeMatMul": Fused("MatMul"),
    "FusedMatMulActivation": Fused("MatMul"),
    "MatMulIntegerToFloat": Fused("MatMulInteger", added=(6,), of_integers=True),
    "DynamicQuantizeMatMul": Fused("MatMulInteger", added=(4,), of_integers=True),
    "QLinearMatMul": Fused("MatMul", of_integers=True),
    "QLinearConv": Fused("Conv", bias=8, of_integers=True),
    "QLinearConvTranspose": Fused("ConvTranspose", bias=8, of_integers=True),
    "QLinearAdd": Fused("Add", of_integers=True, each=1),
    "QLinearMul": Fused("Mul", of_integers=True, each=1),
    "QGemm": Fused("Gemm", bias=6, of_integers=True),
    "BiasGelu": Fused("Gelu", added=(1,)),
    "FastGelu": Fused("Gelu.tanh", added=(1,)),
    "QuickGelu": Fused("Swish"),
    "BiasSoftmax": Fused("Softmax", summed=(1,)),
    "SkipLayerNormalization": Fused("LayerNormalization", summed=(1,), added=(4,)),
    "SkipSimplifiedLayerNormalization":
        Fused("SimplifiedLayerNormalization", summed=(1,), added=(3,)),
    "EmbedLayerNormalization": Fused("LayerNormalization", summed=(3, 4)),
}  # fmt: skip
DEFAULT_ALPHA = {"QuickGelu": 1.702}  # of others it is 1


def parts_of(op: OpCost, piece: Piece) -> list[Piece]:
    """The piece of a node, or those of its parts; the main one comes first."""
    call = op.call
    if not isinstance(call, NodeCall) or (fused := _fused(call)) is None:
        return [piece]
    parts = [_part(piece, "Sum") for place in fused.summed if call.has(place)]
    parts += [_part(piece, "Add") for place in fused.added if call.has(place)]
    if call.attr("alpha", DEFAULT_ALPHA.get(call.op_type, 1.0)) != 1 and not _activation(call):
        # of its result, or of one of its operands: their sizes may be others
        parts.append(replace(_part(piece, "Mul"), is_by_number=True, results=0))
    other = REQUANTISING if fused.of_integers else _activation(call)
    parts += [_rest(call, piece, fused, parts, other)] if other else []
    cost = piece.cost - sum((part.cost for part in parts), Cost())
    name = NORM if _is_norm(call, piece) else fused.main
    return [replace(_named(piece, name), cost=cost), *parts]


def _fused(call: NodeCall) -> Fused | None:
    is_own = call.domain.startswith(OWN_DOMAINS) or call.op_type.startswith("Q")
    return NODES.get(call.op_type) if is_own else None


def _is_norm(call: NodeCall, piece: Piece) -> bool:
    return call.op_type == "Conv" and not piece.cost.macs


def _rest(call: NodeCall, piece: Piece, fused: Fused, others: list[Piece], function: str) -> Piece:
    """An activation, or work on integers: all FLOPs but the main one's and those of other parts."""
    has_bias = fused.bias is not None and call.has(fused.bias)
    each = BATCH_NORM if _is_norm(call, piece) else fused.each + has_bias
    own = each * piece.results
    rest = piece.cost.other_flops - own - sum(part.cost.other_flops for part in others)
    cost = Cost(other_flops=rest, transcendentals=piece.cost.transcendentals)
    return replace(_part(piece, function), cost=cost)


def _activation(call: NodeCall) -> str:
    return str(call.attr("activation", "") or "")


def _part(piece: Piece, function: str) -> Piece:
    """One FLOP for each result."""
    part = replace(_named(piece, function), kind="pointwise", is_by_number=False, reduces="")
    return replace(part, cost=Cost(other_flops=piece.results))


def _named(piece: Piece, function: str) -> Piece:
    return replace(piece, op=function.partition(".")[0], function=function, inside=piece.op)
