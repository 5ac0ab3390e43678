"""cuDNN by ctypes: what the library is told, by a fake and by the real one without a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from ctypes import c_int, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from ridgeline.conv import cudnn as our_cudnn
from ridgeline.conv import measuring
from ridgeline.conv.algorithms import UnsupportedError, default
from ridgeline.conv.cudnn import (
    LEGACY,
    Cudnn,
    Descriptors,
    Form,
    cuda_algorithms,
    load_cudnn,
    make_descriptors,
    packed_strides,
)
from ridgeline.conv.network import find_algorithms
from ridgeline.errors import RidgelineError
from ridgeline.records import ConvShape
from ridgeline.settings import ALGORITHMS

SHAPE = ConvShape(n=2, c=8, h=16, w=12, k=6, r=3, s=5, stride=(1, 2), padding=(1, 2),
                  dilation=(2, 1), groups=2)  # fmt: skip
OK, NOT_SUPPORTED, BAD_PARAM = 0, 3000, 2000


class FakeLibrary:
    """Answers like cuDNN; remembers the calls, as plain numbers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def cudnnGetVersion(self) -> int:  # noqa: N802
        return 91900

    def cudnnGetErrorString(self, code: int) -> bytes:  # noqa: N802
        return {3000: b"CUDNN_STATUS_NOT_SUPPORTED", 2000: b"CUDNN_STATUS_BAD_PARAM"}[code]

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            plain = tuple(one.value for one in arguments if isinstance(one, c_int))
            self.calls.append((name, plain))
            answer = self.answers.get(name, OK)
            return int(answer(*arguments)) if callable(answer) else int(answer)

        return call


def form(**changes: Any) -> Form:
    usual = {"shape": SHAPE, "dtype": torch.float32, "device": 0, "uses_tf32": False}
    usual["x_strides"] = packed_strides(SHAPE.input_shape, is_nhwc=False)
    return Form(**{**usual, **changes})


def described(library: FakeLibrary, **changes: Any) -> Descriptors:
    return make_descriptors(Cudnn(library), c_void_p(1), form(**changes))


def numbers(library: FakeLibrary, function: str) -> list[tuple[Any, ...]]:
    return [plain for name, plain in library.calls if name == function]


def test_what_the_library_is_told_of_a_convolution() -> None:
    described(library := FakeLibrary())

    assert numbers(library, "cudnnSetTensor4dDescriptorEx") == [
        (0, 2, 8, 16, 12, 1536, 192, 12, 1),  # fp32; n, c, h, w; their strides
        (0, 2, 6, 14, 6, 504, 84, 6, 1),
    ]
    assert numbers(library, "cudnnSetFilter4dDescriptor") == [(0, 0, 6, 4, 3, 5)]
    # padding, stride, dilation, a cross-correlation, sums in fp32
    assert numbers(library, "cudnnSetConvolution2dDescriptor") == [(1, 2, 1, 2, 2, 1, 1, 0)]
    assert numbers(library, "cudnnSetConvolutionGroupCount") == [(2,)]
    assert numbers(library, "cudnnSetConvolutionMathType") == [(3,)]  # no tensor cores


@pytest.mark.parametrize(
    ("dtype", "uses_tf32", "data_type", "math_type"),
    [
        (torch.float32, False, 0, 3),
        (torch.float32, True, 0, 0),
        (torch.float16, True, 2, 1),
        (torch.bfloat16, False, 9, 1),
    ],
)
def test_precisions(dtype: torch.dtype, uses_tf32: bool, data_type: int, math_type: int) -> None:
    described(library := FakeLibrary(), dtype=dtype, uses_tf32=uses_tf32)

    assert numbers(library, "cudnnSetTensor4dDescriptorEx")[0][0] == data_type
    assert numbers(library, "cudnnSetConvolutionMathType") == [(math_type,)]


def test_what_cudnn_does_not_support_is_no_failure() -> None:
    refusing = FakeLibrary(cudnnGetConvolutionForwardWorkspaceSize=NOT_SUPPORTED)
    with pytest.raises(UnsupportedError) as caught:
        described(refusing).workspace_bytes(LEGACY["winograd"])
    assert str(caught.value) == (
        "not supported by cuDNN here: cudnnGetConvolutionForwardWorkspaceSize of cuDNN 9.19.0"
        " answers CUDNN_STATUS_NOT_SUPPORTED"
    )
    with pytest.raises(RuntimeError, match="answers CUDNN_STATUS_BAD_PARAM"):
        described(FakeLibrary(cudnnSetConvolutionGroupCount=BAD_PARAM))
    with pytest.raises(UnsupportedError, match=r"not called on torch\.float64"):
        described(FakeLibrary(), dtype=torch.float64)


