"""What a model of transformers is fed: found from the parameters of its `forward`.

One function per parameter, in FEEDERS; sizes come from the configuration. A model that wants
tokens and could also take images gets tokens only, unless it compares the two (clip).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.inputs import height_width, labels
from ridgeline.workloads.workload import Inputs

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
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.model_class.forward).parameters)

    @property
    def vocab_size(self) -> int:
        """How many ids there are; a model that takes any number (canine) gets a few."""
        size = find_value(text_part(self.config), "vocab_size") or find_value(
            self.config, "vocab_size"
        )
        return int(size or FEW_WORDS)

    @property
    def learns_tokens(self) -> bool:
        return self.mode == "train" and has_labels(self) and label_feeder(self) is tokens

    def used_sizes(self) -> dict[str, object]:
        """The sizes that matter: of tokens, images or both."""
        fed = set(fed_names(self))
        sizes: dict[str, object] = {}
        if fed & {"input_ids", "decoder_input_ids"} or self.learns_tokens:
            sizes["seq_len"] = self.seq_len
        if any(name.startswith("pixel_values") for name in fed):
            sizes["input_size"] = self.image_size
        return sizes


def plan_inputs(
    config: PretrainedConfig, model_class: type[PreTrainedModel], spec: WorkloadSpec
) -> Plan:
    return Plan(
        config=config,
        model_class=model_class,
        mode=spec.mode,
        seq_len=choose_length(config, spec),
        image_size=choose_image_size(config, model_class, spec),
    )


def text_part(config: PretrainedConfig) -> PretrainedConfig:
    part = getattr(config, "text_config", None)
    return part if isinstance(part, PretrainedConfig) else config


def choose_length(config: PretrainedConfig, spec: WorkloadSpec) -> int:
    """The length asked for, or 128; no longer than the model has positions to tell apart."""
    key, positions = positions_of(text_part(config))
    if spec.seq_len is None:
        return min(SEQ_LEN, positions) if positions else SEQ_LEN
    if positions and spec.seq_len > positions and not is_rotary(config):
        raise RidgelineError(
            f"{spec.model} has {positions} positions, fewer than --seq-len {spec.seq_len}",
            hint=f"use a shorter sequence, or --config {key}={spec.seq_len}",
        )
    return spec.seq_len


def positions_of(config: PretrainedConfig) -> tuple[str, int | None]:
    for key in POSITIONS:
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            return key, value
    return POSITIONS[0], None


def is_rotary(config: PretrainedConfig) -> bool:
    """Positions that are computed have no end, only a length that was trained."""
    return find_value(config, "rope_parameters", "rope_theta", "rope_scaling") is not None


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
    for part in parts_of(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


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
    training = plan.mode == "train"
    if name == "decoder_input_ids":
        return bool(plan.config.is_encoder_decoder) and not (training and has_labels(plan))
    if name == "labels":
        return training and has_labels(plan)
    if name == "return_loss":
        return training
    if name in ("spatial_shapes", "pixel_attention_mask"):
        return "spatial_shapes" in plan.parameters
    both = "return_loss" in plan.parameters or plan.config.model_type in NEED_IMAGES
    return both and name in ("pixel_values", "input_features")


def has_labels(plan: Plan) -> bool:
    """Whether the model can be given labels for a loss; detectors match theirs with scipy."""
    feed = label_feeder(plan)
    matched = feed is not detected_objects or find_spec("scipy") is not None
    return feed is not None and matched and "labels" in plan.parameters


def tokens(plan: Plan, batch_size: int) -> Tensor:
    words = max(1, min(plan.vocab_size - FIRST_WORD, FEW_WORDS))
    return labels(batch_size, words, plan.seq_len) + min(FIRST_WORD, plan.vocab_size - 1)


def pixels(plan: Plan, batch_size: int) -> Tensor:
    """Images, or clips for a model that has a number of frames, or images cut up (siglip2)."""
    if "spatial_shapes" in plan.parameters:
        side = find_value(plan.config, "patch_size")
        return torch.rand(batch_size, int(patch_grid(plan).prod()), 3 * side * side)
    channels = find_value(plan.config, "num_channels") or 3
    frames = find_value(plan.config, "num_frames", "frames_per_clip")
    clip = (frames,) if frames and "Video" in plan.model_class.__name__ else ()
    return torch.rand(batch_size, *clip, int(channels), *plan.image_size)


def patch_grid(plan: Plan) -> Tensor:
    """Patches up and across; one image has as many as the model has positions for."""
    side = math.isqrt(find_value(plan.config, "num_patches") or 256)
    return torch.tensor([side, side], device="cpu")


def spatial_shapes(plan: Plan, batch_size: int) -> Tensor:
    return patch_grid(plan).repeat(batch_size, 1)


def patch_mask(plan: Plan, batch_size: int) -> Tensor:
    return torch.ones(batch_size, int(patch_grid(plan).prod()), dtype=torch.long, device="cpu")


def clips(plan: Plan, batch_size: int) -> Tensor:
    frames = find_value(plan.config, "frames_per_clip", "num_frames") or 16
    return torch.rand(batch_size, int(frames), 3, *plan.image_size)


def spectrogram(plan: Plan, batch_size: int) -> Tensor:
    """Whisper's: mel bands by twice the positions of its encoder (30 s are 80 x 3000)."""
    bands = find_value(plan.config, "num_mel_bins", "feature_size")
    length = find_value(plan.config, "max_source_positions")
    if bands and length:
        return torch.rand(batch_size, int(bands), 2 * int(length))
    features = (
        find_value(plan.config, "feature_projection_input_dim", "input_feat_per_channel") or 80
    )
    return torch.rand(batch_size, 1000, int(features))


