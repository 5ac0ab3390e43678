"""One pass of a convolution under every algorithm: verified, timed, with proof of what ran.

Data are random and new in every measurement. The reference is computed in float64 by PyTorch. The
error is the norm of the difference over the norm of the reference. Algorithms take turns, so that a
disturbance meets them all. A sample repeats a call over several sets of operands, which together no
cache holds; warm samples repeat it on one set.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from math import ceil
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ridgeline.conv.algorithms import (
    BENCHMARK,
    DEFAULT,
    FORWARD,
    HALVES,
    INPUT_GRAD,
    Algorithm,
    UnsupportedError,
    check_shape,
    default,
    in_layout,
)
from ridgeline.conv.network import check_names, find_algorithms
from ridgeline.machine.ceilings_cuda import event_clock
from ridgeline.machine.cpu import read_caches
from ridgeline.machine.system import SystemIO
from ridgeline.records import (
    FAILED,
    OTHER_PRECISION,
    RANKED,
    REFUSED,
    WRONG,
    AlgorithmResult,
    ConvRequest,
    ConvResult,
    ConvShape,
)
from ridgeline.units import si

OnProgress = Callable[[str, int, int], None]
Call = Callable[[], object]

# The error of a right result: the precision's own rounding, many sums, and nothing more.
BOUNDS = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}
# Below it, a result is more exact than numbers of that precision can be.
LEAST_ERRORS = {"fp32": 1e-9, "tf32": 3e-5, "fp16": 3e-5, "bf16": 2e-4}
WORST_ELEMENT = 30  # times the bound: of one element, over the mean size of all
LEAST_ELEMENTS = 64  # of an output, to tell chance from exactness
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
          "bf16": torch.bfloat16}  # fmt: skip

SAMPLES, LEAST_SAMPLES = 10, 3
SAMPLE_S, GPU_SAMPLE_S = 0.005, 0.002  # device events are finer than a host's clock
BUDGET_S = 1.5  # of the samples of one algorithm, beyond LEAST_SAMPLES
WARM_SAMPLES = 5
CACHE_SHARE = 2.0  # all sets of operands together, over the last cache
MOST_SETS, MOST_BYTES = 64, 1 << 29
MOST_GRADIENT_SETS = 4
FREE_SHARE = 0.8  # of the memory that is free may be workspace
LEAST_CACHE = 32 << 20  # where the system does not say
ONEDNN_LINE = re.compile(
    r"onednn_verbose(?:,v\d+)?(?:,[\d.]+)?,(?:primitive,)?exec,cpu,convolution,([^,]+),"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """One set of what a call takes."""

    x: Tensor
    w: Tensor
    gradient: Tensor  # of the output


def measure_conv(
    request: ConvRequest,
    device: torch.device,
    device_name: str,
    on_progress: OnProgress = lambda what, done, total: None,
) -> ConvResult:
    """Measure one pass under the algorithms of a request."""
    check_shape(request.shape)
    check_names(request.algorithms, device.type)
    known = find_algorithms(device.type)
    measuring = _Measuring(request, device)
    for number, name in enumerate(request.algorithms):
        on_progress(name, number, 2 * len(request.algorithms))
        measuring.verify(known[name])
    problems = measuring.verify_plans() if request.engines else ()
    for number in measuring.take_samples():
        on_progress("timing", SAMPLES + number, 2 * SAMPLES)
    return ConvResult(
        backend=device.type,
        device_name=device_name,
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        timings=tuple(measuring.results.values()),
        problems=problems,
    )


def make_calls(request: ConvRequest, device: torch.device) -> dict[str, Call]:
    """A call of each algorithm of a request that can do its pass: for a reader of counters."""
    known, measuring = find_algorithms(device.type), _Measuring(request, device)
    return {
        name: measuring.make_call(known[name], measuring.sets[0])
        for name in request.algorithms
        if not known[name].refuse(request.shape, measuring.dtype, request.phase)
    }


class _Measuring:
    """The algorithms of one pass: their results so far, and calls of those that are right."""

    def __init__(self, request: ConvRequest, device: torch.device) -> None:
        self.request, self.shape, self.device = request, request.shape, device
        self.dtype = DTYPES[request.precision]
        self.results: dict[str, AlgorithmResult] = {}
        self._calls: dict[str, list[Call]] = {}
        sets = count_sets(self.shape, self.dtype, device)
        if request.phase != FORWARD:  # each keeps what the forward pass saved for it
            sets = min(sets, MOST_GRADIENT_SETS)
        self.sets = [self._make_operands() for _ in range(sets)]
        self._reference = reference(self.shape, self.sets[0], request.phase)

    def _make_operands(self) -> Operands:
        is_nhwc = self.request.layout == "nhwc"
        shapes = self.shape.input_shape, self.shape.weight_shape, self.shape.output_shape
        x, w, gradient = (
            in_layout(torch.randn(one, device=self.device).to(self.dtype), is_nhwc=is_nhwc)
            for one in shapes
        )
        return Operands(x=x, w=w, gradient=gradient)

    def verify(self, algorithm: Algorithm) -> None:
        """Run it once, compare with the reference, and see what ran."""
        phase, known = self.request.phase, AlgorithmResult(algorithm=algorithm.name)
        flops = algorithm.flops(self.shape) if algorithm.flops and phase == FORWARD else None
        known = replace(
            known, flops_executed=flops, flops_source="static" if flops is not None else ""
        )

        def make_calls() -> list[Call]:
            if why := algorithm.refuse(self.shape, self.dtype, phase):
                raise UnsupportedError(why)
            self._find_workspace(algorithm)
            return [self.make_call(algorithm, one) for one in self.sets]

        self._verify_calls(known, make_calls, algorithm)

    def verify_plans(self) -> tuple[str, ...]:
        """Verify every plan of cuDNN's graph interface; why there is none, where there is none."""
        from ridgeline.conv.cudnn import import_frontend, make_plans

        sets = [(one.x, one.w, one.gradient) for one in self.sets]
        try:
            for plan in make_plans(self.request, sets, import_frontend()):
                known = AlgorithmResult(
                    algorithm=plan.name, implementation=plan.notes,
                    workspace_bytes=plan.workspace_bytes,
                )  # fmt: skip
                self._verify_calls(known, partial(list, plan.calls))
        except (UnsupportedError, RuntimeError, AttributeError, TypeError) as error:
            return (f"plans were not measured: {' '.join(str(error).split())[:300]}",)
        return ()

    def _verify_calls(
        self,
        known: AlgorithmResult,
        make_calls: Callable[[], list[Call]],
        algorithm: Algorithm | None = None,
    ) -> None:
        """Run the first call, judge its result, and keep the calls for timing."""
        name = known.algorithm
        try:
            calls = make_calls()
            with _searching(name == BENCHMARK):
                result = calls[0]()
                kernels = find_kernels(calls[0], self.device)
            if algorithm is not None:
                known = replace(
                    known, implementation=self._describe(algorithm, calls[0]),
                    workspace_bytes=self._find_workspace(algorithm),
                )  # fmt: skip
        except UnsupportedError as error:
            self.results[name] = replace(
                known, status=REFUSED, reason=str(error), flops_executed=None, flops_source=""
            )
            return
        except Exception as error:  # of any library: the other algorithms go on
            text = " ".join(str(error).split())[:200] or type(error).__name__
            self.results[name] = replace(known, status=FAILED, reason=text)
            return
        assert isinstance(result, Tensor)
        self._calls[name] = calls
        known = replace(known, kernels=kernels)
        self.results[name] = judge(known, result, self._reference, self.request.precision)

    def _describe(self, algorithm: Algorithm, call: Call) -> str:
        """What its library calls the implementation that ran; empty where none says it."""
        if algorithm.name == DEFAULT and self.device.type == "cpu":
            return find_onednn(call) or find_backend(self.sets[0], self.shape)
        return algorithm.describe(self.shape, self.dtype)

    def _find_workspace(self, algorithm: Algorithm) -> int | None:
        """The bytes of its workspace; refused where they cannot be had."""
        if algorithm.workspace is None:
            return None
        needed = algorithm.workspace(self.shape, self.dtype)
        free = int(FREE_SHARE * free_bytes(self.device))
        if needed > free:
            raise UnsupportedError(
                f"its workspace takes {si(needed, 'B')}, and {si(free, 'B')} can be had"
            )
        return needed

    def make_call(self, algorithm: Algorithm, operands: Operands) -> Call:
        """The pass on one set of operands; a gradient's forward is done here, once."""
        shape, phase = self.shape, self.request.phase
        if phase == FORWARD:

            def forward() -> Tensor:
                with torch.no_grad():
                    return algorithm.forward(operands.x, operands.w, shape)

            return forward
        x = operands.x.detach().requires_grad_(phase == INPUT_GRAD)
        w = operands.w.detach().requires_grad_(phase != INPUT_GRAD)
        out, of = algorithm.forward(x, w, shape), (x if phase == INPUT_GRAD else w)

        def backward() -> Tensor:
            return torch.autograd.grad(out, of, operands.gradient, retain_graph=True)[0]

        return backward

    # ------------------------------------------------------------ times

    def take_samples(self) -> Iterator[int]:
        """Sample the algorithms by turns; yields the number of each round."""
        timers = {
            name: make_timer(calls, self.device, is_search=name == BENCHMARK)
            for name, calls in self._calls.items()
            if self.results[name].status in (RANKED, OTHER_PRECISION)
        }
        cold: dict[str, list[float]] = {name: [] for name in timers}
        spent_s = dict.fromkeys(timers, 0.0)
        for number in range(SAMPLES):
            for name, timer in timers.items():
                if number < LEAST_SAMPLES or spent_s[name] < BUDGET_S:
                    start_s = perf_counter()
                    cold[name].append(timer.sample())
                    spent_s[name] += perf_counter() - start_s
            yield number
        for name, timer in timers.items():
            few = spent_s[name] > BUDGET_S
            warm = tuple(timer.sample_warm() for _ in range(1 if few else WARM_SAMPLES))
            self.results[name] = replace(
                self.results[name], samples_s=tuple(cold[name]), warm_samples_s=warm,
                clock=timer.clock,
            )  # fmt: skip


