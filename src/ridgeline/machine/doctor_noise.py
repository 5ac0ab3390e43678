"""Checks of the meters of power, and of what makes measurements noisy."""

from __future__ import annotations

import re

from ridgeline.machine.checks import Facts, Finding, check, missing, note, ok
from ridgeline.machine.describe_cpu import CPUS
from ridgeline.units import format_bytes

RAPL = "/sys/class/powercap"
ALLOW_RAPL = "sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj  # until the next start"
GPU_PROGRAMS = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
    "--format=csv,noheader,nounits",
)
BUSY_SHARE = 0.25  # of the usable threads
THERMAL = ("software thermal", "hardware thermal", "hardware slowdown", "power brake")


@check("power", "CPU energy")
def cpu_energy(facts: Facts) -> Finding:
    if facts.probe.system == "Darwin":
        return missing("macOS gives it to root only, through powermetrics")
    zones = facts.probe.find(f"{RAPL}/intel-rapl:*")
    names = [facts.probe.line(f"{zone}/name") or zone.rpartition("/")[2] for zone in zones]
    if not zones:
        if facts.description.virtualization:
            return missing("no RAPL: the virtual machine does not pass it on")
        return missing("no RAPL", "sudo modprobe intel_rapl_common intel_rapl_msr")
    readable = [facts.probe.number(f"{zone}/energy_uj") is not None for zone in zones]
    if not all(readable):
        return missing("RAPL is there, but only root may read it", ALLOW_RAPL)
    return ok(f"RAPL of {', '.join(names)}")


@check("power", "GPU power")
def gpu_power(facts: Facts) -> Finding | None:
    cards = [gpu for gpu in facts.description.gpus if gpu.kind == "cuda"]
    if not cards:
        return None
    if all(gpu.power_limit_w is None for gpu in cards):
        return missing("this device or its driver does not tell its power")
    lowered = [
        gpu
        for gpu in cards
        if gpu.power_limit_w and gpu.default_power_limit_w
        and gpu.power_limit_w < gpu.default_power_limit_w - 0.5
    ]  # fmt: skip
    if lowered:
        first = lowered[0]
        return note(f"{first.name} is limited to {first.power_limit_w:g} W,"
                    f" not its usual {first.default_power_limit_w:g} W",
                    "roofs measured here hold for this limit only")  # fmt: skip
    return ok(", ".join(f"{g.name}: limit {g.power_limit_w:g} W" for g in cards if g.power_limit_w))


@check("power", "mains")
def mains(facts: Facts) -> Finding | None:
    on_mains = _on_mains(facts)
    if on_mains is None:
        return None  # no battery
    if on_mains:
        return ok("plugged in")
    return note("on battery: clocks are held down", "plug it in before you measure")


def _on_mains(facts: Facts) -> bool | None:
    if facts.probe.system == "Darwin":
        said = facts.probe.run(("pmset", "-g", "batt")) or ""
        return None if "InternalBattery" not in said else "AC Power" in said
    supplies = facts.probe.find("/sys/class/power_supply/*")
    kinds = {folder: facts.probe.line(f"{folder}/type") for folder in supplies}
    # A mouse has a battery, too: its scope is Device.
    batteries = [
        folder for folder, kind in kinds.items()
        if kind == "Battery" and facts.probe.line(f"{folder}/scope") != "Device"
    ]  # fmt: skip
    if not batteries:
        return None
    if any(facts.probe.number(f"{f}/online") == 1 for f, kind in kinds.items() if kind == "Mains"):
        return True
    return all(facts.probe.line(f"{folder}/status") != "Discharging" for folder in batteries)


# ---------------------------------------------------------------- noise


@check("noise", "clock governor")
def governor(facts: Facts) -> Finding | None:
    if facts.probe.system == "Darwin":
        return None
    name = facts.description.cpu.governor
    if name is None:
        where = "the host decides" if facts.description.virtualization else "no cpufreq driver"
        return note(f"cannot be read: {where}", "look at the spread of what is measured")
    if name == "performance":
        return ok(name)
    return note(f"{name}: the clock follows the load",
                "sudo cpupower frequency-set --governor performance")  # fmt: skip


