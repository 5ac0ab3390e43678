"""The CPU's kernels in C, and threads that run them at once, each on its own core and memory.

A kernel has a name (`memory_read`, `vector_fp32`, `tiles_bf16`) and does `passes` passes over the
memory of one thread. All threads of a sample start together at a gate.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeline.machine.cpu import find_core
from ridgeline.machine.system import SystemIO, find_limits
from ridgeline.provenance import read_text, run_command

SOURCE = Path(__file__).with_name("cpu_kernels.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-ffp-contract=fast", "-fPIC", "-shared")
TARGETS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
COMPILE_LIMIT_S = 120


# ---------------------------------------------------------------- threads


def choose_cpus(io: SystemIO | None = None) -> tuple[int, ...]:
    """One CPU of each core, and no more than a container may use."""
    io = io or SystemIO()
    first: dict[str, int] = {}  # threads of one core share its units, so one of them is enough
    for cpu in list_allowed_cpus():
        first.setdefault(find_core(io, cpu), cpu)
    return tuple(first.values())[: find_limits(io).whole_cpus(len(first))]


def list_allowed_cpus() -> list[int]:
    """The CPUs that the scheduler gives to this process."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


T = TypeVar("T")
HUGE_PAGE_BYTES = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One thread of a team, as a kernel sees it."""

    index: int
    memory: NDArray[np.uint8]  # touched first by this thread, so on its side of the machine
    address: int


class Team:
    """A context manager: the threads live from its start to its end.

    Each is pinned to one of `cpus` where the system can do that; the calling thread is not.
    """

    def __init__(
        self, cpus: Sequence[int], bytes_per_thread: int, bytes_of_first: int | None = None
    ) -> None:
        self.cpus = tuple(cpus)
        self.bytes_per_thread = bytes_per_thread
        self.bytes_of_first = max(bytes_per_thread, bytes_of_first or 0)  # it also works alone
        self._threads: list[ThreadPoolExecutor] = []
        self._workers: list[Future[Worker]] = []

    def __enter__(self) -> Team:
        self._threads = [ThreadPoolExecutor(1, initializer=pin, initargs=(c,)) for c in self.cpus]
        sizes = [self.bytes_of_first] + [self.bytes_per_thread] * (len(self.cpus) - 1)
        self._workers = [
            thread.submit(_make_worker, index, size_bytes)
            for index, (thread, size_bytes) in enumerate(zip(self._threads, sizes, strict=True))
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for thread in self._threads:
            thread.shutdown()

    def run(self, body: Callable[[Worker], T], threads: int) -> list[T]:
        """What `body` returned in each of the first `threads` threads; its error if it failed."""
        pairs = list(zip(self._threads, self._workers, strict=True))[:threads]
        futures = [thread.submit(lambda own: body(own.result()), own) for thread, own in pairs]
        return [future.result() for future in futures]


def pin(cpu: int) -> None:
    """Keep the calling thread on one CPU; where that is not possible it stays free."""
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {cpu})


def _make_worker(index: int, size_bytes: int) -> Worker:
    memory = huge_memory(size_bytes)
    memory[:] = 0  # zeros: no denormal numbers, and every page is there before it is timed
    return Worker(index=index, memory=memory, address=memory.ctypes.data)


def huge_memory(size_bytes: int) -> NDArray[np.uint8]:
    """Memory that starts at a huge page and asks for such pages: fewer misses of the TLB."""
    area = mmap.mmap(-1, size_bytes + HUGE_PAGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, dtype=np.uint8)
    offset = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[offset : offset + size_bytes]


# ---------------------------------------------------------------- compiling


class BuildError(Exception):
    """Why there are no C kernels; becomes the reason of what is missing."""


class Compiler(NamedTuple):
    """A C compiler that starts."""

    path: str
    version: str  # the first line of what it prints about itself

    @property
    def name(self) -> str:
        return Path(self.path).name


def find_compiler() -> Compiler:
    """The first compiler that starts: $CC, then cc, gcc, clang."""
    for name in filter(None, (os.environ.get("CC"), *COMPILERS)):
        path = shutil.which(name)
        version = run_command([path, "--version"]) if path else None
        if path and version and version.strip():
            return Compiler(path=path, version=version.splitlines()[0].strip())
    raise BuildError(f"no C compiler ({', '.join(COMPILERS)}) was found")


def load_library(vector_bytes: int, compiler: Compiler) -> ctypes.CDLL:
    """The kernels for one width of a vector, compiled into a folder that is gone when loaded."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "kernels.so"
        compile_source(path, vector_bytes, compiler)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise BuildError(f"the compiled kernels do not load: {error}") from error


def compile_source(path: Path, vector_bytes: int, compiler: Compiler) -> None:
    """Compile for this processor, as the compiler takes it."""
    errors = ""
    for target in TARGETS:
        command = [compiler.path, *FLAGS, *target, f"-DVECTOR_BYTES={vector_bytes}",
                   str(SOURCE), "-o", str(path)]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise BuildError(f"{compiler.name} could not be run: {error}") from error
        if done.returncode == 0:
            return
        errors = errors or done.stderr
    first = next((line for line in errors.splitlines() if "error" in line), "no message")
    raise BuildError(f"{compiler.name} did not compile the kernels: {first}")


