"""Where a walk through a graph is: names of values, versions of operators, resource limits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx.node import Tensor, plain_domain, unknown_tensor

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, OperatorSetIdProto

MOST_CALLS = 250_000  # inside of functions and loops, whose calls multiply
DEEPEST = 40  # graphs and functions inside each other; real files have a handful
SCOPES = "pkg.torch.onnx.name_scopes"  # where PyTorch's exporter keeps the modules around a node
NO_MODULE = "_empty_nn_module_stack"  # the exporter's word for none
OLDEST = 7  # of the standard operator sets whose shapes onnx infers


class Scope:
    """The values of one graph; names that it does not have are looked up around it."""

    def __init__(
        self, outer: Scope | None = None, declared: Mapping[str, Tensor] | None = None
    ) -> None:
        self.outer = outer
        self.declared = declared or {}  # types that the file states
        self.values: dict[str, Tensor] = {}

    def find(self, name: str) -> Tensor | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def value(self, name: str) -> Tensor:
        """One of an unknown type where nobody has the name."""
        return self.find(name) or unknown_tensor(name)

    def add(self, tensor: Tensor) -> None:
        if tensor.name:
            self.values[tensor.name] = tensor


# ---------------------------------------------------------------- paths of nodes


def node_name(node: NodeProto, number: int) -> str:
    return node.name or f"{node.op_type}_{number}"


def node_path(node: NodeProto, number: int) -> str:
    """The modules around a node, then its name, with dots between: `layer1.0.conv1.node_Conv_5`.

    PyTorch's exporters keep the modules in the node's notes, or (the older one) in its name,
    `/layer1/layer1.0/conv1/Conv`; TensorFlow's names have slashes too. No part of it is empty: that
    is the name of the whole model.
    """
    parts = _dotted(node, number).split(".")
    return ".".join(part for part in parts if part) or f"{node.op_type}_{number}"


def _dotted(node: NodeProto, number: int) -> str:
    name = node_name(node, number)
    for entry in node.metadata_props:
        if entry.key == SCOPES and (module := _innermost_module(entry.value)):
            return f"{module}.{name.replace('.', '_')}"
    if "/" not in name:
        return name
    parts: list[str] = []
    for part in name.strip("/").split("/"):
        before = parts[-1] if parts else ""
        parts.append(part)
        if before and part.startswith(f"{before}."):  # layer1/layer1.0 is layer1.0
            del parts[-2]
    return ".".join(parts)


def _innermost_module(text: str) -> str:
    """Of a list such as ['', 'layer1', 'layer1.0', 'conv2d']."""
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not isinstance(scopes[-2], str):
        return ""
    return "" if scopes[-2].startswith(NO_MODULE) else scopes[-2]


# ---------------------------------------------------------------- limits


@dataclass(slots=True)
class Limits:
    """Small files can make much: functions and loops inside each other multiply."""

    path: str  # of the file
    calls: int = 0
    depth: int = 0

    @property
    def is_nested(self) -> bool:
        """Whether the walk is in a function or a loop: then there may be more than is stored."""
        return self.depth > 1

    @contextmanager
    def enter(self, where: str) -> Iterator[None]:
        """Around the nodes of a graph or a function."""
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise RidgelineError(
                    f"{self.path}: graphs or functions are nested more than {DEEPEST} deep"
                    f" at {where or 'the top'!r}",
                    hint="a function that calls itself has no end; check the file",
                )
            yield
        finally:
            self.depth -= 1

    def add_nested_call(self) -> None:
        """A node in a function or a loop."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise RidgelineError(
                f"{self.path}: functions and loops make more than {MOST_CALLS:,} nodes",
                hint="inside each other they multiply; check the file",
            )


# ---------------------------------------------------------------- versions of operators


@dataclass(frozen=True, slots=True)
class Opsets:
    """Versions by domain, and the same in the form that onnx takes."""

    versions: Mapping[str, int]
    imports: list[OperatorSetIdProto]

    @classmethod
    def of(cls, versions: Mapping[str, int]) -> Opsets:
        return cls(versions, [onnx.helper.make_opsetid(d, v) for d, v in versions.items()])

    def extend(self, imports: Iterable[OperatorSetIdProto]) -> Opsets:
        """A function's own go before those of the model around it."""
        own = {plain_domain(o.domain): o.version for o in imports}
        return Opsets.of({**self.versions, **own})

    def version(self, domain: str) -> int:
        """The first of a domain that is not named; of the standard one, the newest.

        Versions of the standard one that onnx does not have are the newest, too.
        """
        version = self.versions.get(domain, 0)
        if domain:
            return version or 1
        newest = onnx.defs.onnx_opset_version()
        return version if 1 <= version <= newest else newest


def convert_old_opset(model: ModelProto) -> ModelProto:
    """A file below opset 7 in opset 7, or else 6, as far as onnx's converter takes it."""
    versions = {plain_domain(opset.domain): opset.version for opset in model.opset_import}
    if not 0 < versions.get("", OLDEST) < OLDEST:
        return model
    for target in (OLDEST, OLDEST - 1):
        try:
            return onnx.version_converter.convert_version(model, target)
        except Exception:  # the converter raises many kinds of error: nodes are tried as they are
            continue
    return model
