"""Symbolic dimensions: their names, which one is the batch, and the numbers put in for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.onnx.asking import can_be_written, option_for, quoted, shown
from ridgeline.onnx.declared import (
    LARGEST,
    is_open,
    item_type,
    length_of,
    real_inputs,
    tensor_type,
    unnamed,
)
from ridgeline.onnx.expressions import names_in, size_of
from ridgeline.onnx.ranks import missing_ranks, unranked
from ridgeline.workloads.checks import closest, or_text

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, ValueInfoProto

PLAIN_BATCH = ("batch", "batch_size", "batchsize")  # before names that only contain the word
BATCH_NAMES = frozenset({"n", "b", "bs", "bsz", "nb", "bsize"})
NOT_BATCH = re.compile(
    r"seq|len|time|step|token|height|width|channel|feature|past|cache|frame", re.I
)
MOST_ITEMS = 1 << 12  # of a sequence
MOST_NAMED = 100  # open dimensions that an error asks for by name
MOST_PLACES = 5  # of one of them
NODE, INPUT = "node:", "input:"  # before a name that a dimension has, too
LONGEST_NEAR = 100  # characters of a name that is looked at as one that may be meant


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of one input, or of the items of one that is a sequence."""

    input: str
    index: int | None  # None: the length of a sequence
    symbol: str  # empty where the file gives a number
    size: int  # 0 where it gives none
    is_item: bool = False


@dataclass(slots=True)
class Bound:
    """The dimensions with their numbers."""

    sizes: dict[str, int] = field(default_factory=dict)  # symbol → number
    batch_size: int = 1
    notes: list[str] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)  # given, and not a dimension: a loop's?
    numbers: set[str] = field(default_factory=set)  # inputs that are one whole number

    def name_of(self, node: str) -> str:
        """By which name a node's number is given: its own, unless something else has it, too."""
        marked = f"{NODE}{node}"
        is_taken = node in self.sizes or node in self.numbers
        return marked if is_taken or marked in self.unused else node

    def given_for(self, node: str) -> int | None:
        """How often a node is to run, or how much it is to keep."""
        return self.unused.get(self.name_of(node))

    def take_value(self, name: str) -> int | None:
        """What an input is that is one whole number, if that is given; it is used up."""
        self.numbers.add(name)
        given = self.unused.pop(f"{INPUT}{name}", None)
        return self.unused.pop(name, None) if given is None else given


def bind(
    graph: GraphProto,
    *,
    batch_size: int | None,
    dims: Mapping[str, int],
    known: Collection[str] = (),
) -> Bound:
    """Put numbers in for the symbolic dimensions of the inputs; what is missing is asked for.

    Sequences among `known` are given item by item: nothing of theirs is open.
    """
    asked = [v for v in real_inputs(graph) if v.name not in known or tensor_type(v.type)]
    axes = list(_axes(asked))
    dims, symbols = _by_symbol(dims, axes), _symbols(axes)
    bound = Bound(sizes={name: dims[name] for name in symbols if name in dims})
    bound.unused = {name: size for name, size in dims.items() if name not in bound.sizes}
    batch = _batch_symbol(axes)
    fixed = _fixed_batch(axes)
    if batch is not None:
        _bind_batch(bound, batch, axes, batch_size)
    elif batch_size is not None and fixed is not None and fixed != batch_size:
        raise RidgelineError(
            f"the batch size is {fixed} in the file, not {batch_size}",
            hint="leave --batch-size out, or export the model with a dynamic batch dimension",
        )
    elif fixed is not None:
        bound.batch_size = fixed
    _derive(bound, symbols)
    _check_lengths(bound, axes)
    missing = [name for name in symbols if name not in bound.sizes]
    if missing:
        raise _missing(missing, batch, axes, bound, graph)
    if batch is None and fixed is None and batch_size not in (None, 1):
        if without := unranked(asked):
            raise missing_ranks(without)
        raise RidgelineError(
            f"the file has no batch dimension, so the batch cannot be {batch_size}",
            hint="leave --batch-size out; --dim NAME=N gives any open dimension by its name",
        )
    return bound


