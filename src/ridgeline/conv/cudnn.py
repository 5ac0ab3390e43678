"""cuDNN: the forward algorithms of its legacy interface, and the plans of its graph interface.

The legacy interface is called by ctypes on the library that torch ships.

cuDNN calls the interface deprecated; it is the only one that takes an algorithm by its name. The
numbers below are of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h, the same in versions 8 and 9.
Descriptors and workspace of a shape are made at its first call and live until they are released, so
no call that is timed allocates any. Gradients are PyTorch's own.

A plan of the graph interface (package nvidia-cudnn-frontend, extra `cudnn`) is an engine with its
knobs. The heuristics name those that may run; each is built and run by its number. The strides of
every output are set: without them, results of NCHW come back in another layout, and everything
seems to be well.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import Structure, byref, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ridgeline.conv.algorithms import (
    BENCHMARK,
    DEFAULT,
    FIND,
    FORWARD,
    GUESS,
    INPUT_GRAD,
    Algorithm,
    Finder,
    UnsupportedError,
    default,
    default_gradients,
    in_layout,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import ConvRequest, ConvShape

SONAMES = ("libcudnn.so.9", "libcudnn.so.8")
LEGACY = {  # cudnnConvolutionFwdAlgo_t; number 3 is `direct`, which cuDNN does for no shape
    "implicit gemm": 0, "implicit precomp gemm": 1, "gemm": 2, "fft": 4, "fft tiling": 5,
    "winograd": 6, "winograd nonfused": 7,
}  # fmt: skip
NAMES = {number: name for name, number in LEGACY.items()}
DATA_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}  # cudnnDataType_t
COMPUTE_TYPE = 0  # sums are gathered in fp32
NCHW, NHWC = 0, 1  # cudnnTensorFormat_t
CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3  # cudnnMathType_t
NOT_SUPPORTED_8, NOT_SUPPORTED_9 = 9, range(3000, 4000)
ALGORITHMS_OF_V7 = 8  # that the heuristic may rank
GRAPH_TYPES = {torch.float32: "FLOAT", torch.float16: "HALF", torch.bfloat16: "BFLOAT16"}
HEURISTICS = ("A", "B", "FALLBACK")

Operands = tuple[Tensor, Tensor, Tensor]  # input, weight, gradient of the output


class Performance(Structure):
    """cudnnConvolutionFwdAlgoPerf_t: one entry of the heuristic's ranking."""

    _fields_ = (
        ("algorithm", c_int),
        ("status", c_int),
        ("time_ms", c_float),
        ("memory_bytes", c_size_t),
        ("determinism", c_int),
        ("math_type", c_int),
        ("reserved", c_int * 3),
    )


