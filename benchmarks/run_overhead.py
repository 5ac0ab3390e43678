"""Throughput under `ridgeline run` against a bare loop, and what timing the layers costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter

import torch

from benchmarks.report import Report, Table
from ridgeline.machine.sampling import median_interval
from ridgeline.measure.layers import time_layers
from ridgeline.measure.measure_workload import build_stepper
from ridgeline.measure.step import Stepper, torch_settings
from ridgeline.measure.timing import StepRecorder, time_steps, warm_up
from ridgeline.records import WorkloadSpec
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import DURING_TIMING_S, Meters, Sampler
from ridgeline.settings import Settings
from ridgeline.units import format_time
from ridgeline.workloads import resolve

ROUNDS = {"cpu": 60, "cuda": 20}
LAYER_ROUNDS = {"cpu": 12, "cuda": 3}  # in which layers are timed, too: on a GPU that takes long
BLOCK_S = 0.25  # of a turn: so short that both meet the same neighbours; one reading of the sensors
LEAST_STEPS = 2
AIM, LAYER_AIM = 0.01, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration that both sides run."""

    model: str
    batch_size: int
    mode: str = "train"
    precision: str = "fp32"
    longer: int = 1  # so many times as many rounds: for steps that follow the host

    @property
    def name(self) -> str:
        return f"{self.model}, batch {self.batch_size}, {self.precision} {self.mode}"


