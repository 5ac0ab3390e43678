"""Matrix products and convolutions: the operators whose MACs are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Phased, Terms, Work, aten, aten_names, register

COMPLEX_MACS = 4  # real multiply-adds in one complex multiply-add


def product(terms: Terms, like: TensorMeta, *, bias: int = 0, other_flops: int = 0) -> Work:
    """Work of a product whose MACs are the terms multiplied, and so many FLOPs for its bias."""
    scale = COMPLEX_MACS if like.dtype.is_complex else 1
    return Work(
        macs=scale * prod(value for _, value in terms),
        other_flops=bias + other_flops,
        factor=2 * scale,
        terms=terms,
        rest="bias" if bias and not other_flops else "other",
    )


@aten("mm _int_mm", kind="matmul")
def mm(call: OpCall) -> Work:
    (m, k), (_, n) = call.inputs[0].shape, call.inputs[1].shape
    return product((("M", m), ("N", n), ("K", k)), call.out)


@aten("_scaled_mm", kind="matmul")
def scaled_mm(call: OpCall) -> Work:
    (m, k), (_, n) = call.inputs[0].shape, call.inputs[1].shape
    bias = call.out.numel if call.get("bias") is not None else 0
    return product((("M", m), ("N", n), ("K", k)), call.out, other_flops=call.out.numel + bias)


@aten("_weight_int8pack_mm", kind="matmul")
def weight_int8_mm(call: OpCall) -> Work:
    (m, k), n = call.inputs[0].shape, call.out.shape[-1]
    return product((("M", m), ("N", n), ("K", k)), call.out, other_flops=call.out.numel)


@aten("_weight_int4pack_mm _weight_int4pack_mm_for_cpu", kind="matmul")
def weight_int4_mm(call: OpCall) -> Work:
    (m, k), n = call.inputs[0].shape, call.out.shape[-1]
    dequantise = 2 * n * k  # a scale and a zero point for each weight
    return product((("M", m), ("N", n), ("K", k)), call.out, other_flops=dequantise)


@aten("bmm", kind="matmul")
def bmm(call: OpCall) -> Work:
    (b, m, k), n = call.inputs[0].shape, call.inputs[1].shape[-1]
    return product((("B", b), ("M", m), ("N", n), ("K", k)), call.out)


def _scaling(call: OpCall) -> int:
    """FLOPs per element of `beta * c + alpha * product`, beyond the product."""
    if call.get("beta") == 0:
        return int(call.get("alpha") != 1)
    return 1 + int(call.get("beta") != 1) + int(call.get("alpha") != 1)


def _bias_bytes(call: OpCall) -> int:
    """Bytes of the added matrix that beta = 0 leaves unread."""
    return call.inputs[0].nbytes if call.get("beta") == 0 else 0


@aten("addmm _addmm_activation", kind="matmul")
def addmm(call: OpCall) -> Work:
    _, a, b = call.inputs[:3]
    (m, k), n = a.shape, b.shape[1]
    return _added(call, (("M", m), ("N", n), ("K", k)))


@aten("baddbmm addbmm", kind="matmul")
def baddbmm(call: OpCall) -> Work:
    _, a, b = call.inputs[:3]
    (batch, m, k), n = a.shape, b.shape[-1]
    return _added(call, (("B", batch), ("M", m), ("N", n), ("K", k)))


@aten("addmv", kind="matmul")
def addmv(call: OpCall) -> Work:
    m, k = call.inputs[1].shape
    return _added(call, (("M", m), ("K", k)))


def _added(call: OpCall, terms: Terms) -> Work:
    n = call.out.numel
    bias = 0 if call.get("beta") == 0 else n
    work = product(terms, call.out, bias=bias, other_flops=_scaling(call) * n - bias)
    return replace(work, read_bytes=call.read_bytes - _bias_bytes(call))


@aten("mv", kind="matmul")
def mv(call: OpCall) -> Work:
    m, k = call.inputs[0].shape
    return product((("M", m), ("K", k)), call.out)


@aten("dot vdot", kind="matmul")
def dot(call: OpCall) -> Work:
    return product((("K", call.inputs[0].numel),), call.out)


@aten("linalg_vecdot", kind="matmul")
def vecdot(call: OpCall) -> Work:
    length = call.inputs[0].shape[call.get("dim", -1)]
    return product((("out", call.out.numel), ("K", length)), call.out)


@aten("addr", kind="matmul")
def addr(call: OpCall) -> Work:
    """As addmm with an inner size of one."""
    return _added(call, (("M", call.out.shape[0]), ("N", call.out.shape[1])))


@aten("linear", kind="matmul")
def linear(call: OpCall) -> Work:
    out_features, in_features = call.inputs[1].shape
    rows = call.inputs[0].numel // in_features
    bias = call.out.numel if len(call.inputs) > 2 else 0
    terms = (("rows", rows), ("Cout", out_features), ("Cin", in_features))
    return product(terms, call.out, bias=bias)


@aten("matmul", kind="matmul")
def matmul(call: OpCall) -> Work:
    """Only seen where PyTorch does not decompose it; the inner size is the left operand's last."""
    return product((("out", call.out.numel), ("K", call.inputs[0].shape[-1])), call.out)


