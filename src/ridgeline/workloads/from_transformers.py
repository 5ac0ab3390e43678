"""transformers' models by type, from their configuration class, with random weights.

`transformers:bert`, or `transformers:bert:BertModel` for another head; `--config` names values or a
config.json. The head, when none is named: what the configuration names;
else the one its type is known for. What a model is fed is found from the
parameters of its `forward`: one function per parameter, in FEEDERS; sizes come from the
configuration. A model that wants tokens and could also take images gets tokens only, unless it
compares the two (clip).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.inputs import height_width, labels
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.sources import transformers_classes
from ridgeline.workloads.workload import (
    LIST_HINT,
    Inputs,
    Workload,
    one_line,
    override_defaults,
    refuse_input_size,
    refuse_seq_len,
    unknown_name,
)


def workload(name: str, spec: WorkloadSpec) -> Workload:
    model_type, _, class_name = name.partition(":")
    config = make_config(model_type, with_image_size(model_type, spec))
    model_class = choose_class(config, class_name)
    plan = Plan(
        config=config,
        model_class=model_class,
        mode=spec.mode,
        seq_len=choose_length(config, spec),
        image_size=choose_image_size(config, model_class, spec),
    )
    used = plan.used_sizes()
    if set(used) == {"input_size"}:
        refuse_seq_len(spec)
    if "input_size" not in used:
        refuse_input_size(spec)
    return Workload(
        name=f"{model_type}.{class_name}" if class_name else model_type,
        source="transformers",
        mode=spec.mode,
        make=lambda: model_class(config),
        make_inputs=partial(make_inputs, plan),
        loss=mean_of_outputs,  # which is the model's own loss wherever it has labels for one
        describe={"class": model_class.__name__, **used},
    )


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


def choose_class(config: PretrainedConfig, class_name: str) -> type[PreTrainedModel]:
    name = class_name or (config.architectures or [head_of(config.model_type)])[0]
    model_class = getattr(transformers, name, None)
    if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
        return model_class
    package = import_module(type(config).__module__.rpartition(".")[0])
    classes = [one for one in dir(package) if "Model" in one or "For" in one]
    hint = f"for example {head_of(config.model_type)}; classes are named as in transformers"
    raise unknown_name("class of transformers", name, classes, hint=hint)


def head_of(model_type: str) -> str:
    """The class that a type is known for."""
    if model_type not in transformers_classes():
        raise RidgelineError(
            f"transformers:{model_type} is a part of other models, not one by itself",
            hint="name a class that takes it, transformers:TYPE:ClassName, or the whole model",
        )
    return transformers_classes()[model_type][1]


FILE_KEY = "config_file"
LEFT_EMPTY: dict[str, dict[str, Any]] = {  # values without a default, as a published model has them
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},  # esm2_t33_650M_UR50D
    "nemotron": {"num_key_value_heads": 8},  # Nemotron-4 15B
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},  # DeepSeek-V2-Lite
    "wav2vec2-bert": {"vocab_size": 32},  # letters, as in wav2vec2
    "moonshine": {"pad_token_id": 0},
}


def make_config(model_type: str, overrides: Mapping[str, Any]) -> PretrainedConfig:
    """The configuration of `model_type`, or of the config.json that is named."""
    overrides = dict(overrides)
    stored = read_file(overrides.pop(FILE_KEY, None))
    model_type = stored.get("model_type", model_type)
    if model_type not in CONFIG_MAPPING.keys():  # noqa: SIM118  (a lazy mapping: `in` may import)
        raise unknown_name("transformers type", model_type, CONFIG_MAPPING.keys(), hint=LIST_HINT)
    config_class: type[PretrainedConfig] = CONFIG_MAPPING[model_type]
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
    prepare_config(config, overrides)
    return config


def prepare_config(config: PretrainedConfig, overrides: Mapping[str, Any]) -> None:
    """One pass keeps nothing for a next token, unless that was asked for.

    Labels become the decoder's input by a shift, and a token has to come first.
    """
    for part in parts_of(config):
        if hasattr(part, "use_cache") and "use_cache" not in overrides:
            part.use_cache = False
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0


def read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        stored = json.loads(Path(path).expanduser().read_text())
        if not isinstance(stored, dict):
            raise ValueError("it does not hold a JSON object")
    except (OSError, ValueError) as error:
        hint = "give the path of a config.json as transformers writes it"
        reason = getattr(error, "strerror", None) or error
        raise RidgelineError(f"cannot read {path}: {reason}", hint=hint) from error
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
        *outer, inner = key.split(".")
        part = values
        for name in outer:
            part = part.setdefault(name, {})
        part[inner] = typed[key]
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
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat[f"{prefix}{key}"] = value
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
    return flat


# ---------------------------------------------------------------- what a model is fed

SEQ_LEN = 128
IMAGE_SIZES = {"ObjectDetection": 640, "Segmentation": 512, "": 224}  # if the config has none
NEED_IMAGES = ("git", "vilt")  # beside their tokens, though the signature does not say so
SECOND_SAMPLES = 16_000  # of sound, as speech models take it
FIRST_WORD = 5  # the ids before it are taken by padding, start and end in most vocabularies
FEW_WORDS = 1000  # ids stay below the special ones that lie at the end of some vocabularies
POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "n_ctx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of one batch, and the model they are for."""

    config: PretrainedConfig
    model_class: type[PreTrainedModel]
    mode: str
    seq_len: int
    image_size: tuple[int, int]

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.model_class.forward).parameters

    @property
    def vocab_size(self) -> int:
        """How many ids there are; a model that takes any number (canine) gets a few."""
        size = find_value(text_part(self.config), "vocab_size") or self.find("vocab_size")
        return int(size or FEW_WORDS)

    @property
    def label_count(self) -> int:
        return max(1, self.config.num_labels or 1)

    @property
    def label_feeder(self) -> Feeder | None:
        """Labels for the head that a class has, read from its name, where it learns from them."""
        name = self.model_class.__name__
        feed = next((feed for part, feed in LABELS.items() if part in name), None)
        can_match = feed is not detected_objects or find_spec("scipy") is not None
        is_learning = self.mode == "train" and "labels" in self.parameters and can_match
        return feed if is_learning else None

    def find(self, *names: str) -> Any:
        return find_value(self.config, *names)

    def used_sizes(self) -> dict[str, object]:
        """The sizes that matter: of tokens, images or both."""
        fed = set(fed_names(self))
        sizes: dict[str, object] = {}
        if fed & {"input_ids", "decoder_input_ids"} or self.label_feeder is tokens:
            sizes["seq_len"] = self.seq_len
        if any(name.startswith("pixel_values") for name in fed):
            sizes["input_size"] = self.image_size
        return sizes


