"""Processor and memory of a Mac, from sysctl, vm_stat and system_profiler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ridgeline.machine.probe import Probe, pairs
from ridgeline.machine.processor import Cache, Cpu, Memory, extensions

MAC_EXTENSIONS = {  # the last part of hw.optional.arm.FEAT_…
    "AdvSIMD": "neon", "FP16": "neon-fp16", "DotProd": "neon-dot", "FHM": "neon-fhm",
    "BF16": "bf16", "I8MM": "i8mm", "SME": "sme", "SME2": "sme2",
}  # fmt: skip


def mac_settings(probe: Probe) -> dict[str, str]:
    """Everything `sysctl hw machdep.cpu vm` tells."""
    names = ("hw", "machdep.cpu", "vm.swapusage")
    return pairs("\n".join(probe.run(("sysctl", name)) or "" for name in names))


def mac_cpu(model: str, settings: Mapping[str, str], *, architecture: str) -> Cpu:
    """The processor from the answers of sysctl."""
    physical, logical = _setting(settings, "hw.physicalcpu"), _setting(settings, "hw.logicalcpu")
    kinds = {
        settings.get(f"hw.perflevel{level}.name", str(level)): cores
        for level in range(_setting(settings, "hw.nperflevels") or 0)
        if (cores := _setting(settings, f"hw.perflevel{level}.physicalcpu"))
    }
    return Cpu(
        model=model,
        vendor=settings.get("machdep.cpu.vendor") or model.partition(" ")[0],
        architecture=architecture,
        sockets=_setting(settings, "hw.packages"),
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=physical,
        usable_threads=logical,
        threads_per_core=logical // physical if logical and physical else None,
        kinds_of_cores=kinds if len(kinds) > 1 else {},
        extensions=_mac_extensions(settings),
        base_clock_hz=_setting(settings, "hw.cpufrequency"),  # of Intel processors only
        max_clock_hz=_setting(settings, "hw.cpufrequency_max"),
        current_clock_hz=None,
        governor=None,
        caches=_mac_caches(settings),
    )


def _setting(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdigit() else None


def _mac_extensions(settings: Mapping[str, str]) -> tuple[str, ...]:
    listed = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
    flags = " ".join(settings.get(name, "") for name in listed)
    intel = flags.lower().replace("avx1.0", "avx").replace("sse4.2", "sse4_2")
    arm = tuple(
        name
        for feature, name in MAC_EXTENSIONS.items()
        if settings.get(f"hw.optional.arm.FEAT_{feature}") == "1"
        or settings.get(f"hw.optional.{feature}") == "1"
    )
    return extensions(intel) or arm


def _mac_caches(settings: Mapping[str, str]) -> tuple[Cache, ...]:
    """Per kind of core on Apple chips, for all cores alike on Intel ones."""
    levels = _setting(settings, "hw.nperflevels") or 0
    prefixes = [f"hw.perflevel{level}." for level in range(levels)] or ["hw."]
    line = _setting(settings, "hw.cachelinesize")
    found = []
    for prefix in prefixes:
        cores = _setting(settings, f"{prefix}physicalcpu") or 1
        for level, kind, name in ((1, "data", "l1d"), (1, "instruction", "l1i"),
                                  (2, "unified", "l2"), (3, "unified", "l3")):  # fmt: skip
            size = _setting(settings, f"{prefix}{name}cachesize")
            if not size:
                continue
            everyone = cores if level == 3 else 1
            users = _setting(settings, f"{prefix}cpusper{name}") or everyone
            found.append(
                Cache(level=level, kind=kind, size_bytes=size, line_bytes=line,
                      shared_by_cores=users, instances=-(-cores // users))
            )  # fmt: skip
    return tuple(sorted(found, key=lambda cache: (cache.level, cache.kind)))


def mac_memory(probe: Probe) -> Memory:
    settings = mac_settings(probe)
    total_mib, used_mib = (
        re.search(rf"{word} = ([\d.]+)M", settings.get("vm.swapusage", ""))
        for word in ("total", "used")
    )
    return Memory(
        total_bytes=_setting(settings, "hw.memsize"),
        available_bytes=parse_vm_stat(probe.run(("vm_stat",)) or ""),
        limit_bytes=None,
        swap_bytes=int(float(total_mib[1]) * 2**20) if total_mib else None,
        swap_used_bytes=int(float(used_mib[1]) * 2**20) if used_mib else None,
        kind=_mac_memory_kind(probe.run(("system_profiler", "SPMemoryDataType", "-json"))),
        modules=None,
        speed_transfers_per_s=None,
    )


def parse_vm_stat(text: str) -> int | None:
    """Bytes that can be had without swapping: free, inactive and speculative pages."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)", text, re.MULTILINE)
    return sum(map(int, pages)) * int(page[1]) if page and pages else None


def _mac_memory_kind(text: str | None) -> str | None:
    try:
        kind = json.loads(text or "")["SPMemoryDataType"][0]["dimm_type"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(kind)
