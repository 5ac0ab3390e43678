"""The records that are stored or cross packages. SI base units only; the unit is in the name.

A multiply-add is one MAC and two FLOPs. `flops` is a count, never a rate. A run has a request and a
result; both are written to `run.json` and read from it by their type hints (`serialize`). A field
with a default may be absent in a file: earlier versions did not store it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import prod
from statistics import median
from typing import Any, TypeVar

from ridgeline.serialize import (
    STORED,
    Index,
    Interval,
    Name,
    NotNegative,
    Positive,
    Whole,
)
from ridgeline.settings import MODES as MODES
from ridgeline.settings import PRECISIONS as PRECISIONS
from ridgeline.settings import Settings

Part = TypeVar("Part")

RECOMPUTE = "recompute"  # what activation checkpointing computes again
BACKWARD = ("input-grad", "weight-grad", RECOMPUTE)
PHASES = ("forward", *BACKWARD, "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a piece of work must do. Every operand is moved once, nothing is recomputed."""

    macs: int = 0  # multiply-adds of matrix products and convolutions
    other_flops: int = 0  # additions, multiplications, divisions, comparisons outside products
    transcendentals: int = 0  # exp, log, erf, tanh, sqrt…; not part of flops
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def flops(self) -> int:
        """2 · MACs + other FLOPs; transcendental functions are counted apart."""
        return 2 * self.macs + self.other_flops

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            macs=self.macs + other.macs,
            other_flops=self.other_flops + other.other_flops,
            transcendentals=self.transcendentals + other.transcendentals,
            read_bytes=self.read_bytes + other.read_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            macs=self.macs * times,
            other_flops=self.other_flops * times,
            transcendentals=self.transcendentals * times,
            read_bytes=self.read_bytes * times,
            written_bytes=self.written_bytes * times,
        )

    def __sub__(self, other: Cost) -> Cost:
        """The change from `other` to this; may be negative."""
        return self + other * -1


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec:
    """A model and the size of its input: enough to build the same workload again."""

    model: Name  # as the user wrote it: "resnet50", "timm:vit_tiny_patch16_224", "net.py:make"
    batch_size: Whole = field(default=1, metadata=STORED)
    mode: str = field(default="infer", metadata=STORED)  # one of MODES
    input_size: tuple[Whole, ...] | None = None  # (224,) or (height, width); None: the model's own
    seq_len: Whole | None = None  # tokens; None: the model's own default
    config: Mapping[str, Any] = field(default_factory=dict)  # overrides for configurable models


# ---------------------------------------------------------------- provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, as its driver describes it."""

    kind: str = ""  # "cuda" or "mps"
    index: int = 0
    name: str = ""
    memory_bytes: int | None = None  # on an Apple chip, all of the machine's
    driver: str | None = None
    max_core_clock_hz: float | None = None
    max_memory_clock_hz: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that did the work."""

    name: str = ""
    os: str = ""  # "Debian GNU/Linux 13 (trixie)", "macOS 15.5"
    kernel: str = ""
    architecture: str = ""  # "x86_64", "arm64"
    cpu: str = ""
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None  # what the scheduler or the container lets this process have
    ram_bytes: int = 0
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The state of the repository that the command was run in."""

    sha: str
    is_dirty: bool = False  # tracked files differ from the commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything that is needed to say where, when and with what a result was made."""

    time: str = ""  # ISO 8601, with its offset from UTC
    command: tuple[str, ...] = ()
    host: Host = field(default_factory=Host)
    python: str = ""
    ridgeline: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)  # versions of what is installed
    backends: Mapping[str, str] = field(default_factory=dict)  # what torch was built with, if used
    commit: Commit | None = None  # of the working directory; None outside a repository
    ridgeline_commit: Commit | None = None  # where ridgeline itself runs from a clone
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that change speed


# ---------------------------------------------------------------- requests