@check("noise", "turbo")
def turbo(facts: Facts) -> Finding | None:
    no_turbo = facts.probe.number(f"{CPUS}/intel_pstate/no_turbo")
    boost = facts.probe.number(f"{CPUS}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return None
    if no_turbo == 1 or boost == 0:
        return ok("off: the clock does not depend on heat and on how many cores work")
    return note("on: the clock depends on heat and on how many cores work",
                "compare sustained values, not the best ones")  # fmt: skip


@check("noise", "threads per core")
def threads_per_core(facts: Facts) -> Finding | None:
    threads = facts.description.cpu.threads_per_core
    if threads is None:
        return None
    if threads == 1:
        return ok("1")
    return note(f"{threads}: two threads of a core share its units",
                "measure with one thread per core")  # fmt: skip


@check("noise", "load")
def load(facts: Facts) -> Finding | None:
    said = (
        facts.probe.run(("sysctl", "-n", "vm.loadavg"))
        if facts.probe.system == "Darwin"
        else facts.probe.read("/proc/loadavg")
    )
    number = re.search(r"\d+[.,]\d+", said or "")
    threads = facts.description.cpu.usable_threads
    if number is None or threads is None:
        return None
    busy = float(number[0].replace(",", "."))
    found = f"{busy:g} over the last minute, for {threads} usable threads"
    if busy > BUSY_SHARE * threads:
        return note(found, "top  # wait until what runs beside is done")
    return ok(found)


@check("noise", "swap")
def swap(facts: Facts) -> Finding | None:
    used = facts.description.memory.swap_used_bytes
    if used is None:
        return None
    if used > 0:
        return note(f"{format_bytes(used)} in use", "free some memory before you measure")
    return ok("none in use")


@check("noise", "limits")
def limits(facts: Facts) -> Finding | None:
    """What a container or a batch system holds back."""
    cpu, bounds = facts.description.cpu, facts.description.limits
    total = facts.description.memory.total_bytes
    said = []
    if cpu.usable_threads and cpu.logical_cores and cpu.usable_threads < cpu.logical_cores:
        said.append(f"{cpu.usable_threads} of {cpu.logical_cores} threads")
    if bounds.cpu_quota is not None and cpu.logical_cores and bounds.cpu_quota < cpu.logical_cores:
        said.append(f"a quota of {bounds.cpu_quota:g} CPUs")
    if bounds.memory_bytes is not None and (total is None or bounds.memory_bytes < total):
        said.append(f"{format_bytes(bounds.memory_bytes)} of memory")
    if not said:
        return ok("none" if facts.description.container is None else
                  f"none, in a container ({facts.description.container})")  # fmt: skip
    return note(", ".join(said), "ceilings measured here hold for this share of the machine")


@check("noise", "CPU throttling")
def cpu_throttling(facts: Facts) -> Finding | None:
    counters = facts.probe.find(f"{CPUS}/cpu0/thermal_throttle/*_throttle_count")
    counts = [facts.probe.number(path) for path in counters]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    if max(known) > 0:
        return note(f"slowed down by heat {max(known)} times since the start",
                    "let it cool, and look at the clocks in the passport")  # fmt: skip
    return ok("never since the start")


@check("noise", "GPU throttling")
def gpu_throttling(facts: Facts) -> Finding | None:
    if not facts.has_nvidia:
        return None
    held = [
        f"{gpu.name}: {', '.join(reasons)}"
        for gpu in facts.description.gpus
        if (reasons := [reason for reason in gpu.throttle_reasons if reason in THERMAL])
    ]
    if held:
        return note("; ".join(held), "let it cool; nvidia-smi -q -d PERFORMANCE shows more")
    return ok("not now")


@check("noise", "other programs on the GPU")
def gpu_programs(facts: Facts) -> Finding | None:
    if not facts.has_nvidia:
        return None
    listed = facts.probe.run(GPU_PROGRAMS)
    if listed is None:
        return note("cannot be listed")
    rows = [[cell.strip() for cell in line.split(",")] for line in listed.splitlines()]
    programs = [f"{row[2].rpartition('/')[2]} ({row[1]})" for row in rows if len(row) == 4]
    if programs:
        return note(", ".join(programs[:5]), "wait for them, or choose another GPU")
    return ok("none")
