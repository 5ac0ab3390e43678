"""The CPU's kernels behind one interface: C, or numpy where there is no compiler; matrix products.

A kernel has a name (`memory_read`, `vector_fp32`, `tiles_bf16`) and does `passes` passes over the
memory of one thread. All threads of a sample start together at a gate.

The C kernels are compiled where they are first needed. The name of a cached library is a hash of
what it was made from: source, compiler, flags and processor. A cache that is shared between
machines therefore never hands out the wrong one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from ridgeline.machine.cpu_threads import Team, Worker
from ridgeline.machine.sampling import best_of_rounds, rate_probe, time_calls
from ridgeline.provenance import read_text

SOURCE = Path(__file__).with_name("cpu_kernels.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-ffp-contract=fast", "-fPIC", "-shared")
TARGETS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
OPTIONAL = (("-fopenmp",), ())  # Apple's compiler comes without OpenMP
LIMIT_S = 120

Which = Callable[[str], str | None]
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class BuildError(Exception):
    """Why there are no C kernels; becomes the reason of what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C compiler that answered."""

    path: str
    version: str  # the first line of what it says about itself


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command with its output; never for longer than two minutes."""
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def find_compiler(
    *, which: Which = shutil.which, run: Run = run, environ: Mapping[str, str] = os.environ
) -> Compiler:
    """The first compiler that answers: $CC, then cc, gcc, clang."""
    for name in filter(None, (environ.get("CC"), *COMPILERS)):
        path = which(name)
        if path is None:
            continue
        try:
            said = run([path, "--version"])
        except (OSError, subprocess.SubprocessError):
            continue
        if said.returncode == 0 and said.stdout.strip():
            return Compiler(path=path, version=said.stdout.splitlines()[0].strip())
    raise BuildError(f"no C compiler ({', '.join(COMPILERS)}) was found")


def cache_folder(environ: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """Where the user keeps what can be made again."""
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "ridgeline"
    caches = Path("Library", "Caches") if system == "darwin" else Path(".cache")
    return Path.home() / caches / "ridgeline"


def processor(read: Callable[[str], str | None] = read_text) -> str:
    """What tells one processor from another: its model and its instructions."""
    lines = (read("/proc/cpuinfo") or "").splitlines()
    names = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    told = [line for line in lines if line.partition(":")[0].strip() in names]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(told)])


def library(
    vector_bytes: int,
    compiler: Compiler,
    *,
    folder: Path | None = None,
    source: Path = SOURCE,
    cpu: str | None = None,
    run: Run = run,
) -> ctypes.CDLL:
    """The kernels for one width of a vector, loaded."""
    path = _cache_path(vector_bytes, compiler, folder or cache_folder(), source, cpu or processor())
    if path.exists():
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # half a file, or of another system: made again
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: good for this run only
        path = Path(tempfile.mkdtemp(prefix="ridgeline-")) / path.name
    compile_source(source, path, vector_bytes, compiler, run=run)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the compiled kernels do not load: {error}") from error


def compile_source(
    source: Path, path: Path, vector_bytes: int, compiler: Compiler, *, run: Run = run
) -> None:
    """Compile under a temporary name, then rename: a killed compiler leaves nothing behind."""
    said = ""
    for target in TARGETS:
        for optional in OPTIONAL:
            made = path.with_name(f"{path.name}.{os.getpid()}")
            command = [compiler.path, *FLAGS, *target, *optional, f"-DVECTOR_BYTES={vector_bytes}",
                       str(source), "-o", str(made)]  # fmt: skip
            try:
                done = run(command)
            except (OSError, subprocess.SubprocessError) as error:
                raise BuildError(f"{Path(compiler.path).name} could not be run: {error}") from error
            if done.returncode == 0 and made.exists():
                made.replace(path)
                return
            made.unlink(missing_ok=True)
            said = said or done.stderr.strip()
    first = next((line for line in said.splitlines() if "error" in line), "no message")
    raise BuildError(f"{Path(compiler.path).name} did not compile the kernels: {first}")


def _cache_path(
    vector_bytes: int, compiler: Compiler, folder: Path, source: Path, cpu: str
) -> Path:
    made_from = "\n".join(
        (source.read_text(encoding="utf-8"), compiler.path, compiler.version, cpu,
         repr((FLAGS, TARGETS, OPTIONAL)), str(vector_bytes))
    )  # fmt: skip
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:20]
    return folder / "kernels" / f"cpu-{vector_bytes}-{digest}.so"


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
MEMORY_KERNELS = tuple(f"memory_{pattern}" for pattern in PATTERNS)
DRAM_KERNELS = {  # for each pattern what else may be faster there: streaming stores, many streams
    "read": ("memory_read_split",),
    "copy": ("memory_copy_nt", "memory_copy_nt_split"),
    "triad": ("memory_triad_nt", "memory_triad_nt_split"),
}
BARRIER_LIMIT_S = 10
TRIAL_BYTES = 16 * 1024
WARM_BYTES = 2**26  # larger sets than this are in no cache, so need no warm-up

