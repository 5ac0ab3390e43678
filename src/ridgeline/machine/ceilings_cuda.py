"""The ceilings of a CUDA device: products, vector units, memory levels, launches, power.

No clock or power setting is changed: roofs are those that people get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import median
from time import sleep
from typing import Any, NamedTuple

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Ceiling, Missing
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds
from ridgeline.records import Conditions
from ridgeline.sensors.nvidia import nvidia_meters
from ridgeline.sensors.sampler import Sampler, summarise_late


def event_clock(torch: Any, device: int) -> Clock:
    """Times with device events, synchronised outside of the timed region only."""

    def clock(call: Callable[[], object], times: int) -> float:
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times

    return clock


SHARES_OF_L2 = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 2, 4, 8)
"""Working sets of the curve, as shares of the cache that the device describes."""


def find_cache_end(
    sizes: Sequence[int], rates: Sequence[float], described_bytes: int
) -> tuple[int, str]:
    """The last working set that the cache serves, and words for `how`.

    The curve falls where it crosses the middle of its ends, on a logarithmic scale. A cache in
    several parts that keep copies of each other's data holds less than its size.
    """
    middle = sqrt(max(rates) * rates[-1])
    inside = max(size for size, rate in zip(sizes, rates, strict=True) if rate >= middle)
    beyond = [size for size in sizes if size > inside]
    fall = f"falls between {inside} and {min(beyond)} B" if beyond else "does not fall"
    return inside, f"the curve {fall}; described L2 {described_bytes} B"


SHAPES = (
    (8192, 8192, 8192),
    (4096, 8192, 8192),
    (16384, 8192, 4096),
    (8192, 8192, 16384),
    (12288, 9216, 8192),
    (4096, 4096, 4096),
)
"""M, N, K of the products that are tried; the best shape differs from chip to chip."""

QUICK_SHAPES = SHAPES[:2]
SLOW = ("fp64", "fp32")  # half the size is enough to fill the device
DRAM_SHARE_OF_L2 = 32  # a DRAM buffer is this many times the L2, so that the cache hardly helps
L1_BYTES = 32 << 10  # of one multiprocessor
TRANSFER_BYTES = 256 << 20
L2_ROUNDS = 64  # passes over the working set in one kernel
IDLE_S = 2.0
REST_S = 0.25
BURST_CALLS = 8
METER_INTERVAL_S = 0.02


class Product(NamedTuple):
    """One kind of matrix product, and how to make one."""

    precision: str
    accumulator: str
    make: Callable[[Any, int, int, int, str], Callable[[], object]]  # torch, m, n, k, device
    min_capability: tuple[int, int] = (0, 0)


def _random(torch: Any, rows: int, columns: int, dtype: Any, device: str) -> Any:
    """Random data: products of zeros draw less power and run faster than real ones."""
    return torch.randn(rows, columns, device=device, dtype=torch.float32).to(dtype)


def _plain(name: str) -> Callable[[Any, int, int, int, str], Callable[[], object]]:
    def make(torch: Any, m: int, n: int, k: int, device: str) -> Callable[[], object]:
        dtype = getattr(torch, name)
        a, b = _random(torch, m, k, dtype, device), _random(torch, k, n, dtype, device)
        out = torch.empty(m, n, dtype=dtype, device=device)
        return lambda: torch.mm(a, b, out=out)

    return make


def _tf32(torch: Any, m: int, n: int, k: int, device: str) -> Callable[[], object]:
    product = _plain("float32")(torch, m, n, k, device)

    def call() -> object:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return product()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return call


def _fp8(torch: Any, m: int, n: int, k: int, device: str) -> Callable[[], object]:
    a = _random(torch, m, k, torch.float8_e4m3fn, device)
    b = _random(torch, n, k, torch.float8_e4m3fn, device).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _int8(torch: Any, m: int, n: int, k: int, device: str) -> Callable[[], object]:
    a = torch.randint(-128, 127, (m, k), dtype=torch.int8, device=device)
    b = torch.randint(-128, 127, (n, k), dtype=torch.int8, device=device).t()
    return lambda: torch._int_mm(a, b)


PRODUCTS = (
    Product("bf16", "fp32", _plain("bfloat16"), (8, 0)),
    Product("fp16", "fp32", _plain("float16")),
    Product("tf32", "fp32", _tf32, (8, 0)),
    Product("fp8", "fp32", _fp8, (8, 9)),
    Product("int8", "int32", _int8, (7, 5)),
    Product("fp64", "fp64", _plain("float64")),
    Product("fp32", "fp32", _plain("float32")),
)
VECTOR = (("fp32", "float32"), ("fp64", "float64"), ("fp16", "float16"), ("bf16", "bfloat16"))


class CudaCeilings:
    """All measurements of one device; each adds ceilings, or says what is missing and why."""

    def __init__(
        self, torch: Any, device: int, *, quick: bool, progress: Callable[[str], None]
    ) -> None:
        self.torch, self.device, self.quick = torch, device, quick
        self.name = f"cuda:{device}"
        self.ceilings: list[Ceiling] = []
        self.missing: list[Missing] = []
        self._progress = progress
        self._clock: Clock = event_clock(torch, device)
        properties = torch.cuda.get_device_properties(device)
        self._capability = (properties.major, properties.minor)
        self._l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or (40 << 20)
        meters = nvidia_meters(str(getattr(properties, "uuid", "")))
        self._has_nvml = meters.conditions is not Conditions
        self._sampler = Sampler(
            replace(meters, available=()), interval_s=METER_INTERVAL_S, conditions_s=0
        )

    def run(self) -> tuple[list[Ceiling], list[Missing]]:
        """Measure everything; a part that fails is listed, the others go on.

        A device that has vanished fails in every part after; what was measured before is kept.
        """
        for what, part in self.parts():
            self._progress(what)
            try:
                try:
                    part()
                finally:
                    self.torch.cuda.empty_cache()  # fails, too, on a device that has failed
            except Exception as error:
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                self.missing.append(Missing(what=what, reason=reason))
        if not self.ceilings:
            raise RidgelineError(
                f"nothing could be measured on {self.name}: {self.missing[0].reason}",
                hint="check it with nvidia-smi and the system log, then measure again",
            )
        return self.ceilings, self.missing

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is measured, in order: idle first, while the device is still cool."""
        yield "idle power", self._idle
        for product in PRODUCTS:
            yield f"{product.precision} products", partial(self._product, product)
        for precision, dtype in VECTOR:
            yield f"{precision} vector units", partial(self._vector, precision, dtype)
        yield "DRAM", self._dram
        yield "L2", self._l2
        yield "L1", self._l1
        yield "host and device", self._transfers
        yield "launches", self._launches

    # ------------------------------------------------------------ one measurement

    def _measure(self, call: Callable[[], object], work: float, **named: Any) -> Ceiling:
        """Sample a call and note the rate under the conditions it ran in."""
        samples = self._bursts(call) if named.get("path") == "matrix" else []
        with self._sampler:
            samples += sample_seconds(call, self._clock, samples=6 if self.quick else 20)
        return self._add(tuple(work / s for s in samples), **named)

    def _add(self, samples: tuple[float, ...], **named: Any) -> Ceiling:
        """A ceiling under the conditions that the sampler has seen."""
        conditions = summarise_late(self._sampler.readings)
        ceiling = Ceiling(device=self.name, samples=samples, conditions=conditions, **named)
        self.ceilings.append(ceiling)
        return ceiling

    def _bursts(self, call: Callable[[], object]) -> list[float]:
        """Short runs after a rest, before the power cap lowers the clock: the device's best."""
        call()
        samples = []
        for _ in range(2 if self.quick else 5):
            self.torch.cuda.synchronize(self.device)
            sleep(REST_S)
            samples.append(self._clock(call, BURST_CALLS))
        return samples

    def _product(self, product: Product) -> None:
        if self._capability < product.min_capability:
            need = ".".join(map(str, product.min_capability))
            reason = f"needs compute capability {need}"
            self.missing.append(Missing(what=f"{product.precision} products", reason=reason))
            return
        shapes: tuple[tuple[int, int, int], ...] = QUICK_SHAPES if self.quick else SHAPES
        if product.precision in SLOW:
            shapes = tuple((m // 2, n // 2, k // 2) for m, n, k in shapes)
        m, n, k = max(shapes, key=lambda shape: self._rate(product, shape))
        call = product.make(self.torch, m, n, k, self.name)
        ceiling = self._measure(
            call, 2 * m * n * k, kind="compute", path="matrix", precision=product.precision,
            accumulator=product.accumulator, how=f"torch product {m}x{n}x{k}, random data",
        )  # fmt: skip
        if product.precision in ("bf16", "fp32"):
            self._power(f"{product.precision} products", ceiling.how, call, flops=2 * m * n * k)

    def _rate(self, product: Product, shape: tuple[int, int, int]) -> float:
        m, n, k = shape
        call = product.make(self.torch, m, n, k, self.name)
        call()
        self.torch.cuda.synchronize(self.device)
        sleep(REST_S / 2)
        return 2 * m * n * k / min(self._clock(call, 4) for _ in range(2))

    @property
    def _kernels(self) -> Any:
        """Those in Triton; the parts that need them are missing where it is not installed."""
        from ridgeline.machine import cuda_kernels

        return cuda_kernels

    def _vector(self, precision: str, dtype: str) -> None:
        launch = self._kernels.fma_chain(getattr(self.torch, dtype), self.device)
        self._measure(launch.call, launch.work, kind="compute", path="vector",
                      precision=precision, accumulator=precision, how=launch.how)  # fmt: skip

    def _dram(self) -> None:
        free_bytes = int(self.torch.cuda.mem_get_info(self.device)[0])
        size = min(DRAM_SHARE_OF_L2 * self._l2_bytes, free_bytes // 8)
        stream = partial(self._kernels.stream, device=self.device, size_bytes=size, rounds=1)
        self._bandwidth("dram", "read", stream("read", programs_per_sm=16), size)
        copy = self._choose_copy(size, stream("copy"))
        ceiling = self._bandwidth("dram", "copy", copy, size)
        self._power("DRAM copy", ceiling.how, copy.call, moved_bytes=copy.work)
        self._bandwidth("dram", "triad", stream("triad"), size)

    def _choose_copy(self, size: int, own: Any) -> Any:
        """The faster of the driver's copy and ours; bytes read and written both count."""
        source = self.torch.zeros(size, dtype=self.torch.uint8, device=self.name)
        target = self.torch.empty_like(source)
        driver = replace(
            own, call=lambda: target.copy_(source), work=2 * size, how=f"torch copy of {size} B"
        )
        return max(driver, own, key=self._sample_rate)

    def _sample_rate(self, launch: Any) -> float:
        """A first look: the best of three samples."""
        return float(launch.work / min(sample_seconds(launch.call, self._clock, samples=3)))

    def _l2(self) -> None:
        """Find where the cache ends from the curve, then measure inside it."""
        stream = partial(self._kernels.stream, device=self.device)
        sizes = [int(share * self._l2_bytes) for share in SHARES_OF_L2]
        rates = []
        for size in sizes:
            rounds = max(L2_ROUNDS * sizes[0] // size, 1)
            rates.append(self._sample_rate(stream("read", size_bytes=size, rounds=rounds)))
        inside_bytes, text = find_cache_end(sizes, rates, self._l2_bytes)
        size = inside_bytes // 2
        for buffers, pattern in enumerate(("read", "copy", "triad"), start=1):
            launch = stream(pattern, size_bytes=size // buffers, rounds=L2_ROUNDS)
            self._bandwidth("l2", pattern, replace(launch, how=f"{launch.how}; {text}"), size)

    def _l1(self) -> None:
        self._bandwidth("l1", "read", self._kernels.read_l1(self.device, L1_BYTES), L1_BYTES)

    def _bandwidth(self, level: str, pattern: str, launch: Any, size: int) -> Ceiling:
        return self._measure(launch.call, launch.work, kind="bandwidth", level=level,
                             pattern=pattern, how=launch.how, working_set_bytes=size)  # fmt: skip

    def _transfers(self) -> None:
        """Host to device and back, pinned and pageable."""
        torch = self.torch
        on_device = torch.empty(TRANSFER_BYTES, dtype=torch.uint8, device=self.name)
        for kind in ("pinned", "pageable"):
            on_host = torch.empty(TRANSFER_BYTES, dtype=torch.uint8, pin_memory=kind == "pinned")
            copies = {
                "host-to-device": lambda h=on_host: on_device.copy_(h, non_blocking=True),
                "device-to-host": lambda h=on_host: h.copy_(on_device, non_blocking=True),
            }
            for level, call in copies.items():
                self._measure(call, TRANSFER_BYTES, kind="bandwidth", level=level, pattern=kind,
                              how=f"copy of {TRANSFER_BYTES} B")  # fmt: skip

    def _launches(self) -> None:
        """What a kernel costs when it has nothing to do: dispatched, launched, replayed."""
        torch = self.torch
        x = torch.zeros(32, device=self.name)

        def tiny() -> None:
            for _ in range(100):
                x.add_(1)

        def waits() -> None:
            for _ in range(100):
                torch.cuda._sleep(0)

        graph = torch.cuda.CUDAGraph()
        tiny()
        with torch.cuda.graph(graph):
            tiny()
        no_wait = host_clock(lambda: None)
        self._launch("eager dispatch", tiny, no_wait, "100 additions of 32 numbers, host time")
        self._launch("kernel", waits, self._clock, "100 kernels that wait for no time, device time")
        self._launch("graph replay", graph.replay, self._clock, "a graph of 100 additions")

    def _launch(self, what: str, call: Callable[[], object], clock: Clock, how: str) -> None:
        with self._sampler:
            self.torch.cuda.synchronize(self.device)
            samples = sample_seconds(call, clock, samples=20, sample_s=0.005)
            self.torch.cuda.synchronize(self.device)
        self._add(tuple(s / 100 for s in samples), kind="launch", what=what, how=how)

    # ------------------------------------------------------------ power

    def _idle(self) -> None:
        if self._has_nvml:
            self._power("idle", "nothing running", None)
        else:
            reason = "NVML cannot be read: pip install nvidia-ml-py"
            self.missing.append(Missing(what="power, clocks and temperature", reason=reason))

    def _power(
        self, what: str, how: str, call: Callable[[], object] | None, *, flops: int = 0,
        moved_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Power while a call repeats for seconds, as the sensor needs; and energy per work."""
        if not self._has_nvml:
            return
        taken = [0.0]
        with self._sampler:
            if call is None:
                sleep(IDLE_S / 4 if self.quick else IDLE_S)
            else:
                samples = 4 if self.quick else 20
                taken = sample_seconds(call, self._clock, samples=samples, sample_s=0.1)
        power_w = summarise_late(self._sampler.readings).power_w
        if power_w is None:
            self.missing.append(Missing(what=f"power, {what}", reason="the device has no meter"))
            return
        energy_j = power_w * median(taken)
        powers = (reading.conditions.power_w for reading in self._sampler.readings)
        self._add(
            tuple(power for power in powers if power is not None), kind="power", what=what, how=how,
            energy_j_per_flop=energy_j / flops if flops else None,
            energy_j_per_byte=energy_j / moved_bytes if moved_bytes else None,
        )  # fmt: skip


def measure_cuda(
    device: int = 0, *, quick: bool = False, progress: Callable[[str], None] = lambda _what: None
) -> tuple[list[Ceiling], list[Missing]]:
    """Measure all ceilings of a CUDA device."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.cuda.device(device):
            return CudaCeilings(torch, device, quick=quick, progress=progress).run()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def cuda_steps() -> int:
    """How often `progress` is called."""
    return 1 + len(PRODUCTS) + len(VECTOR) + 5
