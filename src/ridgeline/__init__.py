"""ridgeline: how fast a network could run on a machine, how fast it does, and why there is a gap.

A map of the package, in the order data flows:

    errors       the one error for people
    records      what crosses between rooms
    units        numbers to text
    store        the results folder
    provenance   where a number comes from
    sensors      what a device says while it works: clocks, temperature, power, energy
    workloads    what is run: models by source, their inputs
    count        what a model must do: FLOPs, bytes, parameters, memory
    onnx         ONNX files: counted, exported with a check, compared with PyTorch
    machine      what a machine is and can do: description, doctor, ceilings, passports
    measure      what a model does: time, energy and memory of its steps; real training
    conv         convolutions under every algorithm
    profile      what the hardware did: counters read here, captures made elsewhere
    roofline     work under roofs: floors, bounds, efficiencies, headrooms, findings
    predict      steps that were not run: operators that were, host and device, intervals
    report       tables, figures, the page and report.md from what is stored
    pipeline     the main job: all of it, from a model to a report
    sweep        experiment matrices, in stages, here or on Slurm
    api          the functions below
    cli          one module per command
"""

from typing import TYPE_CHECKING

from ridgeline import api
from ridgeline.api import (
    analyze,
    compare,
    export,
    formula,
    growth,
    import_capture,
    list_models,
    load_trained,
    make_callable,
    max_batch,
    profile_step,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import Cost
from ridgeline.version import __version__

if TYPE_CHECKING:
    from ridgeline.api import conv, count, measure, predict, profile, report, roofline, sweep
else:  # the room and its main function share a name: the room itself is made callable
    from ridgeline import conv, count, measure, predict, profile, report, roofline, sweep

    make_callable(conv, api.conv)
    make_callable(count, api.count)
    make_callable(measure, api.measure)
    make_callable(predict, api.predict)
    make_callable(profile, api.profile)
    make_callable(report, api.report)
    make_callable(roofline, api.roofline)
    make_callable(sweep, api.sweep)

__all__ = [
    "Cost",
    "RidgelineError",
    "__version__",
    "analyze",
    "compare",
    "conv",
    "count",
    "export",
    "formula",
    "growth",
    "import_capture",
    "list_models",
    "load_trained",
    "max_batch",
    "measure",
    "predict",
    "profile",
    "profile_step",
    "report",
    "roofline",
    "sweep",
]