@dataclass(frozen=True, slots=True)
class Cudnn:
    """The library; each function answers with a code."""

    library: Any

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function; what it does not support is an UnsupportedError."""
        code = int(getattr(self.library, function)(*arguments))
        if code == 0:
            return
        text = f"{function} of cuDNN {self.version} answers {self._name_of(code)}"
        if code == NOT_SUPPORTED_8 or code in NOT_SUPPORTED_9:
            raise UnsupportedError(f"not supported by cuDNN here: {text}")
        raise RuntimeError(text)

    def make(self, function: str) -> c_void_p:
        """What a cudnnCreate… function makes."""
        made = c_void_p()
        self.call(function, byref(made))
        return made

    @property
    def version(self) -> str:
        """`9.19.0` of 91900; of version 8, `8.9.7` of 8907."""
        number = int(self.library.cudnnGetVersion())
        major = 10_000 if number >= 90_000 else 1_000
        return f"{number // major}.{number % major // 100}.{number % 100}"

    def _name_of(self, code: int) -> str:
        name = self.library.cudnnGetErrorString(code)
        return name.decode(errors="replace") if name else f"error {code}"


@cache
def load_cudnn() -> Cudnn:
    """The library that torch has loaded or would load."""
    spec = find_spec("nvidia.cudnn") if find_spec("nvidia") else None
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if (
        spec) else []  # fmt: skip
    for place in (*SONAMES, *(str(folder / name) for folder in folders for name in SONAMES)):
        try:
            library = ctypes.CDLL(place)
        except OSError:
            continue
        library.cudnnGetVersion.restype = c_size_t
        library.cudnnGetErrorString.restype = ctypes.c_char_p
        return Cudnn(library)
    raise RidgelineError(
        "there is no cuDNN library here",
        hint="a torch for CUDA ships one: pip install torch; or --algorithm default,benchmark",
    )


# ---------------------------------------------------------------- one shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What decides on the descriptors of a call."""

    shape: ConvShape
    dtype: torch.dtype
    x_strides: tuple[int, ...]
    device: int
    uses_tf32: bool

    @property
    def is_nhwc(self) -> bool:
        """Whether channels are next to each other in memory."""
        return self.x_strides[1] == 1 and self.shape.c > 1

    @property
    def math_type(self) -> int:
        """fp32 keeps all bits; tf32 is cuDNN's default on fp32; halves use tensor cores."""
        if self.dtype != torch.float32:
            return TENSOR_OP_MATH
        return DEFAULT_MATH if self.uses_tf32 else FMA_MATH


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """A handle and the four descriptors that cuDNN wants of a convolution."""

    cudnn: Cudnn
    handle: c_void_p
    x: c_void_p
    w: c_void_p
    window: c_void_p
    y: c_void_p

    def workspace_bytes(self, algorithm: int) -> int:
        """What an algorithm needs; an UnsupportedError where it cannot do the shape."""
        size = c_size_t()
        self.cudnn.call(
            "cudnnGetConvolutionForwardWorkspaceSize", self.handle, self.x, self.w, self.window,
            self.y, c_int(algorithm), byref(size),
        )  # fmt: skip
        return size.value

    def guess(self) -> int:
        """The number of the algorithm that the heuristic ranks first."""
        count, ranked = c_int(), (Performance * ALGORITHMS_OF_V7)()
        self.cudnn.call(
            "cudnnGetConvolutionForwardAlgorithm_v7", self.handle, self.x, self.w, self.window,
            self.y, c_int(ALGORITHMS_OF_V7), byref(count), ranked,
        )  # fmt: skip
        able = [one for one in ranked[: count.value] if one.status == 0]
        if not able:
            raise UnsupportedError("cuDNN's heuristic names no algorithm for this shape")
        return int(able[0].algorithm)

    def run(
        self, algorithm: int, x: int, w: int, y: int, workspace: int, size: int, stream: int
    ) -> None:
        """Launch on the addresses of the tensors; nothing is waited for."""
        one, zero = c_float(1.0), c_float(0.0)
        self.cudnn.call("cudnnSetStream", self.handle, c_void_p(stream))
        self.cudnn.call(
            "cudnnConvolutionForward", self.handle, byref(one), self.x, c_void_p(x), self.w,
            c_void_p(w), self.window, c_int(algorithm), c_void_p(workspace), c_size_t(size),
            byref(zero), self.y, c_void_p(y),
        )  # fmt: skip


@cache
def _handle(cudnn: Cudnn, device: int) -> c_void_p:
    with torch.cuda.device(device):
        return cudnn.make("cudnnCreate")


