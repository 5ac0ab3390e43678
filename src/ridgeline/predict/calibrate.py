"""Calibrate a machine: choose points of the corpus, measure them, and fit their curves.

The choice takes turns between groups of operators: the next point is of the group whose unmeasured
share of all work is largest, and in it the heaviest point far from those that were measured.

On a CPU the points of a batch take turns. Each runs twice a round, its activations are touched in
between, and the second time counts: in a step, too, operands and results are in memory that was
used just before. A sample during which the system took a core away is discarded. On a GPU a CUDA
graph repeats a call over several sets of operands, which together no cache holds, and over one.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache, partial
from heapq import heapify, heappop, heappush
from importlib.resources import files
from math import inf
from mmap import mmap
from statistics import median
from time import perf_counter

import torch

from ridgeline.conv.measuring import (
    CACHE_SHARE,
    GRAPH_CLOCK,
    GraphTimer,
    free_bytes,
    last_cache_bytes,
)
from ridgeline.count.counting import Settings as CountSettings
from ridgeline.count.counting import count_workload
from ridgeline.count.result import CountResult
from ridgeline.machine.describe import Description
from ridgeline.measure.backends import choose_backend
from ridgeline.measure.measure_workload import build_stepper
from ridgeline.measure.step import Stepper, torch_settings
from ridgeline.measure.timing import NoMarks, measure_kernel_time
from ridgeline.predict.allocator import keep_memory
from ridgeline.predict.calibration import (
    Calibration,
    CalibrationPoint,
    HostCosts,
    PastPrediction,
    Peak,
    curve_name,
)
from ridgeline.predict.operators import (
    OPTIMIZER,
    OperatorPoint,
    Use,
    features_of,
    optimizer_point,
    points_of,
)
from ridgeline.predict.predict import (
    estimate_uses,
    expect_error,
    operator_times,
    schedule_uses,
)
from ridgeline.predict.replay import Normal, Replay, make_replay
from ridgeline.records import WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.workloads import resolve

OnProgress = Callable[[str, float], None]  # what is measured, and the share of the budget

BATCH_POINTS, BATCH_BYTES = 40, 1 << 30  # that take turns on a CPU
CLEAN_SAMPLES, MOST_ROUNDS = 5, 10
ENOUGH_S = 0.15  # of samples of one call: of a long one there are two
LONGEST_SHARE = 0.001  # of the budget, that one call may take
FIRST_FLOPS_PER_S, FIRST_BYTES_PER_S = 3e10, 5e9  # of a CPU before anything is measured
GPU_SAMPLES, MOST_SETS, MOST_SET_BYTES = 8, 32, 4 << 30
ENOUGH_POINTS, GOOD_ERROR = 12, 0.04  # a group ends early with a smaller error
OPTIMIZERS = ("sgd", "adam", "adamw")
OPTIMIZER_SIZES = ((2, 10_000), (60, 2_000_000), (160, 11_000_000), (160, 40_000_000),
                   (400, 20_000_000))  # fmt: skip
LOWER = {"bf16": "bf16", "fp16": "fp16", "amp": "fp16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to calibrate."""

    device: str  # "cpu", "cuda:0"
    precisions: tuple[str, ...] = ("fp32",)
    budget_s: float = 90.0
    groups: tuple[str, ...] = ()  # none: all


@dataclass(slots=True)
class Measured:
    """What a calibration has until now; it is whole after every batch."""

    points: list[CalibrationPoint] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # why a point was not measured
    disturbed: int = 0  # samples that were discarded


# ---------------------------------------------------------------- choosing


@cache
def read_corpus() -> tuple[tuple[OperatorPoint, float], ...]:
    """The points of popular networks with their weights, the heaviest first."""
    data = files("ridgeline.predict").joinpath("corpus.json.gz").read_bytes()
    content = json.loads(gzip.decompress(data))
    names = content["fields"][:-1]
    assert names == [f.name for f in fields(OperatorPoint)]
    rows = []
    for *values, weight in content["points"]:
        known = dict(zip(names, values, strict=True))
        rows.append((OperatorPoint(**{**known, "output": tuple(known["output"])}), weight))
    return tuple(rows)


