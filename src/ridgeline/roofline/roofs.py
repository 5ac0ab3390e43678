"""The roofs of one device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import ONE_CORE, Ceiling, Passport

LEVELS = ("dram", "l3", "l2", "l1")
FMA_UNITS = ("fp32", "fp64")  # their products and their vector work share the same units
BITS = {  # of an operand: hardware is no slower on narrower ones
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp6": 6, "fp4": 4,
    "int8": 8, "int4": 4, "int1": 1,
}  # fmt: skip
PATHS = ("matrix", "vector")
LAUNCH_IN_ORDER = ("kernel", "eager dispatch", "parallel region")
GRAPH = "graph replay"
AMP = ("fp16", " ", "matrix")  # the roof of amp's products
GIGA, TERA = 1e9, 1e12
OF_OTHERS = "; other precisions scaled in the same way, other memory as on all cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """What a device can do at best. Rates are per second."""

    env: str  # the machine's name, as it goes into file names
    device: str  # "cpu", "cuda:0", "mps"
    device_name: str = ""
    source: str = "measured"  # or "one core", "interpolated", "datasheet", "given"
    basis: str = ""  # how ceilings of some of the threads were found
    whole_env: str = ""  # the machine of which these are some threads
    others: str = ""  # the source of those that were not given, where some were
    compute: Mapping[str, float] = field(default_factory=dict)  # "fp16 matrix" → FLOP/s
    integer: Mapping[str, float] = field(default_factory=dict)  # "int8 matrix" → operations/s
    bandwidth: Mapping[str, float] = field(default_factory=dict)  # "dram" → B/s
    launch_s: Mapping[str, float] = field(default_factory=dict)  # "kernel" → s per launch
    cache_level: str | None = None  # the last cache before DRAM: "l3", on a GPU "l2"
    cache_bytes: int | None = None
    clock_hz: float | None = None  # highest that was seen while the roofs were measured
    # by ceiling ("fp16 matrix", "dram"): a power cap holds down some of them
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    measured_at: str = ""
    is_quick: bool = False

    @property
    def is_known(self) -> bool:
        return bool(self.flats or self.bandwidth)

    @property
    def flats(self) -> dict[str, float]:
        """All flat roofs: FLOP/s, and operations per second on integers."""
        return {**self.compute, **self.integer}

    def peak(self, precision: str, path: str) -> float | None:
        """FLOP/s that work of this precision can reach on this path; None: not known.

        Where a roof is missing, the highest that is known stands in, so that no floor is too high;
        unless all are of wider operands: then it may be too low.
        """
        roofs = self.flats
        paths = PATHS if precision in FMA_UNITS else (path,)
        same = [roofs.get(f"{precision} {path}") for path in paths]
        known = [rate for rate in same if rate]
        if known:
            return max(known)
        is_bounded = any(_bits(name) <= _bits(precision) for name in roofs)
        return max(roofs.values(), default=None) if is_bounded else None

    def launch(self, *, is_graph: bool = False) -> float | None:
        """The least time from one launch to the next; in a graph there is no host between."""
        if is_graph and GRAPH in self.launch_s:
            return self.launch_s[GRAPH]
        known = (self.launch_s[name] for name in LAUNCH_IN_ORDER if name in self.launch_s)
        return next(known, None)

    def clock_of(self, precision: str) -> float | None:
        """The clock at which the roof of a run's products was measured."""
        name = {"amp": "fp16"}.get(precision, precision)
        return self.clocks_hz.get(f"{name} matrix", self.clock_hz)


def _bits(name: str) -> int:
    """Of `fp16 matrix`, or of fp16; the fewest, if nobody knows it."""
    return BITS.get(name.partition(" ")[0], 1)


def measured_roofs(passport: Passport, device: str, threads: int | None = None) -> Roofs:
    """The best that was measured of each ceiling of a device.

    `threads` are those of a run: with fewer than the ceilings have, it gets ceilings of its own.
    """
    ours = [c for c in passport.ceilings if c.device == device]
    mine = [c for c in ours if c.what != ONE_CORE]
    compute, bandwidth = _measured_rates(mine)
    level, size = _last_cache(passport.description, device)
    roofs = Roofs(
        env=env_of(passport, device),
        device=device,
        device_name=device_name(passport, device),
        **_split_integers(compute),
        bandwidth=bandwidth,
        launch_s={str(c.what): c.best for c in mine if c.kind == "launch"},
        cache_level=level,
        cache_bytes=size,
        measured_at=passport.measured_at,
        is_quick=passport.is_quick,
        **_clocks(mine),
    )
    every = max((c.threads or 0 for c in mine if c.kind == "compute"), default=0)
    if device != "cpu" or not threads or threads >= every:
        return roofs
    return _roofs_of_threads(roofs, [c for c in ours if c.what == ONE_CORE], threads, every)


