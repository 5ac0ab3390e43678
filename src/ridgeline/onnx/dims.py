"""Open dimensions of a file: their names, which one is the batch, and the sizes put in for them.

A dimension may be an expression of others (`2*batch`, `past_len + 1`), have no name (the second of
input `x` is called `x_1`), or be missing with the whole shape (`x_rank` gives how many there are).
The length of a sequence input `s` is called `s_length`.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_line

if TYPE_CHECKING:
    from onnx import GraphProto, TensorShapeProto, TypeProto, ValueInfoProto

MOST_DIMS = 64  # of one tensor: numpy's own limit
LARGEST = 1 << 48  # far above any real side; the product of several still is a quick number
LONGEST_NAME = 200  # characters that a message shows of a name
MOST_ITEMS = 1 << 12  # of a sequence
MOST_NAMED = 100  # open dimensions that an error lists
MOST_PLACES = 5  # of one of them
PLAIN_BATCH = ("batch", "batch_size", "batchsize")  # before names that only contain the word
BATCH_NAMES = frozenset({"n", "b", "bs", "bsz", "nb", "bsize"})
NOT_BATCH = re.compile(
    r"seq|len|time|step|token|height|width|channel|feature|past|cache|frame", re.I
)
NODE, INPUT = "node:", "input:"  # before a name that a dimension has, too

# ---------------------------------------------------------------- types that a file declares


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that are not also stored: older files list the weights among them."""
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in stored]


def tensor_type(kind: TypeProto) -> TypeProto.Tensor | None:
    """The tensor that a type describes, through optionals; None for sequences and maps."""
    while kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("tensor_type"):
        return kind.tensor_type
    return kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else None


def item_type(kind: TypeProto) -> TypeProto.Tensor | None:
    """The tensor that a type describes, or that the items of a sequence are; None for maps."""
    while kind.HasField("optional_type") or kind.HasField("sequence_type"):
        is_optional = kind.HasField("optional_type")
        kind = kind.optional_type.elem_type if is_optional else kind.sequence_type.elem_type
    return tensor_type(kind)


