"""Count a model, by name or as a module: trace one step, then apply the formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ridgeline.costs.work import Phased, Work
from ridgeline.count import formulas, meta
from ridgeline.count.call import OpCall, dtype_name
from ridgeline.count.fused import fused_step
from ridgeline.count.meta import META, REAL, literals_known
from ridgeline.count.records import OpCost, Settings
from ridgeline.count.result import CountResult
from ridgeline.count.step import (
    Step,
    TracedStep,
    broken_model,
    check_fits,
    check_layouts,
    first_line,
    needs_values,
)
from ridgeline.count.trace import Tracer
from ridgeline.errors import RidgelineError
from ridgeline.records import RECOMPUTE, Cost, WorkloadSpec
from ridgeline.tracing.tracker import tensors_in
from ridgeline.workloads import Inputs, Workload, resolve
from ridgeline.workloads.offline import refuse_downloads

__all__ = ["Settings", "count_module", "count_workload"]

_REGISTRY = formulas.FORMULAS  # importing it fills it
PRODUCT_KINDS = ("matmul", "conv", "attention")
CAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
Candidate = tuple[str, Callable[[], Step]]  # one way to trace a model: on what, and how to make it


def count_workload(spec: WorkloadSpec, settings: Settings) -> CountResult:
    """Count a model that ridgeline builds itself."""
    workload = resolve(replace(spec, mode=settings.mode))
    run = _run_first_that_works(
        [
            (META, lambda: _build(workload, spec.batch_size, settings, META)),
            (META, lambda: _build_with_values(workload, spec.batch_size, settings)),
            (REAL, lambda: _build(workload, spec.batch_size, settings, REAL)),
        ]
    )
    return _result(spec.model, spec.batch_size, run, settings)


def count_module(
    model: Callable[..., Any],
    inputs: Any,
    settings: Settings,
    *,
    loss: Callable[[Any], Tensor] | None = None,
) -> CountResult:
    """Count a module, or any function of tensors, on the given inputs."""
    model = model.module if isinstance(model, nn.DataParallel) else model  # wants GPUs to run
    batch = _arguments(model, inputs)
    check_layouts(tensors_in(batch))

    def step_on(traced_on: str) -> Step:
        return _step(meta.copy_model(model, traced_on), batch, traced_on, settings, loss)

    candidates: list[Candidate] = [(META, lambda: step_on(META))]
    if not meta.is_on_meta(model):
        candidates.append((REAL, lambda: step_on(REAL)))
    run = _run_first_that_works(candidates)
    tensors = [t for t in (*batch.args, *batch.kwargs.values()) if isinstance(t, Tensor)]
    batch_size = next((int(t.shape[0]) for t in tensors if t.dim()), 1)
    return _result(_name_of(model), batch_size, run, settings)


def _name_of(model: Callable[..., Any]) -> str:
    if isinstance(model, nn.Module):
        return type(model).__name__
    return getattr(model, "__name__", type(model).__name__)


def _arguments(model: Any, inputs: Any) -> Inputs:
    """Positional and keyword arguments from whatever form the user gave.

    A shape such as (1, 3, 224, 224) stands for a floating-point tensor of that shape.
    """
    if not callable(model):
        raise RidgelineError(
            f"a {type(model).__name__} cannot be counted",
            hint="pass a model's name, a torch.nn.Module, or a function of tensors",
        )
    if inputs is None:
        raise RidgelineError(
            f"{_name_of(model)} needs inputs",
            hint="pass inputs=: a tensor, a tuple of arguments, a dictionary of keyword arguments, "
            "or a shape such as (1, 3, 224, 224)",
        )
    is_shape = isinstance(inputs, list | tuple) and all(isinstance(item, int) for item in inputs)
    return Inputs.of(torch.empty(tuple(inputs), device="meta") if is_shape and inputs else inputs)


# ---------------------------------------------------------------- preparing a step


def _build(workload: Workload, batch_size: int, settings: Settings, traced_on: str) -> Step:
    with refuse_downloads(), torch.device("meta" if traced_on == META else "cpu"):
        model = workload.build()
        inputs = workload.inputs(batch_size)
    loss = workload.loss
    fed = replace(inputs, targets=meta.copy_inputs(inputs.targets, traced_on))
    return _step(model, inputs, traced_on, settings, (lambda out: loss(out, fed)) if loss else None)


def _build_with_values(workload: Workload, batch_size: int, settings: Settings) -> Step:
    """Build while following values, for models whose buffers or constructor need them."""
    with Tracer(None, keep_values=True), literals_known():
        return _build(workload, batch_size, settings, META)


def _step(
    model: Callable[..., Any],
    inputs: Inputs,
    traced_on: str,
    settings: Settings,
    loss: Callable[[Any], Tensor] | None,
) -> Step:
    """The step of a model that nobody else uses, in the mode and precision that are asked for."""
    args, kwargs = (meta.copy_inputs(part, traced_on) for part in (inputs.args, inputs.kwargs))
    if settings.precision in CAST:
        dtype = CAST[settings.precision]
        model = model.to(dtype) if isinstance(model, nn.Module) else model
        args, kwargs = meta.cast_floats(args, dtype), meta.cast_floats(kwargs, dtype)
    trains = settings.mode == "train"
    if isinstance(model, nn.Module) and not (trains and model.training):  # parts may be frozen
        model.train(trains)
    return Step(model=model, inputs=Inputs(args=args, kwargs=kwargs), settings=settings, loss=loss)


# ---------------------------------------------------------------- running it


def _run_first_that_works(candidates: list[Candidate]) -> TracedStep:
    """Run the candidates in order; the next is tried only where values were missing."""
    step: Step | None = None
    because = ""
    for number, (traced_on, make) in enumerate(candidates):
        is_last = number == len(candidates) - 1
        if traced_on == REAL and step is not None:
            check_fits(step)
        try:
            # Whatever mode the caller is in, and with random numbers that he will not miss.
            with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
                step = make()
                with refuse_downloads():
                    return TracedStep(step, traced_on, because)
        except RidgelineError as error:
            if is_last or not isinstance(error.__cause__, Exception):
                raise
            if not needs_values(error.__cause__):
                raise
        except Exception as error:
            if is_last or not needs_values(error):
                raise broken_model(error, step, on_meta=traced_on == META) from error
            because = first_line(error)
    raise AssertionError("there is always a last candidate")


def _result(name: str, batch_size: int, traced: TracedStep, settings: Settings) -> CountResult:
    module, memory = traced.step.module, traced.tracer.memory
    costs = tuple(op for number in range(len(traced.tracer.rows)) for op in _costs(number, traced))
    lasting = traced.input_storages | traced.output_storages
    return CountResult(
        model=name,
        batch_size=batch_size,
        mode=settings.mode,
        precision=settings.precision,
        optimizer=settings.optimizer if traced.step.trains else None,
        params=sum(p.numel() for p in module.parameters()) if module is not None else 0,
        op_costs=costs,
        modules=traced.tracer.modules.calls,
        module_params=_own_params(module),
        memory=traced.memory,
        fused=fused_step(costs, sizes=memory.sizes, lasting=lasting),
        traced_on=traced.traced_on,
        notes=_notes(traced),
        input_storages=traced.input_storages,
        output_storages=traced.output_storages,
        storage_bytes=memory.sizes,
        storage_changes=tuple(memory.changes),
    )


def _own_params(module: nn.Module | None) -> dict[str, tuple[int, int]]:
    """Number and bytes of the parameters that each module holds itself.

    A shared parameter counts where it is met first.
    """
    own: dict[str, tuple[int, int]] = {}
    for name, parameter in module.named_parameters() if module is not None else ():
        path = name.rpartition(".")[0]
        number, nbytes = own.get(path, (0, 0))
        own[path] = (number + parameter.numel(), nbytes + parameter.nbytes)
    return own


def _notes(traced: TracedStep) -> tuple[str, ...]:
    notes = []
    values = traced.tracer.values
    if traced.traced_on == REAL:
        notes.append(f"traced on real tensors: shapes alone were not enough ({traced.because})")
    if values is not None and values.assumed:
        chosen = ", ".join(sorted(name.removeprefix("aten::") for name in values.assumed))
        notes.append(f"choices made from activations ({chosen}) were assumed to be evenly spread")
    if traced.step.settings.causal == "half":
        notes.append("causal attention: only the query-key pairs that are not masked were counted")
    return tuple(notes)


# ---------------------------------------------------------------- formulas applied, phases named


def _costs(number: int, traced: TracedStep) -> Iterator[OpCost]:
    """A traced call with its cost, one for each phase it serves."""
    row, settings = traced.tracer.rows[number], traced.step.settings
    call, entry = row.call, row.call.operator.entry
    call.causal = settings.causal
    kind = entry.kind if entry is not None else "unknown"
    work = _as_work(entry.function(call)) if entry is not None else None
    phase = traced.phases.get(number, "input-grad") if row.stage == "backward" else row.stage
    parts = work if isinstance(work, dict) else {phase: work}
    is_recomputed = row.stage == RECOMPUTE
    for part_phase, part in parts.items():
        yield OpCost(
            path=row.path,
            op=call.name,
            kind=kind,
            phase=RECOMPUTE if is_recomputed else part_phase,
            dtype=_dtype(call, kind, settings.precision),
            cost=(part or Work()).cost(call),  # without a formula only its bytes
            work=part,
            call=call,
            is_recomputed=is_recomputed,
        )


def _as_work(cost: Work | Phased | Cost) -> Work | Phased:
    """Formulas of users may answer with a whole Cost."""
    if not isinstance(cost, Cost):
        return cost
    return Work(
        macs=cost.macs,
        other_flops=cost.other_flops,
        transcendentals=cost.transcendentals,
        read_bytes=cost.read_bytes,
        written_bytes=cost.written_bytes,
    )


def _dtype(call: OpCall, kind: str, precision: str) -> str:
    """The precision an operator computes in: that of its widest floating-point operand."""
    tensors = (*call.outputs, *call.inputs)
    floats = [t.dtype for t in (*call.inputs, *call.outputs) if t.is_float]
    if not floats:
        return dtype_name(tensors[0].dtype) if tensors else ""
    name = dtype_name(max(floats, key=lambda dtype: dtype.itemsize))
    return "tf32" if precision == "tf32" and kind in PRODUCT_KINDS and name == "fp32" else name