CASES = {
    "cpu": (
        Case(model="resnet18_cifar", batch_size=16),
        Case(model="mobilenet_v2", batch_size=4),
        Case(model="mobilenet_v2", batch_size=4, mode="infer"),
        Case(model="lstm", batch_size=8),
    ),
    "cuda": (
        Case(model="resnet50", batch_size=128),
        Case(model="resnet50", batch_size=32, precision="amp", longer=6),
        Case(model="vgg16", batch_size=64, precision="tf32"),
        Case(model="mobilenet_v2", batch_size=64, mode="infer"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both sides of one case, and its layers."""

    case: Case
    bare_s: tuple[float, ...]  # seconds per step, a block each
    ours_s: tuple[float, ...]
    before_s: tuple[float, ...]  # ours, in the rounds that also timed the layers
    after_s: tuple[float, ...]  # ours again, after that
    layer_sums_s: tuple[float, ...]
    hooks_left: int

    @property
    def ratio(self) -> tuple[float, tuple[float, float]]:
        """Our throughput over the bare loop's: the median of pairs, and its interval."""
        pairs = [bare / ours for bare, ours in zip(self.bare_s, self.ours_s, strict=True)]
        return median(pairs), median_interval(pairs) or (0.0, 0.0)

    @property
    def after_ratio(self) -> float:
        """A step after layers were timed, over one before."""
        pairs = zip(self.after_s, self.before_s, strict=True)
        return median(after / before for after, before in pairs)

    @property
    def layer_ratio(self) -> float:
        """All layers together over the step."""
        pairs = zip(self.layer_sums_s, self.before_s, strict=True)
        return median(layers / step for layers, step in pairs)


def run() -> Report:
    """Compare on the fastest device there is."""
    backend = "cuda" if torch.cuda.is_available() else "cpu"
    found = [_told(compare(case, backend)) for case in CASES[backend]]
    return Report(
        title="`ridgeline run` and a bare loop",
        summary=[_verdict(found, backend)],
        tables=[_throughput(found), _layers(found)],
        notes=[
            f"One process, one model per case. {ROUNDS[backend]} rounds of blocks of about "
            f"{BLOCK_S:g} s each: the bare loop (the few lines that anybody writes, "
            "synchronised before and after), then ours with marks at every phase and the sampler "
            f"running; in {LAYER_ROUNDS[backend]} of the rounds then a pass that times the layers, "
            "and ours "
            "again. Every other round begins with ours. A ratio is the median over pairs of "
            "neighbouring blocks, its interval by bootstrap."
            + "".join(
                f" {case.name}: {case.longer} times as many rounds, since its steps follow the "
                "host."
                for case in CASES[backend]
                if case.longer > 1
            ),
        ],
    )


def _told(one: Compared) -> Compared:
    """A case as it is done, on stderr: whoever is stopped has told something."""
    ratio, (low, high) = one.ratio
    line = f"{one.case.name}: throughput, ours / bare {ratio:.4f} ({low:.4f} … {high:.4f})"
    print(line, file=sys.stderr, flush=True)
    return one


def layer_rounds(rounds: int, wanted: int) -> tuple[int, ...]:
    """The rounds in the middle of equal parts: of three, 1, 5 and 8 of 0 to 9."""
    return tuple((2 * part + 1) * rounds // (2 * wanted) for part in range(wanted))


def compare(case: Case, backend_name: str) -> Compared:
    """Blocks of the bare loop and of ours, by turns, with one model in one process."""
    spec = WorkloadSpec(model=case.model, batch_size=case.batch_size, mode=case.mode)
    settings = Settings(backend=backend_name, precision=case.precision)
    stepper = build_stepper(resolve(spec), spec, settings)
    backend, precision = stepper.backend, stepper.precision
    meters = find_meters(backend.kind, uuid=backend.uuid)
    bare, ours, before, after, sums = [], [], [], [], []
    with torch_settings(settings, precision):
        warmup = warm_up(stepper.step, backend.synchronize)
        step_s = median(warmup.times_s[-5:])
        steps = max(LEAST_STEPS, round(BLOCK_S / step_s))
        rounds = ROUNDS[backend_name] * case.longer
        bare_block, our_block = _bare(stepper, steps), partial(_ours, stepper, steps, meters)
        for number in range(rounds):
            first, second = (bare_block, our_block) if number % 2 else (our_block, bare_block)
            pair = first(), second()
            bare_s, ours_s = pair if number % 2 else (pair[1], pair[0])
            bare.append(bare_s)
            ours.append(ours_s)
            if number in layer_rounds(rounds, LAYER_ROUNDS[backend_name]):
                sums.append(time_layers(stepper, backend, step_time_s=step_s, most=3).sum_s)
                before.append(ours_s)
                after.append(our_block())
    return Compared(
        case=case,
        bare_s=tuple(bare),
        ours_s=tuple(ours),
        before_s=tuple(before),
        after_s=tuple(after),
        layer_sums_s=tuple(sums),
        hooks_left=_hooks_left(stepper),
    )


def _bare(stepper: Stepper, steps: int) -> Callable[[], float]:
    """The loop that anybody would write, with the same model, batch and optimizer."""
    model, optimizer, scaler = stepper.module, stepper.optimizer, stepper.scaler
    inputs, loss_of, device = next(stepper.batches), stepper.loss, stepper.backend.device.type
    is_amp = stepper.precision.used == "amp"

    def train() -> None:
        assert optimizer is not None
        with torch.autocast(device, dtype=torch.float16, enabled=is_amp):
            loss = loss_of(model(*inputs.args, **inputs.kwargs), inputs)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def infer() -> None:
        with torch.inference_mode(), torch.autocast(device, dtype=torch.float16, enabled=is_amp):
            model(*inputs.args, **inputs.kwargs)

    step = infer if optimizer is None else train

    def block() -> float:
        stepper.backend.synchronize()
        start_s = perf_counter()
        for _ in range(steps):
            step()
        stepper.backend.synchronize()
        return (perf_counter() - start_s) / steps

    return block


def _ours(stepper: Stepper, steps: int, meters: Meters) -> float:
    backend = stepper.backend
    with Sampler(replace(meters, available=()), interval_s=DURING_TIMING_S):  # as in a run
        timing = time_steps(
            stepper.step,
            StepRecorder(backend.timeline() if backend.has_events else None),
            backend.synchronize,
            iters=steps,
        )
    return timing.elapsed_s / steps


def _hooks_left(stepper: Stepper) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in stepper.module.modules())


def _verdict(found: list[Compared], backend: str) -> str:
    worst = max(found, key=lambda one: abs(one.ratio[0] - 1))
    off = abs(worst.ratio[0] - 1)
    text = (
        f"On {backend}, throughput under `ridgeline run` is within {100 * off:.2f} % of a bare "
        f"hand-written loop in all {len(found)} cases (aim: {100 * AIM:.0f} %). "
        f"Hooks left behind by timing layers: {sum(one.hooks_left for one in found)}."
    )
    if backend == "cpu":
        furthest = max(abs(one.layer_ratio - 1) for one in found)
        text += (
            f" The layers add up to the step within {100 * furthest:.1f} % "
            f"(aim: {100 * LAYER_AIM:.0f} %)."
        )
    return text


def _throughput(found: list[Compared]) -> Table:
    rows = []
    for one in found:
        ratio, (low, high) = one.ratio
        rows.append([
            one.case.name,
            format_time(median(one.bare_s)),
            format_time(median(one.ours_s)),
            f"{ratio:.4f}",
            f"{low:.4f} … {high:.4f}",
        ])  # fmt: skip
    return Table(
        title="Throughput",
        columns=["case", "bare step", "our step", "throughput, ours / bare", "95 % interval"],
        rows=rows,
    )


def _layers(found: list[Compared]) -> Table:
    return Table(
        title="Layers",
        columns=["case", "sum of layers", "over the step", "step after / before", "hooks left"],
        rows=[
            [
                one.case.name,
                format_time(median(one.layer_sums_s)),
                f"{one.layer_ratio:.4f}",
                f"{one.after_ratio:.4f}",
                one.hooks_left,
            ]
            for one in found
        ],
    )
