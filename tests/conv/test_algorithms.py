"""Every algorithm computes the convolution, in its own way, or says why it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.conv.algorithms import (
    CPU_ALGORITHMS,
    FORWARD,
    INPUT_GRAD,
    WEIGHT_GRAD,
    check_shape,
    default,
    fft_flops,
    gemm_workspace,
    winograd_flops,
)
from ridgeline.conv.measuring import BOUNDS, find_kernels, find_onednn
from ridgeline.errors import RidgelineError
from ridgeline.records import ConvShape

CPU = torch.device("cpu")
PLAIN = ConvShape(n=1, c=2, h=4, w=4, k=3, r=3, s=3)


@st.composite
def shapes(draw: st.DrawFn) -> ConvShape:
    """Valid convolutions, small ones."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    two = st.tuples(st.integers(1, 2), st.integers(1, 2))
    sides = st.sampled_from([1, 3, 3, 3, 2, 5])
    r, s, dilation = draw(sides), draw(sides), draw(two)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    spans = [gap * (side - 1) + 1 for gap, side in zip(dilation, (r, s), strict=True)]
    h, w = (draw(st.integers(span, span + 9)) for span in spans)
    return ConvShape(
        n=draw(st.integers(1, 3)), c=groups * draw(st.integers(1, 4)), h=h, w=w,
        k=groups * draw(st.integers(1, 4)), r=r, s=s, groups=groups, padding=padding,
        stride=draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (2, 1)])), dilation=dilation,
    )  # fmt: skip


@given(shape=shapes(), name=st.sampled_from(sorted(CPU_ALGORITHMS)))
@settings(max_examples=120, deadline=None)  # 60 of them and more are not refused
def test_every_algorithm_agrees_with_float64_or_refuses(shape: ConvShape, name: str) -> None:
    algorithm = CPU_ALGORITHMS[name]
    if why := algorithm.refuse(shape, torch.float32):
        assert name.startswith(("winograd", "fft"))
        assert "stride" in why or "dilation" in why or "3x3" in why
        return
    x, w, gradient = (
        torch.randn(of, requires_grad=grad)
        for of, grad in (
            (shape.input_shape, True), (shape.weight_shape, True), (shape.output_shape, False)
        )
    )  # fmt: skip
    x64, w64 = (one.detach().double().requires_grad_() for one in (x, w))

    out, right = algorithm.forward(x, w, shape), default(x64, w64, shape)
    out.backward(gradient)
    right.backward(gradient.double())

    for result, exact in ((out, right), (x.grad, x64.grad), (w.grad, w64.grad)):
        assert result is not None
        assert exact is not None
        size = exact.norm().clamp_min(1e-3)  # sums of a few numbers may cancel
        assert float(((result.double() - exact).norm() / size).detach()) < BOUNDS["fp32"]


@pytest.mark.parametrize(
    ("name", "runs", "never"),
    [
        ("direct", "aten::addcmul_", ("aten::bmm", "aten::mm", "aten::im2col", "aten::_fft_r2c")),
        ("gemm", "aten::im2col", ("aten::addcmul_", "aten::_fft_r2c", "aten::convolution")),
        ("winograd", "aten::mm", ("aten::im2col", "aten::_fft_r2c", "aten::convolution")),
        ("fft", "aten::_fft_r2c", ("aten::im2col", "aten::addcmul_", "aten::convolution")),
        ("default", "aten::convolution", ("aten::im2col", "aten::addcmul_", "aten::_fft_r2c")),
    ],
)
def test_no_two_names_run_the_same_code(name: str, runs: str, never: tuple[str, ...]) -> None:
    x, w = torch.randn(PLAIN.input_shape), torch.randn(PLAIN.weight_shape)

    kernels = find_kernels(lambda: CPU_ALGORITHMS[name].forward(x, w, PLAIN), CPU)

    assert runs in kernels
    assert not set(never) & set(kernels)


