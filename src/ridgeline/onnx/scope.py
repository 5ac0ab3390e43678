"""Names of values while a graph is walked, and the paths under which nodes are shown."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ridgeline.onnx.node import Tensor, unknown_tensor

if TYPE_CHECKING:
    from onnx import NodeProto

SCOPES = "pkg.torch.onnx.name_scopes"  # where PyTorch's exporter keeps the modules around a node
NO_MODULE = "_empty_nn_module_stack"  # the exporter's word for none


class Scope:
    """The values of one graph; names that it does not have are looked up around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
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

    def add(self, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.name:
            self.values[tensor.name] = tensor

    def is_around(self, name: str) -> bool:
        """Whether a graph around this one has the name."""
        return self.outer is not None and self.outer.find(name) is not None


def node_name(node: NodeProto, place: int) -> str:
    return node.name or f"{node.op_type}_{place}"


def path_of(node: NodeProto, place: int) -> str:
    """The modules around a node, then its name, with dots between: `layer1.0.conv1.node_Conv_5`.

    PyTorch's exporters keep the modules in the node's notes, or (the older one) in its name,
    `/layer1/layer1.0/conv1/Conv`; TensorFlow's names have slashes too. No part of it is empty: that
    is the name of the whole model.
    """
    parts = _dotted(node, place).split(".")
    return ".".join(part for part in parts if part) or f"{node.op_type}_{place}"


def _dotted(node: NodeProto, place: int) -> str:
    name = node_name(node, place)
    for entry in node.metadata_props:
        if entry.key == SCOPES and (module := _module(entry.value)):
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


def _module(text: str) -> str:
    """The innermost module of a list such as ['', 'layer1', 'layer1.0', 'conv2d']."""
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not isinstance(scopes[-2], str):
        return ""
    return "" if scopes[-2].startswith(NO_MODULE) else scopes[-2]
