"""Which version of which operators a model or a function is written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from ridgeline.count.onnx.node import plain_domain

if TYPE_CHECKING:
    from onnx import OperatorSetIdProto


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
        """The first of a domain that is not named; of the standard one, the newest."""
        domain = plain_domain(domain)
        return self.versions.get(domain) or (1 if domain else onnx.defs.onnx_opset_version())
