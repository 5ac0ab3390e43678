"""Open dimensions of a file: their names, which one is the batch, and the sizes put in for them.

A dimension may be an expression of others (`2*batch`, `past_len + 1`), have no name (the second of
input `x` is called `x_1`), or be missing with the whole shape (`x_rank` gives how many there are).
The length of a sequence input `s` is called `s_length`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
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
MOST_AXES = 5  # of one of them
PLAIN_BATCH = ("batch", "batch_size", "batchsize")  # before names that only contain the word
BATCH_NAMES = frozenset({"n", "b", "bs", "bsz", "nb", "bsize"})
NOT_BATCH = re.compile(
    r"seq|len|time|step|token|height|width|channel|feature|past|cache|frame", re.I
)

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

_ARITHMETIC = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Name, ast.Load)


@lru_cache(maxsize=1024)
def _parse(symbol: str) -> ast.Expression | None:
    """The tree of a sum or product of names and whole numbers; None for a plain name."""
    if re.fullmatch(r"[\w-]+", symbol) or len(symbol) > LONGEST_NAME:
        return None
    try:
        tree = ast.parse(re.sub("/+", "//", symbol.strip()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    is_sum = isinstance(tree.body, ast.BinOp) and all(
        isinstance(node, _ARITHMETIC)
        or (isinstance(node, ast.Constant) and type(node.value) is int)
        for node in ast.walk(tree.body)
    )
    return tree if is_sum else None


def names_in(symbol: str) -> set[str]:
    """The names in an expression; none for a plain name."""
    tree = _parse(symbol)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()


def evaluate(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """The number of a dimension: its own, or computed where all its names have one."""
    if symbol in sizes:
        return sizes[symbol]
    tree = _parse(symbol)
    if tree is None or not names_in(symbol) <= sizes.keys():
        return None
    try:  # only whole numbers, names and their sums and products are in the tree
        return int(eval(compile(tree, "dimension", "eval"), {"__builtins__": {}}, dict(sizes)))
    except ZeroDivisionError:
        return None


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

    def node_number(self, node: str) -> int | None:
        """The trip count of a loop, or how many results a node keeps, if the user says."""
        return self.unmatched_args.get(node)

    def pop_value(self, name: str) -> int | None:
        """The value of an input that is one whole number, if the user says."""
        return self.unmatched_args.pop(name, None)


def check_sizes(dims: Mapping[str, int], batch_size: int | None) -> None:
    """A batch is 1 or more; other sizes may be 0: an empty cache, a loop that does not run."""
    options = [(f"--dim {name}", size, 0) for name, size in dims.items()]
    if batch_size is not None:
        options.append(("--batch-size", batch_size, 1))
    for option, size, least in options:
        if not isinstance(size, int) or not least <= size <= LARGEST:
            raise RidgelineError(
                f"{option}: {size!r} is not a valid size",
                hint=f"sizes are whole numbers from {least} to {LARGEST}",
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
    elif fixed is not None:
        bound.batch_size = fixed
    _evaluate_expressions(bound, symbols)
    if missing := [name for name in symbols if name not in bound.sizes]:
        raise _missing_dims(missing, batch, axes, bound)
    for axis in axes:
        if axis.index is None and bound.sizes[axis.symbol] > MOST_ITEMS:
            raise RidgelineError(
                f"--dim {axis.symbol}: {bound.sizes[axis.symbol]} items are too many",
                hint=f"{MOST_ITEMS} are the most that are counted",
            )
    if batch is None and batch_size not in (None, bound.batch_size):
        if fixed is None and (without := inputs_without_rank(inputs)):
            raise missing_ranks(without)
        has = "has no batch dimension" if fixed is None else f"has a batch of {fixed}"
        raise RidgelineError(
            f"the file {has}, so the batch cannot be {batch_size}",
            hint="leave --batch-size out, or export the model with a dynamic batch dimension;"
            " --dim NAME=N gives any open dimension by its name",
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
    sides = (axis for axis in axes if axis.index is not None)
    symbols = [s for s in _symbols(sides) if not names_in(s)]  # 2*batch is not the batch
    plain = [s for name in PLAIN_BATCH for s in symbols if s.lower() == name]
    named = [*plain, *(s for s in symbols if "batch" in s.lower())] or [
        s for s in symbols if s.lower() in BATCH_NAMES
    ]
    if named:
        return named[0]
    first = next((axis.symbol for axis in axes if axis.index == 0 and not axis.is_item), "")
    return first if first in symbols and not NOT_BATCH.search(first) else None


def _fixed_batch(axes: list[Axis]) -> int | None:
    """The first dimension of the first input, where it is a number."""
    leading = [axis for axis in axes if axis.index == 0 and not axis.is_item]
    return leading[0].size if leading and not leading[0].symbol else None


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
        size = evaluate(symbol, {**bound.unmatched_args, **bound.sizes})
        if size is None or symbol in bound.sizes:
            continue
        if not 0 <= size <= LARGEST:
            raise RidgelineError(
                f"the dimension {quote_name(symbol)} would be {size}",
                hint="give other sizes for the names in it",
            )
        bound.sizes[symbol] = size
        for name in names_in(symbol) & bound.unmatched_args.keys():
            bound.sizes[name] = bound.unmatched_args.pop(name)


def _missing_dims(
    missing: list[str], batch: str | None, axes: list[Axis], bound: DimBindings
) -> RidgelineError:
    shown, more = missing[:MOST_NAMED], len(missing) - MOST_NAMED
    listed = "; ".join(f"{show_name(name)} ({_list_axes(name, axes)})" for name in shown)
    have = bound.sizes.keys() | bound.unmatched_args.keys()
    # of an expression the names that have no number
    needed = [part for name in shown for part in sorted(names_in(name) - have) or [name]]
    options = [
        f"--batch-size N (it is {quote_name(name)})" if name == batch else dim_option(name)
        for name in dict.fromkeys(needed)
    ]
    return RidgelineError(
        f"the file leaves {len(missing)} dimension{'s' * (len(missing) > 1)} open: {listed}"
        + (f"; and {more} more" if more > 0 else ""),
        hint=f"give {' and '.join(options)}" + (" and so on" if more > 0 else ""),
    )


def _list_axes(symbol: str, axes: list[Axis]) -> str:
    """Which dimensions have this name: `of x[0], y[0] and 3 more`."""
    own = [axis for axis in axes if axis.symbol == symbol]
    if own[0].index is None:
        return f"the length of {show_name(own[0].input)}"
    some = [f"{show_name(axis.input)}[{axis.index}]" for axis in own[:MOST_AXES]]
    more = len(own) - len(some)
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
    without = set(inputs_without_rank(inputs))
    for value in inputs:
        kind = item_type(value.type)
        if value.name not in without or kind is None:
            continue
        indices = [n for n in range(MOST_DIMS) if axis_name(value.name, n) in left]
        rank = left.pop(f"{value.name}_rank", indices[-1] + 1 if indices else None)
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
    listed, more = ", ".join(map(quote_name, names[:MOST_AXES])), len(names) - MOST_AXES
    first, second = (dim_option(axis_name(names[0], index)) for index in range(2))
    return RidgelineError(
        f"the file has no shape, not even the number of dimensions, of {listed}"
        + (f" and {more} more" if more > 0 else ""),
        hint=f"give all sizes in order: {first} {second} and so on"
        f" ({dim_option(f'{names[0]}_rank', '0')} if it is a single number)",
    )