# ---------------------------------------------------------------- whether it is right


def reference(shape: ConvShape, operands: Operands, phase: str) -> Tensor:
    """The result in float64, by PyTorch; on a GPU without cuDNN."""
    without = torch.backends.cudnn.flags(enabled=False) if operands.x.is_cuda else nullcontext()
    x, w = (one.detach().double().requires_grad_() for one in (operands.x, operands.w))
    with without:
        out = default(x, w, shape)
        if phase == FORWARD:
            return out.detach()
        of = x if phase == INPUT_GRAD else w
        return torch.autograd.grad(out, of, operands.gradient.double())[0]


def judge(known: AlgorithmResult, result: Tensor, right: Tensor, precision: str) -> AlgorithmResult:
    """The result with its error; wrong ones, and those of another precision, are not ranked."""
    bound = BOUNDS[precision]
    size = float(right.norm())
    if result.shape != right.shape or not bool(result.isfinite().all()):
        reason = f"its result has the shape {tuple(result.shape)}" if (
            result.shape != right.shape) else "its result is not finite"  # fmt: skip
        return replace(known, status=WRONG, reason=reason, bound=bound)
    difference = result.double() - right
    error = float(difference.norm()) / size if size else float(difference.norm())
    worst = float(difference.abs().max()) / (size / right.numel() ** 0.5) if size else error
    judged = replace(known, rel_error=error, bound=bound, precision_computed=precision)
    is_tf32 = precision == "fp32" and result.is_cuda and bound < error <= BOUNDS["tf32"]
    if is_tf32 and worst <= WORST_ELEMENT * BOUNDS["tf32"]:
        reason = f"its error of {error:.1e} is that of tf32"
        return replace(judged, status=OTHER_PRECISION, reason=reason, precision_computed="tf32")
    if not error <= bound or worst > WORST_ELEMENT * bound:
        reason = f"its error of {max(error, worst / WORST_ELEMENT):.1e} is above the bound"
        return replace(judged, status=WRONG, reason=f"{reason} of {precision}, {bound:.0e}")
    if error < LEAST_ERRORS[precision] and right.numel() >= LEAST_ELEMENTS:
        reason = f"its error of {error:.1e} is smaller than {precision} allows"
        computed = "fp32" if precision != "fp32" else "fp64"
        return replace(judged, status=OTHER_PRECISION, reason=reason, precision_computed=computed)
    return judged


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return int(psutil.virtual_memory().available)


