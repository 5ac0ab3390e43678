"""A node with its work, or why that is not known; which stored tensors are parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ridgeline.costs.work import Work
from ridgeline.count.records import OpCost
from ridgeline.onnx.node import Constants, NodeCall, Tensor
from ridgeline.onnx.ops import data, elementwise, find_entry, products
from ridgeline.onnx.ops.products import packed_product
from ridgeline.onnx.shapes import BROKEN, misfit
from ridgeline.plain import plain_line

FAMILIES = (data, elementwise, products)  # imported for the formulas that they register
FREE_KINDS = ("view", "constant")  # counted even where shapes are not known
CONTROL = ("If", "Loop", "Scan")  # counted by the nodes in them
NO_FORMULA = "no formula"
MOST_NAMED = 5  # nodes that a note names before it only counts


@dataclass(slots=True)
class NodeCost:
    """One node, and the work of one run of it."""

    path: str
    kind: str
    call: NodeCall
    work: Work | None  # None: no formula, or no shapes
    repeats: int = 1
    reason: str = ""  # why there is no work


def cost_node(call: NodeCall, path: str) -> NodeCost:
    """The operator's formula on the call; why there is none, or why it does not serve."""
    entry = find_entry(call)
    if entry is None:
        return NodeCost(path, "unknown", call, None, reason=NO_FORMULA)
    work, reason = None, ""
    if call.refused and any(not t.is_known for t in call.outputs):
        reason = call.refused
    elif entry.kind not in FREE_KINDS and (unknown := _unknown_names(call)):
        reason = f"the shape of {', '.join(map(repr, unknown[:3]))} is not known"
    else:
        try:
            work = entry.function(call)
            if _is_negative(work):
                work, reason = None, "its attributes make its size negative"
        except BROKEN as error:
            reason = misfit(error)
    return NodeCost(path, entry.kind, call, work, reason=reason)


def cost_broken_node(call: NodeCall, path: str, error: Exception) -> NodeCost:
    """Of a node whose results could not be computed."""
    entry = find_entry(call)
    kind = entry.kind if entry else "control" if call.op_type in CONTROL else "unknown"
    return NodeCost(path, kind, call, None, reason=misfit(error))


def _unknown_names(call: NodeCall) -> list[str]:
    return [t.name for t in (*call.inputs, *call.outputs) if not t.is_known]


def _is_negative(work: Work) -> bool:
    numbers = (work.macs, work.other_flops, work.transcendentals, work.read_bytes or 0,
               work.written_bytes or 0)  # fmt: skip
    return min(numbers) < 0


def op_cost(row: NodeCost, phase: str, call: NodeCall, work: Work | None) -> OpCost:
    """The row of a node in the table of operators, in all iterations of the loops around it."""
    times = row.repeats
    if work is not None and times != 1:
        parts = tuple((factor, (("times", times), *terms)) for factor, terms in work.parts)
        work = replace(work, parts=parts)
    return OpCost(
        path=row.path,
        op=call.op,
        kind=row.kind,
        phase=phase,
        dtype=call.dtype_name,
        cost=(work or Work()).cost(call) * times,  # without a formula only its bytes
        work=work,
        call=call,
        settings=attributes_text(call),
        repeats=row.repeats,
    )


LONGEST_ATTRIBUTE = 16  # numbers or characters


def attributes_text(call: NodeCall) -> str:
    """The attributes that are short: `kernel_shape=3,3 strides=2,2 group=32`."""
    parts = []
    for name in call.attributes:
        value = call.attr(name)
        values = value if isinstance(value, list) else [value]
        is_short = len(value if isinstance(value, list | str) else values) <= LONGEST_ATTRIBUTE
        if is_short and all(isinstance(one, int | float | str) for one in values):
            parts.append(f"{name}={plain_line(','.join(map(str, values)))}")
    return " ".join(parts)


# ---------------------------------------------------------------- notes


def unknown_notes(rows: Iterable[NodeCost]) -> list[str]:
    """First causes by name; nodes that only follow from them as a number."""
    causes: dict[tuple[str, str], list[str]] = {}
    followers: list[NodeCost] = []
    for row in rows:
        if all(t.is_known for t in row.call.inputs):
            if reason := _cause(row):
                causes.setdefault((row.call.op, reason), []).append(row.path)
        elif row.work is None and row.reason != NO_FORMULA:
            followers.append(row)
    if not causes and followers:  # a shape that is nowhere in the file
        first = followers.pop(0)
        causes[first.call.op, f"not counted: {first.reason}"] = [first.path]
    notes = [f"{op} {list_paths(paths)}: {why}" for (op, why), paths in causes.items()]
    if followers:
        paths = list_paths([row.path for row in followers])
        notes.append(f"not counted further on, of operands without a shape: {paths}")
    return notes


def _cause(row: NodeCost) -> str:
    """Nothing where a node with known operands is counted and its results are known."""
    if row.work is None and row.reason != NO_FORMULA:
        return f"not counted: {row.reason}"
    if all(t.is_known for t in row.call.outputs):
        return ""
    lost = "the shape of its result is not known"
    return f"no formula, and {lost}" if row.work is None else lost


