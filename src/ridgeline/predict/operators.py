"""Operator points: one call of one operator, by shapes and settings, that can be replayed.

`count` records every call of a step. A point is such a call without its place in the model: equal
points cost the same time on the same machine. An optimizer's step is one point for all tensors,
as it runs; `count` has a row for each tensor.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Any

from ridgeline.predict.curves import Features

if TYPE_CHECKING:
    from ridgeline.count.records import OpCost
    from ridgeline.count.result import CountResult

OPTIMIZER = "optimizer"
KEY_CHARACTERS = 16


@dataclass(frozen=True, kw_only=True)
class OperatorPoint:
    """One call: the operator, its arguments as JSON, and the least work of it."""

    op: str  # "aten::convolution"; "optimizer::adamw"
    overload: str = ""
    arguments: str  # [[positional], {named}]; a tensor is {"fp32": [sizes], "strides": […]}
    precision: str  # it computes in: "fp32", "tf32", "bf16"
    group: str  # points of one group share a curve: "conv 3x3", "mm nt", "gelu"
    kind: str  # the formula of its count: "conv", "matmul", "pointwise"
    flops: float
    moved_bytes: float
    output: tuple[int, ...] = ()  # sizes of the first result

    @cached_property
    def key(self) -> str:
        """Equal for calls that do the same."""
        text = "\n".join((self.op, self.overload, self.arguments, self.precision))
        return sha256(text.encode()).hexdigest()[:KEY_CHARACTERS]

    @property
    def is_product(self) -> bool:
        """Whether its time goes with the peak of its precision."""
        return self.kind in ("conv", "matmul", "attention")

    @cached_property
    def parsed(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments in JSON's types."""
        positional, named = json.loads(self.arguments)
        return positional, named

    @cached_property
    def tensors(self) -> list[tuple[int, ...]]:
        """Sizes of the tensors among the arguments, in order."""
        positional, named = self.parsed
        return [tuple(sizes) for _, sizes, _ in find_tensors([positional, list(named.values())])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Where a model calls a point, and how the work divides over phases."""

    point: OperatorPoint
    path: str
    shares: Mapping[str, float]  # by phase; they add up to 1
    repeats: int = 1
    share: float = 1.0  # of the point's time that is left after fusion
    is_joined: bool = False  # a part of the kernel before it


def points_of(count: CountResult) -> list[Use]:
    """The calls of a counted step in their order; the optimizer's step is one, at the end."""
    known: dict[Hashable, OperatorPoint] = {}
    uses = [_use_of(parts, known) for parts in _list_calls(count)]
    stepped = [op for op in count.op_costs if op.phase == OPTIMIZER]
    return [*uses, optimizer_use(count, stepped)] if stepped else uses


def _list_calls(count: CountResult) -> list[list[OpCost]]:
    """The rows of each call, in the order of the step; without the optimizer."""
    calls: dict[tuple[int, bool], list[OpCost]] = {}
    for op in count.op_costs:
        if op.phase != OPTIMIZER:
            is_backward = is_node(op) and op.phase != "forward"  # a node has the cost of all phases
            calls.setdefault((id(op.call), is_backward), []).append(op)
    return [parts for parts in calls.values() if _is_work(parts)]


FUSIBLE = ("pointwise", "dropout", "norm", "softmax", "reduce", "move")


def fuse(count: CountResult, uses: Sequence[Use]) -> list[Use]:
    """The uses of a step as a compiler runs them: neighbours that it can join are one kernel.

    A run of pointwise operators, norms and reductions between two products moves only what comes
    into it and what leaves it. The time of each is less by that share of its bytes.
    """
    from ridgeline.count.fused import direction_of, fused_scopes

    runs: list[int] = []  # by call: its run, or 0
    last = ("", False)
    for parts in (calls := _list_calls(count)):
        here = (direction_of(parts[0]), parts[0].kind in FUSIBLE)
        runs.append((max(runs, default=0) + (here != last or not runs[-1])) if here[1] else 0)
        last = here
    ops = [replace(op, path=f"{run or ''}")
           for run, parts in zip(runs, calls, strict=True) for op in parts]  # fmt: skip
    lasting = count.input_storages | count.output_storages
    scopes = fused_scopes(ops, lambda path: [("run", path)] if path else [],
                          sizes=count.storage_bytes, lasting=lasting)  # fmt: skip
    fused_bytes = {int(scope.path): moved.total_bytes for scope, moved in scopes.items()}
    moved_bytes: dict[int, float] = {}
    for run, use in zip(runs, uses, strict=False):  # the optimizer is the last use
        moved_bytes[run] = moved_bytes.get(run, 0.0) + use.point.moved_bytes * use.repeats
    shares = {run: min(1.0, fused_bytes.get(run, 0.0) / moved_bytes[run])
              for run in moved_bytes if run and moved_bytes[run]}  # fmt: skip
    fused = []
    for place, (run, use) in enumerate(zip(runs, uses, strict=False)):
        is_joined = run > 0 and place > 0 and runs[place - 1] == run
        fused.append(replace(use, share=shares.get(run, 1.0), is_joined=is_joined))
    return [*fused, *uses[len(runs) :]]


def is_node(op: OpCost) -> bool:
    """Whether it is of an ONNX file."""
    return hasattr(op.call, "op_type")


def _is_work(parts: Sequence[OpCost]) -> bool:
    """Whether a device does something: a view of an ONNX file is not a call of PyTorch."""
    return not is_node(parts[0]) or any(op.cost.flops or op.cost.moved_bytes for op in parts)


def _use_of(parts: Sequence[OpCost], known: dict[Hashable, OperatorPoint]) -> Use:
    flops = sum(one.cost.flops for one in parts) or len(parts)
    shares = {one.phase: (one.cost.flops or 1) / flops for one in parts}
    first = parts[0]
    if is_node(first):
        point = point_of_node(parts)
    else:
        key = _identify(parts)
        point = known.get(key) or point_of(parts)
        known[key] = point
    return Use(point=point, path=first.path, shares=shares, repeats=first.repeats)


def _identify(parts: Sequence[OpCost]) -> Hashable:
    """Equal for calls of the same point; making the point itself takes ten times longer."""
    call: Any = parts[0].call
    arguments = (*call.args, *call.kwargs.values())
    signature = call.operator.name, call.operator.overload
    return signature, parts[0].dtype, tuple(map(_strip, arguments))


def _strip(value: Any) -> Hashable:
    """An argument without what differs between calls that cost the same."""
    if isinstance(value, list | tuple) and not hasattr(value, "storage"):
        return tuple(map(_strip, value))
    if hasattr(value, "storage"):
        return value.shape, value.dtype, value.view[1:]
    return type(value), str(value)


def point_of(parts: Sequence[OpCost]) -> OperatorPoint:
    """The point of one call, whose cost may be in several phases."""
    call: Any = parts[0].call
    arguments = [
        [encode(value) for value in call.args],
        {name: encode(value) for name, value in call.kwargs.items() if name not in PLACES},
    ]
    return _make_point(parts, call.operator.name, call.operator.overload, arguments)


def _make_point(
    parts: Sequence[OpCost], op: str, overload: str, arguments: list[Any]
) -> OperatorPoint:
    outputs = parts[0].call.outputs
    point = OperatorPoint(
        op=op,
        overload=overload,
        arguments=json.dumps(arguments, separators=(",", ":"), sort_keys=True),
        precision=parts[0].dtype,
        group=group_of(op, arguments),
        kind=parts[0].kind,
        flops=float(sum(one.cost.flops + one.cost.transcendentals for one in parts)),
        moved_bytes=float(sum(one.cost.moved_bytes for one in parts)),
        output=tuple(outputs[0].shape) if outputs else (),
    )
    vars(point)["parsed"] = arguments[0], arguments[1]  # reading them back takes as long again
    return point


PLACES = ("device", "layout", "pin_memory", "generator")  # where results are, not what they are


def optimizer_use(count: CountResult, ops: Iterable[OpCost]) -> Use:
    """All rows of an optimizer as one point: so many tensors with so many elements."""
    costs = [op.cost for op in ops]
    sizes = sorted((held for held, _ in count.module_params.values() if held), reverse=True)
    point = optimizer_point(
        count.optimizer or "sgd",
        tensors=_count_parameters(count) or len(sizes),
        elements=count.params,
        flops=sum(c.flops + c.transcendentals for c in costs),
        moved_bytes=sum(c.moved_bytes for c in costs),
    )
    return Use(point=point, path="", shares={OPTIMIZER: 1.0})


def _count_parameters(count: CountResult) -> int:
    """Tensors that the optimizer writes: those of its most frequent operator."""
    calls: dict[str, int] = {}
    for op in count.op_costs:
        if op.phase == OPTIMIZER:
            calls[op.op] = calls.get(op.op, 0) + 1
    return min((n for n in calls.values() if n > 1), default=max(calls.values(), default=0))


def optimizer_point(
    name: str, *, tensors: int, elements: int, flops: float, moved_bytes: float
) -> OperatorPoint:
    """A step of an optimizer over tensors that have so many elements together."""
    return OperatorPoint(
        op=f"{OPTIMIZER}::{name}",
        arguments=json.dumps([[tensors, elements], {}], separators=(",", ":")),
        precision="fp32",
        group=f"{OPTIMIZER} {name}",
        kind=OPTIMIZER,
        flops=float(flops),
        moved_bytes=float(moved_bytes),
        output=(elements,),
    )


# ---------------------------------------------------------------- arguments as JSON


def encode(value: Any) -> Any:
    """An argument of a call in JSON's types; a tensor without values."""
    from ridgeline.count.call import TensorMeta, dtype_name

    if isinstance(value, TensorMeta):
        strides = list(value.view[1:])
        sizes = {dtype_name(value.dtype): list(value.shape)}
        is_plain = not strides or strides == contiguous_strides(value.shape)
        return sizes if is_plain else {**sizes, "strides": strides}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value if value == value and abs(_number(value)) < 1e300 else {"number": str(value)}
    return {"torch": str(value).removeprefix("torch.")}  # a dtype or a memory format


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0


def contiguous_strides(sizes: Sequence[int]) -> list[int]:
    strides = [1] * len(sizes)
    for n in range(len(sizes) - 1, 0, -1):
        strides[n - 1] = strides[n] * sizes[n]
    return strides


def find_tensors(value: Any) -> Iterator[tuple[str, list[int], list[int] | None]]:
    """Type, sizes and strides of each tensor in encoded arguments; no strides if contiguous."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, list | dict):  # most are numbers
                yield from find_tensors(item)
    elif is_tensor(value):
        name = next(name for name in value if name != "strides")
        yield name, value[name], value.get("strides")


def is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and "torch" not in value and "number" not in value


# ---------------------------------------------------------------- nodes of ONNX files

NODES = {  # the operator of PyTorch that does what a node does
    "Add": "add", "AveragePool": "avg_pool2d", "BatchNormalization": "native_batch_norm",
    "Clip": "hardtanh", "Concat": "cat", "Conv": "convolution", "ConvTranspose": "convolution",
    "Div": "div", "Gather": "embedding", "Gelu": "gelu", "GlobalAveragePool": "mean",
    "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish",
    "LayerNormalization": "native_layer_norm", "MaxPool": "max_pool2d_with_indices", "Mul": "mul",
    "ReduceMean": "mean", "Relu": "relu", "Sigmoid": "sigmoid", "Softmax": "_softmax",
    "Sub": "sub", "Tanh": "tanh", "Transpose": "clone",
}  # fmt: skip


def point_of_node(parts: Sequence[OpCost]) -> OperatorPoint:
    """The call of PyTorch that does the work of a node; of one without, its own name."""
    node: Any = parts[0].call
    is_backward = parts[0].phase != "forward"
    tensors = [{t.dtype.name: list(t.shape)} for t in node.inputs]
    gradient = [{t.dtype.name: list(t.shape)} for t in node.outputs[:1] if is_backward]
    if node.op_type in ("Gemm", "MatMul") and len(tensors) > 1:
        name, values = _encode_product(node, tensors)
    else:
        name, values = NODES.get(node.op_type, ""), [*gradient, *tensors]
    op = f"aten::{name}" if name else node.op
    if name == "convolution":
        values = [*gradient, *_encode_convolution(node, tensors, is_backward=is_backward)]
    if name == "native_batch_norm":
        values = [*tensors, False, 0.1, 1e-5]
    return _make_point(parts, f"{op}_backward" if is_backward else op, "", [values, {}])


def _encode_convolution(node: Any, tensors: list[Any], *, is_backward: bool) -> list[Any]:
    """Its arguments in the order of `aten::convolution`, or of its backward."""
    x, w, *bias = tensors
    dims = len(node.operand(1).shape) - 2
    pads = node.int_list("pads")[:dims]
    if not pads and node.attr("auto_pad", "NOTSET").startswith("SAME"):
        pads = [(n - 1) // 2 for n in node.operand(1).shape[2:]]
    offset = list(node.get(2).shape) if bias else [0]
    return [
        x, w, offset if is_backward else bias[0] if bias else None,
        node.int_list("strides") or [1] * dims, pads or [0] * dims,
        node.int_list("dilations") or [1] * dims, node.op_type == "ConvTranspose",
        node.int_list("output_padding") or [0] * dims, node.int_attr("group", 1),
        *([[True, True, bool(bias)]] if is_backward else []),
    ]  # fmt: skip


def _encode_product(node: Any, tensors: list[Any]) -> tuple[str, list[Any]]:
    """A product of two matrices, or of as many as the first operand has."""
    (name, a), (_, b) = (next(iter(one.items())) for one in tensors[:2])
    if len(b) > 2 or len(a) < 2 or len(b) < 2:
        batch = prod(a[:-2])
        return "bmm", [{name: [batch, *a[-2:]]}, {name: [prod(b[:-2]), *b[-2:]]}]
    k = b[1] if node.attr("transB", 0) else b[0]
    n = prod(b) // max(k, 1)
    right = {name: [k, n], "strides": [1, k]} if node.attr("transB", 0) else {name: [k, n]}
    values = [{name: [prod(a) // max(k, 1), k]}, right]
    return ("addmm", [tensors[2], *values]) if len(tensors) > 2 else ("mm", values)


# ---------------------------------------------------------------- groups


def group_of(op: str, arguments: Sequence[Any]) -> str:
    """The name of the curve of a call: operator, pass, and what changes its algorithm."""
    name = op.partition("::")[2].rstrip("_") if op.startswith("aten::") else op
    positional = arguments[0]
    if name in ("convolution", "convolution_backward"):
        return _conv_group(name, positional, list(find_tensors(positional)))
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        layouts = _layouts(list(find_tensors(positional))[-2:])
        return f"{name.removeprefix('add').removeprefix('badd')} {layouts}"
    if name == "native_batch_norm":
        return f"batch_norm {'train' if positional[5] else 'infer'}"
    in_place = op.endswith("_") and name not in ("copy", "fill", "zero")
    return f"{name} in place" if in_place else name


def _conv_group(name: str, positional: Sequence[Any], tensors: Sequence[Any]) -> str:
    start = 1 if name.endswith("backward") else 0
    (_, x, _), (_, w, _) = tensors[start : start + 2]
    groups = next((v for v in reversed(positional) if _is_int(v)), 1)
    transposed = next((v for v in positional if isinstance(v, bool)), False)
    kernel = "x".join(map(str, w[2:])) if max(w[2:], default=1) <= 3 else "large"
    kind = "depthwise" if groups == x[1] > 1 else "grouped" if groups > 1 else kernel
    words = ["conv", *(["transposed"] if transposed else []), kind]
    if len(w) != 4:
        words.append(f"{len(w) - 2}d")
    if start:
        mask = positional[-1]
        words.append("gradients" if mask[0] else "weight-grad")
    return " ".join(words)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _layouts(tensors: Sequence[tuple[str, list[int], list[int] | None]]) -> str:
    """n or t for each matrix: t if its columns are contiguous."""
    letters = ""
    for _, sizes, strides in tensors:
        is_transposed = strides is not None and strides[-1] != 1 and strides[-2] == 1
        letters += "t" if is_transposed and sizes[-2] > 1 else "n"
    return letters


# ---------------------------------------------------------------- features


def features_of(point: OperatorPoint) -> Features:
    """What a curve may look at."""
    product = product_of(point)
    if point.kind == OPTIMIZER:
        tensors, elements = point.parsed[0]
        dims: tuple[float, ...] = (max(tensors, 1), max(elements, 1))
    elif product is not None:
        dims = (*product, *_spatial(point))
    else:
        inner = point.output[-1] if point.output else 1
        dims = (max(point.moved_bytes, 1.0), max(point.flops, 1.0), float(max(inner, 1)))
    return Features(
        flops=point.flops, moved_bytes=point.moved_bytes, dims=tuple(map(float, dims)),
        product=None if point.kind == "conv" else product,  # its algorithms have no such tiles
    )  # fmt: skip


def plain_features(point: OperatorPoint) -> Features:
    """What operators of any group have in common."""
    dims = (max(point.moved_bytes, 1.0), max(point.flops, 1.0))
    return Features(flops=point.flops, moved_bytes=point.moved_bytes, dims=dims)


def product_of(point: OperatorPoint) -> tuple[int, int, int, int] | None:
    """Batch, m, n and k of a matrix product, or of a convolution as one."""
    if not point.is_product:
        return None
    sizes = [s for s in point.tensors if len(s) > 1]
    if point.kind == "conv" and "deform" not in point.op and len(sizes) >= 2:
        return _conv_product(point)
    if point.kind == "matmul" and len(sizes) >= 2:
        a, b = sizes[-2:]
        if len(a) == len(b) and len(a) in (2, 3):
            return prod(a[:-2]), a[-2], b[-1], a[-1]
    if point.kind == "attention" and len(sizes) >= 3:
        q, k = sizes[1:3] if "backward" in point.op else sizes[:2]
        return prod(q[:-2]), q[-2], k[-2], q[-1]
    return None


def _conv_product(point: OperatorPoint) -> tuple[int, int, int, int]:
    x, w, out = _conv_sizes(point)
    groups = max(1, x[1] // max(w[1], 1))
    m, n, k = out[0] * prod(out[2:]), max(1, w[0] // groups), prod(w[1:])
    return groups, max(m, 1), n, max(k, 1)


def _conv_sizes(point: OperatorPoint) -> Sequence[tuple[int, ...]]:
    """Of input, weight and output."""
    first, second, *more = [s for s in point.tensors if len(s) > 1]
    if point.op.endswith("backward"):
        return second, more[0], first
    return first, second, point.output


def _spatial(point: OperatorPoint) -> tuple[float, ...]:
    """Of a convolution also what a product does not show: its kernel, stride and pixels."""
    if point.kind != "conv":
        return ()
    x, w, out = _conv_sizes(point)
    pixels = max(1.0, prod(out[2:]))
    return float(prod(w[2:]) or 1), max(1.0, prod(x[2:]) / pixels), pixels
