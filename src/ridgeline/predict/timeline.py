"""When the operators of a step run: the host gives them out, the device runs them in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.predict.calibration import HostCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operator of a step."""

    op: str
    device_s: float
    repeats: int = 1
    is_joined: bool = False  # a part of the kernel before it: it is not started
    waits: bool = False  # the host lets the device finish before it gives this one out


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A step as it runs."""

    time_s: float
    kernel_s: float  # of all operators
    host_s: float  # until the last one is given out

    def delayed(self, time_s: float) -> Schedule:
        """With time that belongs to no operator."""
        return replace(self, time_s=self.time_s + time_s, host_s=self.host_s + time_s)


def schedule_cpu(operations: Sequence[Operation], extra_s: float) -> Schedule:
    """One after the other; between them the host finds the next."""
    calls = sum(one.repeats for one in operations if not one.is_joined)
    kernel_s = sum(one.device_s * one.repeats for one in operations)
    host_s = calls * extra_s
    return Schedule(time_s=kernel_s + host_s, kernel_s=kernel_s, host_s=host_s)


def schedule_gpu(operations: Sequence[Operation], host: HostCosts, extra_s: float) -> Schedule:
    """The host runs ahead until the device is behind; the step ends when both are done."""
    known = sorted(host.by_operator_s.values())
    usual_s = known[len(known) // 2] if known else 0.0  # of an operator that was not measured
    host_s = device_end_s = kernel_s = 0.0
    for one in operations:
        if one.waits:
            host_s = max(host_s, device_end_s)
        for _ in range(one.repeats):
            kernel_s += one.device_s
            if one.is_joined:
                device_end_s += one.device_s
                continue
            host_s += host.by_operator_s.get(one.op, usual_s) + extra_s
            device_end_s = max(device_end_s + host.gap_s, host_s) + one.device_s
    return Schedule(time_s=max(host_s, device_end_s), kernel_s=kernel_s, host_s=host_s)


def schedule_graph(operations: Sequence[Operation], host: HostCosts) -> Schedule:
    """A CUDA graph: the host gives out all kernels at once."""
    kernel_s = sum(one.device_s * one.repeats for one in operations)
    calls = sum(one.repeats for one in operations if not one.is_joined)
    return Schedule(
        time_s=kernel_s + calls * host.graph_kernel_s, kernel_s=kernel_s, host_s=host.graph_kernel_s
    )