Feeder = Callable[[Plan, int], Any]


def text_part(config: PretrainedConfig) -> PretrainedConfig:
    part = getattr(config, "text_config", None)
    return part if isinstance(part, PretrainedConfig) else config


def choose_length(config: PretrainedConfig, spec: WorkloadSpec) -> int:
    """The length asked for, or 128; no longer than the model has positions to tell apart."""
    sizes = {key: getattr(text_part(config), key, None) for key in POSITIONS}
    known = {key: size for key, size in sizes.items() if isinstance(size, int) and size > 0}
    key, positions = next(iter(known.items()), (POSITIONS[0], None))
    if spec.seq_len is None:
        return min(SEQ_LEN, positions) if positions else SEQ_LEN
    # positions that are computed have no end, only a length that was trained
    is_rotary = find_value(config, "rope_parameters", "rope_theta", "rope_scaling") is not None
    if positions and spec.seq_len > positions and not is_rotary:
        raise RidgelineError(
            f"{spec.model} has {positions} positions, fewer than --seq-len {spec.seq_len}",
            hint=f"use a shorter sequence, or --config {key}={spec.seq_len}",
        )
    return spec.seq_len


def choose_image_size(
    config: PretrainedConfig, model_class: type[PreTrainedModel], spec: WorkloadSpec
) -> tuple[int, int]:
    if spec.input_size is not None:
        return height_width(spec.input_size, spec.model)
    size = find_value(config, "image_size", "crop_size")
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    if isinstance(size, int):
        return size, size
    side = next(side for task, side in IMAGE_SIZES.items() if task in model_class.__name__)
    return side, side


