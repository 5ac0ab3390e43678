"""Is the file valid, and does it compute what the model computes?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from torch import Tensor

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export.result import Checked
from ridgeline.onnx.export.subject import Call
from ridgeline.onnx.export.tracing import nothing_printed
from ridgeline.workloads.workload import one_line

TOLERANCE = 1e-3  # of the largest value of an output: fp32 in another order stays far below it
AS_IT_IS = "--no-check (in Python check=False) writes the file as it is"
FATAL_ONLY = 4  # of onnxruntime's log; what it raises is told by us
# what onnxruntime puts before the reason: a code, the node, a place in its source
BEFORE_REASON = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |^.*Status Message: |^/\S+\.(cc|h):\d+ ", re.DOTALL
)
LONGEST_REASON = 300  # characters


def check_valid(path: Path) -> None:
    """By onnx's own checker; the weights stay where they are."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        raise RidgelineError(
            f"onnx.checker refuses the file: {one_line(error)}", hint=AS_IT_IS
        ) from error


class Runner:
    """The file in onnxruntime, on the CPU."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = FATAL_ONLY
        try:
            with nothing_printed():
                self._session = onnxruntime.InferenceSession(
                    str(path), options, providers=["CPUExecutionProvider"]
                )
        except Exception as error:
            raise RidgelineError(
                f"onnxruntime cannot load the file: {_reason(error)}", hint=AS_IT_IS
            ) from error

    def run(self, tensors: Mapping[str, Tensor]) -> list[np.ndarray[Any, Any]]:
        """The outputs; an input that the graph does not use is left out."""
        wanted = {port.name for port in self._session.get_inputs()}
        given = {name: t.numpy() for name, t in tensors.items() if name in wanted}
        try:
            with nothing_printed():
                return list(self._session.run(None, given))
        except Exception as error:
            raise RidgelineError(
                f"onnxruntime cannot run the file: {_reason(error)}", hint=AS_IT_IS
            ) from error


def _reason(error: Exception) -> str:
    """What onnxruntime says, without the places in its source."""
    text = str(error)
    while (shorter := BEFORE_REASON.sub("", text, count=1)) != text:
        text = shorter
    return shorten(text, LONGEST_REASON, placeholder=" …") or type(error).__name__


def compared(
    expected: Mapping[str, Tensor],
    found: list[np.ndarray[Any, Any]],
    *,
    batch_size: int,
    seq_len: int | None,
) -> Checked:
    """The largest differences of all outputs; RidgelineError where they are not the same thing."""
    where = f"at batch {batch_size}" + (f" and {seq_len} tokens" if seq_len else "")
    if len(expected) != len(found):
        raise RidgelineError(
            f"the file has {len(found)} outputs, the model {len(expected)}", hint=AS_IT_IS
        )
    pairs = [
        difference(name, ours.detach().numpy(), theirs, where)
        for (name, ours), theirs in zip(expected.items(), found, strict=True)
    ]
    return Checked(
        batch_size=batch_size,
        seq_len=seq_len,
        outputs=len(pairs),
        numbers=sum(pair.numbers for pair in pairs),
        absolute=max((pair.absolute for pair in pairs), default=0.0),
        relative=max((pair.relative for pair in pairs), default=0.0),
    )


class Difference(NamedTuple):
    """Of one output: the largest, the same over the output's largest value, and of how many."""

    absolute: float
    relative: float
    numbers: int  # that are finite


def difference(
    name: str, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], where: str
) -> Difference:
    """How far two answers are apart; RidgelineError where that is too far."""
    if ours.shape != theirs.shape:
        shapes = f"{list(ours.shape)} in torch and {list(theirs.shape)} in onnxruntime"
        raise RidgelineError(f"{name} is {shapes} {where}", hint=AS_IT_IS)
    if not ours.size:
        return Difference(0.0, 0.0, 0)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        raise RidgelineError(
            f"{name} is finite in one of torch and onnxruntime alone {where}", hint=AS_IT_IS
        )
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        raise RidgelineError(
            f"{name} has other NaN or infinities in onnxruntime than in torch {where}",
            hint=AS_IT_IS,
        )
    apart = np.abs(a[finite] - b[finite])
    absolute = float(apart.max(initial=0.0))
    largest = float(np.abs(a[finite]).max(initial=0.0))
    relative = absolute / largest if largest else absolute
    if relative > TOLERANCE:
        raise RidgelineError(
            f"{name} differs by {relative:.2g} of its largest value between torch and onnxruntime"
            f" {where}; {TOLERANCE:g} is allowed",
            hint=AS_IT_IS,
        )
    return Difference(absolute, relative, int(finite.sum()))


# ---------------------------------------------------------------- other inputs


def others(given: Call) -> Iterator[tuple[str, Call]]:
    """The same call with other elements, and in words which: they may take another way.

    Whole numbers may be places in a table: they are turned around, and so stay valid.
    """
    for words, factor in ((" with negated inputs", -1), (" with inputs 10 times as large", 10),
                          (" with inputs of zeros", 0)):  # fmt: skip
        yield words, given.changed(partial(_changed, factor=factor))


def _changed(tensor: Tensor, *, factor: int) -> Tensor:
    if tensor.is_floating_point():
        return tensor * factor
    return tensor.flip(-1) if factor < 0 and tensor.ndim else tensor
