"""What the name of an operator tells."""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"conv|mm|linear|attention|lstm|gru|rnn|matmul|einsum|bilinear|cdist|dot|mv")


def may_use_tensor_cores(op: str) -> bool:
    """Whether an operator's kernels could; of one that is not PyTorch's own nobody knows."""
    return not op.startswith("aten::") or _PRODUCT.search(op) is not None