def _by_symbol(dims: Mapping[str, int], axes: Iterable[Axis]) -> dict[str, int]:
    """The numbers by the names in the file, of which nobody can write some: see `_written`."""
    named = [axis for axis in axes if axis.symbol]
    symbols = {_written(axis): axis.symbol for axis in named}
    symbols |= {axis.symbol: axis.symbol for axis in named}
    found: dict[str, int] = {}
    for name, size in dims.items():
        symbol = symbols.get(name, name)
        if found.setdefault(symbol, size) != size:
            raise RidgelineError(
                f"--dim {shown(name)}={size} is the dimension {quoted(symbol)}, which is given as"
                f" {found[symbol]}, too",
                hint="give one of them",
            )
    return found


def _written(axis: Axis) -> str:
    """An open dimension as one writes it on a command line."""
    if axis.index is None or can_be_written(axis.symbol):
        return axis.symbol
    return unnamed(axis.input, axis.index)


def _check_lengths(bound: Bound, axes: Iterable[Axis]) -> None:
    """Items of a sequence are followed one by one."""
    for axis in axes:
        if axis.index is None and bound.sizes.get(axis.symbol, 0) > MOST_ITEMS:
            raise RidgelineError(
                f"--dim {axis.symbol}: {bound.sizes[axis.symbol]} items are too many",
                hint=f"{MOST_ITEMS} are the most that are counted",
            )


def _derive(bound: Bound, symbols: Iterable[str]) -> None:
    """Work out `2*batch` and the like from names that have a number, or are given for that."""
    for symbol in filter(names_in, symbols):
        known = {**bound.unused, **bound.sizes}
        given = known.pop(symbol, None)
        size = size_of(symbol, known)
        if size is None or (given is not None and _is_name(symbol)):
            continue
        if given is not None and given != size:
            raise RidgelineError(
                f"the dimension {quoted(symbol)} is {size} by the sizes of its names, not {given}",
                hint="leave it out, or give other sizes for the names in it",
            )
        if not 0 <= size <= LARGEST:
            raise RidgelineError(
                f"the dimension {quoted(symbol)} would be {size}",
                hint="give other sizes for the names in it",
            )
        bound.sizes[symbol] = size
        for name in names_in(symbol) & bound.unused.keys():
            bound.sizes[name] = bound.unused.pop(name)


def open_dims(graph: GraphProto) -> list[str]:
    """The names of the dimensions that the inputs leave open, each once."""
    return _symbols(_axes(real_inputs(graph)))


def _symbols(axes: Iterable[Axis]) -> list[str]:
    return list(dict.fromkeys(axis.symbol for axis in axes if axis.symbol))


def _bind_batch(bound: Bound, batch: str, axes: list[Axis], batch_size: int | None) -> None:
    given = bound.sizes.get(batch)
    if given is not None and batch_size is not None and given != batch_size:
        raise RidgelineError(
            f"--batch-size {batch_size} and --dim {shown(batch)}={given} name the same dimension",
            hint="give one of them",
        )
    size = batch_size if batch_size is not None else given
    if size is None:
        return
    if size < 1:
        raise RidgelineError(
            f"--dim {shown(batch)}={size}: this dimension is taken for the batch",
            hint="give 1 or more",
        )
    bound.sizes[batch] = bound.batch_size = size
    where = next(axis for axis in axes if axis.symbol == batch)
    bound.notes.append(
        f"the batch of {size} is the dimension {quoted(batch)}"
        f" (input {quoted(where.input)}, axis {where.index})"
    )


def _strange(bound: Bound, graph: GraphProto, missing: Iterable[str]) -> list[str]:
    """Names that were given, and that neither the graph nor an open dimension has in it."""
    own = {name for symbol in missing for name in _parts(symbol)}
    for mark, names in ((INPUT, (v.name for v in graph.input)), (NODE, _node_names(graph.node))):
        own |= {form for name in names for form in (name, f"{mark}{name}")}
    return [name for name in bound.unused if name not in own]


def _parts(symbol: str) -> list[str]:
    """The names that a dimension is worked out from, sorted; none of one that has its own."""
    return [] if _is_name(symbol) else sorted(names_in(symbol))


def _needed(symbol: str, bound: Bound) -> list[str]:
    """What must be given for a dimension: the names in it that have no number, or the whole."""
    have = bound.sizes.keys() | bound.unused.keys()
    return [name for name in _parts(symbol) if name not in have] or [symbol]


def _node_names(nodes: Iterable[NodeProto]) -> Iterable[str]:
    for place, node in enumerate(nodes):
        yield node.name or f"{node.op_type}_{place}"
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _node_names(inner.node)


