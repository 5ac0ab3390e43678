"""In a process that is profiled: the marked step, and before it work of known size.

`profile_step` marks the step that `ridgeline profile` is to look at. Without `ridgeline profile`
around the program it does nothing. With it, the first marked steps are warm-up, one is looked at,
and the program ends: nobody needs the rest. What is to be done is in a file that an environment
variable names.

Every process that counts first counts a copy and matrix products, so each profile brings its own
proof: what the counters say over what is true must be near 1 (step_kernels.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

JOB = "RIDGELINE_PROFILE_JOB"
TRACE, COUNTERS, INSIDE = "trace", "counters", "inside"
WAIT_S = 3600.0  # for the turn of this process: others may count for long
POLL_S = 0.005
REFUSED = "refused"  # what a process says that cannot do its job, and why
PARENT_CHECK_S = 1.0  # how often to see whether the parent process is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one process of a profile has to do."""

    name: str
    role: str  # TRACE, COUNTERS (someone else's, around it) or INSIDE (its own)
    folder: str  # of files that both sides read
    parent_id: int = field(default_factory=os.getpid)  # the process that asks
    warmup: int = 3  # marked steps before the one
    steps: int = 1
    has_marks: bool = True  # False: compiled code, which nothing may look into
    kinds: tuple[str, ...] = ()  # matrix products of the self-test, beside fp32
    precision: str = ""  # with INSIDE: what its metrics are chosen by …
    level: str = "dram"  # … as these
    metrics: tuple[str, ...] = ()  # that the user names

    def path(self, kind: str) -> Path:
        return Path(self.folder) / f"{self.name}.{kind}"

    def write(self) -> Path:
        path = self.path("job.json")
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


@dataclass(slots=True)
class _SeenSteps:
    """The marked steps of this process so far."""

    steps: int = 0
    times_s: list[float] = field(default_factory=list)  # of unprofiled ones


_seen = _SeenSteps()


def job_here() -> Job | None:
    """What this process has to do; None when nobody profiles it."""
    path = os.environ.get(JOB)
    if not path:
        return None
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    lists = {name: tuple(content[name]) for name in ("kinds", "metrics")}
    return Job(**{**content, **lists})


@contextmanager
def profile_step() -> Iterator[None]:
    """Mark one step: everything in the block, on all threads, is what gets profiled."""
    job = job_here()
    if job is None:
        yield
        return
    _need_one_process()
    _seen.steps += 1
    if _seen.steps <= job.warmup:
        with _timed():
            yield
        return
    if _seen.steps == job.warmup + 1:
        _prepare(job)
    with _traced(job) if job.role == TRACE else _counted(job):
        yield
    if _seen.steps >= job.warmup + job.steps:
        job.path("done").touch()  # the device is free for the next one
        sys.stdout.flush()
        sys.exit(0)


def _need_one_process() -> None:
    """All processes of torchrun would answer the same job, and wait for one another for ever."""
    of = os.environ.get("WORLD_SIZE", "1")
    if of != "1":
        sys.exit(
            f"ridgeline: this is one of {of} processes, and one alone can be profiled: start it "
            "without torchrun, or with --nproc-per-node 1"
        )


@contextmanager
def _timed() -> Iterator[None]:
    import torch

    torch.cuda.synchronize()
    start_s = time.perf_counter()
    yield
    torch.cuda.synchronize()
    _seen.times_s.append(time.perf_counter() - start_s)


def _prepare(job: Job) -> None:
    """The device idle, our turn come, and the known work counted."""
    import torch

    torch.cuda.synchronize()
    job.path("times.json").write_text(json.dumps(_seen.times_s), encoding="utf-8")
    if job.role != COUNTERS:
        wait_for(job, "go", after="ready")
        return
    load_known_work(job.kinds)
    wait_for(job, "go", after="ready")
    run_known_work(job.kinds, copy_size())