@aten("_trilinear", kind="matmul")
def trilinear(call: OpCall) -> Work:
    """Σ a·b·c as two products: a·b summed over what c has not, and that times c for the rest.

    A product over which nothing is summed is a multiplication for each point.
    """
    shapes = [_expanded(t.shape, call.get(f"expand{i + 1}")) for i, t in enumerate(call.inputs)]
    absent, summed = set(call.get("expand3")), set(call.get("sumdim"))
    first = [max(sizes) for sizes in zip(*shapes[:2], strict=True)]
    between = [1 if dim in summed & absent else size for dim, size in enumerate(first)]
    second = [max(sizes) for sizes in zip(between, shapes[2], strict=True)]
    parts = [(prod(first), bool(summed & absent)), (prod(second), bool(summed - absent))]
    scale = COMPLEX_MACS if call.out.dtype.is_complex else 1
    written = [
        ((2 if is_sum else 1) * scale, ((name, points),))
        for name, (points, is_sum) in zip(("a·b", "ab·c"), parts, strict=True)
    ]
    return Work(
        macs=scale * sum(points for points, is_sum in parts if is_sum),
        other_flops=scale * sum(points for points, is_sum in parts if not is_sum),
        factor=written[0][0],
        terms=written[0][1],
        more=(written[1],),
    )


def _expanded(shape: tuple[int, ...], dims: Sequence[int]) -> list[int]:
    """The shape with sides of 1 at these places."""
    sides = list(shape)
    for dim in dims:
        sides.insert(dim, 1)
    return sides


@register(
    [*aten_names("_grouped_mm _scaled_grouped_mm"), "transformers::grouped_mm_fallback"],
    kind="matmul",
)
def grouped_mm(call: OpCall) -> Work:
    """Rows are shared out among the groups, so each row meets one group's matrix."""
    a, b = call.inputs[:2]
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if len(a.shape) == 3 and len(b.shape) == 3:
        return product((("G", a.shape[0]), ("M", m), ("N", n), ("K", k)), call.out)
    return product((("M", m), ("N", n), ("K", k)), call.out)


@aten("cdist _cdist_forward _pdist_forward", kind="distance")
def distance(call: OpCall) -> Work:
    """|x − y|: a difference, a power and an addition for each feature, a root for each pair."""
    p = call.get("p", 2.0)
    pairs, features = call.out.numel, call.inputs[0].shape[-1]
    n = pairs * features
    per_feature = 0 if p in (0, 1, 2, float("inf")) else n
    roots = 0 if p in (0, 1, float("inf")) else pairs
    return Work(
        other_flops=3 * n,
        transcendentals=per_feature + roots,
        factor=3,
        terms=(("pairs", pairs), ("K", features)),
    )


@aten("_cdist_backward _pdist_backward", kind="distance")
def distance_backward(call: OpCall) -> Work:
    """For each pair and feature: the difference, over the distance, times g, added."""
    grad, x = call.inputs[:2]
    n = grad.numel * x.shape[-1]
    return Work(other_flops=4 * n, factor=4, terms=(("n", n),))


@aten("_euclidean_dist", kind="distance")
def euclidean_dist(call: OpCall) -> Work:
    """√(|x|² − 2·x·y + |y|²) as one product: both squares ride along as two more features."""
    x, y = call.inputs[:2]
    pairs, features = call.out.numel, x.shape[-1]
    own = 2 * (x.numel + y.numel) + x.numel  # the squared norms, and −2·x
    terms = (("pairs", pairs), ("(K+2)", features + 2))
    work = product(terms, call.out, other_flops=own + pairs)  # a comparison with 0 for each pair
    return replace(work, transcendentals=pairs)


# ---------------------------------------------------------------- convolutions

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def conv_terms(x: TensorMeta, w: TensorMeta, out: TensorMeta, *, transposed: bool) -> Terms:
    """The factors of a convolution's MACs.

    Each output (or, transposed, each input) position meets the whole kernel, padding included.
    """
    names = AXES[len(w.shape) - 2]
    kernel = tuple(
        (f"K{axis.lower()}", size) for axis, size in zip(names, w.shape[2:], strict=True)
    )
    batch = ("N", x.shape[0] if len(x.shape) == len(w.shape) else 1)
    positions, label = (x.shape, "in") if transposed else (out.shape, "out")
    space = tuple(
        (f"{axis}{label}", size) for axis, size in zip(names, positions[-len(names) :], strict=True)
    )
    # The weight is (Cout, Cin/g, …) or, transposed, (Cin, Cout/g, …).
    outer, inner = ("Cin", "(Cout/g)") if transposed else ("Cout", "(Cin/g)")
    return (batch, (outer, w.shape[0]), *space, (inner, w.shape[1]), *kernel)


