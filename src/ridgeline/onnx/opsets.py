"""Which version of which operators a model or a function is written in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from ridgeline.onnx.asking import shown
from ridgeline.onnx.load import subgraphs_of
from ridgeline.onnx.node import plain_domain

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto, OperatorSetIdProto

STANDARD = "ai.onnx"  # node.plain_domain has the shorter name
MOST_NOTES = 5


@dataclass(frozen=True, slots=True)
class Opsets:
    """Versions by domain, and the same in the form that onnx takes."""

    versions: Mapping[str, int]
    imports: list[OperatorSetIdProto]

    @classmethod
    def of(cls, versions: Mapping[str, int]) -> Opsets:
        return cls(versions, [onnx.helper.make_opsetid(d, v) for d, v in versions.items()])

    def with_those_of(self, imports: Iterable[OperatorSetIdProto]) -> Opsets:
        """A function's own go before those of the model around it."""
        own = {plain_domain(o.domain): o.version for o in imports}
        return Opsets.of({**self.versions, **own})

    def version(self, domain: str) -> int:
        """The first of a domain that is not named; of the standard one, the newest.

        Versions that there are not, of the standard one, are the newest, too.
        """
        domain = plain_domain(domain)
        version = self.versions.get(domain, 0)
        if domain:
            return version or 1
        return version if _is_version(version) else onnx.defs.onnx_opset_version()


def use_plain_domains(model: ModelProto) -> None:
    """Write the standard domain's shorter name wherever a node or a function has the other."""
    _use_in_nodes(model.graph.node)
    for function in model.functions:
        function.domain = plain_domain(function.domain)
        _use_in_nodes(function.node)
        _use_in_graphs(function.attribute_proto)


def _use_in_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        if node.domain == STANDARD:
            node.domain = plain_domain(node.domain)
        _use_in_graphs(node.attribute)


def _use_in_graphs(attributes: Iterable[AttributeProto]) -> None:
    for attribute in attributes:
        for graph in subgraphs_of(attribute):
            _use_in_nodes(graph.node)


def _is_version(number: int) -> bool:
    return 1 <= number <= onnx.defs.onnx_opset_version()


def opset_notes(model: ModelProto) -> list[str]:
    """What is taken where the versions that a file names are none, or several."""
    lists = [model.opset_import, *(function.opset_import for function in model.functions)]
    notes = [note for imports in lists for note in _import_notes(imports)]
    named = {plain_domain(opset.domain) for opset in model.opset_import}
    if "" not in named and any(not plain_domain(node.domain) for node in model.graph.node):
        notes.append(f"the file does not say its version of {STANDARD}: {_newest()}")
    return list(dict.fromkeys(notes))[:MOST_NOTES]


def _import_notes(imports: Iterable[OperatorSetIdProto]) -> Iterator[str]:
    versions: dict[str, dict[int, None]] = {}  # in order, the last one at the end
    for opset in imports:
        found = versions.setdefault(plain_domain(opset.domain), {})
        found.pop(opset.version, None)
        found[opset.version] = None
    for domain, found in versions.items():
        *others, last = found
        if others:
            name = shown(domain) or STANDARD
            yield f"the file names several versions of {name}: {last}, the last one, is taken"
        if not domain and not _is_version(last):
            yield f"onnx knows no version {last} of {STANDARD}: {_newest()}"


def _newest() -> str:
    return f"the newest, {onnx.defs.onnx_opset_version()}, is taken"