GetCompiler = Callable[[], Compiler]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one thread did in one sample."""

    start_s: float
    end_s: float
    work: float  # flops or bytes


class Kernels(Protocol):
    """One way to run kernels."""

    how: str
    names: frozenset[str]

    def gate(self, threads: int) -> Any:
        """What the threads of one sample meet at."""

    def run(
        self, name: str, worker: Worker, size_bytes: int, warm: int, passes: int, gate: Any
    ) -> Span:
        """`warm` passes, the gate, then `passes` timed ones."""


class CKernels:
    """Kernels compiled from cpu_kernels.c; ctypes releases the interpreter while they run."""

    def __init__(self, library: ctypes.CDLL, compiler: Compiler, width: int) -> None:
        self.library = library
        self.width = width
        self.how = f"C by {Path(compiler.path).name} ({compiler.version}), {8 * width}-bit vectors"
        possible = {
            *COMPUTE_KERNELS,
            *MEMORY_KERNELS,
            *(x for others in DRAM_KERNELS.values() for x in others),
            "cycles",
        }
        names = {name for name in possible if hasattr(library, name)}
        if hasattr(library, "ridgeline_allow_tiles") and library.ridgeline_allow_tiles() != 0:
            names = {name for name in names if not name.startswith("tiles")}
        self.names = frozenset(names)
        self._run = library.ridgeline_run
        pointer, count = ctypes.c_void_p, ctypes.c_long
        self._run.argtypes = [pointer, pointer, ctypes.c_size_t, count, count, pointer,
                              ctypes.c_int64, pointer]  # fmt: skip
        self._kernels = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p) for n in names}
        library.ridgeline_parallel_region.restype = ctypes.c_double
        library.ridgeline_parallel_region.argtypes = [ctypes.c_int, ctypes.c_long]

    def gate(self, threads: int) -> tuple[ctypes.c_int64, int]:
        """A counter of those who have come, and how many are to come."""
        return ctypes.c_int64(0), threads

    def run(
        self, name: str, worker: Worker, size_bytes: int, warm: int, passes: int, gate: Any
    ) -> Span:
        """See Kernels."""
        arrived, everyone = gate
        result = (ctypes.c_double * 3)()
        failed = self._run(self._kernels[name], worker.address, size_bytes, warm, passes,
                           ctypes.byref(arrived), everyone, result)  # fmt: skip
        if failed:
            raise TimeoutError("a thread of the sample did not start within ten seconds")
        return Span(start_s=result[0], end_s=result[1], work=result[2])

    def parallel_region_s(self, threads: int, regions: int) -> float | None:
        """Seconds of an empty OpenMP region; None if compiled without OpenMP."""
        taken_s = float(self.library.ridgeline_parallel_region(threads, regions))
        return taken_s if taken_s > 0 else None


class PythonKernels:
    """Kernels that are Python callables, `function(memory, passes) -> work`."""

    def __init__(self, how: str, functions: dict[str, Callable[[Any, int], float]]) -> None:
        self.how = how
        self.names = frozenset(functions)
        self._functions = functions

    def gate(self, threads: int) -> threading.Barrier:
        """A barrier of the standard library; it costs some 50 µs, so samples should be longer."""
        return threading.Barrier(threads)

    def run(
        self, name: str, worker: Worker, size_bytes: int, warm: int, passes: int, gate: Any
    ) -> Span:
        """See Kernels."""
        function, memory = self._functions[name], worker.memory[:size_bytes]
        if warm:
            function(memory, warm)
        gate.wait(timeout=BARRIER_LIMIT_S)
        start_s = perf_counter()
        work = function(memory, passes)
        return Span(start_s=start_s, end_s=perf_counter(), work=work)


def vector_widths(cpu: str) -> tuple[int, ...]:
    """Bytes of the vectors that are worth trying, from the processor's list of instructions."""
    flags = set(cpu.split())
    if "avx512f" in flags:
        return 64, 32  # on some processors the narrower ones are as fast, at a higher clock
    return (32,) if "avx" in flags else (16,)


def c_kernels(
    *, compiler: GetCompiler = find_compiler, folder: Path | None = None
) -> list[CKernels]:
    """The C kernels, one set for each width; BuildError says why there are none."""
    found, cpu = compiler(), processor()
    return [
        CKernels(library(width, found, folder=folder), found, width) for width in vector_widths(cpu)
    ]


