"""A model out of a Python file: `path/to/file.py:factory`.

The factory is a function or class that returns a module, or a module itself; `--config` becomes
its keyword arguments. Functions beside it say the rest: `inputs(batch_size)` what to feed it (a
tensor, a tuple or a dict), `loss(output)` how to train it. `factory_inputs` and `factory_loss`
are taken before those, for a file with several models.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.checks import no_seq_len, or_text, unknown_name
from ridgeline.workloads.config_values import overridden
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.python_file import PythonFile, import_file
from ridgeline.workloads.workload import Inputs, Workload

USUAL = ("model", "make_model", "build", "build_model")  # taken when no factory is named


def workload(model: str, spec: WorkloadSpec) -> Workload:
    path, _, factory_name = model.partition(".py")
    file = import_file(path + ".py")
    name = factory_name.removeprefix(":") or the_factory(file)
    factory = named_factory(file, name)
    feed = input_function(file, name, spec)
    loss = file.get(f"{name}_loss") or file.get("loss")
    return Workload(
        name=f"{file.path.stem}.{name}",
        source="file",
        mode=spec.mode,
        make=partial(make, file, name, factory, spec),
        make_inputs=feed,
        loss=(lambda output, _: file.run(loss, output)) if loss else mean_of_outputs,
        describe={
            "input_size": spec.input_size,
            "loss": "of the file" if loss else "mean of the outputs",
        },
    )


def the_factory(file: PythonFile) -> str:
    """The one to use when none was named: a usual name, or the only network of the file."""
    for usual in USUAL:
        if usual in file.defined():
            return usual
    networks = [name for name, value in file.defined().items() if is_network(value)]
    if len(networks) == 1:
        return networks[0]
    names = networks or factories(file)
    if not names:
        raise no_factory(file)
    if len(names) == 1:
        return names[0]
    raise RidgelineError(
        f"{file.shown} has {len(names)} models to choose from",
        hint=f"say which: {or_text([f'{file.shown}:{name}' for name in names])}",
    )


def named_factory(file: PythonFile, name: str) -> Any:
    factory = file.get(name)
    if callable(factory):
        return factory
    if not factories(file):
        raise no_factory(file)
    hint = f"it has {', '.join(factories(file))}"
    raise unknown_name(f"factory in {file.shown}:", name, factories(file), hint=hint)


def no_factory(file: PythonFile) -> RidgelineError:
    return RidgelineError(
        f"{file.shown} has no function or class that could make a model",
        hint="define one, `def model(): return MyNetwork()`, or a subclass of torch.nn.Module",
    )


def factories(file: PythonFile) -> list[str]:
    """Everything public in the file that could return a module."""
    found = file.defined().items()
    helpers = ("inputs", "loss")
    return [name for name, value in found if callable(value) and not name.endswith(helpers)]


def is_network(value: object) -> bool:
    return isinstance(value, nn.Module) or (
        isinstance(value, type) and issubclass(value, nn.Module)
    )


def make(file: PythonFile, name: str, factory: Any, spec: WorkloadSpec) -> nn.Module:
    """Call the factory, or take a copy where the file holds the module itself."""
    if isinstance(factory, nn.Module):
        return copy.deepcopy(factory).to(torch.empty(0).device)
    module = file.run(factory, **keywords(file, name, factory, spec))
    if not isinstance(module, nn.Module):
        raise RidgelineError(
            f"{file.shown}:{name} returned {type(module).__name__}, not a torch.nn.Module",
            hint="name a function that returns the network, or the network's class",
        )
    return module


def keywords(file: PythonFile, name: str, factory: Any, spec: WorkloadSpec) -> dict[str, Any]:
    """`--config` as arguments of the factory, of the type of their defaults."""
    if not spec.config:
        return {}
    parameters = inspect.signature(factory).parameters.values()
    defaults = {p.name: None if p.default is p.empty else p.default for p in parameters}
    values = overridden(defaults, spec.config, f"{file.shown}:{name}")
    return {key: values[key] for key in spec.config}


def input_function(file: PythonFile, name: str, spec: WorkloadSpec) -> Callable[[int], Inputs]:
    feed = file.get(f"{name}_inputs") or file.get("inputs")
    if feed is not None:
        return partial(call_inputs, file, feed, asked_sizes(file, feed, spec))
    no_seq_len(spec)
    if spec.input_size is None:
        raise RidgelineError(
            f"{spec.model}: the shape of the input is not known",
            hint="give it, --input-size 3x224x224 for a float tensor of batch x 3 x 224 x 224, or "
            "define inputs(batch_size) in the file: it returns a tensor, a tuple or a dict",
        )
    size = spec.input_size
    return lambda batch_size: Inputs(args=(torch.rand(batch_size, *size),))


def asked_sizes(file: PythonFile, feed: Any, spec: WorkloadSpec) -> dict[str, Any]:
    """Sizes from the command line, for an inputs() that takes them."""
    asked = {"input_size": spec.input_size, "seq_len": spec.seq_len}
    given = {key: value for key, value in asked.items() if value is not None}
    taken = inspect.signature(feed).parameters
    for key in given:
        if key not in taken:
            raise RidgelineError(
                f"{feed.__name__}() in {file.shown} takes no {key}",
                hint=f"give it that parameter: def {feed.__name__}(batch_size, {key}=...)",
            )
    return given


def call_inputs(file: PythonFile, feed: Any, sizes: dict[str, Any], batch_size: int) -> Inputs:
    """What the file feeds its model: made of real values, then only integers stay real."""
    device = torch.empty(0).device
    with torch.device("cpu"):
        batch = file.run(feed, batch_size, **sizes)
    if isinstance(batch, Inputs):
        return batch
    if isinstance(batch, dict):
        return Inputs(kwargs={key: floats_to(device, value) for key, value in batch.items()})
    values = batch if isinstance(batch, tuple | list) else (batch,)
    return Inputs(args=tuple(floats_to(device, value) for value in values))


def floats_to(device: torch.device, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(floats_to(device, item) for item in value)
    moves = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
    return value.to(device) if moves else value