def list_paths(paths: Sequence[str]) -> str:
    """Some by name, the rest as a number; paths are plain text already."""
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(f"'{path}'" for path in paths[:MOST_NAMED]) + more


# ---------------------------------------------------------------- parameters and buffers

# operands that are settings or statistics, never learned
NOT_LEARNED: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2),
    "Pad": (1, 2), "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "OneHot": (1, 2),
    "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "Dropout": (1, 2), "Pow": (1,), "Range": (0, 1, 2),
    "STFT": (2,), "Tile": (1,), "NonMaxSuppression": (0, 1, 2, 3, 4), "TopK": (1,), "Where": (0,),
    "Sin": (0,), "Cos": (0,), "RotaryEmbedding": (1, 2, 3), "GroupQueryAttention": (7, 8, 12, 13),
    # scales, zero points and the order of groups of weights that are stored quantised
    "MatMulNBits": (2, 3, 4), "QGemm": (1, 2, 4, 5, 7, 8), "QAttention": (3, 4, 6, 7),
    "MatMulIntegerToFloat": (2, 3, 4, 5), "DynamicQuantizeMatMul": (2, 3),
    "QLinearAdd": (1, 2, 4, 5, 6, 7), "QLinearMul": (1, 2, 4, 5, 6, 7),
}  # fmt: skip
ARITHMETIC = ("Mul", "Div", "Add", "Sub", "Max", "Min", "Where")
INITIAL_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}


@dataclass(slots=True)
class Stored:
    """The stored tensors, each once however many nodes use it."""

    params: dict[int, Tensor] = field(default_factory=dict)  # by ident
    buffers: dict[int, Tensor] = field(default_factory=dict)
    used_by: dict[int, str] = field(default_factory=dict)  # path of the first node that uses it
    packed: dict[int, int] = field(default_factory=dict)  # weights in a tensor of packed bytes

    @property
    def param_count(self) -> int:
        return sum(map(self.weights_in, self.params))

    def weights_in(self, ident: int) -> int:
        """How many parameters a stored tensor is."""
        return self.packed.get(ident, self.params[ident].numel)

    @property
    def trained(self) -> dict[int, Tensor]:
        """Parameters that a step changes."""
        return {ident: t for ident, t in self.params.items() if t.is_float}

    @property
    def param_bytes(self) -> int:
        return sum(t.nbytes for t in self.params.values())

    @property
    def buffer_bytes(self) -> int:
        return sum(t.nbytes for t in self.buffers.values())


def find_stored(rows: Sequence[NodeCost]) -> Stored:
    """A parameter is floating-point (or a matrix of small integers), has a dimension, and is
    used at least once where a learned tensor can stand; packed weights count one by one."""
    tensors: dict[int, Tensor] = {}
    learned: set[int] = set()
    stored = Stored()
    makers = _setting_makers(rows)
    for number, row in enumerate(rows):
        call = row.call
        for index, tensor in enumerate(call.operands):
            if tensor is None or not tensor.is_weight:
                continue
            tensors.setdefault(tensor.ident, tensor)
            stored.used_by.setdefault(tensor.ident, row.path)
            if row.work is not None and call.op_type == "MatMulNBits" and index == 1:
                n, k = packed_product(call)
                stored.packed[tensor.ident] = n * k
                learned.add(tensor.ident)
            is_setting = number in makers or _is_setting(call, index, tensor)
            if _can_be_learned(tensor) and not is_setting:
                learned.add(tensor.ident)
    for ident, tensor in tensors.items():
        (stored.params if ident in learned else stored.buffers)[ident] = tensor
    return stored


def _setting_makers(rows: Sequence[NodeCost]) -> set[int]:
    """Nodes on constants of whose results all uses are settings, as sizes or initial states."""
    constants = Constants(row.call for row in rows)
    makers: set[int] = set()
    used: set[int] = set()
    used_otherwise: set[int] = set()
    for number in reversed(range(len(rows))):
        call = rows[number].call
        results = {t.ident for t in call.outputs}
        is_constant = all(t in constants for t in call.outputs)
        if results & used and not results & used_otherwise and is_constant:
            makers.add(number)
        for index, tensor in enumerate(call.operands):
            if tensor is not None:
                used.add(tensor.ident)
                if number not in makers and not _is_setting(call, index, tensor):
                    used_otherwise.add(tensor.ident)
    return makers


def _can_be_learned(tensor: Tensor) -> bool:
    if tensor.is_float:
        return bool(tensor.shape)
    return tensor.dtype.is_integer and tensor.dtype.bits <= 8 and len(tensor.shape) > 1


def _is_setting(call: NodeCall, index: int, tensor: Tensor) -> bool:
    """Whether this use of a stored tensor is one that no training changes."""
    if index in NOT_LEARNED.get(call.op_type, ()):
        return True
    if call.op_type in ARITHMETIC and tensor.numel == 1:  # a number in the model's code
        return True
    return index in INITIAL_STATES.get(call.op_type, ()) and tensor.is_zero