# ---------------------------------------------------------------- time


def last_cache_bytes(device: torch.device) -> int:
    """Of the last cache of a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return max((cache.size_bytes for cache in read_caches(SystemIO(), 0)), default=LEAST_CACHE)


def count_sets(shape: ConvShape, dtype: torch.dtype, device: torch.device) -> int:
    """How many sets of operands no cache holds together; bounded by memory."""
    one = shape.elements * (2 if dtype in HALVES else 4)
    needed = ceil(CACHE_SHARE * last_cache_bytes(device) / one) + 1
    return max(2, min(needed, MOST_SETS, MOST_BYTES // one))


class HostTimer:
    """Samples of calls by the host's clock."""

    clock = "host, monotonic"

    def __init__(self, calls: Sequence[Call]) -> None:
        self._rotating, self._first = cycle(calls), calls[0]
        self._first()
        start_s = perf_counter()
        self._first()
        self._times = max(1, round(SAMPLE_S / max(perf_counter() - start_s, 1e-7)))

    def sample(self) -> float:
        """Seconds of a call, each on other operands than the one before."""
        calls = [next(self._rotating) for _ in range(self._times)]
        start_s = perf_counter()
        for call in calls:
            call()
        return (perf_counter() - start_s) / self._times

    def sample_warm(self) -> float:
        """Seconds of a call on the operands of the call before."""
        start_s = perf_counter()
        for _ in range(self._times):
            self._first()
        return (perf_counter() - start_s) / self._times