# ---------------------------------------------------------------- kernels

PATTERNS = ("read", "copy", "triad")
COMPUTE_KERNELS = {  # path, precision, accumulator of each kernel
    "vector_fp64": ("vector", "fp64", "fp64"),
    "vector_fp32": ("vector", "fp32", "fp32"),
    "vector_fp16": ("vector", "fp16", "fp16"),
    "vector_bf16": ("vector", "bf16", "fp32"),
    "vector_int8": ("vector", "int8", "int32"),
    "tiles_bf16": ("matrix", "bf16", "fp32"),
    "tiles_int8": ("matrix", "int8", "int32"),
}
DRAM_KERNELS = {  # for each pattern what else may be faster there: streaming stores, many streams
    "read": ("memory_read_split",),
    "copy": ("memory_copy_nt", "memory_copy_nt_split"),
    "triad": ("memory_triad_nt", "memory_triad_nt_split"),
}
WARM_BYTES = 2**26  # larger sets than this are in no cache, so need no warm-up


class Span(NamedTuple):
    """What one thread did in one sample."""

    start_s: float
    end_s: float
    work: float  # flops or bytes


class Gate(NamedTuple):
    """What the threads of a sample meet at."""

    arrived: ctypes.c_int64
    threads: int  # how many are to come


class Kernels:
    """Kernels compiled from cpu_kernels.c; ctypes releases the interpreter while they run."""

    def __init__(self, library: ctypes.CDLL, compiler: Compiler, width: int) -> None:
        self.library = library
        self.how = f"C by {compiler.name} ({compiler.version}), {8 * width}-bit vectors"
        memory = [name for pattern in PATTERNS
                  for name in (f"memory_{pattern}", *DRAM_KERNELS[pattern])]  # fmt: skip
        names = {n for n in (*COMPUTE_KERNELS, *memory, "cycles") if hasattr(library, n)}
        if hasattr(library, "ridgeline_allow_tiles") and library.ridgeline_allow_tiles() != 0:
            names = {name for name in names if not name.startswith("tiles")}
        self.names = frozenset(names)
        self._run = library.ridgeline_run
        pointer, count = ctypes.c_void_p, ctypes.c_long
        self._run.argtypes = [pointer, pointer, ctypes.c_size_t, count, count, pointer,
                              ctypes.c_int64, pointer]  # fmt: skip
        self._kernels = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p) for n in names}

    def run(
        self, name: str, worker: Worker, size_bytes: int, warm: int, passes: int, gate: Gate
    ) -> Span:
        """`warm` passes, the gate, then `passes` timed ones."""
        result = (ctypes.c_double * 3)()
        failed = self._run(self._kernels[name], worker.address, size_bytes, warm, passes,
                           ctypes.byref(gate.arrived), gate.threads, result)  # fmt: skip
        if failed:
            raise TimeoutError("a thread of the sample did not start within ten seconds")
        return Span(*result)


def vector_bytes(cpuinfo: str) -> int:
    """The widest vectors, from the processor's list of instructions."""
    flags = set(cpuinfo.split())
    return 64 if "avx512f" in flags else 32 if "avx" in flags else 16


def build_kernels() -> Kernels:
    """The C kernels; BuildError says why there are none."""
    compiler = find_compiler()
    width = vector_bytes(read_text("/proc/cpuinfo") or "")
    return Kernels(load_library(width, compiler), compiler, width)


class Probe:
    """One sample a call: the rate of a kernel on the first `threads` threads of a team."""

    def __init__(
        self,
        team: Team,
        kernels: Kernels,
        name: str,
        *,
        threads: int,
        size_bytes: int = 0,
        sample_s: float = 0.002,
    ) -> None:
        self.team, self.kernels, self.name = team, kernels, name
        self.threads, self.size_bytes = threads, size_bytes
        self.passes = 0
        self._sample_s = sample_s

    def __call__(self) -> float:
        """Work of all threads over the time from the first start to the last end."""
        if not self.passes:
            self.passes = self._passes_per_sample()
        rate, _ = self._sample(self.passes)
        return rate

    def work_per_call(self) -> float:
        """FLOPs or bytes of one call."""
        self()
        rate, time_s = self._sample(self.passes)
        return rate * time_s

    def _sample(self, passes: int) -> tuple[float, float]:
        gate = Gate(ctypes.c_int64(0), self.threads)
        warm = 1 if 0 < self.size_bytes <= WARM_BYTES else 0

        def body(worker: Worker) -> Span:
            return self.kernels.run(self.name, worker, self.size_bytes, warm, passes, gate)

        spans = self.team.run(body, self.threads)
        time_s = max(max(s.end_s for s in spans) - min(s.start_s for s in spans), 1e-9)
        return sum(s.work for s in spans) / time_s, time_s

    def _passes_per_sample(self) -> int:
        """How many passes last a sample; the quickest of three, for a thread may have to wait."""
        passes = 1
        while True:
            time_s = min(self._sample(passes)[1] for _ in range(3))
            if time_s >= 0.7 * self._sample_s:
                return passes
            passes = max(2 * passes, int(passes * min(1000.0, self._sample_s / time_s)))
