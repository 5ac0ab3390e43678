"""What a kernel's name tells about the way it computes. Names are the libraries' own: a hint."""

from __future__ import annotations

import re
from functools import lru_cache

FAMILIES: dict[str, str] = {  # the first that fits; case does not matter
    "winograd": r"winograd",
    "fft": r"(?<![a-z])fft|cgemm",
    "attention": r"flash|fmha|attention|(?<![a-z])mha",
    "split": r"split_?k|workspace",
    "layout": r"to_?nhwc|to_?nchw|transpose|permute|convert_?tensor|padding|im2col|col2im"
    r"|copy_kernel|copy_device",
    "direct": r"depthwise|dw_?conv|grouped_direct|c1_k1",
    "product": r"gemm|gemv|conv(?!ert)|xmma|fprop|dgrad|wgrad|cutlass|nvjet|dot_kernel",
    "norm": r"norm|softmax|(?<![a-z])bn_[fb]w",
    "optimizer": r"multi_tensor_apply|adam|sgd",
    "pointwise": r"elementwise|pointwise|clamp|pool|reduce",
}
PRODUCTS = ("winograd", "fft", "attention", "direct", "product")  # do the model's multiply-adds
SPLIT_PRECISION = re.compile(r"3x_?tf32|tf32x3|bf16x[369]|emulat", re.IGNORECASE)
_PATTERNS = {family: re.compile(text, re.IGNORECASE) for family, text in FAMILIES.items()}
_SPLIT_PRODUCT = re.compile(r"(?:gemm|nvjet|xmma|cutlass).*split_?k", re.IGNORECASE)
_PARAMETERS = re.compile(  # of a function, not numbers among template arguments
    r"(?<=[\w>])\((?:int|T\d|const|unsigned|at::|long|float|__half|cudnn).*$"
)
_NAMELESS = re.compile(r"^void |<unnamed>::|\(anonymous namespace\)::")
OTHER = "other"
LONGEST = 90


@lru_cache(maxsize=4096)
def family(kernel: str) -> str:
    """The family of a kernel: `winograd`, `product`, `layout`, …; `other` if no name fits."""
    function = _without_parameters(kernel)
    if _SPLIT_PRODUCT.search(function):  # a product that leaves partial sums, not their reduction
        return "product"
    return next((name for name, found in _PATTERNS.items() if found.search(function)), OTHER)


def _without_parameters(kernel: str) -> str:
    """The function with its template arguments: types of parameters tell nothing of its work."""
    name, depth = _NAMELESS.sub("", kernel), 0
    for place, sign in enumerate(name):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth <= 0:
            return name[:place]
    return name


def short_kernel(kernel: str) -> str:
    """A name to be read: without what every kernel has, and not longer than a line."""
    name = _NAMELESS.sub("", kernel)
    name = _PARAMETERS.sub("", name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