GRAPH_CLOCK = "CUDA graph, device events"


class GraphTimer:
    """Samples of a CUDA graph that has all calls, by events of the device.

    Where calls cannot be captured, they are given out by the host, which small kernels wait for.
    """

    def __init__(
        self, calls: Sequence[Call], device: torch.device, stream: torch.cuda.Stream | None = None
    ) -> None:
        self._device, self.clock = device, GRAPH_CLOCK
        self._stream = stream  # where a gradient's forward pass ran, its capture has to run
        self._time_s = event_clock(torch, device.index or 0)
        self._cold, self._calls = self._capture(calls), len(calls)
        self._warm = self._capture([calls[0]] * len(calls))
        self._times = max(1, round(GPU_SAMPLE_S / max(self._time_s(self._cold, 1), 1e-6)))

    def _capture(self, calls: Sequence[Call]) -> Call:
        def run_all() -> None:
            for call in calls:
                call()

        with torch.cuda.device(self._device):
            side = self._stream or torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # a capture wants a warm-up on another stream
                run_all()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, stream=self._stream):
                    run_all()
            except RuntimeError:
                torch.cuda.synchronize()
                self.clock = "device events"
                return run_all
        return graph.replay

    def sample(self) -> float:
        """Seconds of a call, each on other operands than the one before."""
        return self._time_s(self._cold, self._times) / self._calls

    def sample_warm(self) -> float:
        """Seconds of a call on the operands of the call before."""
        return self._time_s(self._warm, self._times) / self._calls


def make_timer(
    calls: Sequence[Call], device: torch.device, *, is_search: bool
) -> HostTimer | GraphTimer:
    with _searching(is_search):
        return GraphTimer(calls, device) if device.type == "cuda" else HostTimer(calls)


@contextmanager
def _searching(is_search: bool) -> Iterator[None]:
    """PyTorch's benchmark mode, which belongs to one algorithm only."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = is_search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


# ---------------------------------------------------------------- what ran


def find_kernels(call: Call, device: torch.device) -> tuple[str, ...]:
    """The kernels of a call on a GPU; on a CPU the operators of PyTorch that compute or copy."""
    if device.type != "cuda":
        with _OperatorNames() as operators:
            call()
        return tuple(dict.fromkeys(operators.names))
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    events: list[Any] = list(profiler.events() or ())
    return tuple(dict.fromkeys(e.name for e in events if e.device_type.name == "CUDA"))


class _OperatorNames(TorchDispatchMode):
    """Notes the operators that are more than a view or memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name)
        if not func.is_view and name not in MEMORY_OPERATORS:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


MEMORY_OPERATORS = ("aten::new_zeros", "aten::empty", "aten::new_empty", "aten::_unsafe_view",
                    "aten::detach", "aten::zeros")  # fmt: skip


def find_onednn(call: Call) -> str:
    """The implementation of a convolution that oneDNN names; empty where it did not run.

    oneDNN prints a line for each primitive, in C, to file descriptor 1.
    """
    with tempfile.TemporaryFile() as file:
        with _output_to(file.fileno()), torch.backends.mkldnn.verbose(1):
            call()
        file.seek(0)
        found = ONEDNN_LINE.findall(file.read().decode(errors="replace"))
    return ", ".join(dict.fromkeys(found))


def find_backend(operands: Operands, shape: ConvShape) -> str:
    """The part of PyTorch that computes a convolution, by PyTorch's own choice; empty if unknown.

    Small ones do not go to oneDNN: they are computed by im2col and a matrix product (Slow2d).
    """
    try:
        chosen = torch._C._select_conv_backend(
            operands.x, operands.w, None, shape.stride, shape.padding, shape.dilation, False,
            (0, 0), shape.groups,
        )  # fmt: skip
    except (AttributeError, TypeError, RuntimeError):  # not a public function
        return ""
    return f"PyTorch {str(chosen).rpartition('.')[2]}"


@contextmanager
def _output_to(target: int) -> Iterator[None]:
    import ctypes

    with suppress(ValueError, OSError):
        sys.stdout.flush()
    flush = ctypes.CDLL(None).fflush
    flush(None)
    before = os.dup(1)
    os.dup2(target, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(before, 1)
        os.close(before)
