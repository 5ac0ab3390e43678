"""Is the file valid, and does it compute what the model computes?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from torch import Tensor

from ridgeline.errors import RidgelineError
from ridgeline.export.result import Checked
from ridgeline.workloads.workload import one_line

TOLERANCE = 1e-3  # of the largest value of an output: fp32 in another order stays far below it
AS_IT_IS = "--no-check (in Python check=False) writes the file as it is"
ERRORS_ONLY = 3  # of onnxruntime's log


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
        options.log_severity_level = ERRORS_ONLY
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise RidgelineError(
                f"onnxruntime cannot load the file: {one_line(error)}", hint=AS_IT_IS
            ) from error

    def run(self, tensors: Mapping[str, Tensor]) -> list[np.ndarray[Any, Any]]:
        """The outputs; an input that the graph does not use is left out."""
        wanted = {port.name for port in self._session.get_inputs()}
        given = {name: t.numpy() for name, t in tensors.items() if name in wanted}
        try:
            return list(self._session.run(None, given))
        except Exception as error:
            raise RidgelineError(
                f"onnxruntime cannot run the file: {one_line(error)}", hint=AS_IT_IS
            ) from error


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
        absolute=max((absolute for absolute, _ in pairs), default=0.0),
        relative=max((relative for _, relative in pairs), default=0.0),
    )


def difference(
    name: str, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], where: str
) -> tuple[float, float]:
    """The largest absolute difference, and the same over the largest value of the output."""
    if ours.shape != theirs.shape:
        shapes = f"{list(ours.shape)} in torch and {list(theirs.shape)} in onnxruntime"
        raise RidgelineError(f"{name} is {shapes} {where}", hint=AS_IT_IS)
    if not ours.size:
        return 0.0, 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        raise RidgelineError(
            f"{name} is finite in one of torch and onnxruntime alone {where}", hint=AS_IT_IS
        )
    finite = np.isfinite(a)
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
    return absolute, relative
