"""transformers' models by type, from their configuration class, with random weights.

`transformers:bert`, `transformers:bert:BertModel` for another head, or
`transformers:path/to/config.json`. The head, when none is named: what the configuration names;
else the one its type is known for, in the order of HEADS.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.checks import no_input_size, no_seq_len, unknown_name
from ridgeline.workloads.hf_config import file_in, flat, make_config, model_types
from ridgeline.workloads.hf_inputs import make_inputs, plan
from ridgeline.workloads.images import height_width
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.workload import Workload

HEADS = (  # a type that has several is best known for the first
    "ZERO_SHOT_IMAGE_CLASSIFICATION",  # clip: text and image together
    "SPEECH_SEQ_2_SEQ",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MASKED_LM",  # before causal: bert can be made causal, but that is not its use
    "IMAGE_TEXT_TO_TEXT",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "OBJECT_DETECTION",
    "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
)


def names() -> list[str]:
    """The types that are models by themselves, not parts of others."""
    whole = set(modeling_auto.MODEL_MAPPING_NAMES).union(*[head_names(head) for head in HEADS])
    return [name for name in model_types() if name in whole]


def about(name: str) -> str:
    head = next((head for head in HEADS if name in head_names(head)), "BASE_MODEL")
    return f"{head.lower().replace('_', ' ')}, {head_of(name)}"


def workload(name: str, spec: WorkloadSpec) -> Workload:
    model_type, _, asked_class = name.partition(":")
    config = make_config(model_type, with_image_size(model_type, spec))
    model_class = choose_class(config, asked_class)
    sizes = plan(config, model_class, spec)
    used = sizes.described()
    if set(used) == {"input_size"}:
        no_seq_len(spec)
    if "input_size" not in used:
        no_input_size(spec)
    return Workload(
        name=short_name(model_type, asked_class),
        source="transformers",
        mode=spec.mode,
        make=lambda: model_class(config),
        make_inputs=partial(make_inputs, sizes),
        loss=mean_of_outputs,  # which is the model's own loss wherever it has labels for one
        describe={"class": model_class.__name__, **used},
    )


def short_name(model_type: str, asked_class: str) -> str:
    if file_in(model_type):
        return Path(model_type).parent.name or Path(model_type).stem
    return f"{model_type}.{asked_class}" if asked_class else model_type


def with_image_size(model_type: str, spec: WorkloadSpec) -> dict[str, Any]:
    """`--config`, and the image size in it where the model is built for one."""
    asked = dict(spec.config)
    if spec.input_size is None:
        return asked
    defaults = flat(make_config(model_type, asked).to_dict())
    key = next((key for key in defaults if key.split(".")[-1] == "image_size"), None)
    height, width = height_width(spec.input_size, spec.model)
    size = height if height == width else [height, width]
    return asked if key is None else {key: size, **asked}


def choose_class(config: PretrainedConfig, asked: str) -> type[PreTrainedModel]:
    name = asked or first(config.architectures or head_of(config.model_type))
    model_class = getattr(transformers, name, None)
    if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
        return model_class
    hint = f"for example {head_of(config.model_type)}; classes are named as in transformers"
    raise unknown_name("class of transformers", name, classes_of(config), hint=hint)


def classes_of(config: PretrainedConfig) -> list[str]:
    """The models that live beside this configuration."""
    package = import_module(type(config).__module__.rpartition(".")[0])
    return [name for name in dir(package) if "Model" in name or "For" in name]


def head_of(model_type: str) -> str:
    for head in HEADS:
        if model_type in head_names(head):
            return first(head_names(head)[model_type])
    base = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    if base is None:
        raise RidgelineError(
            f"transformers:{model_type} is a part of other models, not one by itself",
            hint="name a class that takes it, transformers:TYPE:ClassName, or the whole model",
        )
    return first(base)


def head_names(head: str) -> Mapping[str, Any]:
    """Model type to class name; a head that this version does not know has none."""
    names: Mapping[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})
    return names


def first(names: Any) -> str:
    """Some types map to several classes."""
    return str(names if isinstance(names, str) else names[0])
