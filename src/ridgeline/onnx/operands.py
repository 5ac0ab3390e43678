"""Where the operands of PyTorch's operators come from: what an exporter may fold or merge.

A trace shows tensors without values, but it shows which tensor is which. What no operator has made
is a weight, a constant or an input of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.result import CountResult, OpCost
from ridgeline.onnx.pieces import BATCH_NORMS, MOVES, SCALES

LEAST = 1e-8  # torch's exporter takes a smaller number for 0
NEUTRAL = {"aten::mul": 1, "aten::div": 1, "aten::add": 0, "aten::sub": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Operators by their numbers."""

    of_weights: frozenset[int] = frozenset()  # nothing of the input is in them
    with_weights: frozenset[int] = frozenset()  # the input is, and beside it weights


def origins(count: CountResult, larger: CountResult, *, is_open: bool) -> Origins:
    """What is in the operands. With an open batch, what has its size is of the input, too.

    `larger` is the same model at another batch: a weight that has the shape of an input at one
    batch has not at two. Of a model that does other things at another batch nothing is said; at a
    batch of one, what has the shape of an input is one.
    """
    others = _aligned(count, larger)
    if others is None and count.batch_size == 1:  # torch does other things with more than one row
        others = list(count.op_costs)
    if others is None:
        return Origins()
    inputs = tuple(frozenset(_input_shapes(one)) for one in (count, larger))
    is_of_input = dict.fromkeys(count.input_storages, True)  # by storage
    alone, beside = set(), set()
    for number, (op, other) in enumerate(zip(count.op_costs, others, strict=True)):
        known = inputs if other is not op else (inputs[0], inputs[0])
        shapes = zip(op.call.inputs, other.call.inputs, strict=False)
        depends = [
            is_of_input.get(_storage(a), _is_input((a.shape, b.shape), known)) for a, b in shapes
        ]
        if op.kind == "fill" and not op.op.endswith("_"):  # of a tensor it takes the size alone
            depends = [False]
        made = zip(op.call.outputs, other.call.outputs, strict=False)
        is_sized = is_open and any(a.shape != b.shape for a, b in made)
        for tensor in op.call.outputs:
            is_of_input[_storage(tensor)] = any(depends) or is_sized
        if not any(depends) and not is_sized:
            alone.add(number)
        elif not all(depends):
            beside.add(number)
    return Origins(of_weights=frozenset(alone), with_weights=frozenset(beside))


def _aligned(count: CountResult, larger: CountResult) -> list[OpCost] | None:
    """The operator of the larger batch for each; a batch of one needs other copies, or none."""
    if [op.op for op in count.op_costs] == [op.op for op in larger.op_costs]:
        return list(larger.op_costs)
    works = [op for op in larger.op_costs if op.kind not in MOVES]
    if [op.op for op in count.op_costs if op.kind not in MOVES] != [op.op for op in works]:
        return None
    following = iter(works)
    return [op if op.kind in MOVES else next(following) for op in count.op_costs]


def _input_shapes(count: CountResult) -> Sequence[tuple[int, ...]]:
    return count.modules[""].input_shapes if "" in count.modules else ()


def _is_input(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    inputs: tuple[frozenset[tuple[int, ...]], ...],
) -> bool:
    return shapes[0] != shapes[1] or all(s in of for s, of in zip(shapes, inputs, strict=True))


def _storage(tensor: Any) -> int:
    return int(tensor.storage)


# ---------------------------------------------------------------- what an exporter leaves out


def unused(count: CountResult) -> frozenset[int]:
    """Operators, by number, whose results no other one reads and the model does not return."""
    wanted = set(count.output_storages)
    found = set()
    for number in reversed(range(len(count.op_costs))):
        call = count.op_costs[number].call
        made, read = _storages(call.outputs), _storages(call.inputs)
        if made and not made & wanted:
            found.add(number)
            continue
        wanted -= made - read  # before this operator, another tensor was there
        wanted |= read
    return frozenset(found) if count.output_storages else frozenset()


def foldable(count: CountResult) -> frozenset[int]:
    """Operators, by number, that read a product's result, which nobody else reads.

    Views are no operators here, and copies and scales by weights may lie between.
    """
    makers: dict[int, int] = {}  # storage → the operator that wrote it last
    sources: dict[int, int | None] = {}  # operator → the one before it, if it reads one alone
    readers: Counter[int] = Counter()
    for number, op in enumerate(count.op_costs):
        read = {makers[s] for s in _storages(op.call.inputs) if s in makers}
        if op.kind != "view":
            readers.update(read)
            sources[number] = read.pop() if len(read) == 1 else None
            makers.update(dict.fromkeys(_storages(op.call.outputs), number))
    readers.update(makers[s] for s in count.output_storages if s in makers)

    def is_behind_product(number: int) -> bool:
        source = sources.get(number)
        if source is None or readers[source] > 1:
            return False
        op = count.op_costs[source]
        return bool(op.cost.macs) or (_is_passed(op) and is_behind_product(source))

    return frozenset(filter(is_behind_product, sources))


def _is_passed(op: OpCost) -> bool:
    name = op.op.rpartition("::")[2].removesuffix("_")
    return op.kind in MOVES or name in SCALES or name in BATCH_NORMS


def _storages(tensors: Iterable[Any]) -> set[int]:
    return set(map(_storage, tensors))


def is_nothing(op: OpCost) -> bool:
    """A product with 1, a sum with 0: `sum([a, b])` begins with one; a resize to the same size."""
    neutral = NEUTRAL.get(op.op.removesuffix("_"))
    call = op.call
    if op.kind == "interpolate" and op.op.startswith("aten::upsample"):
        return bool(call.inputs[0].shape == call.outputs[0].shape)
    if neutral is None or not isinstance(call, OpCall) or len(call.args) != 2:
        return False
    other = call.args[1]
    return isinstance(other, int | float) and abs(other - neutral) <= LEAST


# ---------------------------------------------------------------- the same twice


def values(op_costs: Sequence[OpCost], norms: Mapping[str, int] | None = None) -> list[int]:
    """A number for what each operator works out: the same number, the same operator and operands.

    What is written into is another operand from then on. `norms`: modules whose weights are
    vectors alone, with a number for what these are.
    """
    makers: dict[int, object] = {}  # by storage
    numbers: dict[object, int] = {}
    found = []
    for op in op_costs:
        call = op.call
        if not isinstance(call, OpCall):
            found.append(0)
            continue
        same = (norms or {}).get(op.path) if op.kind == "norm" else None
        key = (call.name, call.signature.overload, *_plain((call.args, call.kwargs), makers, same))
        number = numbers.setdefault(key, len(numbers) + 1)
        read = {tensor.storage for tensor in call.inputs}
        for position, made in enumerate(call.outputs):
            if made.storage not in read or call.signature.written:
                makers[made.storage] = (number, position)
        found.append(number)
    return found


def _plain(value: Any, makers: Mapping[int, object], same: int | None) -> Iterator[object]:
    """Arguments one after another: a tensor as who made it and what part it is, others as text.

    `same`: what the vectors are, if they are to be known by that.
    """
    if isinstance(value, TensorMeta):
        is_known = same is not None and len(value.shape) == 1
        given = ("same", same) if is_known else ("given", value.storage)
        yield (makers.get(value.storage, given), value.shape, value.view)
    elif isinstance(value, dict):
        yield from _plain(list(value.items()), makers, same)
    elif isinstance(value, list | tuple):
        yield len(value)
        for item in value:
            yield from _plain(item, makers, same)
    else:
        yield repr(value)