def corpus_points(plan: Plan) -> list[tuple[OperatorPoint, float]]:
    """The corpus in the precisions of a plan, with points of optimizers."""
    points = [
        (in_precision(point, precision), weight)
        for precision in plan.precisions
        for point, weight in read_corpus()
    ]
    mean = sum(weight for _, weight in points) / max(len(points), 1)
    points += [(point, 5 * mean) for point in optimizer_points()]
    return list({
        point.key: (point, weight)
        for point, weight in points
        if not plan.groups  # or its group or kind is named: "conv", "conv 3x3", "optimizer"
        or any(point.kind == name or point.group.startswith(name) for name in plan.groups)
    }.values())  # fmt: skip


def in_precision(point: OperatorPoint, precision: str) -> OperatorPoint:
    """A point of the corpus, which is in fp32, as a step of another precision calls it."""
    if precision == "tf32":
        return replace(point, precision="tf32") if point.is_product else point
    lower = LOWER.get(precision)
    if lower is None or (precision == "amp" and not point.is_product) or point.precision != "fp32":
        return point
    return replace(
        point, precision=lower, arguments=point.arguments.replace('"fp32"', f'"{lower}"'),
        moved_bytes=point.moved_bytes / 2,
    )  # fmt: skip


def optimizer_points() -> Iterator[OperatorPoint]:
    for name in OPTIMIZERS:
        slots = {"sgd": 3, "adam": 7, "adamw": 7}[name]
        for tensors, elements in OPTIMIZER_SIZES:
            yield optimizer_point(
                name, tensors=tensors, elements=elements, flops=slots * 2 * elements,
                moved_bytes=slots * 4 * elements,
            )  # fmt: skip


def choose_order(
    points: Sequence[tuple[OperatorPoint, float]], known: Iterable[str] = ()
) -> list[OperatorPoint]:
    """All points in the order in which they are worth measuring."""
    done = set(known)
    groups: dict[str, list[tuple[OperatorPoint, float]]] = {}
    for point, weight in points:
        if point.key not in done:
            groups.setdefault(curve_name(point), []).append((point, weight))
    queues = {name: _far_and_heavy(members) for name, members in groups.items()}
    left = {name: sum(weight for _, weight in members) for name, members in groups.items()}
    heap = [(-left[name], name) for name in queues]
    heapify(heap)
    order: list[OperatorPoint] = []
    taken = dict.fromkeys(queues, 0)
    while heap:
        _, name = heappop(heap)
        point, weight = queues[name][taken[name]]
        taken[name] += 1
        left[name] -= weight
        order.append(point)
        if taken[name] < len(queues[name]):
            heappush(heap, (-left[name] / taken[name] ** 1.5, name))
    return order


def _far_and_heavy(members: list[tuple[OperatorPoint, float]]) -> list[tuple[OperatorPoint, float]]:
    """Heavy points first, of those near each other one: by weight times distance."""
    import numpy as np

    members = sorted(members, key=lambda one: -one[1])[:MOST_OF_GROUP]
    sizes = [features_of(point).dims for point, _ in members]
    width = max(map(len, sizes))
    places = np.log2([[*map(float, one), *[1.0] * (width - len(one))] for one in sizes])
    weights = np.array([weight for _, weight in members]) + 1e-12
    distances = np.full(len(members), FAR)
    order = []
    for _ in range(len(members)):
        best = int(np.argmax(weights * np.minimum(distances, FAR) ** 2))
        order.append(members[best])
        distances = np.minimum(distances, 0.1 + np.sqrt(((places - places[best]) ** 2).sum(1)))
        weights[best] = -1.0
    return order


MOST_OF_GROUP, FAR = 600, 4.0  # octaves, beyond which a point is no farther


# ---------------------------------------------------------------- measuring


