"""transformers' models by type, from their configuration class, with random weights.

`transformers:bert`, `transformers:bert:BertModel` for another head, or
`transformers:path/to/config.json`. The head, when none is named: what the configuration names;
else the one its type is known for, in the order of HEADS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.hf_inputs import make_inputs, parts_of, plan_inputs
from ridgeline.workloads.inputs import height_width
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.workload import (
    Workload,
    one_line,
    override_defaults,
    refuse_input_size,
    refuse_seq_len,
    unknown_name,
)

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
    model_type, _, class_name = name.partition(":")
    config = make_config(model_type, with_image_size(model_type, spec))
    model_class = choose_class(config, class_name)
    sizes = plan_inputs(config, model_class, spec)
    used = sizes.used_sizes()
    if set(used) == {"input_size"}:
        refuse_seq_len(spec)
    if "input_size" not in used:
        refuse_input_size(spec)
    return Workload(
        name=short_name(model_type, class_name),
        source="transformers",
        mode=spec.mode,
        make=lambda: model_class(config),
        make_inputs=partial(make_inputs, sizes),
        loss=mean_of_outputs,  # which is the model's own loss wherever it has labels for one
        describe={"class": model_class.__name__, **used},
    )


def short_name(model_type: str, class_name: str) -> str:
    if file_in(model_type):
        return Path(model_type).parent.name or Path(model_type).stem
    return f"{model_type}.{class_name}" if class_name else model_type


def with_image_size(model_type: str, spec: WorkloadSpec) -> dict[str, Any]:
    """`--config`, and the image size in it where the model is built for one."""
    overrides = dict(spec.config)
    if spec.input_size is None:
        return overrides
    defaults = flatten(make_config(model_type, overrides).to_dict())
    key = next((key for key in defaults if key.split(".")[-1] == "image_size"), None)
    height, width = height_width(spec.input_size, spec.model)
    size = height if height == width else [height, width]
    return overrides if key is None else {key: size, **overrides}


def choose_class(config: PretrainedConfig, overrides: str) -> type[PreTrainedModel]:
    name = overrides or first_name(config.architectures or head_of(config.model_type))
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
            return first_name(head_names(head)[model_type])
    base = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    if base is None:
        raise RidgelineError(
            f"transformers:{model_type} is a part of other models, not one by itself",
            hint="name a class that takes it, transformers:TYPE:ClassName, or the whole model",
        )
    return first_name(base)


def head_names(head: str) -> Mapping[str, Any]:
    """Model type to class name; a head that this version does not know has none."""
    names: Mapping[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})
    return names


def first_name(names: Any) -> str:
    """Some types map to several classes."""
    return str(names if isinstance(names, str) else names[0])


FILE_KEY = "config_file"
LEFT_EMPTY: dict[str, dict[str, Any]] = {  # values without a default, as a published model has them
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},  # esm2_t33_650M_UR50D
    "nemotron": {"num_key_value_heads": 8},  # Nemotron-4 15B
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},  # DeepSeek-V2-Lite
    "wav2vec2-bert": {"vocab_size": 32},  # letters, as in wav2vec2
    "moonshine": {"pad_token_id": 0},
}
NOT_FOR_COUNTING = ("use_cache",)  # a cache for the next token: another workload than one pass


def model_types() -> list[str]:
    return sorted(CONFIG_MAPPING.keys())


def make_config(model_type: str, overrides: Mapping[str, Any]) -> PretrainedConfig:
    """The configuration of `model_type`, or of the config.json that is named instead."""
    overrides = dict(overrides)
    stored = read_file(overrides.pop(FILE_KEY, None) or file_in(model_type))
    if file_in(model_type) and "model_type" not in stored:
        hint = 'add one, "model_type": "llama", or write transformers:TYPE --config FILE'
        raise RidgelineError(f"{model_type} has no model_type", hint=hint)
    model_type = stored.get("model_type", model_type)
    config_class = class_of(model_type)
    empty = {} if stored else LEFT_EMPTY.get(model_type, {})
    values = {**empty, **values_of(model_type, config_class, stored, overrides)}
    try:
        config = config_class.from_dict(values) if values else config_class()
    except Exception as error:  # each config class has errors of its own
        reason = one_line(error.__cause__ or error)
        raise RidgelineError(
            f"transformers refuses this {model_type} configuration: {reason}",
            hint="change the values of --config so that they fit together",
        ) from error
    without_cache(config, overrides)
    with_start_token(config)
    return config


def class_of(model_type: str) -> type[PretrainedConfig]:
    if model_type not in CONFIG_MAPPING.keys():  # noqa: SIM118  (a lazy mapping: `in` may import)
        hint = "`ridgeline count --list 'transformers:*'` lists the types"
        raise unknown_name("transformers type", model_type, model_types(), hint=hint)
    config_class: type[PretrainedConfig] = CONFIG_MAPPING[model_type]
    return config_class


def file_in(model_type: str) -> str | None:
    """The path, when a config.json was written in place of the type."""
    return model_type if model_type.endswith(".json") else None


def read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        stored = json.loads(Path(path).expanduser().read_text())
    except OSError as error:
        hint = "give the path of a config.json as transformers writes it"
        raise RidgelineError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except ValueError as error:
        raise RidgelineError(f"{path} is not JSON: {error}", hint="mend the file") from error
    if not isinstance(stored, dict):
        hint = "give a config.json as transformers writes it"
        raise RidgelineError(f"{path} does not hold a JSON object", hint=hint)
    return stored


def values_of(
    model_type: str,
    config_class: type[PretrainedConfig],
    stored: dict[str, Any],
    overrides: dict[str, Any],
) -> dict[str, Any]:
    """Only what was stored or asked: the class derives the rest from it."""
    if not overrides:
        return stored
    defaults = flatten({**known_values(config_class), **stored})
    typed = override_defaults(defaults, overrides, f"transformers:{model_type}")
    values = dict(stored)
    for key in overrides:
        put_value(values, key.split("."), typed[key])
    return values


def known_values(config_class: type[PretrainedConfig]) -> dict[str, Any]:
    """Every key the class knows with its default, also by its second names (gpt2: n_embd)."""
    config = config_class()
    second = {name: getattr(config, own) for name, own in config.attribute_map.items()}
    common = PretrainedConfig().to_dict()  # what every model has comes last
    own = {key: value for key, value in config.to_dict().items() if key not in common}
    return {**own, **second, "num_labels": config.num_labels, **config.to_dict()}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configurations with dots: text_config.hidden_size."""
    return dict(_flatten(values, prefix))


def _flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield prefix + key, value
        if isinstance(value, Mapping):
            yield from _flatten({str(k): v for k, v in value.items()}, f"{prefix}{key}.")


def put_value(values: dict[str, Any], path: list[str], value: Any) -> None:
    *outer, last = path
    for key in outer:
        values = values.setdefault(key, {})
    values[last] = value


def without_cache(config: PretrainedConfig, overrides: Mapping[str, Any]) -> None:
    """Counting looks at one pass, so nothing is kept for a next one unless it was asked for."""
    for part in parts_of(config):
        for key in NOT_FOR_COUNTING:
            if hasattr(part, key) and key not in overrides:
                setattr(part, key, False)


def with_start_token(config: PretrainedConfig) -> None:
    """Labels become the decoder's input by a shift, and a token has to come first."""
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        padding = getattr(config, "pad_token_id", None)
        config.decoder_start_token_id = 0 if padding is None else padding