def make_descriptors(cudnn: Cudnn, handle: c_void_p, form: Form) -> Descriptors:
    """Tell cuDNN about a convolution. The output has the layout of the input."""
    shape, data_type = form.shape, DATA_TYPES.get(form.dtype)
    if data_type is None:
        raise UnsupportedError(f"cuDNN's algorithms are not called on {form.dtype} here")
    x, y = (cudnn.make("cudnnCreateTensorDescriptor") for _ in range(2))
    w = cudnn.make("cudnnCreateFilterDescriptor")
    window = cudnn.make("cudnnCreateConvolutionDescriptor")
    layout = NHWC if form.is_nhwc else NCHW
    for descriptor, sizes in ((x, shape.input_shape), (y, shape.output_shape)):
        strides = packed_strides(sizes, is_nhwc=form.is_nhwc)
        numbers = (data_type, *sizes, *strides)
        cudnn.call("cudnnSetTensor4dDescriptorEx", descriptor, *map(c_int, numbers))
    numbers = (data_type, layout, *shape.weight_shape)
    cudnn.call("cudnnSetFilter4dDescriptor", w, *map(c_int, numbers))
    numbers = (*shape.padding, *shape.stride, *shape.dilation, CROSS_CORRELATION, COMPUTE_TYPE)
    cudnn.call("cudnnSetConvolution2dDescriptor", window, *map(c_int, numbers))
    cudnn.call("cudnnSetConvolutionGroupCount", window, c_int(shape.groups))
    cudnn.call("cudnnSetConvolutionMathType", window, c_int(form.math_type))
    return Descriptors(cudnn=cudnn, handle=handle, x=x, w=w, window=window, y=y)