def measure_points(
    order: Sequence[OperatorPoint],
    device: torch.device,
    budget_s: float,
    measured: Measured,
    on_progress: OnProgress = lambda what, share: None,
    clock: Callable[[], float] = perf_counter,
) -> None:
    """Measure points in their order until the time is spent; `measured` is whole at any moment."""
    start_s, queue = clock(), deque(order)
    normal = Normal(device)
    finished: set[str] = set()
    while queue and clock() - start_s < budget_s:
        longest_s = LONGEST_SHARE * budget_s if device.type == "cpu" else inf
        known = Calibration(machine="-", device=device.type, points=tuple(measured.points[-200:]))
        batch = take_batch(queue, add_peaks(known), finished, longest_s)
        if not batch:
            continue
        on_progress(batch[0].group, min(1.0, (clock() - start_s) / budget_s))
        batch.sort(key=lambda point: point.moved_bytes)  # neighbours leave alike caches
        with torch.no_grad():
            if device.type == "cuda":
                _measure_on_gpu(batch, device, normal, measured)
            else:
                _measure_on_cpu(batch, device, normal, measured)
        finished |= _find_finished(measured, {curve_name(point) for point in batch})


def take_batch(
    queue: deque[OperatorPoint], known: Calibration, finished: set[str], longest_s: float
) -> list[OperatorPoint]:
    """The next points; those that would take too long by the rates so far are passed over."""
    rates = [one.sustained_flops_per_s for one in known.peaks]
    flops_per_s = max(rates, default=FIRST_FLOPS_PER_S)
    bytes_per_s = min(known.cache_bytes_per_s or FIRST_BYTES_PER_S, FIRST_BYTES_PER_S)
    batch: list[OperatorPoint] = []
    while queue and len(batch) < BATCH_POINTS:
        point = queue.popleft()
        least_s = max(point.flops / flops_per_s, point.moved_bytes / bytes_per_s)
        if least_s < longest_s and curve_name(point) not in finished:
            batch.append(point)
    return batch


def _find_finished(measured: Measured, names: set[str]) -> set[str]:
    """The groups in which a point that was left out is estimated well."""
    finished = set()
    so_far = Calibration(machine="-", device="-", points=tuple(measured.points))
    for name in names:
        points = so_far.groups.get(name, ())
        if len(points) >= ENOUGH_POINTS and len(points) % 4 == 0:
            so_far_limits = add_peaks(replace(so_far, points=points))
            errors = so_far_limits.fit_curves().operator_errors
            if errors and median(map(abs, errors)) < GOOD_ERROR:
                finished.add(name)
    return finished


def _measure_on_cpu(
    points: Sequence[OperatorPoint], device: torch.device, normal: Normal, measured: Measured
) -> None:
    waiting = list(points)
    while waiting:
        replays: dict[str, tuple[OperatorPoint, Replay]] = {}
        nbytes = 0
        while waiting and nbytes < BATCH_BYTES:
            point = waiting.pop(0)
            made = _try_replay(point, device, normal, measured)
            if made is not None:
                replays[point.key] = (point, made)
                nbytes += made.nbytes
        samples, discarded = sample_in_turns({key: r for key, (_, r) in replays.items()})
        measured.disturbed += discarded
        measured.points += [
            _calibrated(replays[key][0], taken) for key, taken in samples.items() if taken
        ]


def _try_replay(
    point: OperatorPoint, device: torch.device, normal: Normal, measured: Measured
) -> Replay | None:
    try:
        made = make_replay(point, device, normal)
        made.run()  # what cannot run says so here
    except Exception as error:  # of any operator: the other points go on
        text = " ".join(str(error).split())[:200]
        measured.refused[point.key] = f"{point.op}: {text or type(error).__name__}"
        return None
    return made


def _calibrated(point: OperatorPoint, samples: Sequence[float]) -> CalibrationPoint:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return CalibrationPoint(
        point=point, samples_s=tuple(round(one, 9) for one in samples), measured_at=now
    )


