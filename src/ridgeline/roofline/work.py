"""Work items: a row per counted operator, or per kernel that hardware counters saw.

A counted operator knows its bytes as a range: `dram_bytes` are the moved bytes, of all operands of
all operators; `least_bytes` those of the operators whose operands do not fit in the last cache. A
cache may keep a tensor between two uses, so `least_bytes` may be below the fused bytes.

A table of kernels has the columns kernel, time_s (of all its launches), launches (1 if absent),
layer, phase, op, flops_PRECISION_matrix or _vector (executed), and dram_, l2_ and l1_bytes; what a
capture did not hold is absent or not a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile.step_kernels import demangle
from ridgeline.roofline.floors import flops_column, flops_columns

if TYPE_CHECKING:
    import pandas as pd

FLOATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
MATRIX_PRODUCTS = ("aten::mm", "aten::addmm")  # the second matrix is the last operand
OPTIMIZER = "(optimizer)"  # the layer of what updates parameters, whose modules are many
IN_NO_LAYER = "(model)"
OUTSIDE = (IN_NO_LAYER, "(forward)", "(loss)")
"""The model's own operators and its loss: a count, a clock and a profile tell them apart in
different ways, and a loss may be computed inside of the model, so they are one."""
LEVEL_BYTES = ("dram_bytes", "l3_bytes", "l2_bytes", "l1_bytes")
COUNTED_AMOUNTS = ("flops", "dram_bytes", "least_bytes", "l3_bytes", "l2_bytes", "launches")


def find_static_work(
    ops: pd.DataFrame,
    *,
    precision: str,
    cache_level: str | None = None,
    cache_bytes: int | None = None,
    parts: int = 1,
    is_fused: bool = False,
) -> pd.DataFrame:
    """A work item for every counted operator of a step that has `parts` batches.

    `is_fused` says that a compiler merged the model's operators: they then tell their FLOPs, and
    nothing about launches or about bytes that must move. The optimizer is not compiled.
    """
    is_optimizer = ops["phase"].eq("optimizer")
    times = ~is_optimizer * (parts - 1) + 1
    once = (ops["read_bytes"] + ops["written_bytes"]).astype(float)
    moved = once * times
    work = ops[["path", "op", "kind", "phase", "input_shapes"]].copy()
    work["flops"] = ops["flops"].astype(float) * times
    for column, flops in _split_by_roof(ops, precision).items():
        work[column] = flops * times
    work["dram_bytes"] = moved
    # An optimizer visits every parameter once: what passes through the cache before an operand
    # could be met again is all of it, not one operator's.
    footprint = once.mask(is_optimizer, once[is_optimizer].sum())
    is_unknown = ~is_optimizer & is_fused
    work["least_bytes"] = moved.mask(footprint.le(cache_bytes or 0) | is_unknown, 0.0)
    if cache_level is not None:
        work[f"{cache_level}_bytes"] = moved.mask(is_unknown, 0.0)
    is_product = ops["op"].isin(MATRIX_PRODUCTS) & ops["phase"].eq("forward")
    weights = ops["input_shapes"].str.split(" ").str[-1]  # `768x50257`: the second matrix
    work["product_sides"] = weights.where(is_product, "").fillna("")
    work["launches"] = _count_launches(ops, is_fused=is_fused) * times
    layer = ops["path"].mask(ops["path"].eq(""), IN_NO_LAYER)
    work["layer"] = layer.mask(is_optimizer, OPTIMIZER)  # whose time is one row, too
    return work


def _split_by_roof(ops: pd.DataFrame, precision: str) -> dict[str, pd.Series]:
    """FLOPs by roof: products on the matrix path of their precision, the rest on the vector's."""
    dtype = ops["dtype"].where(ops["dtype"].isin(FLOATS), "fp32")
    product = dtype.mask(dtype.eq("fp32"), "tf32") if precision == "tf32" else dtype
    matrix = {flops_column(name, "matrix"): 2.0 * ops["macs"].where(product.eq(name), 0)
              for name in sorted(set(product))}  # fmt: skip
    vector = {flops_column(name, "vector"): 1.0 * ops["other_flops"].where(dtype.eq(name), 0)
              for name in sorted(set(dtype))}  # fmt: skip
    return matrix | vector


def _count_launches(ops: pd.DataFrame, *, is_fused: bool) -> pd.Series:
    """At least one kernel for each operator that moves anything.

    An operator that gives both gradients is one, though it has a row for each.
    Optimizers update many parameters with one kernel, so their operators are no kernels; of a
    fused step nothing is known.
    """
    moves = (ops["read_bytes"] + ops["written_bytes"]).gt(0)
    if is_fused:
        return moves * 0
    where = ops["path"] + "\n" + ops["op"]
    both = ops["phase"].eq("weight-grad") & where.isin(where[ops["phase"].eq("input-grad")])
    return (moves & ops["phase"].ne("optimizer") & ~both) * 1