def _measured_rates(ceilings: Iterable[Ceiling]) -> tuple[dict[str, float], dict[str, float]]:
    return _best_rates(
        (c.kind, f"{c.precision} {c.path}" if c.kind == "compute" else str(c.level), c.best)
        for c in ceilings
    )


def _best_rates(
    rates: Iterable[tuple[str, str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Operations per second by precision and path, bytes per second by level."""
    best: dict[str, dict[str, float]] = {"compute": {}, "bandwidth": {}}
    for kind, name, rate in rates:
        if kind == "compute" or (kind == "bandwidth" and name in LEVELS):
            best[kind][name] = max(best[kind].get(name, 0.0), rate)
    return best["compute"], best["bandwidth"]


def _split_integers(rates: Mapping[str, float]) -> dict[str, Any]:
    """Operations on integers are no FLOPs."""
    compute = {name: rate for name, rate in rates.items() if not is_integer(name)}
    integer = {name: rate for name, rate in rates.items() if is_integer(name)}
    return {"compute": compute, "integer": integer}


def _clocks(ceilings: Sequence[Ceiling]) -> dict[str, Any]:
    """The highest clock that was seen, and that of the best of each compute and memory ceiling."""
    by_name = {
        str(c.level) if c.kind == "bandwidth" else f"{c.precision} {c.path}": c.conditions.clock_hz
        for c in sorted(ceilings, key=lambda c: c.best)  # the best one's clock stays
        if c.kind in ("compute", "bandwidth") and c.conditions.clock_hz
    }
    clocks = [c.conditions.clock_hz for c in ceilings if c.conditions.clock_hz]
    return {"clock_hz": max(clocks, default=None), "clocks_hz": by_name}


def _roofs_of_threads(roofs: Roofs, of_one: Sequence[Ceiling], threads: int, every: int) -> Roofs:
    """The ceilings of some threads of a CPU: those of one core, or on the line to all cores.

    A rate that was not measured on one core is scaled as the vector rate of its precision, or as
    the rate of which one core reaches most. Memory that was not measured on one core keeps the rate
    of all cores, so that no floor is too high.
    """
    compute, bandwidth = _measured_rates(of_one)
    is_one = threads == 1
    how = "as measured on one core" if is_one else "between those of one core and of all"
    name = f"{roofs.env}-{threads}-thread{'' if is_one else 's'}"
    part_of = replace(roofs, env=name, whole_env=roofs.env)
    if not compute:
        basis = f"{threads} of {every} threads ran, under the ceilings of all: one core was not"
        return replace(part_of, basis=f"{basis} measured alone, so efficiencies look too low")
    part = (threads - 1) / (every - 1)
    shares = {
        name: (one + part * (roofs.flats[name] - one)) / roofs.flats[name]
        for name, one in compute.items()
        if name in roofs.flats
    }
    flats = {name: rate * _share(name, shares) for name, rate in roofs.flats.items()}
    memory = {
        level: bandwidth.get(level, rate) + part * (rate - bandwidth.get(level, rate))
        for level, rate in roofs.bandwidth.items()
    }
    return replace(
        part_of,
        source=ONE_CORE if is_one else "interpolated",
        basis=f"ceilings of {threads} of {every} threads: {', '.join([*shares, *bandwidth])} {how}"
        + OF_OTHERS * bool({*roofs.flats, *roofs.bandwidth} - {*shares, *bandwidth}),
        **_split_integers(flats),
        bandwidth=memory,
        **(_clocks(of_one) if is_one else {}),
    )


def _share(name: str, shares: Mapping[str, float]) -> float:
    """What some threads reach of a rate of all."""
    precision = name.partition(" ")[0]
    return shares.get(name) or shares.get(f"{precision} vector") or max(shares.values())


def is_integer(precision: str) -> bool:
    """Whether operations of this precision are no FLOPs."""
    return precision.startswith("int")


def flat_unit(name: str) -> str:
    """Of the roof `fp16 matrix`, or `int8 matrix`."""
    return f"{work_unit(name)}/s"


def work_unit(name: str) -> str:
    """What is counted under the roof `fp16 matrix`, or `int8 matrix`."""
    return "OP" if is_integer(name) else "FLOP"


def env_of(passport: Passport, device: str) -> str:
    """The machine's name; with the device's, where the name is that of another device."""
    suffix = device.replace(":", "")
    if passport.description.is_named_after(device) or passport.name.endswith(f"-{suffix}"):
        return passport.name
    return f"{passport.name}-{suffix}"


def device_name(passport: Passport, device: str) -> str:
    """`NVIDIA H200` for cuda:0, the processor's model for cpu."""
    if device == "cpu":
        return passport.description.cpu.model
    gpu = passport.description.find_gpu(device)
    return gpu.name if gpu else ""


def _last_cache(description: Description, device: str) -> tuple[str | None, int | None]:
    """The cache that stands before DRAM, all its instances together."""
    if device != "cpu":
        gpu = description.find_gpu(device)
        return ("l2", gpu.l2_bytes) if gpu and gpu.l2_bytes else (None, None)
    sizes: dict[int, int] = {}
    for cache in description.cpu.caches:
        if cache.kind != "instruction" and cache.size_bytes:
            each = cache.size_bytes * cache.instances
            sizes[cache.level] = sizes.get(cache.level, 0) + each  # cores of two kinds have two
    last = max(sizes, default=None)
    return (f"l{last}", sizes[last]) if last else (None, None)


def datasheet_roofs(
    entries: Iterable[Mapping[str, Any]], *, env: str, device: str, device_name: str = ""
) -> Roofs:
    """The roofs that the maker publishes (dense), from `Datasheet.ceilings`."""
    compute, bandwidth = _best_rates(
        (e["kind"], f"{e['precision']} {e['path']}", float(e["flops_per_s"]))
        if e["kind"] == "compute"
        else (e["kind"], str(e.get("level")), float(e.get("bytes_per_s", 0.0)))
        for e in entries
    )
    return Roofs(
        env=env,
        device=device,
        device_name=device_name,
        source="datasheet",
        **_split_integers(compute),
        bandwidth=bandwidth,
    )


def user_roofs(
    env: str, device: str, *, compute: Mapping[str, float], dram_bytes_per_s: float | None
) -> Roofs:
    """Roofs that the user gives. `compute` is FLOP/s by precision, or by precision and path.

    `amp` is the matrix roof of fp16, in which amp runs its products.
    """
    rates: dict[str, float] = {}
    for name, rate in compute.items():
        precision, _, path = AMP if name == "amp" else name.partition(" ")
        if precision not in BITS or path not in ("", *PATHS):
            raise RidgelineError(
                f"there is no roof called {name!r}",
                hint=f"precisions are {', '.join(BITS)}, followed by matrix or vector where they"
                " differ",
            )
        _check_rate(rate, "FLOP/s")
        rates |= {f"{precision} {one}": rate for one in ((path,) if path else PATHS)}
    if dram_bytes_per_s is not None:
        _check_rate(dram_bytes_per_s, "B/s")
    return Roofs(
        env=env,
        device=device,
        source="given",
        **_split_integers(rates),
        bandwidth={"dram": dram_bytes_per_s} if dram_bytes_per_s else {},
    )


def _check_rate(rate: float, unit: str) -> None:
    if not 0 < rate < float("inf"):
        raise RidgelineError(f"a roof of {rate:g} {unit} is no roof", hint="give a rate above zero")


def peaks_from_json(content: Any, *, where: str) -> dict[str, Roofs]:
    """Read a `peaks.json`: environment → peak_gbps, and peak_gflops by precision or alone."""
    try:
        if not content or "peak_gflops" in content:
            raise ValueError("no environment is named in it")
        return {str(env): _peaks(str(env), entry) for env, entry in content.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RidgelineError(
            f"{where} is not a file of peaks: {type(error).__name__} {error}",
            hint='it looks like {"my-machine": {"peak_gbps": 900, "peak_gflops": {"fp32": 15000}}}',
        ) from error


def _peaks(env: str, entry: Mapping[str, Any]) -> Roofs:
    rates = entry["peak_gflops"]
    if isinstance(rates, int | float):
        rates = {"fp32": rates}
    compute = {str(name): float(rate) * GIGA for name, rate in rates.items() if rate is not None}
    gbps = entry.get("peak_gbps")
    return user_roofs(
        env,
        str(entry.get("device", "")),
        compute=compute,
        dram_bytes_per_s=None if gbps is None else float(gbps) * GIGA,
    )


_RATE = re.compile(r"\s*([0-9]*\.?[0-9]+\.?(?:e[+-]?[0-9]+)?)\s*([kMGTP]?)(.*)", re.IGNORECASE)
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}


def parse_rate(text: str, *, option: str, plain: float) -> float:
    """`8.1` in units of `plain`, `8.1T`, `8.1 TFLOP/s`, `300GB/s`; per second."""
    match = _RATE.fullmatch(text)
    unit = match[3].strip().lower() if match else "?"
    of_option = ("b/s", "bps") if option == "--peak-bw" else ("flop/s", "flops")
    if match is None or unit not in ("", "/s", *of_option):
        raise RidgelineError(
            f"{option} {text!r} is not a rate",
            hint="for example --peak-compute 8.1T --peak-bw 300G",
        )
    has_unit = bool(match[2] or unit)
    return float(match[1]) * (_FACTORS[match[2].lower()] if has_unit else plain)