def sample_in_turns(
    replays: Mapping[str, Replay], clock: Callable[[], float] = perf_counter
) -> tuple[dict[str, list[float]], int]:
    """Seconds of each call, one of each in every round, and how many samples were disturbed."""
    clean: dict[str, list[float]] = {key: [] for key in replays}
    rough: dict[str, list[float]] = {key: [] for key in replays}
    results: deque[object] = deque(maxlen=2)  # as in a network: the last result is in use
    for number in range(MOST_ROUNDS):
        for key, replay in replays.items():
            if _has_enough(clean[key], rough[key]):
                continue
            replay.run()  # its result is in memory that a step has just used
            for tensor in replay.activations:
                tensor.data.mul_(1.0)  # as if the operator before had just written it
            preempted = count_preemptions()
            start_s = clock()
            results.append(replay.run())
            taken_s = clock() - start_s
            if number == 0:
                continue  # the first warms up what is kept by library and allocator
            is_clean = count_preemptions() == preempted
            (clean if is_clean else rough)[key].append(taken_s)
        if all(_has_enough(clean[key], rough[key]) for key in replays):
            break
    discarded = sum(len(rough[key]) for key in replays if clean[key])
    kept = {key: clean[key] or sorted(rough[key])[:1] for key in replays}
    return kept, discarded


def _has_enough(clean: Sequence[float], rough: Sequence[float]) -> bool:
    spent_s = sum(clean) + sum(rough)
    is_enough = spent_s > ENOUGH_S and len(clean) + len(rough) > 1
    return len(clean) >= CLEAN_SAMPLES or is_enough