def shape_of(kind: TypeProto, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A type's shape with the numbers put in; None where one is missing."""
    tensor = tensor_type(kind)
    if tensor is None or not tensor.HasField("shape") or len(tensor.shape.dim) > MOST_DIMS:
        return None
    shape = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else evaluate(dim.dim_param, sizes)
        if size is None or not 0 <= size <= LARGEST:
            return None
        shape.append(size)
    return tuple(shape)


def is_open(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dimension has no number; older exporters write -1 for that."""
    return not dim.HasField("dim_value") or dim.dim_value < 0


def length_name(value: str) -> str:
    """Our name for the length of a sequence, which is in no file."""
    return f"{value}_length"


def axis_name(value: str, index: int) -> str:
    """Our name for an open dimension that has none in the file."""
    return f"{value}_{index}"


# ---------------------------------------------------------------- expressions

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
}  # fmt: skip


@lru_cache(maxsize=1024)
def _parse(symbol: str) -> ast.expr | None:
    """The tree of a sum or product of names and numbers; None for a plain name."""
    if symbol.isidentifier() or len(symbol) > LONGEST_NAME:
        return None
    try:
        tree = ast.parse(symbol.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.BinOp) and _is_arithmetic(tree) else None


def _is_arithmetic(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        sides = (tree.left, tree.right)
        return type(tree.op) in _OPERATORS and all(map(_is_arithmetic, sides))
    return isinstance(tree, ast.Name) or (
        isinstance(tree, ast.Constant) and type(tree.value) is int
    )


def names_in(symbol: str) -> set[str]:
    """The names in an expression; none for a plain name."""
    tree = _parse(symbol)
    if tree is None:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def evaluate(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """The number of a dimension: its own, or computed where all its names have one."""
    if symbol in sizes:
        return sizes[symbol]
    tree = _parse(symbol)
    if tree is None or not names_in(symbol) <= sizes.keys():
        return None
    try:
        return _value(tree, sizes)
    except ZeroDivisionError:
        return None


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        return _OPERATORS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    assert isinstance(tree, ast.Constant) and isinstance(tree.value, int)
    return tree.value


# ---------------------------------------------------------------- names in messages


def show_name(name: str) -> str:
    """A name in a sentence: one line of limited length."""
    return plain_line(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def quote_name(name: str) -> str:
    return f"'{show_name(name)}'"


def dim_option(name: str, number: str = "N") -> str:
    """The option that gives a size, as a shell takes it: a name may have blanks and stars in it."""
    return plain_line(f"--dim {shlex.quote(f'{name}={number}')}")


# ---------------------------------------------------------------- sizes from the user


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of one input, or of the items of one that is a sequence."""

    input: str
    index: int | None  # None: the length of a sequence
    symbol: str  # empty where the file has a number
    size: int  # 0 where it has none
    is_item: bool = False


@dataclass(slots=True)
class DimBindings:
    """The dimensions with their numbers."""

    sizes: dict[str, int] = field(default_factory=dict)  # symbol → number
    batch_size: int = 1
    notes: list[str] = field(default_factory=list)
    unmatched_args: dict[str, int] = field(default_factory=dict)  # of loops and nodes, so far
    numbers: set[str] = field(default_factory=set)  # inputs that are one whole number

    def option_name(self, node: str) -> str:
        """By which name a node's number is given: its own, unless something else has it, too."""
        marked = f"{NODE}{node}"
        is_taken = node in self.sizes or node in self.numbers
        return marked if is_taken or marked in self.unmatched_args else node

    def node_number(self, node: str) -> int | None:
        """The trip count of a loop, or how many results a node keeps, if the user says."""
        return self.unmatched_args.get(self.option_name(node))

    def pop_value(self, name: str) -> int | None:
        """The value of an input that is one whole number, if the user says."""
        self.numbers.add(name)
        value = self.unmatched_args.pop(f"{INPUT}{name}", None)
        return self.unmatched_args.pop(name, None) if value is None else value


def check_sizes(dims: Mapping[str, int], batch_size: int | None) -> None:
    """A batch is 1 or more; other sizes may be 0: an empty cache, a loop that does not run."""
    sizes = {f"--dim {name}": size for name, size in dims.items()}
    for option, size in (*sizes.items(), ("--batch-size", batch_size)):
        least = int(option == "--batch-size")
        if size is None:
            continue
        if not isinstance(size, int):
            raise RidgelineError(
                f"{option}: {size!r} is not a valid size", hint="sizes are whole numbers"
            )
        if size < least:
            raise RidgelineError(
                f"{option}: {size} is not a valid size", hint=f"sizes are {least} or more"
            )
        if size > LARGEST:
            raise RidgelineError(
                f"{option}: {size} is too large", hint=f"{LARGEST} is the largest size"
            )


def bind_dims(
    graph: GraphProto,
    *,
    batch_size: int | None,
    dims: Mapping[str, int],
    known: Collection[str] = (),
) -> DimBindings:
    """Put numbers in for the open dimensions of the inputs; what is missing is asked for.

    Sequences among `known` have values item by item: nothing of theirs is open.
    """
    inputs = [v for v in real_inputs(graph) if v.name not in known or tensor_type(v.type)]
    axes = list(_axes(inputs))
    symbols = _symbols(axes)
    bound = DimBindings(sizes={name: dims[name] for name in symbols if name in dims})
    bound.unmatched_args = {name: n for name, n in dims.items() if name not in bound.sizes}
    batch, fixed = _batch_symbol(axes), _fixed_batch(axes)
    if batch is not None:
        _bind_batch(bound, batch, axes, batch_size)
    elif batch_size is not None and fixed is not None and fixed != batch_size:
        raise RidgelineError(
            f"the batch size is {fixed} in the file, not {batch_size}",
            hint="leave --batch-size out, or export the model with a dynamic batch dimension",
        )
    elif fixed is not None:
        bound.batch_size = fixed
    _evaluate_expressions(bound, symbols)
    _check_lengths(bound, axes)
    if missing := [name for name in symbols if name not in bound.sizes]:
        raise _missing_dims(missing, batch, axes, bound)
    if batch is None and fixed is None and batch_size not in (None, 1):
        if without := inputs_without_rank(inputs):
            raise missing_ranks(without)
        raise RidgelineError(
            f"the file has no batch dimension, so the batch cannot be {batch_size}",
            hint="leave --batch-size out; --dim NAME=N gives any open dimension by its name",
        )
    return bound


def open_dims(graph: GraphProto) -> list[str]:
    """The names of the dimensions that the inputs leave open, each once."""
    return _symbols(_axes(real_inputs(graph)))


def _axes(inputs: Iterable[ValueInfoProto]) -> Iterable[Axis]:
    for value in inputs:
        is_sequence = tensor_type(value.type) is None
        kind = item_type(value.type)
        if kind is None:
            continue
        if is_sequence:
            yield Axis(value.name, None, length_name(value.name), 0, is_item=True)
        for index, dim in enumerate(kind.shape.dim):
            symbol = (dim.dim_param or axis_name(value.name, index)) if is_open(dim) else ""
            size = 0 if symbol else dim.dim_value
            yield Axis(value.name, index, symbol, size, is_item=is_sequence)


def _symbols(axes: Iterable[Axis]) -> list[str]:
    return list(dict.fromkeys(axis.symbol for axis in axes if axis.symbol))


def _batch_symbol(axes: list[Axis]) -> str | None:
    """The dimension that is called so; else the first of the first input that has any.

    The items of a sequence have no batch for the whole, unless a dimension of theirs is called so.
    """
    own = {axis.symbol for axis in axes}
    sides = (axis for axis in axes if axis.index is not None)
    symbols = [s for s in _symbols(sides) if not _is_derived(s, own)]
    plain = [s for name in PLAIN_BATCH for s in symbols if s.lower() == name]
    named = [*plain, *(s for s in symbols if "batch" in s.lower())] or [
        s for s in symbols if s.lower() in BATCH_NAMES
    ]
    if named:
        return named[0]
    first = next((axis.symbol for axis in axes if axis.index == 0 and not axis.is_item), "")
    is_batch = first and not NOT_BATCH.search(first) and not _is_derived(first, own)
    return first if is_batch else None


def _fixed_batch(axes: list[Axis]) -> int | None:
    """The first dimension of the first input, where it is a number."""
    leading = [axis for axis in axes if axis.index == 0 and not axis.is_item]
    return leading[0].size if leading and not leading[0].symbol else None


def _is_derived(symbol: str, own: set[str]) -> bool:
    """`2*batch` is not the batch; a name with a hyphen is, unless both its parts are names too."""
    names = names_in(symbol)
    return bool(names) and (names <= own or not _is_name(symbol))


def _is_name(symbol: str) -> bool:
    """Whether a dimension may be called so: a hyphen may be part of a name."""
    return re.fullmatch(r"[\w-]+", symbol) is not None


def _bind_batch(bound: DimBindings, batch: str, axes: list[Axis], batch_size: int | None) -> None:
    by_name = bound.sizes.get(batch)
    if by_name is not None and batch_size is not None and by_name != batch_size:
        raise RidgelineError(
            f"--batch-size {batch_size} and --dim {show_name(batch)}={by_name} name the same"
            " dimension",
            hint="give one of them",
        )
    size = batch_size if batch_size is not None else by_name
    if size is None:
        return
    if size < 1:
        raise RidgelineError(
            f"--dim {show_name(batch)}={size}: this dimension is taken for the batch",
            hint="give 1 or more",
        )
    bound.sizes[batch] = bound.batch_size = size
    axis = next(axis for axis in axes if axis.symbol == batch)
    bound.notes.append(
        f"the batch of {size} is the dimension {quote_name(batch)}"
        f" (input {quote_name(axis.input)}, axis {axis.index})"
    )


def _evaluate_expressions(bound: DimBindings, symbols: Iterable[str]) -> None:
    """Compute `2*batch` and the like from names that have a number."""
    for symbol in filter(names_in, symbols):
        known = {**bound.unmatched_args, **bound.sizes}
        own = known.pop(symbol, None)
        size = evaluate(symbol, known)
        if size is None or (own is not None and _is_name(symbol)):
            continue
        if own is not None and own != size:
            raise RidgelineError(
                f"the dimension {quote_name(symbol)} is {size} by the sizes of its names,"
                f" not {own}",
                hint="leave it out, or give other sizes for the names in it",
            )
        if not 0 <= size <= LARGEST:
            raise RidgelineError(
                f"the dimension {quote_name(symbol)} would be {size}",
                hint="give other sizes for the names in it",
            )
        bound.sizes[symbol] = size
        for name in names_in(symbol) & bound.unmatched_args.keys():
            bound.sizes[name] = bound.unmatched_args.pop(name)


def _check_lengths(bound: DimBindings, axes: Iterable[Axis]) -> None:
    """Items of a sequence are followed one by one."""
    for axis in axes:
        if axis.index is None and bound.sizes.get(axis.symbol, 0) > MOST_ITEMS:
            raise RidgelineError(
                f"--dim {axis.symbol}: {bound.sizes[axis.symbol]} items are too many",
                hint=f"{MOST_ITEMS} are the most that are counted",
            )


def _missing_dims(
    missing: list[str], batch: str | None, axes: list[Axis], bound: DimBindings
) -> RidgelineError:
    shown = missing[:MOST_NAMED]
    more = len(missing) - len(shown)
    places: dict[str, list[Axis]] = {name: [] for name in shown}
    for axis in axes:
        if axis.symbol in places:
            places[axis.symbol].append(axis)
    listed = "; ".join(f"{show_name(name)} ({_where(at)})" for name, at in places.items())
    have = bound.sizes.keys() | bound.unmatched_args.keys()
    wanted: dict[str, None] = {}
    for symbol in shown:  # the names in an expression that have no number, or the whole
        parts = [] if _is_name(symbol) else sorted(names_in(symbol) - have)
        wanted |= dict.fromkeys(parts or [symbol])
    options = [
        f"--batch-size N (it is {quote_name(name)})" if name == batch else dim_option(name)
        for name in wanted
    ]
    return RidgelineError(
        f"the file leaves {len(missing)} dimension{'s' * (len(missing) > 1)} open: {listed}"
        + (f"; and {more} more" if more else ""),
        hint=f"give {' and '.join(options)}" + (" and so on" if more else ""),
    )


def _where(axes: list[Axis]) -> str:
    if axes[0].index is None:
        return f"the length of {show_name(axes[0].input)}"
    some = [f"{show_name(axis.input)}[{axis.index}]" for axis in axes[:MOST_PLACES]]
    more = len(axes) - len(some)
    return f"of {', '.join(some)}" + (f" and {more} more" if more else "")


# ---------------------------------------------------------------- inputs without a rank


def inputs_without_rank(values: Iterable[ValueInfoProto]) -> list[str]:
    """The names of those whose tensors, or whose items, may have any number of dimensions."""
    kinds = ((value.name, item_type(value.type)) for value in values)
    return [name for name, kind in kinds if kind is not None and not kind.HasField("shape")]


def add_ranks(graph: GraphProto, dims: Mapping[str, int]) -> dict[str, int]:
    """Write ranks from the user into the graph, as open dimensions; the other numbers.

    A rank is given as `x_rank`, or by the sizes of all dimensions: `x_0`, `x_1`, ….
    """
    left, inputs = dict(dims), real_inputs(graph)
    wanted = set(inputs_without_rank(inputs))
    for value in inputs:
        kind = item_type(value.type)
        if value.name not in wanted or kind is None:
            continue
        places = [n for n in range(MOST_DIMS) if axis_name(value.name, n) in left]
        rank = left.pop(f"{value.name}_rank", places[-1] + 1 if places else None)
        if rank is not None and rank > MOST_DIMS:
            raise RidgelineError(
                f"--dim {show_name(value.name)}_rank: {rank} dimensions are too many",
                hint=f"{MOST_DIMS} are the most that are counted",
            )
        if rank is not None:
            kind.shape.SetInParent()
            for _ in range(rank):
                kind.shape.dim.add()
    return left


def missing_ranks(names: Sequence[str]) -> RidgelineError:
    """The error that asks for them."""
    listed, more = ", ".join(map(quote_name, names[:MOST_PLACES])), len(names) - MOST_PLACES
    first, second = (dim_option(axis_name(names[0], place)) for place in range(2))
    return RidgelineError(
        f"the file has no shape, not even the number of dimensions, of {listed}"
        + (f" and {more} more" if more > 0 else ""),
        hint=f"give all sizes in order: {first} {second} and so on"
        f" ({dim_option(f'{names[0]}_rank', '0')} if it is a single number)",
    )
