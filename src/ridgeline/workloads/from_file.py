"""A model out of a Python file: `path/to/file.py:factory`.

The factory is a function or class that returns a module, or a module itself; `--config` becomes
its keyword arguments. Functions beside it say the rest: `inputs(batch_size)` what to feed it (a
tensor, a tuple or a dict), `loss(output)` how to train it. `factory_inputs` and `factory_loss`
are taken before those, for a file with several models.
"""

from __future__ import annotations

import copy
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.offline import refuse_downloads
from ridgeline.workloads.workload import (
    Inputs,
    Workload,
    one_line,
    or_text,
    override_defaults,
    refuse_seq_len,
    unknown_name,
)

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
    defined = file.defined()
    networks = [name for name, value in defined.items() if is_network(value)]
    names = [name for name in USUAL if name in defined][:1] or networks or factories(file)
    if not names:
        raise RidgelineError(
            f"{file.shown} has no function or class that could make a model",
            hint="define one, `def model(): return MyNetwork()`, or a subclass of torch.nn.Module",
        )
    if len(names) > 1:
        raise RidgelineError(
            f"{file.shown} has {len(names)} models to choose from",
            hint=f"say which: {or_text([f'{file.shown}:{name}' for name in names])}",
        )
    return names[0]


def named_factory(file: PythonFile, name: str) -> Any:
    factory = file.get(name)
    if callable(factory):
        return factory
    hint = f"it has {', '.join(factories(file)) or 'none'}"
    raise unknown_name(f"factory in {file.shown}:", name, factories(file), hint=hint)


def factories(file: PythonFile) -> list[str]:
    """Everything public in the file that could return a module."""
    items = file.defined().items()
    return [n for n, value in items if callable(value) and not n.endswith(("inputs", "loss"))]


def is_network(value: object) -> bool:
    return isinstance(value, nn.Module) or (
        isinstance(value, type) and issubclass(value, nn.Module)
    )


def make(file: PythonFile, name: str, factory: Any, spec: WorkloadSpec) -> nn.Module:
    """Call the factory, or take a copy where the file holds the module itself."""
    if isinstance(factory, nn.Module):
        return copy.deepcopy(factory).to(torch.empty(0).device)
    module = file.run(factory, **config_keywords(file, name, factory, spec))
    if not isinstance(module, nn.Module):
        raise RidgelineError(
            f"{file.shown}:{name} returned {type(module).__name__}, not a torch.nn.Module",
            hint="name a function that returns the network, or the network's class",
        )
    return module


def config_keywords(
    file: PythonFile, name: str, factory: Any, spec: WorkloadSpec
) -> dict[str, Any]:
    """`--config` as arguments of the factory, of the type of their defaults."""
    if not spec.config:
        return {}
    parameters = inspect.signature(factory).parameters.values()
    defaults = {p.name: None if p.default is p.empty else p.default for p in parameters}
    values = override_defaults(defaults, spec.config, f"{file.shown}:{name}")
    return {key: values[key] for key in spec.config}


def input_function(file: PythonFile, name: str, spec: WorkloadSpec) -> Callable[[int], Inputs]:
    feed = file.get(f"{name}_inputs") or file.get("inputs")
    if feed is not None:
        return partial(call_inputs, file, feed, requested_sizes(file, feed, spec))
    refuse_seq_len(spec)
    if spec.input_size is None:
        raise RidgelineError(
            f"{spec.model}: the shape of the input is not known",
            hint="give it, --input-size 3x224x224 for a float tensor of batch x 3 x 224 x 224, or "
            "define inputs(batch_size) in the file: it returns a tensor, a tuple or a dict",
        )
    size = spec.input_size
    return lambda batch_size: Inputs(args=(torch.rand(batch_size, *size),))


def requested_sizes(file: PythonFile, feed: Any, spec: WorkloadSpec) -> dict[str, Any]:
    """Sizes from the command line, for an inputs() that takes them."""
    sizes = {"input_size": spec.input_size, "seq_len": spec.seq_len}
    requested = {key: value for key, value in sizes.items() if value is not None}
    for key in requested:
        if key not in inspect.signature(feed).parameters:
            raise MissingSizeError(
                key,
                f"{feed.__name__}() in {file.shown} takes no {key}",
                hint=f"give it that parameter: def {feed.__name__}(batch_size, {key}=...)",
            )
    return requested


def call_inputs(file: PythonFile, feed: Any, sizes: dict[str, Any], batch_size: int) -> Inputs:
    """What the file feeds its model: made of real values, then only integers stay real."""
    device = torch.empty(0).device

    def move(tensor: Tensor) -> Tensor:
        is_float = tensor.is_floating_point() or tensor.is_complex()
        return tensor.to(device) if is_float else tensor

    with torch.device("cpu"):
        batch = file.run(feed, batch_size, **sizes)
    return Inputs.of(tree_map_only(Tensor, move, batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFile:
    """An imported file."""

    path: Path
    shown: str  # as the user wrote it
    module: ModuleType

    def get(self, name: str) -> Any:
        return getattr(self.module, name, None)

    def defined(self) -> dict[str, Any]:
        """The functions, classes and networks of the file itself, not those it imports."""
        home = self.module.__name__
        return {
            name: value
            for name, value in vars(self.module).items()
            if not name.startswith("_")
            and (getattr(value, "__module__", "") == home or isinstance(value, nn.Module))
        }

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of the file; what it raises becomes one line that says where."""
        with errors_in_one_line(self.path, self.shown):
            return function(*args, **kwargs)


def import_file(shown: str) -> PythonFile:
    path = Path(shown).expanduser()
    if not path.is_file():
        raise RidgelineError(f"no such file: {shown}", hint="give the path of a Python file")
    path = path.resolve()
    spec = spec_from_file_location(f"ridgeline_file_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickles look themselves up there
    sys.path.insert(0, str(path.parent))  # what lies beside a script can be imported
    try:
        with errors_in_one_line(path, shown):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return PythonFile(path=path, shown=shown, module=module)


@contextmanager
def errors_in_one_line(path: Path, shown: str) -> Iterator[None]:
    """Turn an error of the file into ours: where in the file, and its own words."""
    try:
        with refuse_downloads(shown):
            yield
    except RidgelineError:
        raise
    except (Exception, SystemExit) as error:
        raise RidgelineError(
            f"{shown}:{line_of(error, path)}: {one_line(error)}",
            hint="fix the file, or try it alone with python; `--debug` shows the whole traceback",
        ) from error


def line_of(error: BaseException, path: Path) -> int:
    """The last line of the file that took part in the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] or 0 if lines else 0
