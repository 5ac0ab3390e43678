"""Operators by name and by number: what a profiler is told of them, and what a name tells."""

from __future__ import annotations

import re

from ridgeline.tracing import GRADIENTS, LOSS, OPTIMIZER

RANGE = "ridgeline:op:"  # before an operator's number, in the name of the range around it
NOWHERE = -1  # the number of what was launched outside every operator
NO_MODULES = (LOSS, GRADIENTS, OPTIMIZER)  # parts of a step that stand where a layer would
_PRODUCT = re.compile(r"conv|mm|linear|attention|lstm|gru|rnn|matmul|einsum|bilinear|cdist|dot|mv")


def may_use_tensor_cores(op: str) -> bool:
    """Whether an operator's kernels could; of one that is not PyTorch's own nobody knows."""
    return not op.startswith("aten::") or _PRODUCT.search(op) is not None