def wait_for(job: Job, sign: str, *, after: str) -> str:
    """Say `after`, and wait until the one who asked gives the sign; what it says."""
    job.path(after).touch()
    end_s = time.monotonic() + WAIT_S
    look_s = 0.0
    while not job.path(sign).exists():
        now_s = time.monotonic()
        if now_s > end_s:
            sys.exit(f"ridgeline: {job.name} waited {WAIT_S:.0f} s for its turn")
        if now_s > look_s:
            look_s = now_s + PARENT_CHECK_S
            if is_parent_gone(job):
                sys.exit(f"ridgeline: the parent process of {job.name} ended")
        time.sleep(POLL_S)
    return job.path(sign).read_text(encoding="utf-8")


def is_parent_gone(job: Job) -> bool:
    """Whether the process that asked has ended, and nobody waits for this one."""
    import psutil

    try:
        return bool(psutil.Process(job.parent_id).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def _traced(job: Job) -> Iterator[None]:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        with _numbered(job, record_function):
            yield
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(job.path(f"trace{_seen.steps - job.warmup}.json")))


@contextmanager
def _counted(job: Job) -> Iterator[None]:
    import torch

    torch.cuda.profiler.start()
    try:
        with _numbered(job, _nvtx):
            yield
    finally:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


@contextmanager
def _numbered(job: Job, named: Any) -> Iterator[None]:
    """With a range around every operator, and the list of operators written afterwards."""
    if not job.has_marks:
        yield
        return
    from ridgeline.profile.op_ranges import OpRanges

    ranges = OpRanges(named)
    with ranges.watching():
        yield
    rows = [asdict(call) for call in ranges.calls]
    path = job.path(f"ops{_seen.steps - job.warmup}.json")
    path.write_text(json.dumps(rows), encoding="utf-8")


@contextmanager
def _nvtx(name: str) -> Iterator[None]:
    from torch.cuda import nvtx

    nvtx.range_push(name)
    try:
        yield
    finally:
        nvtx.range_pop()


# ---------------------------------------------------------------- work of known size

KNOWN_WORK = "ridgeline:test:"
SIDE = 2048  # of the matrices
COPY_BYTES = (2**30, 2**28)  # read once and written once; the smaller one where memory is short
SMALL_COPY_BYTES = 2**20
NameRange = Callable[[str], AbstractContextManager[None]]


def load_known_work(kinds: Sequence[str]) -> None:
    """The same work unseen, so that libraries are loaded; of the copy, a small one."""
    run_known_work(kinds, SMALL_COPY_BYTES, lambda name: nullcontext())


def copy_size() -> int:
    """Of the copy, as far as memory is free now; 0 for none."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return next((size for size in COPY_BYTES if 4 * size < free_bytes), 0)


def run_known_work(
    kinds: Sequence[str], copy_bytes: int, name_range: NameRange | None = None
) -> None:
    """Copy, and multiply in fp32 and each of `kinds`, each in a range of its name."""
    import torch

    name_range = name_range or _profiled_range
    torch.cuda.synchronize()
    if copy_bytes:
        source = torch.ones(copy_bytes // 4, device="cuda")
        target = torch.empty_like(source)
        torch.cuda.synchronize()
        with name_range(f"{KNOWN_WORK}copy:{copy_bytes}"):
            torch.neg(source, out=target)  # not copy_, which the copy engine does without a kernel
            torch.cuda.synchronize()
        del source, target
    is_tf32_allowed = torch.backends.cuda.matmul.allow_tf32
    for kind in dict.fromkeys(("fp32", *kinds)):
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
        matrix = torch.ones(SIDE, SIDE, device="cuda", dtype=dtype)
        result = torch.empty_like(matrix)
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        torch.cuda.synchronize()
        with name_range(f"{KNOWN_WORK}product:{kind}"):
            torch.mm(matrix, matrix, out=result)
            torch.cuda.synchronize()
    torch.backends.cuda.matmul.allow_tf32 = is_tf32_allowed
    torch.cuda.empty_cache()


@contextmanager
def _profiled_range(name: str) -> Iterator[None]:
    """A range that a profiler around the process listens to."""
    import torch

    torch.cuda.profiler.start()
    with _nvtx(name):
        yield
    torch.cuda.profiler.stop()