def test_the_heuristic_names_the_first_that_works() -> None:
    def rank(*arguments: Any) -> int:
        count, entries = arguments[-2]._obj, arguments[-1]
        count.value = 3
        for entry, (algorithm, status) in zip(entries, ((6, 3000), (1, 0), (0, 0)), strict=False):
            entry.algorithm, entry.status = algorithm, status
        return OK

    assert described(FakeLibrary(cudnnGetConvolutionForwardAlgorithm_v7=rank)).guess() == 1
    with pytest.raises(UnsupportedError, match="names no algorithm"):
        described(FakeLibrary()).guess()


def test_a_run_hands_over_addresses_and_the_stream() -> None:
    seen: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> int:
        seen.append(tuple(getattr(one, "value", None) for one in arguments))
        return OK

    library = FakeLibrary(cudnnConvolutionForward=run, cudnnSetStream=run)
    described(library).run(LEGACY["fft"], x=16, w=32, y=48, workspace=64, size=1024, stream=7)

    assert seen[0] == (1, 7)
    handle, _, _, x, _, w, _, algorithm, workspace, size, _, _, y = seen[1]
    assert (handle, x, w, algorithm, workspace, size, y) == (1, 16, 32, 4, 64, 1024, 48)


def test_too_little_memory_refuses_the_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(our_cudnn, "_workspace_bytes", lambda *_, **__: 10**12)
    monkeypatch.setattr(measuring, "free_bytes", lambda device: 10**9)
    some = object.__new__(measuring._Measuring)
    some.shape, some.dtype, some.device = SHAPE, torch.float32, torch.device("cuda")

    with pytest.raises(UnsupportedError, match=r"takes 1\.00 TB, and 800 MB can"):
        some._find_workspace(cuda_algorithms()["gemm"])


def test_the_names_of_a_gpu() -> None:
    known = find_algorithms("cuda")

    assert list(known) == [name for name in ALGORITHMS if name != "winograd 4x4"]
    own = {name for name, one in known.items() if one.phases != ("forward",)}
    assert own == {"default", "benchmark"}  # the others have no gradients of their own


def test_a_kernel_that_autograd_does_not_know_learns_by_the_gradients_of_pytorch() -> None:
    x, w = (torch.randn(of, requires_grad=True) for of in (SHAPE.input_shape, SHAPE.weight_shape))
    gradient = torch.randn(SHAPE.output_shape)

    out = our_cudnn._Forward.apply(x, w, SHAPE, default)
    ours = torch.autograd.grad(out, (x, w), gradient)

    right = torch.autograd.grad(default(x, w, SHAPE), (x, w), gradient)
    torch.testing.assert_close(ours, right)


# ---------------------------------------------------------------- the real library


@pytest.fixture(scope="module")
def real() -> Cudnn:
    try:
        return load_cudnn()
    except RidgelineError:
        pytest.skip("there is no cuDNN library here")


def test_the_real_library_understands_the_descriptors(real: Cudnn) -> None:
    made = make_descriptors(real, c_void_p(), form())
    sizes = [c_int() for _ in range(4)]

    real.call(
        "cudnnGetConvolution2dForwardOutputDim", made.window, made.x, made.w,
        *map(ctypes.byref, sizes),
    )  # fmt: skip

    assert tuple(size.value for size in sizes) == SHAPE.output_shape
    assert re.fullmatch(r"[89]\.\d+\.\d+", real.version)


def test_the_numbers_are_those_of_the_headers() -> None:
    spec = find_spec("nvidia.cudnn") if find_spec("nvidia") else None
    places = list(spec.submodule_search_locations or ()) if spec else []
    headers = [Path(place) / "include" / "cudnn_ops.h" for place in places]
    if not any(header.exists() for header in headers):
        pytest.skip("the headers of cuDNN are not here")
    text = "".join(header.read_text() for header in headers if header.exists())

    found = dict(re.findall(r"CUDNN_CONVOLUTION_FWD_ALGO_(\w+)\s*=\s*(\d+)", text))

    ours = {name.upper().replace(" ", "_"): str(number) for name, number in LEGACY.items()}
    assert ours.items() <= found.items()


# ---------------------------------------------------------------- the direct kernel

INTERPRETED = """
import torch
from ridgeline.conv.algorithms import default, in_layout
from ridgeline.machine.cuda_kernels import direct_convolution
from ridgeline.records import ConvShape

for shape in (
    ConvShape(n=2, c=4, h=9, w=7, k=6, r=3, s=3, padding=(1, 1)),
    ConvShape(n=1, c=6, h=9, w=12, k=40, r=2, s=3, padding=(1, 0), stride=(2, 1), groups=2,
              dilation=(1, 2)),
):
    for is_nhwc in (False, True):
        x = in_layout(torch.randn(shape.input_shape), is_nhwc=is_nhwc)
        w = torch.randn(shape.weight_shape)
        torch.testing.assert_close(direct_convolution(x, w, shape), default(x, w, shape))
"""


def test_the_triton_kernel_computes_a_convolution() -> None:
    """Triton's interpreter runs the kernel on a CPU."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], check=False, capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
