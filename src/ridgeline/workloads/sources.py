"""A name to the workload it means.

A bare name is one of our own networks or torchvision's; `source:NAME` says which source;
anything that looks like a Python file is one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
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


# ---------------------------------------------------------------- names of all models
# Read from the files of the packages that are installed, none is imported: reading takes a tenth of
# a second, importing takes several.

Listed = tuple[str, str, str]  # the name to type, its source, one line about it

OWN = {  # networks in own.py
    "resnet18_cifar": "classification, ResNet-18 for CIFAR-10, 3x32x32",
    "resnet34_cifar": "classification, ResNet-34 for CIFAR-10, 3x32x32",
    "vgg11_cifar": "classification, VGG-11 for CIFAR-10, 3x32x32",
    "lstm": "language model, two LSTM layers, 35 tokens",
    "yolo": "detection, YOLO-style, our own, 3x640x640",
    "bert": "the same as transformers:bert",
}
BARE = ("ridgeline", "torchvision")  # sources whose names need no prefix, in this order


def is_installed(source: str) -> bool:
    return source == "ridgeline" or find_spec(source) is not None


def list_models(pattern: str | None = None) -> list[Listed]:
    """Every name that can be typed, its source and a line about it; only what is installed.

    `pattern` is a shell pattern (`resnet*`) or a part of the name.
    """
    mask = (pattern or "*").lower()
    if not any(mark in mask for mark in "*?["):
        mask = f"*{mask}*"
    return [
        (shown, source, about)
        for source in READERS
        for name, about in models_of(source).items()
        if fnmatchcase((shown := name if source in BARE else f"{source}:{name}").lower(), mask)
        or fnmatchcase(name.lower(), mask)
    ]


def models_of(source: str) -> dict[str, str]:
    """Name → a line about it; none where the package, or torch, is not installed."""
    is_there = is_installed(source) and is_installed("torch")
    return dict(sorted(READERS[source]().items())) if is_there else {}


def check_name(source: str, name: str) -> None:
    """RidgelineError with the nearest names where a source has no such model."""
    known = models_of(source)
    if name not in known:
        raise unknown_name(f"{source} model", name, known, hint=LIST_HINT)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places or ["."])))


def _own() -> dict[str, str]:
    return OWN if is_installed("transformers") else {k: v for k, v in OWN.items() if k != "bert"}


# ---------------------------------------------------------------- torchvision and timm
# `@register_model` stands before each function that makes a model; quantised models, whose integer
# kernels are other programs, are registered by another name than their function's.

REGISTERED = re.compile(r"^@register_model(?:\(\))?\n(?:[@#) ].*\n)*def (\w+)", re.MULTILINE)
TASKS = ("segmentation", "detection", "video")  # folders of torchvision's models


@cache
def _registered(package: str) -> dict[str, str]:
    """Name → task, by the folder that it is in; optical flow is left out."""
    return {
        name: path.parent.name if path.parent.name in TASKS else "classification"
        for path in (_folder(package) / "models").rglob("*.py")
        if path.parent.name != "optical_flow"
        for name in REGISTERED.findall(path.read_text(encoding="utf-8"))
    }


# ---------------------------------------------------------------- transformers

BASE = "base model"
HEADS = (  # a type that has several is best known for the first
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION",  # clip: text and image together
    "MODEL_FOR_SPEECH_SEQ_2_SEQ",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "MODEL_FOR_MASKED_LM",  # before causal: bert can be made causal, but that is not its use
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
    "MODEL_FOR_CAUSAL_LM",
    "MODEL_FOR_IMAGE_CLASSIFICATION",
    "MODEL_FOR_VIDEO_CLASSIFICATION",
    "MODEL_FOR_OBJECT_DETECTION",
    "MODEL_FOR_SEMANTIC_SEGMENTATION",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION",
    "MODEL_FOR_DEPTH_ESTIMATION",
    "MODEL_FOR_CTC",
    "MODEL_FOR_AUDIO_CLASSIFICATION",
    "MODEL",  # without a head
)


@cache
def transformers_classes() -> dict[str, tuple[str, str]]:
    """Model type → the task that it is known for, and its class for that."""
    tables = _tables(_folder("transformers") / "models" / "auto" / "modeling_auto.py")
    classes: dict[str, tuple[str, str]] = {}
    for head in HEADS:
        task = head.removeprefix("MODEL_FOR_").replace("_", " ").lower() if "_" in head else BASE
        for model_type, names in tables.get(f"{head}_MAPPING_NAMES", {}).items():
            name = names if isinstance(names, str) else names[0]
            classes.setdefault(model_type, (task, name))
    return classes


def _tables(path: Path) -> dict[str, Mapping[str, str | tuple[str, ...]]]:
    """The tables of a file that are written `NAME = OrderedDict([(key, value), …])`."""
    tables: dict[str, Mapping[str, str | tuple[str, ...]]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name(id=name)], ast.Call(args=[ast.List(elts=pairs)])):
                rows = [ast.literal_eval(pair) for pair in pairs if isinstance(pair, ast.Tuple)]
                tables[name] = dict(rows)
    return tables


def _transformers() -> dict[str, str]:
    return {name: f"{task}, {cls}" for name, (task, cls) in transformers_classes().items()}


# ---------------------------------------------------------------- ultralytics

SCALES = "nsmlx"  # yolov8.yaml describes yolov8n to yolov8x
FAMILY = re.compile(r"^(yolov?\d+)(?![a-z0-9])")


def _ultralytics() -> dict[str, str]:
    """Every description in the installed package, once for each scale of its family."""
    stems = [path.stem for path in (_folder("ultralytics") / "cfg" / "models").rglob("*.yaml")]
    names = {FAMILY.sub(rf"\g<1>{scale}", stem) for stem in stems for scale in SCALES}
    return dict.fromkeys(names, "ultralytics (AGPL-3.0), 3x640x640")


READERS: dict[str, Callable[[], dict[str, str]]] = {
    "ridgeline": _own,
    "torchvision": partial(_registered, "torchvision"),
    "timm": partial(_registered, "timm"),
    "transformers": _transformers,
    "ultralytics": _ultralytics,
}
