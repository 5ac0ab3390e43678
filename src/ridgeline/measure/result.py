"""What `ridgeline.measure` returns: numbers at hand, and everything behind them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import MeasuredCase, Task, measure_case, measure_task
from ridgeline.provenance import Provenance, collect
from ridgeline.records import RunResult, WorkloadSpec
from ridgeline.settings import Settings, as_arguments, check_mode
from ridgeline.tracing.tracker import tensors_in
from ridgeline.units import format_bytes, format_percent, format_time, si
from ridgeline.workloads import Inputs, Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """One configuration, measured. `result` holds every sample; tables are DataFrames."""

    model: str
    batch_size: int
    mode: str
    result: RunResult
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    provenance: Provenance | None = None  # where, when and with what

    @property
    def samples_per_s(self) -> float:
        return self.result.samples_per_s

    @property
    def step_time_s(self) -> float:
        """The median."""
        return self.result.step_time_s.median

    @property
    def split_s(self) -> dict[str, float]:
        """Median time of each phase of a step."""
        return {name: part.median for name, part in self.result.split_s.items()}

    @property
    def busy_fraction(self) -> float | None:
        return self.result.busy_fraction

    @property
    def energy_j_per_step(self) -> float | None:
        return self.result.energy.energy_j_per_step if self.result.energy else None

    @property
    def peak_memory_bytes(self) -> int | None:
        return self.result.peak_memory_bytes

    @property
    def warnings(self) -> list[str]:
        """What to know about the numbers."""
        return [as_arguments(text) for text in self.result.warnings]

    @property
    def layers(self) -> pd.DataFrame:
        """A row per module."""
        if "layers" not in self.tables:
            raise RidgelineError("the layers were not timed", hint="measure with layers=True")
        return self.tables["layers"]

    def rows(self) -> list[tuple[str, str]]:
        """What people look at first."""
        step = self.result.step_time_s
        shown = [
            ("model", f"{self.model}, batch {self.batch_size}, {self.mode}"),
            ("device", f"{self.result.device_name}, {self.result.precision}"),
            ("samples/s", f"{self.samples_per_s:.4g}"),
            ("step", f"{format_time(step.median)} (median of {step.count})"),
            *((name, format_time(time_s)) for name, time_s in self.split_s.items()),
        ]
        if self.busy_fraction is not None:
            shown.append(("busy", format_percent(self.busy_fraction)))
        if self.energy_j_per_step is not None:
            shown.append(("energy", f"{si(self.energy_j_per_step, 'J')} per step"))
        if self.peak_memory_bytes:
            shown.append(("peak memory", format_bytes(self.peak_memory_bytes)))
        return shown + [("note", text) for text in self.warnings]

    def __str__(self) -> str:
        return "\n".join(f"{name:<12} {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        from html import escape

        cells = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


def measure_named(spec: WorkloadSpec, settings: Settings) -> MeasureResult:
    """Measure a model by its name, in this process."""
    case = measure_task(Task(spec=spec, settings=settings))
    return _present(case, spec, case.result.model)


def _present(case: MeasuredCase, spec: WorkloadSpec, model: str) -> MeasureResult:
    return MeasureResult(
        model=model, batch_size=spec.batch_size, mode=spec.mode, result=case.result,
        tables=case.tables, provenance=replace(collect(), backends=case.backends),
    )  # fmt: skip


def measure_module(
    model: nn.Module,
    inputs: Any,
    settings: Settings,
    *,
    mode: str,
    batch_size: int | None = None,
    loss: Callable[[Any], Tensor] | None = None,
) -> MeasureResult:
    """Measure a copy of a module: the original keeps its weights, its device and its mode."""
    workload, spec = module_workload(model, inputs, mode=mode, batch_size=batch_size, loss=loss)
    case = measure_case(workload, Task(spec=spec, settings=settings))
    return _present(case, spec, spec.model)


def module_workload(
    model: nn.Module,
    inputs: Any,
    *,
    mode: str,
    batch_size: int | None = None,
    loss: Callable[[Any], Tensor] | None = None,
) -> tuple[Workload, WorkloadSpec]:
    """Steps of copies of a module on one batch, and their description."""
    check_mode(mode)
    batch = Inputs.of(inputs)
    first = next(tensors_in((batch.args, batch.kwargs)), None)
    if first is None or not first.dim():
        raise RidgelineError(
            "there is no batch to run the model on",
            hint="give inputs: a tensor, a tuple of arguments or a dictionary of them",
        )
    carried = int(first.shape[0])
    if batch_size not in (None, carried):
        raise RidgelineError(
            f"batch_size={batch_size} has no effect: the inputs carry a batch of {carried} already",
            hint=f"leave batch_size out, or give inputs whose first dimension is {batch_size}",
        )
    workload = Workload(
        name=type(model).__name__,
        source="object",
        mode=mode,
        make=lambda: copy.deepcopy(model),
        make_inputs=lambda _size: batch,
        loss=(lambda output, _inputs: loss(output)) if loss is not None else None,
    )
    return workload, WorkloadSpec(model=workload.name, batch_size=carried, mode=mode)