@aten("convolution _convolution convolution_overrideable", kind="conv")
def convolution(call: OpCall) -> Work:
    x, w = call.inputs[:2]
    terms = conv_terms(x, w, call.out, transposed=bool(call.get("transposed")))
    bias = call.out.numel if call.get("bias") is not None else 0
    return product(terms, call.out, bias=bias)


@aten(
    "mkldnn_convolution cudnn_convolution miopen_convolution slow_conv3d _slow_conv2d_forward",
    "conv_depthwise3d _conv_depthwise2d slow_conv_dilated2d slow_conv_dilated3d thnn_conv2d",
    "conv1d conv2d conv3d",
    kind="conv",
)
def plain_convolution(call: OpCall) -> Work:
    x, w = call.inputs[:2]
    bias = call.out.numel if call.get("bias") is not None else 0
    return product(conv_terms(x, w, call.out, transposed=False), call.out, bias=bias)


@aten(
    "cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d",
    "slow_conv_transpose3d",
    kind="conv",
)
def transposed_convolution(call: OpCall) -> Work:
    x, w = call.inputs[:2]
    return product(conv_terms(x, w, call.out, transposed=True), call.out)


@aten("conv_tbc", kind="conv")
def conv_tbc(call: OpCall) -> Work:
    """Time, batch, channels; the weight is (K, Cin, Cout)."""
    kernel, channels, _ = call.inputs[1].shape
    terms = (("out", call.out.numel), ("Cin", channels), ("K", kernel))
    return product(terms, call.out, bias=call.out.numel)


@aten("convolution_backward convolution_backward_overrideable", kind="conv")
def convolution_backward(call: OpCall) -> Phased:
    """Input and weight gradient each repeat the forward's multiply-adds, whatever the groups."""
    grad, x, w = call.inputs[:3]
    wanted = call.get("output_mask")
    terms = conv_terms(x, w, grad, transposed=bool(call.get("transposed")))
    phases: Phased = {}
    if wanted[0]:
        phases["input-grad"] = _conv_grad(terms, grad, w, x)
    if wanted[1] or wanted[2]:
        bias = (grad.numel, grad.shape[1] * grad.dtype.itemsize) if wanted[2] else (0, 0)
        phases["weight-grad"] = _conv_grad(terms, grad, x, w, bias=bias, products=wanted[1])
    return phases


def _conv_grad(
    terms: Terms,
    grad: TensorMeta,
    saved: TensorMeta,
    result: TensorMeta,
    *,
    bias: tuple[int, int] = (0, 0),
    products: bool = True,
) -> Work:
    """One gradient of a convolution: reads the output's gradient and the other operand."""
    bias_flops, bias_bytes = bias
    if not products:
        return Work.per_element(bias_flops, 1, read_bytes=grad.nbytes, written_bytes=bias_bytes)
    return replace(
        product(terms, grad, bias=bias_flops),
        read_bytes=grad.nbytes + saved.nbytes,
        written_bytes=result.numel * result.dtype.itemsize + bias_bytes,
    )


@register(["torchvision::deform_conv2d"], kind="conv")
def deform_conv2d(call: OpCall) -> Work:
    """A convolution on bilinear samples: 7 FLOPs for each sampled value, one more with a mask."""
    x, w = call.inputs[:2]
    terms = conv_terms(x, w, call.out, transposed=False)
    samples = x.shape[0] * x.shape[1] * prod(call.out.shape[2:]) * prod(w.shape[2:])
    per_sample = 8 if call.get("use_mask") else 7
    return product(terms, call.out, other_flops=per_sample * samples + call.out.numel)


# ---------------------------------------------------------------- quantised products


@register(
    [
        "quantized::linear",
        "quantized::linear_relu",
        "quantized::linear_dynamic",
        "quantized::linear_relu_dynamic",
        "quantized::linear_dynamic_fp16",
    ],
    kind="matmul",
)
def quantized_linear(call: OpCall) -> Work:
    """The weight is packed out of sight: its size follows from the input's and output's."""
    k, n = call.inputs[0].shape[-1], call.out.shape[-1]
    rows = call.inputs[0].numel // k
    return Work(
        macs=rows * n * k,
        other_flops=2 * call.out.numel,  # rescale and bias
        read_bytes=call.inputs[0].nbytes + n * k,
        factor=2,
        terms=(("rows", rows), ("Cout", n), ("Cin", k)),
    )