def parts_of(config: PretrainedConfig) -> list[PretrainedConfig]:
    """The configuration and those inside it: text_config, vision_config…, outermost first."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    return [config, *[part for value in inner for part in parts_of(value)]]


def find_value(config: PretrainedConfig, *names: str) -> Any:
    """The first of `names` that the configuration or one inside it has; None without one."""
    values = (getattr(part, name, None) for part in parts_of(config) for name in names)
    return next((value for value in values if value is not None), None)


def make_inputs(plan: Plan, batch_size: int) -> Inputs:
    kwargs = {name: FEEDERS[name](plan, batch_size) for name in fed_names(plan)}
    return Inputs(kwargs=kwargs, targets=kwargs.get("labels"))


def fed_names(plan: Plan) -> list[str]:
    """The parameters of `forward` that get a value; an unknown one that must is an error."""
    names = [name for name, parameter in plan.parameters.items() if is_fed(plan, parameter)]
    unknown = [name for name in names if name not in FEEDERS]
    if unknown:
        raise RidgelineError(
            f"{plan.model_class.__name__} needs {', '.join(unknown)}: ridgeline has no such input",
            hint="write a file with a function that builds it and inputs(batch_size), "
            "and name it path/to/file.py:function",
        )
    return names


def is_fed(plan: Plan, parameter: inspect.Parameter) -> bool:
    """Whether it is the main input, has no default, or is needed for this use."""
    name = parameter.name
    if name in ("self", "args", "kwargs") or parameter.kind is parameter.VAR_KEYWORD:
        return False
    if parameter.default is parameter.empty or name == plan.model_class.main_input_name:
        return True
    if name == "decoder_input_ids":
        return bool(plan.config.is_encoder_decoder) and plan.label_feeder is None
    if name == "labels":
        return plan.label_feeder is not None
    if name == "return_loss":
        return plan.mode == "train"
    both = "return_loss" in plan.parameters or plan.config.model_type in NEED_IMAGES
    return both and name in ("pixel_values", "input_features")


def tokens(plan: Plan, batch_size: int) -> Tensor:
    words = max(1, min(plan.vocab_size - FIRST_WORD, FEW_WORDS))
    return labels(batch_size, words, plan.seq_len) + min(FIRST_WORD, plan.vocab_size - 1)


def pixels(plan: Plan, batch_size: int) -> Tensor:
    """Images, or clips for a model that has a number of frames."""
    channels = plan.find("num_channels") or 3
    frames = plan.find("num_frames", "frames_per_clip")
    clip = (frames,) if frames and "Video" in plan.model_class.__name__ else ()
    return torch.rand(batch_size, *clip, int(channels), *plan.image_size)


def clips(plan: Plan, batch_size: int) -> Tensor:
    frames = plan.find("frames_per_clip", "num_frames") or 16
    return torch.rand(batch_size, int(frames), 3, *plan.image_size)


def spectrogram(plan: Plan, batch_size: int) -> Tensor:
    """Whisper's: mel bands by twice the positions of its encoder (30 s are 80 x 3000)."""
    bands, length = plan.find("num_mel_bins", "feature_size"), plan.find("max_source_positions")
    if bands and length:
        return torch.rand(batch_size, int(bands), 2 * int(length))
    features = plan.find("feature_projection_input_dim", "input_feat_per_channel") or 80
    return torch.rand(batch_size, 1000, int(features))


def sound(plan: Plan, batch_size: int) -> Tensor:
    """One second of sound, with channels for a codec; for a spectrogram model its whole window."""
    bands, length = plan.find("num_mel_bins"), plan.find("max_length")
    if bands and length and hasattr(plan.config, "patch_size"):
        return torch.rand(batch_size, int(length), int(bands))
    channels = plan.find("audio_channels")
    return torch.rand(batch_size, *([int(channels)] if channels else []), SECOND_SAMPLES)


def spoken_words(plan: Plan, batch_size: int) -> Tensor:
    """Ten symbols in a second of speech."""
    return labels(batch_size, max(1, plan.vocab_size - 1), 10) + 1


def detected_objects(plan: Plan, batch_size: int) -> list[dict[str, Tensor]]:
    """Two objects in each image: middle, width and height as parts of the image."""
    boxes = [[0.3, 0.3, 0.2, 0.4], [0.6, 0.5, 0.4, 0.3]]
    return [
        {"class_labels": labels(2, plan.label_count), "boxes": torch.tensor(boxes)}
        for _ in range(batch_size)
    ]


LABELS: dict[str, Feeder] = {  # by a part of the name of a class
    "TokenClassification": lambda plan, n: labels(n, plan.label_count, plan.seq_len),
    "AudioFrameClassification": lambda plan, n: labels(n, plan.label_count, plan.seq_len),
    "Classification": lambda plan, n: labels(n, plan.label_count),
    "SemanticSegmentation": lambda plan, n: labels(n, plan.label_count, *plan.image_size),
    "ObjectDetection": detected_objects,
    "ForCTC": spoken_words,
    "LM": tokens,
    "ForConditionalGeneration": tokens,
    "MTModel": tokens,
}

FEEDERS: dict[str, Feeder] = {
    "input_ids": tokens,
    "decoder_input_ids": tokens,
    "pixel_values": pixels,
    "pixel_values_videos": clips,
    "input_features": spectrogram,
    "input_values": sound,
    "labels": lambda plan, n: plan.label_feeder and plan.label_feeder(plan, n),
    "return_loss": lambda plan, n: True,
}