def _part_of(request: object, kind: type[Part]) -> Part:
    """The fields of a request that are those of another record."""
    names = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(request, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class RunRequest(Settings, WorkloadSpec):  # in a file, the workload comes first
    """One configuration to run: enough to run the same again."""

    command: str = "run"
    digest: str | None = None  # tells networks of the same name apart
    label: str = field(default="", metadata=STORED)
    repeat: Index = 1

    @property
    def batches_per_step(self) -> int:
        """Batches whose gradients a step gathers; inference has none to gather."""
        return self.batches_in_step(self.mode)

    @property
    def workload(self) -> WorkloadSpec:
        return _part_of(self, WorkloadSpec)

    @property
    def settings(self) -> Settings:
        return _part_of(self, Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """How counters are to be read."""

    tier: str = "counters"  # or "time"
    level: str = "dram"  # or "hierarchical"
    tool: str = "auto"
    precision: str | None = None  # of the step
    iters: int = 1
    warmup_iters: int = 3
    metrics: tuple[str, ...] = ()  # that the user named


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(RunRequest):
    """The counters of a stored run's step, and how they were to be read."""

    command: str = "profile"
    of_run: Name
    profile: ProfileOptions = field(default_factory=ProfileOptions)


@dataclass(frozen=True, kw_only=True)
class CountRequest(WorkloadSpec):
    """A model to count."""

    command: str = "count"
    digest: str | None = None
    precision: str = "fp32"
    optimizer: str | None = "sgd"
    causal: str = "full"

    @property
    def workload(self) -> WorkloadSpec:
        return _part_of(self, WorkloadSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Files of other profilers (`import`), or a program that was profiled here."""

    command: str = "import"
    files: tuple[str, ...] = ()
    program: tuple[str, ...] = ()
    label: str = ""
    profile: ProfileOptions | None = None  # of a program


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """A training on real data."""

    command: str = "train"
    settings: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "auto"
    device: int = 0
    workers: int | None = None
    resumed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """A 2-D convolution: the sizes of input and weight, and how the window moves."""

    n: Whole  # samples
    c: Whole  # channels in
    h: Whole
    w: Whole
    k: Whole  # channels out
    r: Whole  # height of the kernel
    s: Whole
    stride: tuple[Whole, Whole] = (1, 1)
    padding: tuple[Index, Index] = (0, 0)
    dilation: tuple[Whole, Whole] = (1, 1)
    groups: Whole = 1

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return self.n, self.c, self.h, self.w

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """Without a position where the window, dilated, is larger than the padded input."""
        sizes = zip(
            (self.h, self.w), (self.r, self.s), self.stride, self.padding, self.dilation,
            strict=True,
        )  # fmt: skip
        p, q = ((size + 2 * pad - gap * (side - 1) - 1) // step + 1
                for size, side, step, pad, gap in sizes)  # fmt: skip
        return self.n, self.k, p, q

    @property
    def macs(self) -> int:
        """What the mathematics needs; padding counts as data."""
        n, k, p, q = self.output_shape
        return n * k * p * q * self.c // self.groups * self.r * self.s

    @property
    def elements(self) -> int:
        """Of input, weight and output together: each is moved at least once."""
        shapes = (self.input_shape, self.weight_shape, self.output_shape)
        return sum(prod(shape) for shape in shapes)

    def __str__(self) -> str:
        """`1x64x56x56 to 64, 3x3, padding 1`: what is not usual is named."""
        parts = [f"{self.n}x{self.c}x{self.h}x{self.w} to {self.k}", f"{self.r}x{self.s}"]
        for name, pair, usual in (("stride", self.stride, 1), ("padding", self.padding, 0),
                                  ("dilation", self.dilation, 1)):  # fmt: skip
            if pair != (usual, usual):
                sides = dict.fromkeys(map(str, pair))
                parts.append(f"{name} {'x'.join(sides) if len(sides) > 1 else pair[0]}")
        return ", ".join([*parts, *([f"groups {self.groups}"] if self.groups > 1 else [])])


@dataclass(frozen=True, kw_only=True)
class ConvRequest:
    """One pass of a convolution, to be measured under several algorithms."""

    command: str = "conv"
    shape: ConvShape
    phase: str = "forward"  # or "input-grad", "weight-grad"
    precision: str = "fp32"
    layout: str = "nchw"  # or "nhwc"
    backend: str = "auto"
    device: int = 0
    algorithms: tuple[str, ...] = ()
    engines: bool = False  # also the plans of cuDNN's graph interface


@dataclass(frozen=True, kw_only=True)
class ConvNetworkRequest(WorkloadSpec):
    """A network whose convolutions are to be found."""

    command: str = "conv"
    precision: str = "fp32"
    layout: str = "nchw"  # or "nhwc"
    backend: str = "auto"

    @property
    def workload(self) -> WorkloadSpec:
        return _part_of(self, WorkloadSpec)


Request = (
    RunRequest | ProfileRequest | CountRequest | CaptureRequest | TrainRequest | ConvRequest
    | ConvNetworkRequest
)  # fmt: skip

# ---------------------------------------------------------------- results


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the device did during a measurement; None where it cannot be read."""

    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    power_state: str | None = None  # "P0" is the fastest of an NVIDIA device


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """The device before, during and after the timed steps."""

    before: Conditions = field(default_factory=Conditions)
    during: Conditions = field(default_factory=Conditions)
    after: Conditions = field(default_factory=Conditions)
    readings_during: int = 0  # with none, `during` is from just before


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Times of steps in seconds: every sample, and what they come to.

    `std` is the sample's, divided by n − 1: a single one has none.
    """

    count: int = 0
    median: Positive
    mean: Positive
    std: NotNegative | None = None
    min: NotNegative
    max: NotNegative
    interval: Interval | None = None  # of the median, 95 %, by bootstrap; None for a few
    spread: NotNegative | None = None
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """The time of one phase of a step."""

    median: float
    mean: float | None = None  # earlier versions did not store it
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """When the host had given the work out."""

    step_time_s: tuple[float, ...] = ()
    split_s: Mapping[str, PhaseTime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The steps before the measurement, each waited for."""

    build_time_s: float | None = None  # of the model
    times_s: tuple[float, ...]
    clocks_hz: tuple[float, ...] = ()  # of the device after each step, where it can be read
    is_steady: bool | None = None  # None: too few steps to tell


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Of one step, on average over a few."""

    time_s: NotNegative | None = None  # at least one kernel or copy was running
    kernels: NotNegative | None = None  # launches per step; copies are none
    steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The most that the framework's allocator held; None where it does not tell."""

    allocated_bytes: Index | None = None  # by tensors
    reserved_bytes: Index | None = None  # taken from the device


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    """Of a process and its ended children, since it began."""

    user_time_s: float = 0.0
    system_time_s: float = 0.0
    peak_rss_bytes: int = 0  # of the process; that of its largest child apart
    peak_child_rss_bytes: int = 0
    minor_faults: int = 0
    major_faults: int = 0  # those that had to read from a disk
    voluntary_switches: int = 0  # it waited
    involuntary_switches: int = 0  # another program got the processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of the processor during the timed steps."""

    user_time_s: NotNegative = 0.0
    system_time_s: NotNegative = 0.0
    elapsed_s: NotNegative = 0.0
    involuntary_switches: Index = 0
    cores: NotNegative = 0.0  # that were busy on average


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyWindowResult:
    """One pass under load, by the meter that was chosen and by both."""

    start_s: float = 0.0
    end_s: float = 0.0
    steps: int = 0
    energy_j: float = 0.0
    mean_power_w: float = 0.0
    energy_j_per_step: float
    counter_power_w: float | None = None
    sampled_power_w: float | None = None

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyResult:
    """What steps took, by one meter. `scope` says what the joules are of."""

    meter: str | None = None
    scope: str = ""
    kind: str = ""  # "counter" or "power"
    provenance: str = "measured"
    refresh_interval_s: float | None = None
    idle_power_w: float | None = None
    energy_j_per_step: float | None = None  # the median of the windows
    interval_j_per_step: tuple[float, float] | None = None
    energy_j_per_sample: float | None = None
    energy_above_idle_j_per_step: float | None = None
    mean_power_w: float | None = None
    energy_total_j: float | None = None
    duration_s: float | None = None
    step_time_s: float | None = None
    samples_per_step: int | None = None
    counter_power_w: float | None = None
    sampled_power_w: float | None = None
    counter_over_sampled: float | None = None
    power_samples: int | None = None
    power_mean_w: float | None = None
    power_std_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    windows: tuple[EnergyWindowResult, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSum:
    """How the layers add up, beside the unprofiled step."""

    sum_s: float | None = None
    step_time_s: float | None = None
    difference_s: float | None = None
    difference: float | None = None  # of the step
    pass_times_s: tuple[float, ...] = ()
    mark_cost_s: float | None = None
    clock: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A configuration that was measured: everything but the tables, every sample included."""

    status: str = "ok"
    provenance: str = "measured"
    model: str = ""
    source: str = ""
    describe: Mapping[str, Any] = field(default_factory=dict)
    backend: Name
    device_name: str
    device_uuid: str | None = None
    precision: Name  # that was used
    data: str = ""  # the kind: "synthetic", "cifar10", …
    optimizer_settings: Mapping[str, Any] = field(default_factory=dict)  # as they were used
    iters: Whole
    samples_per_step: Whole | None = None
    samples_processed: Positive
    elapsed_s: NotNegative
    clock: str = ""
    step_time_s: StepTime
    split_s: Mapping[str, PhaseTime] = field(default_factory=dict)
    host: HostTimes = field(default_factory=HostTimes)
    warmup: WarmUp
    busy_fraction: NotNegative | None = None
    kernels: KernelTime | None = None
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    peak_memory_bytes: Index | None = None
    process: ProcessStats | None = None
    threads: Index | None = None  # that torch uses on the CPU
    timed_usage: Usage | None = None
    conditions: RunConditions = field(default_factory=RunConditions)
    energy: EnergyResult | None = None
    energy_reasons: tuple[str, ...] = ()  # why there is none
    layers: LayerSum | None = None
    warnings: tuple[str, ...] = ()
    max_batch: Mapping[str, Any] | None = None  # how the batch size was found

    @property
    def samples_per_s(self) -> float:
        """The throughput, the same everywhere: of the median step, which slow ones do not move."""
        return self.samples_processed / self.iters / self.step_time_s.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no result."""

    status: str = "failed"
    reason: str = "unknown"
    hint: str = ""
    device_name: str | None = None
    backend: str | None = None
    max_batch: Mapping[str, Any] | None = None  # how the batch size was found


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBytes:
    """Bytes read and written."""

    read_bytes: NotNegative | None = None
    written_bytes: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedMemory:
    """Memory by liveness of tensors."""

    peak_bytes: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSummary:
    """What is used of a stored count; its file holds all that `count --json` prints."""

    provenance: str = "static"
    params: Index | None = None
    macs: NotNegative | None = None
    flops: NotNegative | None = None
    read_bytes: NotNegative | None = None
    written_bytes: NotNegative | None = None
    coverage: NotNegative | None = None
    fused_bytes: MovedBytes = field(default_factory=MovedBytes)
    memory: CountedMemory = field(default_factory=CountedMemory)
    phases: Mapping[str, Mapping[str, NotNegative]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTotals:
    """Copies and fills by the driver in one step."""

    launches: NotNegative = 0.0
    time_s: NotNegative = 0.0
    moved_bytes: NotNegative | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """Counted over known work; 1 where the counters are right."""

    copy_ratio: NotNegative | None = None
    product_ratio: NotNegative | None = None
    ratios: Mapping[str, float | None] = field(default_factory=dict)
    is_trusted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCost:
    """The time that a profile took."""

    planned_s: NotNegative = 0.0
    counted_s: NotNegative = 0.0
    taken_s: NotNegative = 0.0
    standby_s: NotNegative = 0.0
    passes: NotNegative = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """What the hardware did in one step, or in an imported capture, without the kernels."""

    status: str
    provenance: str = "counter"
    device_name: str | None = None
    compute_capability: str | None = None
    backend: str | None = None
    precision: str | None = None
    kind: str | None = None  # format of an imported file, or a program
    tier: str | None = None
    level: str | None = None
    tool: str | None = None
    tool_version: str | None = None
    is_deduplicated: bool = False  # by earlier versions: operators of the same work counted once
    iters: int = 1
    kernel_time_s: NotNegative | None = None
    step_time_s: NotNegative | None = None
    busy_time_s: NotNegative | None = None
    gap_s: float | None = None
    launches: NotNegative | None = None
    copies: CopyTotals | None = None
    attributed_share: NotNegative | None = None
    layer_share: NotNegative | None = None
    phases: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    totals: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    cost: ProfileCost = field(default_factory=ProfileCost)
    self_test: SelfTest | None = None
    passes: int | None = None
    metrics: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None  # of a profile that failed
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """What a training came to."""

    status: str = "ok"
    provenance: str = "measured"
    backend: str | None = None
    device_name: str | None = None
    device_uuid: str | None = None
    precision: str = "fp32"
    best_accuracy: float | None = None
    best_epoch: int | None = None
    final_accuracy: float | None = None
    images_per_s: float | None = None
    epochs_before: int = 0
    time_s: float = 0.0
    history: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


Result = RunResult | Failure | CountSummary | ProfileSummary | TrainSummary


# ---------------------------------------------------------------- convolutions

# What came of an algorithm on a shape. Only what is RANKED takes part in a comparison.
RANKED, REFUSED, WRONG, OTHER_PRECISION, FAILED = (
    "ok", "refused", "wrong", "other precision", "failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmResult:
    """One algorithm on one pass of a convolution."""

    algorithm: Name
    status: str = RANKED
    reason: str = ""  # why it is not ranked
    samples_s: tuple[float, ...] = ()  # of a call, with inputs that no cache holds
    warm_samples_s: tuple[float, ...] = ()  # with the same input again and again
    clock: str = ""  # how time was taken
    workspace_bytes: Index | None = None  # beside input, weight and output
    rel_error: NotNegative | None = None  # norm of the difference to float64 over its norm
    bound: NotNegative | None = None  # on the error
    precision_computed: str = ""  # as the error shows
    kernels: tuple[str, ...] = ()  # kernels of a GPU, operators of PyTorch on a CPU
    implementation: str = ""  # as the library calls it: of oneDNN, or a plan of cuDNN
    flops_executed: Index | None = None
    flops_source: str = ""  # "static": by the algorithm's formula; "counter"

    @property
    def time_s(self) -> float | None:
        return median(self.samples_s) if self.samples_s else None

    @property
    def warm_time_s(self) -> float | None:
        return median(self.warm_samples_s) if self.warm_samples_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvResult:
    """One pass of a convolution under several algorithms."""

    backend: str
    device_name: str
    threads: Index | None = None
    timings: tuple[AlgorithmResult, ...] = ()
    conditions: RunConditions = field(default_factory=RunConditions)
    problems: tuple[str, ...] = ()  # what could not be measured: counters, plans


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvLayer:
    """A convolution of a network."""

    layer: str  # its path
    shape: ConvShape | None = None  # None: not one that is measured
    uses: Whole = 1  # calls in a step
    reason: str = ""  # why it is not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNetwork:
    """The convolutions of a network, in the order of their first calls."""

    layers: tuple[ConvLayer, ...] = ()
