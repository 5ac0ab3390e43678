"""Small ONNX files for tests, and cases of one node with hand-computed numbers.

Every expected number is written as the arithmetic it comes from. Operands are given as shapes;
`int8(2, 3)` and its kin have another type than float32, `known([1, 2])` has elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ridgeline.count.result import CountResult
from ridgeline.onnx import count_onnx
from ridgeline.records import Cost

MS = "com.microsoft"
OPSET = 21


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: an input of this type, or (with an array) a stored value."""

    shape: tuple[int | str, ...]
    elem: int = TensorProto.FLOAT
    array: Any = None


def x(*shape: int | str) -> Operand:
    return Operand(shape)


def typed(elem: int, *shape: int) -> Operand:
    return Operand(shape, elem)


def int8(*shape: int) -> Operand:
    return Operand(shape, TensorProto.INT8)


def uint8(*shape: int) -> Operand:
    return Operand(shape, TensorProto.UINT8)


def int64(*shape: int) -> Operand:
    return Operand(shape, TensorProto.INT64)


def known(values: Any, dtype: Any = np.int64) -> Operand:
    array = np.asarray(values, dtype)
    return Operand(array.shape, helper.np_dtype_to_tensor_dtype(array.dtype), array)


def weight(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def value_info(name: str, operand: Operand) -> Any:
    return helper.make_tensor_value_info(name, operand.elem, operand.shape)


def one_node(
    op: str,
    operands: Sequence[Operand | None],
    *,
    domain: str = "",
    outputs: int = 1,
    opset: int = OPSET,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of a single node `it`; None is an operand that is left out."""
    names = [f"in{n}" if operand is not None else "" for n, operand in enumerate(operands)]
    given = [(name, o) for name, o in zip(names, operands, strict=True) if o is not None]
    node = helper.make_node(
        op, names, [f"out{n}" for n in range(outputs)], name="it", domain=domain, **attributes
    )
    return model(
        [node],
        {name: o for name, o in given if o.array is None},
        [f"out{n}" for n in range(outputs)],
        stored={name: o.array for name, o in given if o.array is not None},
        opset=opset,
    )


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Operand],
    outputs: Sequence[str],
    *,
    stored: Mapping[str, Any] | None = None,
    opset: int = OPSET,
    functions: Sequence[Any] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [value_info(name, operand) for name, operand in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (stored or {}).items()],
    )
    domains = {n.domain for n in nodes} | {f.domain for f in functions}
    versions = {"": opset} | {d: 1 for d in domains if d}
    return helper.make_model(
        graph,
        functions=list(functions),
        opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()],
    )


def count(proto: onnx.ModelProto, folder: Path, **settings: Any) -> CountResult:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return count_onnx(path, **settings)


@dataclass(frozen=True, slots=True)
class Case:
    """One node and what it costs; bytes at None are not checked."""

    id: str
    op: str
    operands: Sequence[Operand | None]
    macs: int = 0
    other: int = 0
    transcendental: int = 0
    read: int | None = None
    written: int | None = None
    domain: str = ""
    outputs: int = 1
    opset: int = OPSET
    attributes: Mapping[str, Any] = field(default_factory=dict)


def table(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def check(case: Case, folder: Path) -> CountResult:
    """Count the case and compare it with the numbers given."""
    proto = one_node(case.op, case.operands, domain=case.domain, outputs=case.outputs,
                     opset=case.opset, **case.attributes)  # fmt: skip
    result = count(proto, folder)
    total = result.total
    expected = Cost(
        macs=case.macs,
        other_flops=case.other,
        transcendentals=case.transcendental,
        read_bytes=total.read_bytes if case.read is None else case.read,
        written_bytes=total.written_bytes if case.written is None else case.written,
    )
    assert result.unknown == {}, result.notes
    assert result.op_costs[-1].cost == expected
    check_formulas(result)
    return result


def check_formulas(result: CountResult) -> int:
    """A written-out formula has the value it states, the row's FLOPs; how many there were."""
    written = [op for op in result.op_costs if op.formula]
    for op in written:
        *_, numbers, value = ["", *op.formula.split(" = ")]
        if all(c.isdigit() or c in "·+ " for c in numbers):  # one term alone is its own value
            assert eval(numbers.replace("·", "*")) == int(value), op.formula
        assert int(value) == op.cost.flops, (op.op, op.formula)
    return len(written)