def merge_outside(names: pd.Series) -> pd.Series:
    """Names of layers, with all that is in none of them as one."""
    return names.mask(names.isin(OUTSIDE), IN_NO_LAYER)


def sum_static_work(work: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Items of the same `by` as one, with the kind and the shapes of the largest among them."""
    columns = [name for name in COUNTED_AMOUNTS if name in work] + flops_columns(work)
    total = work.groupby(list(by), sort=False, observed=True)[columns].sum().reset_index()
    weight = work["flops"] + work["dram_bytes"]
    largest = work.assign(_weight=weight).sort_values("_weight", ascending=False)
    texts = [name for name in ("kind", "input_shapes") if name in work and name not in by]
    first = largest.drop_duplicates(list(by))[[*by, *texts]]
    return total.merge(first, on=list(by), how="left")


def find_kernel_work(kernels: pd.DataFrame) -> pd.DataFrame:
    """A work item for every kernel."""
    if "kernel" not in kernels or "time_s" not in kernels:
        raise RidgelineError(
            "a table of kernels needs the columns kernel and time_s",
            hint=f"it has {', '.join(map(str, kernels.columns)) or 'none'}",
        )
    columns = flops_columns(kernels)
    work = kernels[["kernel"]].copy()
    for name in ("layer", "phase", "op", "input_shapes"):
        work[name] = kernels[name].fillna("") if name in kernels else ""
    is_update = work["layer"].eq("") & work["phase"].eq("optimizer")
    work["layer"] = work["layer"].mask(is_update, OPTIMIZER)
    families = {name: family(str(name)) for name in work["kernel"].unique()}
    work["kind"] = work["op"].mask(work["op"].eq(""), work["kernel"].map(families))
    work["flops"] = kernels[columns].astype(float).sum(axis=1, min_count=1)
    for name in (*columns, *(name for name in LEVEL_BYTES if name in kernels)):
        work[name] = kernels[name].astype(float)
    work["launches"] = kernels["launches"].fillna(1) if "launches" in kernels else 1
    work["time_s"] = kernels["time_s"].astype(float)
    return work


def has_counters(work: pd.DataFrame) -> bool:
    """Whether FLOPs and bytes were counted; a capture of times alone has neither."""
    if "dram_bytes" not in work:
        return False
    return bool(work["flops"].notna().any() and work["dram_bytes"].notna().any())


def sum_kernel_work(work: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Kernels of the same `by` as one item; a sum of nothing known is not known."""
    columns = ["flops", *flops_columns(work), "launches", "time_s"]
    columns += [name for name in LEVEL_BYTES if name in work]
    return work.groupby(list(by), sort=False)[columns].sum(min_count=1).reset_index()


# ---------------------------------------------------------------- names of kernels

# What a kernel's name tells about the way it computes. Names are the libraries' own: a hint.
#
# A kernel is filed by the name of its function. The arguments of its template count where that name
# says little: `elementwise_kernel<copy_kernel…>` copies, `cutlass::Kernel<ImplicitGemm…<…>>` is a
# product, whatever layouts are among the arguments of the argument.

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
_FRAME = re.compile(r"(?:^|::)cutlass\w*::(?:device_kernel|kernel2?)$", re.IGNORECASE)
_NAMELESS = re.compile(r"^void |<unnamed>::|\(anonymous namespace\)::")
OTHER = "other"
LONGEST = 90


@lru_cache(maxsize=4096)
def family(kernel: str) -> str:
    """The family of a kernel: `winograd`, `product`, `layout`, …; `other` if no name fits."""
    fitting = OTHER
    for text in _list_texts(kernel):
        fitting = _match_family(text)
        if fitting not in (OTHER, "pointwise"):  # which is what many a frame is named after
            break
    return fitting


def _list_texts(kernel: str) -> tuple[str, ...]:
    """What to file a kernel by, the first that says something: function, argument, all of it."""
    function = _drop_parameters(demangle(kernel) if kernel.startswith("_Z") else kernel)
    own, _, arguments = function.partition("<")
    argument = arguments.partition("<")[0]
    if _FRAME.search(own):
        return argument, own
    return own, f"{own}<{argument}", function


def _match_family(text: str) -> str:
    if _SPLIT_PRODUCT.search(text):  # a product that leaves partial sums, not their reduction
        return "product"
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(text)), OTHER)


def _drop_parameters(kernel: str) -> str:
    """The function with its template arguments: types of parameters tell nothing of its work."""
    name, depth = _NAMELESS.sub("", kernel), 0
    for index, sign in enumerate(name):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth <= 0:
            return name[:index]
    return name


def short_kernel(kernel: str) -> str:
    """A name to be read: without what every kernel has, and not longer than a line."""
    name = _NAMELESS.sub("", kernel)
    name = _PARAMETERS.sub("", name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
