"""`python -m ridgeline.profile.reading.report_worker FILE.ncu-rep`: the report as a raw CSV.

Runs in a process of its own, with ncu_report on the path.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Any

from ridgeline.profile.counter_ways import is_needed

KEPT = (
    "device__attribute_display_name", "profiler__replayer_passes", "launch__stream_id",
)  # fmt: skip
CAPABILITY = ("major", "minor")
HEADER = ("ID", "Process ID", "Kernel Name", "Stream", "Block Size", "Grid Size", "CC",
          "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg")  # fmt: skip
RANGE = '"{}:{}:none:none:none:none:none:none"'


def main(path: str) -> None:
    import ncu_report

    actions = list(_actions(ncu_report.load_report(path)))
    names = sorted({name for action in actions for name in action.metric_names() if _is_kept(name)})
    units = [next((m.unit() for a in actions if (m := _metric(a, name))), "") for name in names]
    out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    if actions:
        out.writerow([*HEADER, *names])
        out.writerow([*("" for _ in HEADER), *units])
    for number, action in enumerate(actions):
        out.writerow(
            [*_identity(number, action), *(_text(_metric(action, name)) for name in names)]
        )


def _actions(report: Any) -> Iterator[Any]:
    """Every kernel of every range."""
    for number in range(report.num_ranges()):
        part = report.range_by_idx(number)
        for index in range(part.num_actions()):
            yield part.action_by_idx(index)


def _is_kept(name: str) -> bool:
    return name in KEPT or is_needed(name)


def _metric(action: Any, name: str) -> Any:
    """The metric if this kernel has it."""
    found = action.metric_by_name(name)
    return found if found is not None and found.has_value() else None


def _text(metric: Any) -> str:
    if metric is None:
        return ""
    value = metric.value()
    return repr(value) if isinstance(value, float) else str(value)


def _identity(number: int, action: Any) -> list[str]:
    sizes = [
        f"({', '.join(_whole(action, f'launch__{what}_dim_{axis}') for axis in 'xyz')})"
        for what in ("block", "grid")
    ]
    capability = ".".join(
        _whole(action, f"device__attribute_compute_capability_{part}") for part in CAPABILITY
    )
    name = action.name(action.NameBase_DEMANGLED) or action.name()
    stream = _whole(action, "launch__stream_id")
    ranges = " ".join(_ranges(action))
    return [str(number), "", name, stream, *sizes, capability.strip("."), ranges]


def _whole(action: Any, name: str) -> str:
    metric = _metric(action, name)
    return str(int(metric.value())) if metric is not None else ""


def _ranges(action: Any) -> Iterator[str]:
    """The NVTX ranges around a launch, as Nsight Compute writes them."""
    state = action.nvtx_state()
    for identifier in state.domains() if state is not None else ():
        domain = state.domain_by_id(identifier)
        for name in (*domain.push_pop_ranges(), *domain.start_end_ranges()):
            yield RANGE.format(domain.name(), name)


if __name__ == "__main__":
    main(sys.argv[1])