def count_preemptions() -> int:
    """How often the system took a core from this process; 0 where it does not say."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _measure_on_gpu(
    points: Sequence[OperatorPoint], device: torch.device, normal: Normal, measured: Measured
) -> None:
    stream = torch.cuda.Stream(device)
    for point in points:
        with tf32_for(point.precision):
            with torch.cuda.stream(stream):
                first = _try_replay(point, device, normal, measured)
            if first is None:
                continue
            try:
                samples, warm_s = _sample_on_gpu(point, first, device, normal, stream)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                measured.refused[point.key] = f"{point.op}: {' '.join(str(error).split())[:200]}"
                continue
            measured.points.append(replace(_calibrated(point, samples), warm_s=warm_s))


def _sample_on_gpu(
    point: OperatorPoint,
    first: Replay,
    device: torch.device,
    normal: Normal,
    stream: torch.cuda.Stream,
) -> tuple[list[float], float | None]:
    """Seconds of a call on operands from memory, and on those of the call before.

    What cannot be captured (it waits for the device, or counts its steps on the host) is timed by
    its kernels.
    """
    with torch.cuda.stream(stream):
        sets = 1 if point.kind == OPTIMIZER else _count_sets(first.nbytes, device)
        calls = [first, *(make_replay(point, device, normal) for _ in range(sets - 1))]
    torch.cuda.synchronize(device)
    timer = GraphTimer([one.run for one in calls], device, stream)
    if timer.clock != GRAPH_CLOCK:
        return [find_kernel_time(first.run, device)], None
    samples = [timer.sample() for _ in range(GPU_SAMPLES)]
    return samples, median(timer.sample_warm() for _ in range(3))


def find_kernel_time(run: Callable[[], object], device: torch.device) -> float:
    """Seconds that a call keeps the device busy."""

    def step(_: object) -> None:
        run()

    run()
    found = measure_kernel_time(step, partial(torch.cuda.synchronize, device))
    return max(found.time_s or 0.0, 1e-9) if found else 1e-9


@contextmanager
def tf32_for(precision: str) -> Iterator[None]:
    """PyTorch's switches of TF32 for a precision, put back afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _count_sets(nbytes: int, device: torch.device) -> int:
    """Sets of operands that together no cache holds, and memory does."""
    needed = int(CACHE_SHARE * last_cache_bytes(device) / max(nbytes, 1)) + 2
    most = min(MOST_SET_BYTES, free_bytes(device) // 4)
    return max(1, min(needed, MOST_SETS, most // max(nbytes, 1)))


# ---------------------------------------------------------------- what the points say together


def add_peaks(calibration: Calibration) -> Calibration:
    """With the highest rates that any point reached: the limits of its device."""
    peaks = []
    for precision in sorted({one.point.precision for one in calibration.points}):
        rates = [
            (one.point.flops / min(one.samples_s), one.point.flops / one.time_s)
            for one in calibration.points
            if one.point.precision == precision and one.point.flops
        ]
        if rates:
            burst, sustained = max(r for r, _ in rates), max(r for _, r in rates)
            peaks.append(Peak(
                precision=precision, burst_flops_per_s=burst, sustained_flops_per_s=sustained
            ))  # fmt: skip
    large = [
        one.point.moved_bytes / one.time_s
        for one in calibration.points
        if one.point.moved_bytes > 2 * (calibration.cache_bytes or 1 << 25)
    ]
    rates_all = [one.point.moved_bytes / one.time_s for one in calibration.points]
    floor_s = min((one.time_s for one in calibration.points), default=1e-6)
    return replace(
        calibration,
        peaks=tuple(peaks),
        dram_bytes_per_s=max(large, default=None) or calibration.dram_bytes_per_s,
        cache_bytes_per_s=max(rates_all, default=None),
        floor_s=floor_s,
    )


# ---------------------------------------------------------------- a whole calibration


def _step(
    model: str, batch_size: int, mode: str = "infer", size: tuple[int, ...] | None = None
) -> WorkloadSpec:
    return WorkloadSpec(model=model, batch_size=batch_size, mode=mode, input_size=size)


# Steps of networks beside their operators: small ones show what the host adds, large ones how well
# a sum does.
HOST_STEPS = (
    _step("mobilenet_v2", 1, size=(32,)), _step("efficientnet_b0", 1, size=(32,)),
    _step("resnet18", 1, size=(32,)), _step("mobilenet_v2", 2, "train", (32,)),
    _step("resnet18", 2, "train", (32,)),
)  # fmt: skip
WHOLE_STEPS = (
    _step("resnet18", 1), _step("mobilenet_v2", 8), _step("bert", 4), _step("vit_b_32", 1),
    _step("efficientnet_b0", 8), _step("regnet_y_400mf", 8), _step("resnet18", 8, "train"),
    _step("densenet121", 1),
)  # fmt: skip
LARGE_STEPS = tuple(  # of a GPU
    replace(spec, batch_size=32 if spec.model == "bert" else 16 * spec.batch_size)
    for spec in WHOLE_STEPS
)
STEP_SAMPLES, STEP_LIMIT_S = 9, 3.0
POINTS_SHARE = 0.8  # of the budget; the rest is for whole steps


def empty_calibration(machine: str, device: str, description: Description) -> Calibration:
    """What is known of a device before anything is measured."""
    kind, _, index = device.partition(":")
    backend = choose_backend(kind, int(index or 0))
    caches = description.cpu.caches
    if device == "cpu":
        sizes = [cache.size_bytes for cache in caches]
        units, cache_bytes = torch.get_num_threads(), max(sizes, default=None)
        memory_bytes = description.memory.total_bytes
    else:
        properties = torch.cuda.get_device_properties(backend.device)
        units, cache_bytes = properties.multi_processor_count, int(properties.L2_cache_size)
        memory_bytes = backend.total_memory_bytes()
    return Calibration(
        machine=machine,
        device=device,
        device_name=backend.name,
        uuid=backend.uuid,
        threads=torch.get_num_threads() if device == "cpu" else None,
        instruction_set=torch.backends.cpu.get_cpu_capability() if device == "cpu" else None,
        versions=find_versions(device),
        units=units,
        cache_bytes=cache_bytes,
        memory_bytes=memory_bytes,
    )


def find_versions(device: str) -> dict[str, str]:
    """What changes times when it is updated."""
    from ridgeline.sensors.nvidia import read_gpus, start_nvml

    versions = {"torch": str(torch.__version__)}
    if device.startswith("cuda"):
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn"] = str(torch.backends.cudnn.version())
        with suppress(Exception):  # of any version of NVML
            driver = next(gpu.driver for gpu in read_gpus(start_nvml()) if gpu.driver)
            versions["driver"] = driver
    return versions


def calibrate(
    plan: Plan, known: Calibration, measured: Measured, on_progress: OnProgress
) -> Calibration:
    """Measure points, host costs and whole steps; `measured` has the points at any moment."""
    device, start_s = torch.device(plan.device), perf_counter()
    order = choose_order(corpus_points(plan), known.times_s)
    if device.type == "cpu" and keep_memory():
        known = replace(known, host=replace(known.host, page_fault_s=measure_page_fault()))
    points_s = plan.budget_s * (1.0 if plan.groups else POINTS_SHARE)
    measure_points(order, device, points_s, measured, on_progress)
    known = add_peaks(known.with_points(measured.points))
    if plan.groups:
        return known
    on_progress("host", points_s / plan.budget_s)
    if device.type == "cuda":
        known = replace(known, host=measure_host(known, device))
    known = measure_host_steps(known, device)
    left_s = plan.budget_s - (perf_counter() - start_s)
    on_progress("whole steps", 0.9)
    return measure_whole_steps(known.fit_curves(), device, left_s)


def measure_more(
    calibration: Calibration, order: Sequence[OperatorPoint], budget_s: float
) -> Calibration:
    """With the points that a time allows; curves stay as they are fitted."""
    measured, device = Measured(), torch.device(calibration.device)
    if device.type == "cpu":
        keep_memory()
    measure_points(order, device, budget_s, measured)
    return calibration.with_points(measured.points)


def measure_host(known: Calibration, device: torch.device) -> HostCosts:
    """What the host needs to give out each operator: many calls on small tensors, no waiting."""
    normal, costs = Normal(device), {}
    smallest: dict[str, OperatorPoint] = {}
    for one in known.points:
        best = smallest.get(one.point.op)
        if best is None or _host_rank(one.point) < _host_rank(best):
            smallest[one.point.op] = one.point
    with torch.no_grad():
        for op, point in smallest.items():
            made = _try_replay(point, device, normal, Measured())
            if made is not None:
                costs[op] = _host_time_s(made)
    return replace(known.host, by_operator_s=costs, gap_s=GAP_S, graph_kernel_s=GAP_S)


def _host_rank(point: OperatorPoint) -> float:
    """The smallest call shows the host; an optimizer is timed with a usual number of tensors."""
    if point.kind == OPTIMIZER:
        return float(abs(point.parsed[0][0] - USUAL_TENSORS)) + point.moved_bytes * 1e-12
    return point.moved_bytes


USUAL_TENSORS = 160  # of a network that is trained


def measure_page_fault() -> float:
    """Seconds that a page costs when a result is written into it for the first time."""
    elements, samples = FAULT_BYTES // 4, []
    for _ in range(5):
        start_s = perf_counter()
        with mmap(-1, FAULT_BYTES) as memory:
            fresh = torch.frombuffer(memory, dtype=torch.float32, count=elements)
            begin_s = perf_counter()
            fresh.fill_(1.0)
            first_s = perf_counter() - begin_s
            begin_s = perf_counter()
            fresh.fill_(1.0)
            again_s = perf_counter() - begin_s
            begin_s = perf_counter()
            del fresh
        mapping_s = perf_counter() - begin_s + begin_s - start_s - first_s - again_s
        samples.append(first_s - again_s + mapping_s)
    return max(0.0, min(samples)) / (FAULT_BYTES // 4096)


FAULT_BYTES = 8 << 20  # as activations have
GAP_S = 1e-6  # between two kernels of a queue
HOST_CALLS = 50  # fewer than a queue holds


def _host_time_s(made: Replay) -> float:
    samples = []
    for _ in range(5):
        torch.cuda.synchronize()
        start_s = perf_counter()
        for _ in range(HOST_CALLS):
            made.run()
        samples.append((perf_counter() - start_s) / HOST_CALLS)
    torch.cuda.synchronize()
    return median(samples)


def measure_host_steps(known: Calibration, device: torch.device) -> Calibration:
    """With what an operator costs beside its call: small steps, less the sum of their operators."""
    extras: dict[str, list[float]] = {"infer": [], "train": []}
    for spec in HOST_STEPS:
        uses = points_of(_count(spec))
        known = measure_more(known, _unmeasured(uses, known), STEP_LIMIT_S)
        bare = replace(known.host, per_operator_s=0.0, train_per_operator_s=0.0)
        predicted = schedule_uses(uses, replace(known, host=bare)).time_s
        step_s, _ = time_step(spec, device)
        calls = sum(use.repeats for use in uses)
        if step_s is not None:
            extras[spec.mode].append(max(0.0, (step_s - predicted) / calls))
    host = replace(
        known.host,
        per_operator_s=median(extras["infer"] or [0.0]),
        train_per_operator_s=median(extras["train"] or [0.0]),
    )
    return replace(known, host=host)


def measure_whole_steps(known: Calibration, device: torch.device, budget_s: float) -> Calibration:
    """With the errors of predicted steps of a few networks, without new pages: there are none here.

    On a GPU their kernels also show how much of its operands a step finds in a cache.
    """
    start_s, measured, shares = perf_counter(), [], []
    for spec in WHOLE_STEPS if device.type == "cpu" else LARGE_STEPS:
        if perf_counter() - start_s > budget_s:
            break
        uses = points_of(_count(spec))
        step_s, kernel_s = time_step(spec, device)
        if step_s is not None:
            measured.append((spec, uses, step_s))
        if kernel_s is not None:
            cold_s, warm_s = (
                schedule_uses(uses, replace(known, warm_share=share)).kernel_s
                for share in (0.0, 1.0)
            )
            shares.append((cold_s - kernel_s) / max(cold_s - warm_s, 1e-9))
    if shares:
        known = replace(known, warm_share=min(max(median(shares), 0.0), 1.0))
    steps = [_past_prediction(known, *one) for one in measured]
    return replace(known, steps=tuple(steps) or known.steps)


def _past_prediction(
    known: Calibration, spec: WorkloadSpec, uses: Sequence[Use], step_s: float
) -> PastPrediction:
    estimates = estimate_uses(uses, known)
    schedule = schedule_uses(uses, known, estimates)
    return PastPrediction(
        model=f"{spec.model}, batch {spec.batch_size}, {spec.mode}", predicted_s=schedule.time_s,
        measured_s=step_s,
        expected_error=expect_error(tuple(operator_times(uses, estimates)), schedule),
    )  # fmt: skip


def _count(spec: WorkloadSpec) -> CountResult:
    return count_workload(spec, CountSettings(mode=spec.mode))


def _unmeasured(uses: Sequence[Use], known: Calibration) -> list[OperatorPoint]:
    points = {use.point.key: use.point for use in uses}
    return [point for key, point in points.items() if key not in known.times_s]


def time_step(spec: WorkloadSpec, device: torch.device) -> tuple[float | None, float | None]:
    """Median seconds of a real step, and of its kernels where there are any."""
    settings = Settings(backend=device.type, device=device.index or 0)
    stepper = build_stepper(resolve(spec), spec, settings)
    with torch_settings(settings, stepper.precision):
        step_s = _time_steps(stepper)
        if device.type != "cuda":
            return step_s, None
        found = measure_kernel_time(stepper.step, stepper.backend.synchronize)
    return step_s, found.time_s if found else None


def _time_steps(stepper: Stepper) -> float | None:
    clean: list[float] = []
    rough: list[float] = []
    begun_s = perf_counter()
    for number in range(4 * STEP_SAMPLES):
        preempted, start_s = count_preemptions(), perf_counter()
        stepper.step(NoMarks())
        stepper.backend.synchronize()
        taken_s = perf_counter() - start_s
        if number > 1:
            (clean if count_preemptions() == preempted else rough).append(taken_s)
        if len(clean) >= STEP_SAMPLES or perf_counter() - begun_s > STEP_LIMIT_S:
            break
    return median(clean) if clean else min(rough, default=None)