def test_the_two_winograds_differ_in_their_tiles() -> None:
    image = replace(PLAIN, h=18, w=18)  # 16x16 outputs: 64 tiles of 2x2, 16 of 4x4

    # products: 16·3·2·64 and 36·3·2·16; transforms: in 16²·2·64, 36²·2·16, and so on
    assert winograd_flops(image, tile=2) == 2 * (
        16 * 3 * 2 * 64 + 16 * 16 * 2 * 64 + 16 * 9 * 3 * 2 + 4 * 16 * 3 * 64
    )
    assert winograd_flops(image, tile=4) == 2 * (
        36 * 3 * 2 * 16 + 36 * 36 * 2 * 16 + 36 * 9 * 3 * 2 + 16 * 36 * 3 * 16
    )


def test_work_by_hand() -> None:
    assert PLAIN.output_shape == (1, 3, 2, 2)
    assert PLAIN.macs == 3 * 2 * 2 * 2 * 9
    assert gemm_workspace(PLAIN) == 2 * 9 * 4  # channels, taps, positions
    # planes of 4x4 with 4x3 frequencies: 2 of the input, 6 of the kernel, 3 of the output
    assert fft_flops(PLAIN) == int(2.5 * 16 * 4 * 11) + 8 * 6 * 12


@pytest.mark.parametrize(
    ("change", "name", "why"),
    [
        ({"r": 1, "s": 1}, "winograd", "its transforms are of 3x3 kernels, and this one is 1x1"),
        ({"stride": (2, 2)}, "winograd 4x4", "its tiles overlap by stride 1, and this one is 2"),
        ({"dilation": (1, 2)}, "winograd", "its tiles have no gaps, and the dilation is 1x2"),
        ({"stride": (2, 1)}, "fft", "it computes every position, and the stride is 2x1"),
    ],
)
def test_a_refusal_has_its_reason(change: dict[str, object], name: str, why: str) -> None:
    shape = replace(PLAIN, **change)  # type: ignore[arg-type]

    assert CPU_ALGORITHMS[name].refuse(shape, torch.float32) == why


def test_find_is_of_the_forward_pass_and_the_fft_of_fp32() -> None:
    phases = [CPU_ALGORITHMS["find"].refuse(PLAIN, torch.float32, phase)
              for phase in (FORWARD, INPUT_GRAD, WEIGHT_GRAD)]  # fmt: skip
    assert phases == [
        "",
        "it is an algorithm of the forward pass; input-grad is PyTorch's own",
        "it is an algorithm of the forward pass; weight-grad is PyTorch's own",
    ]
    assert (
        CPU_ALGORITHMS["fft"].refuse(PLAIN, torch.bfloat16) == "there is no transform of bfloat16"
    )


def test_find_runs_one_of_the_others_and_names_it() -> None:
    find = CPU_ALGORITHMS["find"]
    x, w = torch.randn(PLAIN.input_shape), torch.randn(PLAIN.weight_shape)

    result = find.forward(x, w, PLAIN)

    torch.testing.assert_close(result, default(x, w, PLAIN), rtol=1e-4, atol=1e-4)
    assert find.describe(PLAIN, torch.float32) in set(CPU_ALGORITHMS) - {"find"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"groups": 2, "k": 3}, "2 groups do not divide 2 and 3 channels"),
        ({"r": 5}, "the window of 1x2x4x4 to 3, 5x3 is larger than its padded input"),
    ],
)
def test_what_is_no_convolution_is_refused(change: dict[str, int], problem: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        check_shape(replace(PLAIN, **change))  # type: ignore[arg-type]

    assert caught.value.problem == problem


def test_a_shape_in_words() -> None:
    assert str(PLAIN) == "1x2x4x4 to 3, 3x3"
    assert str(replace(PLAIN, stride=(2, 2), padding=(1, 0), groups=2, k=4)) == (
        "1x2x4x4 to 4, 3x3, stride 2, padding 1x0, groups 2"
    )


def test_onednn_names_its_implementation() -> None:
    image = ConvShape(n=2, c=16, h=16, w=16, k=16, r=3, s=3)
    x, w = torch.randn(image.input_shape), torch.randn(image.weight_shape)
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")

    assert find_onednn(lambda: default(x, w, image))
    assert find_onednn(lambda: x + 1) == ""