def _missing(
    missing: list[str], batch: str | None, axes: list[Axis], bound: Bound, graph: GraphProto
) -> RidgelineError:
    strange = _strange(bound, graph, missing)
    named = missing[:MOST_NAMED]
    more = len(missing) - len(named)
    places: dict[str, list[Axis]] = {name: [] for name in named}
    for axis in axes:
        if axis.symbol in places:
            places[axis.symbol].append(axis)
    listed = "; ".join(f"{shown(name)} ({_where(found)})" for name, found in places.items())
    wanted = dict.fromkeys(name for symbol in named for name in _needed(symbol, bound))
    options = [
        f"--batch-size N (it is {quoted(name)})"
        if name == batch
        else option_for(_written(places[name][0]) if name in places else name)
        for name in wanted
    ]
    return RidgelineError(
        f"the file leaves {_count(len(missing), 'dimension')} open: {listed}"
        + (f"; and {more} more" if more else "")
        + (f"; none is called {', '.join(map(quoted, strange))}" if strange else ""),
        hint=f"give {' and '.join(options)}"
        + (" and so on" if more else "")
        + "".join(_meant(name, wanted) for name in strange),
    )


def _meant(strange: str, names: Iterable[str]) -> str:
    near = closest(strange, (name for name in names if len(name) <= LONGEST_NEAR))
    return f"; by {quoted(strange)}, did you mean {or_text(near)}?" if near else ""


def _where(axes: list[Axis]) -> str:
    if axes[0].index is None:
        return f"the length of {shown(axes[0].input)}"
    some = [f"{shown(axis.input)}[{axis.index}]" for axis in axes[:MOST_PLACES]]
    more = len(axes) - len(some)
    return f"of {', '.join(some)}" + (f" and {more} more" if more else "")


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def check_given(dims: Mapping[str, int], batch_size: int | None) -> None:
    """A batch is 1 or more; other sizes may be 0: a cache with nothing in it, a loop not run."""
    for name, size in dims.items():
        if not isinstance(size, int):
            raise RidgelineError(
                f"--dim {name}: {size!r} is no size", hint="sizes are whole numbers"
            )
    if batch_size is not None and batch_size < 1:
        raise RidgelineError(f"--batch-size: {batch_size} is no size", hint="sizes are 1 or more")
    for name, size in dims.items():
        if size < 0:
            raise RidgelineError(f"--dim {name}: {size} is no size", hint="sizes are 0 or more")
    for name, size in (
        ("--batch-size", batch_size or 1),
        *((f"--dim {n}", s) for n, s in dims.items()),
    ):
        if size > LARGEST:
            raise RidgelineError(
                f"{name}: {size} is too large", hint=f"{LARGEST} is the largest size"
            )


def _axes(inputs: Iterable[ValueInfoProto]) -> Iterable[Axis]:
    for value in inputs:
        is_sequence = tensor_type(value.type) is None
        kind = item_type(value.type)
        if kind is None:
            continue
        if is_sequence:
            yield Axis(value.name, None, length_of(value.name), 0, is_item=True)
        for index, dim in enumerate(kind.shape.dim):
            symbol = (dim.dim_param or unnamed(value.name, index)) if is_open(dim) else ""
            size = 0 if symbol else dim.dim_value
            yield Axis(value.name, index, symbol, size, is_item=is_sequence)


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
    leading = [axis for axis in axes if axis.index == 0 and not axis.is_item]
    first = leading[0].symbol if leading else ""
    if first and not NOT_BATCH.search(first) and not _is_derived(first, own):
        return first
    return None


def _is_derived(symbol: str, own: set[str]) -> bool:
    """`2*batch` is not the batch; a name with a hyphen is, unless both its parts are names too."""
    names = names_in(symbol)
    return bool(names) and (names <= own or not _is_name(symbol))


def _is_name(symbol: str) -> bool:
    """Whether a dimension may be called so: a hyphen is no minus where a size is given for it."""
    return re.fullmatch(r"[\w-]+", symbol) is not None


def _fixed_batch(axes: list[Axis]) -> int | None:
    """The first dimension of the first input, where it is a number."""
    leading = [axis for axis in axes if axis.index == 0 and not axis.is_item]
    return leading[0].size if leading and not leading[0].symbol else None