def sound(plan: Plan, batch_size: int) -> Tensor:
    """One second of sound, with channels for a codec; for a spectrogram model its whole window."""
    bands, length = find_value(plan.config, "num_mel_bins"), find_value(plan.config, "max_length")
    if bands and length and hasattr(plan.config, "patch_size"):
        return torch.rand(batch_size, int(length), int(bands))
    channels = find_value(plan.config, "audio_channels")
    return torch.rand(batch_size, *([int(channels)] if channels else []), SECOND_SAMPLES)


def series(plan: Plan, batch_size: int) -> Tensor:
    """A stretch of measured values, as long as the model looks back."""
    length = find_value(plan.config, "context_length") or plan.seq_len
    return torch.rand(
        batch_size, int(length), int(find_value(plan.config, "num_input_channels") or 1)
    )


def label_feeder(plan: Plan) -> Callable[[Plan, int], Any] | None:
    """Labels for the head that a class has, read from its name."""
    name = plan.model_class.__name__
    return next((feed for part, feed in LABELS.items() if part in name), None)


def head_labels(plan: Plan, batch_size: int) -> Any:
    feed = label_feeder(plan)
    assert feed is not None
    return feed(plan, batch_size)


def label_count(plan: Plan) -> int:
    return max(1, plan.config.num_labels or 1)


def one_label(plan: Plan, batch_size: int) -> Tensor:
    return labels(batch_size, label_count(plan))


def label_per_token(plan: Plan, batch_size: int) -> Tensor:
    return labels(batch_size, label_count(plan), plan.seq_len)


def label_per_pixel(plan: Plan, batch_size: int) -> Tensor:
    return labels(batch_size, label_count(plan), *plan.image_size)


def spoken_words(plan: Plan, batch_size: int) -> Tensor:
    """Ten symbols in a second of speech."""
    return labels(batch_size, max(1, plan.vocab_size - 1), 10) + 1


def detected_objects(plan: Plan, batch_size: int) -> list[dict[str, Tensor]]:
    """Two objects in each image: middle, width and height as parts of the image."""
    boxes = [[0.3, 0.3, 0.2, 0.4], [0.6, 0.5, 0.4, 0.3]]
    return [
        {"class_labels": labels(2, label_count(plan)), "boxes": torch.tensor(boxes)}
        for _ in range(batch_size)
    ]


LABELS: dict[str, Callable[[Plan, int], Any]] = {
    "TokenClassification": label_per_token,
    "AudioFrameClassification": label_per_token,
    "ImageClassification": one_label,
    "VideoClassification": one_label,
    "SequenceClassification": one_label,
    "AudioClassification": one_label,
    "SemanticSegmentation": label_per_pixel,
    "ObjectDetection": detected_objects,
    "ForCTC": spoken_words,
    "LM": tokens,
    "ForConditionalGeneration": tokens,
    "MTModel": tokens,
}

FEEDERS: dict[str, Callable[[Plan, int], Any]] = {
    "input_ids": tokens,
    "decoder_input_ids": tokens,
    "pixel_values": pixels,
    "pixel_values_videos": clips,
    "spatial_shapes": spatial_shapes,
    "pixel_attention_mask": patch_mask,
    "input_features": spectrogram,
    "input_values": sound,
    "past_values": series,
    "labels": head_labels,
    "return_loss": lambda plan, batch_size: True,
}
