"""A name to the workload it means.

A bare name is one of our own networks or torchvision's; `source:NAME` says which source;
anything that looks like a Python file is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.listing import BARE, is_installed, models_of
from ridgeline.workloads.workload import LIST_HINT, Workload, check_spec, unknown_name

EXTRAS = {  # the package a source needs, and how to get it
    "torchvision": "pip install 'ridgeline[torch]'",
    "timm": "pip install 'ridgeline[hf]'",
    "transformers": "pip install 'ridgeline[hf]'",
    "ultralytics": "pip install ultralytics (its licence is AGPL-3.0: read it before you share "
    "what you build with it; `yolo` is a detector of our own that needs nothing)",
}
MODULES = {  # each has a function workload(name, spec)
    "ridgeline": "ridgeline.workloads.own",
    "torchvision": "ridgeline.workloads.from_torchvision",
    "timm": "ridgeline.workloads.from_timm",
    "transformers": "ridgeline.workloads.from_transformers",
    "ultralytics": "ridgeline.workloads.from_ultralytics",
}
FILE_MODULE = "ridgeline.workloads.from_file"
ONNX_ENDING = ".onnx"
OTHER_SOURCES = "timm:NAME, transformers:TYPE, ultralytics:NAME and path/to/file.py:factory"


def resolve(spec: WorkloadSpec) -> Workload:
    """The workload that `spec` names; RidgelineError when there is none."""
    check_spec(spec)
    require_package("torch", spec.model)
    if is_file(spec.model):
        return _load(FILE_MODULE, spec.model, spec)
    source, colon, name = spec.model.partition(":")
    if not colon:
        return _load(MODULES[_source_of(spec.model)], spec.model, spec)
    if source not in MODULES:
        raise _unknown_source(source)
    require_package(source, spec.model)
    return _load(MODULES[source], name, spec)


def _load(module: str, name: str, spec: WorkloadSpec) -> Workload:
    workload: Workload = import_module(module).workload(name, spec)
    return workload


def _source_of(name: str) -> str:
    """Of a name without a source: ours, then torchvision's."""
    known = {source: models_of(source) for source in BARE}
    for source, names in known.items():
        if name in names:
            return source
    hint = f"{LIST_HINT}; other sources are {OTHER_SOURCES}"
    if not is_installed("torchvision"):
        hint = f"torchvision is not installed: {EXTRAS['torchvision']}"
    for source in ("timm", "transformers"):
        if name in models_of(source):
            hint = f"{source} has it: write {source}:{name}"
    raise unknown_name("model", name, [one for names in known.values() for one in names], hint=hint)


def check_model(model: str) -> None:
    """Refuse a file that is not here, and a name that the packages installed here do not have.

    Without torch nothing is known of names: a cluster's login node may have none.
    """
    source, colon, _ = model.partition(":")
    if is_file(model):
        if file_digest(model) is None:
            raise RidgelineError(f"no such file: {model}", hint="name its path from this folder")
    elif colon and source not in MODULES:
        raise _unknown_source(source)
    elif not colon and is_installed("torchvision") and is_installed("torch"):
        _source_of(model)


def _unknown_source(source: str) -> RidgelineError:
    hint = f"the sources are {', '.join(MODULES)} and path/to/file.py:factory"
    return unknown_name("source", source, MODULES, hint=hint)


def require_package(source: str, model: str) -> None:
    """Say how to install the package of a source that is not there."""
    if not is_installed(source):
        command = EXTRAS.get(source, EXTRAS["torchvision"])
        raise RidgelineError(f"{model} needs {source}, which is not installed", hint=command)


def is_file(model: str) -> bool:
    """Whether `model` is path/to/file.py or path/to/file.py:factory."""
    return model.partition(":")[0] not in MODULES and (model.endswith(".py") or ".py:" in model)


def is_onnx(model: str | Path) -> bool:
    """Whether `model` is an ONNX file, which is no workload: it can be counted only."""
    return str(model).lower().endswith(ONNX_ENDING)


def workload_spec(
    model: str,
    batch_size: int,
    input_size: int | Sequence[int] | None = None,
    seq_len: int | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    mode: str = "infer",
) -> WorkloadSpec:
    """The record of a workload, from the loose forms that people write."""
    if is_onnx(model):
        if not Path(model).exists():
            raise RidgelineError(f"no such file: {model}", hint="check the path")
        raise RidgelineError(
            f"{model}: ONNX files can be counted only",
            hint="ridgeline count FILE.onnx; here, name the PyTorch model it was exported from",
        )
    size = (input_size,) if isinstance(input_size, int) else input_size
    return WorkloadSpec(
        model=model,
        batch_size=batch_size,
        mode=mode,
        input_size=tuple(size) if size is not None else None,
        seq_len=seq_len,
        config=dict(config or {}),
    )


# ---------------------------------------------------------------- digests
# What a model was when it was run or counted: the same name may mean another network later.

DIGEST_CHARACTERS = 16  # characters of a digest


def file_digest(model: str) -> str | None:
    """Of the Python file that a model comes from; None for a name, or where no file is."""
    name, dot, _ = model.rpartition(".py")
    path = Path(f"{name}.py").expanduser()
    if not dot or not path.is_file():
        return None
    return sha256(path.read_bytes()).hexdigest()[:DIGEST_CHARACTERS]


def module_digest(module: Any, shapes: Any) -> str:
    """Of a module's structure, the shapes of its weights, and those of its inputs."""
    weights = [(name, tuple(weight.shape)) for name, weight in module.named_parameters()]
    text = f"{type(module).__qualname__}\n{module!r}\n{weights}\n{shapes}"
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]