def packed_strides(sizes: tuple[int, int, int, int], *, is_nhwc: bool) -> tuple[int, ...]:
    """Elements from one sample, channel, row and column to the next, without gaps."""
    _, c, h, w = sizes
    return (c * h * w, 1, w * c, c) if is_nhwc else (c * h * w, h * w, w, 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm, ready to run on tensors of one form."""

    descriptors: Descriptors
    algorithm: int
    workspace: Tensor

    def run(self, x: Tensor, w: Tensor, y: Tensor) -> None:
        stream = torch.cuda.current_stream(x.device).cuda_stream
        size = self.workspace.numel()
        addresses = (x.data_ptr(), w.data_ptr(), y.data_ptr(), self.workspace.data_ptr())
        self.descriptors.run(self.algorithm, *addresses, size, stream)


@cache
def _descriptors(form: Form) -> Descriptors:
    cudnn = load_cudnn()
    return make_descriptors(cudnn, _handle(cudnn, form.device), form)


@cache
def _plan(name: str, form: Form) -> Plan:
    descriptors = _descriptors(form)
    number = descriptors.guess() if name == GUESS else LEGACY[name]
    size = descriptors.workspace_bytes(number)
    workspace = torch.empty(size, dtype=torch.uint8, device=f"cuda:{form.device}")
    return Plan(descriptors, number, workspace)


def release_workspaces() -> None:
    """Free the workspaces of all shapes; a later call gets its own anew."""
    _plan.cache_clear()
    torch.cuda.empty_cache()


def _form(shape: ConvShape, dtype: torch.dtype, *, is_nhwc: bool, device: int) -> Form:
    return Form(
        shape=shape, dtype=dtype, device=device, uses_tf32=torch.backends.cudnn.allow_tf32,
        x_strides=packed_strides(shape.input_shape, is_nhwc=is_nhwc),
    )  # fmt: skip


Launch = Callable[[Tensor, Tensor, ConvShape], Tensor]


class _Forward(torch.autograd.Function):
    """The forward pass by a kernel that autograd does not know; the gradients are PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, shape: ConvShape, launch: Launch) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.shape = shape
        return launch(x, w, shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        of_x, of_w = default_gradients(ctx.shape, x, w, gradient, ctx.needs_input_grad[:2])
        return of_x, of_w, None, None


def _launch_legacy(x: Tensor, w: Tensor, shape: ConvShape, *, name: str) -> Tensor:
    # one channel is next to itself in either layout: such an input counts as NCHW
    is_nhwc = x.stride(1) == 1 and shape.c > 1
    x, w = (in_layout(one, is_nhwc=is_nhwc) for one in (x, w))
    y = in_layout(x.new_empty(shape.output_shape), is_nhwc=is_nhwc)
    _plan(name, _form(shape, x.dtype, is_nhwc=is_nhwc, device=x.device.index)).run(x, w, y)
    return y


def run_legacy(x: Tensor, w: Tensor, shape: ConvShape, *, name: str) -> Tensor:
    """A convolution by an algorithm of cuDNN, or by the one that its heuristic names."""
    result: Tensor = _Forward.apply(x, w, shape, partial(_launch_legacy, name=name))
    return result


# ---------------------------------------------------------------- what is asked before a run


def _current_form(shape: ConvShape, dtype: torch.dtype) -> Form:
    return _form(shape, dtype, is_nhwc=False, device=torch.cuda.current_device())


def refuse_legacy(shape: ConvShape, dtype: torch.dtype, *, name: str) -> str:
    """Why cuDNN cannot do it; empty if it can."""
    try:
        _workspace_bytes(shape, dtype, name=name)
    except UnsupportedError as error:
        return str(error)
    return ""


def _workspace_bytes(shape: ConvShape, dtype: torch.dtype, *, name: str) -> int:
    descriptors = _descriptors(_current_form(shape, dtype))
    return descriptors.workspace_bytes(descriptors.guess() if name == GUESS else LEGACY[name])


def _describe_guess(shape: ConvShape, dtype: torch.dtype) -> str:
    number = _descriptors(_current_form(shape, dtype)).guess()
    return NAMES.get(number, f"algorithm {number}")


# ---------------------------------------------------------------- the algorithms of a GPU


def _direct(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """Our own kernel; Triton is imported when it is first used."""
    from ridgeline.machine.cuda_kernels import direct_convolution

    result: Tensor = _Forward.apply(x, w, shape, direct_convolution)
    return result


def refuse_direct(shape: ConvShape, dtype: torch.dtype) -> str:
    return "" if find_spec("triton") else "its kernel needs Triton, which is not installed"


def cuda_algorithms() -> Mapping[str, Algorithm]:
    """The algorithms of a GPU, by name."""
    distinct = {
        name: Algorithm(
            name=name, forward=partial(run_legacy, name=name),
            refusal=partial(refuse_legacy, name=name),
            workspace=partial(_workspace_bytes, name=name), phases=(FORWARD,),
        )
        for name in LEGACY
    }  # fmt: skip
    distinct["direct"] = Algorithm(
        name="direct", forward=_direct,
        refusal=refuse_direct, phases=(FORWARD,),
    )  # fmt: skip
    distinct[DEFAULT] = Algorithm(name=DEFAULT, forward=default)
    finder = Finder(lambda: distinct)
    guess = replace(
        distinct["gemm"], name=GUESS,
        forward=partial(run_legacy, name=GUESS), refusal=partial(refuse_legacy, name=GUESS),
        workspace=partial(_workspace_bytes, name=GUESS), describe=_describe_guess,
    )  # fmt: skip
    find = Algorithm(
        name=FIND,
        forward=finder.forward, describe=finder.describe, phases=(FORWARD,),
    )  # fmt: skip
    benchmark = replace(distinct[DEFAULT], name=BENCHMARK)
    return {**distinct, GUESS: guess, FIND: find, BENCHMARK: benchmark}


# ---------------------------------------------------------------- plans of the graph interface


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """One plan, ready to run on each set of operands."""

    name: str  # engine 67_k2=5_k13=0
    notes: str
    workspace_bytes: int
    calls: tuple[Callable[[], Tensor], ...]


def import_frontend() -> Any:
    """The package; the reason where it is missing."""
    try:
        return import_module("cudnn")
    except (ImportError, OSError) as error:
        raise UnsupportedError(
            f"plans of cuDNN's graph interface need the package nvidia-cudnn-frontend ({error}):"
            " pip install --no-deps 'nvidia-cudnn-frontend'"
        ) from error


def make_plans(
    request: ConvRequest, sets: Sequence[Operands], frontend: Any
) -> Iterator[EnginePlan]:
    """Every plan that can be built for a pass; others are left out, as cuDNN does by itself."""
    graph = _Graph(request, sets[0], frontend)
    for number in range(graph.plans.get_execution_plan_count()):
        try:
            graph.plans.build_plan_at_index(number)
        except RuntimeError:  # named by a heuristic, and refused now
            continue
        size = int(graph.plans.get_workspace_size_plan_at_index(number))
        workspace = torch.empty(size, dtype=torch.uint8, device=sets[0][0].device)
        notes = graph.plans.get_behavior_notes_for_plan_at_index(number)
        yield EnginePlan(
            name=f"engine {str(graph.plans.get_plan_name_at_index(number)).removeprefix('eng')}",
            notes=", ".join(str(note).rpartition(".")[2] for note in notes),
            workspace_bytes=size,
            calls=tuple(graph.make_call(number, one, workspace) for one in sets),
        )


class _Graph:
    """One pass of a convolution as cuDNN's graph, with all its plans."""

    def __init__(self, request: ConvRequest, operands: Operands, frontend: Any) -> None:
        self._request, self._frontend = request, frontend
        self._handle = frontend.create_handle()
        kinds = frontend.data_type
        kind = getattr(kinds, GRAPH_TYPES[operands[0].dtype])
        self.plans = frontend.pygraph(
            io_data_type=kind, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT,
            handle=self._handle,
        )  # fmt: skip
        self._inputs = [
            self.plans.tensor(
                name=name, dim=list(one.shape), stride=list(one.stride()), data_type=kind
            )
            for name, one in self._choose(operands)
        ]
        like = _output_like(request, operands)
        self._output = self._add_pass(request.shape)
        self._output.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride()))
        self._output.set_data_type(kind)
        self.plans.validate()
        self.plans.build_operation_graph()
        modes = [getattr(frontend.heur_mode, name) for name in HEURISTICS]
        self.plans.create_execution_plans(modes)

    def _choose(self, operands: Operands) -> list[tuple[str, Tensor]]:
        """What a pass reads: two of input, weight and gradient."""
        x, w, gradient = operands
        if self._request.phase == FORWARD:
            return [("image", x), ("weight", w)]
        if self._request.phase == INPUT_GRAD:
            return [("loss", gradient), ("filter", w)]
        return [("image", x), ("loss", gradient)]

    def _add_pass(self, shape: ConvShape) -> Any:
        graph, (first, second) = self.plans, self._inputs
        window = {
            "padding": list(shape.padding), "stride": list(shape.stride),
            "dilation": list(shape.dilation),
        }  # fmt: skip
        if self._request.phase == FORWARD:
            return graph.conv_fprop(image=first, weight=second, **window)
        if self._request.phase == INPUT_GRAD:
            return graph.conv_dgrad(loss=first, filter=second, **window)
        return graph.conv_wgrad(image=first, loss=second, **window)

    def make_call(self, number: int, operands: Operands, workspace: Tensor) -> Callable[[], Tensor]:
        """The plan on one set of operands, with an output of its own."""
        out = torch.empty_like(_output_like(self._request, operands))
        tensors = [one for _, one in self._choose(operands)]
        pack = {**dict(zip(self._inputs, tensors, strict=True)), self._output: out}

        def call() -> Tensor:
            if out.is_cuda:
                stream = torch.cuda.current_stream(out.device).cuda_stream
                self._frontend.set_stream(handle=self._handle, stream=stream)
            self.plans.execute_plan_at_index(pack, workspace, number, handle=self._handle)
            return out

        return call


def _output_like(request: ConvRequest, operands: Operands) -> Tensor:
    """A tensor of the sizes and strides of a pass's result."""
    x, w, gradient = operands
    return {FORWARD: gradient, INPUT_GRAD: x}.get(request.phase, w)