def numpy_kernels() -> PythonKernels:
    """What numpy reaches: large reads and copies."""

    def read(memory: Any, passes: int) -> float:
        whole = memory[: memory.size // 8 * 8].view(np.int64)
        for _ in range(passes):
            whole.max()
        return float(passes * whole.nbytes)

    def copy(memory: Any, passes: int) -> float:
        half = memory.size // 2
        for _ in range(passes):
            np.copyto(memory[half : 2 * half], memory[:half])
        return float(passes * 2 * half)

    return PythonKernels(f"numpy {np.__version__}", {"memory_read": read, "memory_copy": copy})


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
        self.team = team
        self.kernels = kernels
        self.name = name
        self.threads = threads
        self.size_bytes = size_bytes
        self.passes = 0
        self._sample_s = sample_s

    def __call__(self) -> float:
        """Work of all threads over the time from the first start to the last end."""
        if not self.passes:
            self.passes = self._passes_per_sample()
        rate, _ = self._sample(self.passes)
        return rate

    def _sample(self, passes: int) -> tuple[float, float]:
        gate = self.kernels.gate(self.threads)
        warm = 1 if 0 < self.size_bytes <= WARM_BYTES else 0

        def body(worker: Worker) -> Span:
            return self.kernels.run(self.name, worker, self.size_bytes, warm, passes, gate)

        spans = self.team.run(body, self.threads)
        taken_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
        taken_s = max(taken_s, 1e-9)
        return sum(s.work for s in spans) / taken_s, taken_s

    def _passes_per_sample(self) -> int:
        """How many passes last a sample; the quickest of three, for a thread may have to wait."""
        passes = 1
        while True:
            taken_s = min(self._sample(passes)[1] for _ in range(3))
            if taken_s >= 0.7 * self._sample_s:
                return passes
            passes = max(2 * passes, int(passes * min(1000.0, self._sample_s / taken_s)))


def choose(team: Team, candidates: Sequence[Kernels], threads: int) -> dict[str, Kernels]:
    """For each kernel the set that runs it fastest; those for DRAM as their plain ones."""
    names = {name for kernels in candidates for name in kernels.names}
    chosen: dict[str, Kernels] = {}
    for name in sorted(names - {name for others in DRAM_KERNELS.values() for name in others}):
        able = [kernels for kernels in candidates if name in kernels.names]
        size_bytes = TRIAL_BYTES if name in MEMORY_KERNELS else 0
        trials = {
            i: Probe(team, kernels, name, threads=threads, size_bytes=size_bytes, sample_s=0.001)
            for i, kernels in enumerate(able)
        }
        best = best_of_rounds(trials, rounds=10) if len(able) > 1 else {0: 0.0}
        chosen[name] = able[max(best, key=lambda i: best[i])]
    for pattern, others in DRAM_KERNELS.items():
        plain = chosen.get(f"memory_{pattern}")
        if plain is not None:
            chosen |= {name: plain for name in others if name in plain.names}
    return chosen


# ---------------------------------------------------------------- matrix products

SIDES = (384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
FORMS = ((1, 1, 1), (2, 2, 0.5), (1, 1, 4))  # square; a wide result; a long sum
SAMPLE_S = 0.003
SEARCH_ROUNDS = 5
LONGEST_S = {True: 0.03, False: 0.1}  # of one product, by quick
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # as /proc/cpuinfo has them, x86 and Arm

Product = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The best shape of one precision, ready to be sampled."""

    precision: str
    how: str
    probe: Callable[[], float]


def matrix_precisions(flags: set[str]) -> tuple[str, ...]:
    """What is worth running: bf16 without its instructions is over a hundred times slower."""
    has_bf16 = any(name in flags for name in BF16_INSTRUCTIONS)
    return ("fp32", "fp64", "bf16") if has_bf16 else ("fp32", "fp64")


def shapes() -> list[tuple[int, int, int]]:
    """M, N, K by the work they are, small first."""
    found = {
        (round(side * m), round(side * n), round(side * k)) for side in SIDES for m, n, k in FORMS
    }
    return sorted(found, key=lambda s: (s[0] * s[1] * s[2], s))


def best_product(precision: str, *, quick: bool) -> Matrix | None:
    """Try shapes until one product takes too long; None if neither library has this precision."""
    probes: dict[tuple[int, int, int], Callable[[], float]] = {}
    library = ""
    for shape in shapes():
        product = _product(precision, shape)
        if product is None:
            return None
        call, library = product
        call()  # the first call of a shape sets things up
        taken_s = min(time_calls(call, 1) for _ in range(2))
        probes[shape] = rate_probe(call, _flops(shape), sample_s=SAMPLE_S)
        if taken_s > LONGEST_S[quick]:
            break
    rates = best_of_rounds(probes, rounds=SEARCH_ROUNDS)
    shape = max(rates, key=lambda shape: rates[shape])
    how = f"{library} {shape[0]}x{shape[1]}x{shape[2]}"
    return Matrix(precision=precision, how=how, probe=probes[shape])


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use this many threads, and give it back what it had."""
    torch = _torch()
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _flops(shape: tuple[int, int, int]) -> float:
    m, n, k = shape
    return 2.0 * m * n * k


def _product(precision: str, shape: tuple[int, int, int]) -> tuple[Product, str] | None:
    """The product as a call, and what it is called."""
    m, n, k = shape
    torch = _torch()
    if torch is not None:
        kind = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}[precision]
        a, b, c = (torch.rand(size).to(kind) for size in ((m, k), (k, n), (m, n)))
        return lambda: torch.mm(a, b, out=c), "torch.mm"
    import numpy as np

    if precision not in ("fp32", "fp64"):
        return None
    dtype = np.float32 if precision == "fp32" else np.float64
    generator = np.random.default_rng(0)
    x, y, z = (generator.random(size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    return lambda: np.matmul(x, y, out=z), "numpy.matmul"


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
