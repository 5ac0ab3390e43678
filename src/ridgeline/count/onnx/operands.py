"""Where the operands of PyTorch's operators come from: what an exporter may fold or merge.

A trace shows tensors without values, but it shows which tensor is which. What no operator has made
is a weight, a constant or an input of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.result import CountResult, OpCost


def of_weights(count: CountResult, larger: CountResult) -> frozenset[int]:
    """Which operators have nothing of the input in them.

    `larger` is the same model at another batch: a weight that has the shape of an input at one
    batch has not at two. Nothing is said of a model that does other things at another batch.
    """
    if [op.op for op in count.op_costs] != [op.op for op in larger.op_costs]:
        return frozenset()
    inputs = tuple(frozenset(_input_shapes(one)) for one in (count, larger))
    is_of_input: dict[int, bool] = {}  # by storage; a new tensor in an old place is written anew
    found = set()
    for number, (op, other) in enumerate(zip(count.op_costs, larger.op_costs, strict=True)):
        shapes = zip(op.call.inputs, other.call.inputs, strict=False)
        depends = any(
            is_of_input.get(_storage(a), _is_input((a.shape, b.shape), inputs)) for a, b in shapes
        )
        for made in op.call.outputs:
            is_of_input[_storage(made)] = depends
        if not depends:
            found.add(number)
    return frozenset(found)


def _input_shapes(count: CountResult) -> Sequence[tuple[int, ...]]:
    return count.modules[""].input_shapes if "" in count.modules else ()


def _is_input(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    inputs: tuple[frozenset[tuple[int, ...]], ...],
) -> bool:
    return shapes[0] != shapes[1] or all(s in of for s, of in zip(shapes, inputs, strict=True))


def _storage(tensor: Any) -> int:
    return int(tensor.storage)


# ---------------------------------------------------------------- the same twice


def values(op_costs: Sequence[OpCost]) -> list[int]:
    """A number for what each operator works out: the same number, the same operator and operands.

    What is written into is another operand from then on. Views are not in a trace: two parts of
    one tensor that have the same shape are taken for the same.
    """
    makers: dict[int, object] = {}  # by storage
    numbers: dict[object, int] = {}
    found = []
    for op in op_costs:
        call = op.call
        if not isinstance(call, OpCall):
            found.append(0)
            continue
        key = (call.name, call.signature.overload, *_plain((call.args, call.kwargs), makers))
        number = numbers.setdefault(key, len(numbers) + 1)
        read = {tensor.storage for tensor in call.inputs}
        for position, made in enumerate(call.outputs):
            if made.storage not in read or call.signature.written:
                makers[made.storage] = (number, position)
        found.append(number)
    return found


def _plain(value: Any, makers: Mapping[int, object]) -> Iterator[object]:
    """Arguments one after another: a tensor as its shape and who made it, the rest as text."""
    if isinstance(value, TensorMeta):
        yield (makers.get(value.storage, ("given", value.storage)), value.shape, value.distinct)
    elif isinstance(value, dict):
        yield from _plain(list(value.items()), makers)
    elif isinstance(value, list | tuple):
        yield len(value)
        for item in value:
            yield from _plain(item, makers)
    else:
        yield repr(value)
