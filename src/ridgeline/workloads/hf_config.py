"""A configuration of transformers: the defaults of its class, a config.json, and `--config`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from ridgeline.errors import RidgelineError
from ridgeline.workloads.checks import unknown_name
from ridgeline.workloads.config_values import overridden
from ridgeline.workloads.workload import one_line

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


def make_config(model_type: str, asked: Mapping[str, Any]) -> PretrainedConfig:
    """The configuration of `model_type`, or of the config.json that is named instead."""
    asked = dict(asked)
    stored = read_file(asked.pop(FILE_KEY, None) or file_in(model_type))
    if file_in(model_type) and "model_type" not in stored:
        hint = 'add one, "model_type": "llama", or write transformers:TYPE --config FILE'
        raise RidgelineError(f"{model_type} has no model_type", hint=hint)
    model_type = stored.get("model_type", model_type)
    config_class = class_of(model_type)
    empty = {} if stored else LEFT_EMPTY.get(model_type, {})
    values = {**empty, **values_of(model_type, config_class, stored, asked)}
    try:
        config = config_class.from_dict(values) if values else config_class()
    except Exception as error:  # each config class has errors of its own
        reason = one_line(error.__cause__ or error)
        raise RidgelineError(
            f"transformers refuses this {model_type} configuration: {reason}",
            hint="change the values of --config so that they fit together",
        ) from error
    without_cache(config, asked)
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
    asked: dict[str, Any],
) -> dict[str, Any]:
    """Only what was stored or asked: the class derives the rest from it."""
    if not asked:
        return stored
    defaults = flat({**known_values(config_class), **stored})
    typed = overridden(defaults, asked, f"transformers:{model_type}")
    values = dict(stored)
    for key in asked:
        put(values, key.split("."), typed[key])
    return values


def known_values(config_class: type[PretrainedConfig]) -> dict[str, Any]:
    """Every key the class knows with its default, also by its second names (gpt2: n_embd)."""
    config = config_class()
    second = {name: getattr(config, own) for name, own in config.attribute_map.items()}
    common = PretrainedConfig().to_dict()  # what every model has comes last
    own = {key: value for key, value in config.to_dict().items() if key not in common}
    return {**own, **second, "num_labels": config.num_labels, **config.to_dict()}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configurations with dots: text_config.hidden_size."""
    return dict(_flat(values, prefix))


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield prefix + key, value
        if isinstance(value, Mapping):
            yield from _flat({str(k): v for k, v in value.items()}, f"{prefix}{key}.")


def put(values: dict[str, Any], path: list[str], value: Any) -> None:
    *outer, last = path
    for key in outer:
        values = values.setdefault(key, {})
    values[last] = value


def without_cache(config: PretrainedConfig, asked: Mapping[str, Any]) -> None:
    """Counting looks at one pass, so nothing is kept for a next one unless it was asked for."""
    for part in parts_of(config):
        for key in NOT_FOR_COUNTING:
            if hasattr(part, key) and key not in asked:
                setattr(part, key, False)


def with_start_token(config: PretrainedConfig) -> None:
    """Labels become the decoder's input by a shift, and a token has to come first."""
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        padding = getattr(config, "pad_token_id", None)
        config.decoder_start_token_id = 0 if padding is None else padding


def parts_of(config: PretrainedConfig) -> list[PretrainedConfig]:
    """The configuration and those inside it: text_config, vision_config…, outermost first."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    return [config, *[part for value in inner for part in parts_of(value)]]


def find(config: PretrainedConfig, *names: str) -> Any:
    """The first of `names` that the configuration or one inside it has; None without one."""
    for part in parts_of(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None
