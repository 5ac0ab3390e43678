"""transformers by type: configuration, head, inputs and loss, all without weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.workloads.running import error_text, params, run_on_meta, train_on_meta, workload
from torch import Tensor

PARTS = ("text", "vision")


def shapes(values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in values.items()}


@pytest.mark.parametrize(
    ("model_type", "class_name", "fed"),
    [
        ("bert", "BertForMaskedLM", {"input_ids": (2, 128)}),
        ("gpt2", "GPT2LMHeadModel", {"input_ids": (2, 128)}),
        ("llama", "LlamaForCausalLM", {"input_ids": (2, 128)}),
        ("mixtral", "MixtralForCausalLM", {"input_ids": (2, 128)}),
        (
            "t5",
            "T5ForConditionalGeneration",
            {"input_ids": (2, 128), "decoder_input_ids": (2, 128)},
        ),
        ("vit", "ViTForImageClassification", {"pixel_values": (2, 3, 224, 224)}),
        (
            "whisper",
            "WhisperForConditionalGeneration",
            {"input_features": (2, 80, 3000), "decoder_input_ids": (2, 128)},
        ),
        ("clip", "CLIPModel", {"input_ids": (2, 77), "pixel_values": (2, 3, 224, 224)}),
        ("wav2vec2", "Wav2Vec2ForCTC", {"input_values": (2, 16000)}),
        ("videomae", "VideoMAEForVideoClassification", {"pixel_values": (2, 16, 3, 224, 224)}),
        ("detr", "DetrForObjectDetection", {"pixel_values": (2, 3, 640, 640)}),
    ],
)
def test_heads_and_inputs(
    model_type: str, class_name: str, fed: dict[str, tuple[int, ...]]
) -> None:
    made = workload(f"transformers:{model_type}")
    assert made.describe["class"] == class_name
    assert shapes(made.inputs(2).kwargs) == fed


@pytest.mark.parametrize("model_type", ["bert", "t5", "vit", "clip", "convnext", "segformer"])
def test_training_gives_one_number(model_type: str) -> None:
    assert train_on_meta(workload(f"transformers:{model_type}", mode="train")).shape == ()


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("gpt2", {"n_layer": 1, "n_embd": 24}),
        (
            "mixtral",
            {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 32, "vocab_size": 99},
        ),
        ("whisper", {"encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 50}),
        ("wav2vec2", {"num_hidden_layers": 1}),
    ],
)
def test_training_with_real_values(model_type: str, config: dict[str, Any]) -> None:
    made = workload(f"transformers:{model_type}", mode="train", config=config, seq_len=16)
    inputs = made.inputs(2)
    output = made.build()(**inputs.kwargs)
    assert made.loss is not None
    loss = made.loss(output, inputs)
    assert torch.isfinite(loss)
    assert loss is output.loss


def test_tokens_are_valid_and_avoid_the_special_ones() -> None:
    config = {"vocab_size": "12", "num_hidden_layers": "1"}
    with torch.device("meta"):
        inputs = workload("bert", mode="train", config=config, seq_len=9).inputs(1)
    ids = inputs.kwargs["input_ids"]
    assert ids.tolist() == [[5, 6, 7, 8, 9, 10, 11, 5, 6]]
    assert isinstance(inputs.targets, Tensor)


def test_nothing_is_cached_for_a_next_token() -> None:
    config = {"num_hidden_layers": "1"}
    output, _ = run_on_meta(workload("transformers:t5", config=config))
    assert output.past_key_values is None


def test_a_part_of_a_configuration_is_named_with_a_dot() -> None:
    small = {"text_config.num_hidden_layers": "1", "vision_config.num_hidden_layers": "2"}
    with torch.device("meta"):
        module = workload("transformers:clip", config=small).build()
    text, vision = (module.get_submodule(f"{part}_model.encoder.layers") for part in PARTS)
    assert [len(list(part.children())) for part in (text, vision)] == [1, 2]


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    stored = {
        "model_type": "llama",
        "architectures": ["LlamaModel"],
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 10,
    }
    Path("config.json").write_text(json.dumps(stored))
    return "config.json"


def test_a_config_file_says_type_and_class(config_file: str) -> None:
    layer = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8
    stored = {"config_file": config_file}
    assert workload("transformers:gpt2", config=stored).describe["class"] == "LlamaModel"
    assert params("transformers:gpt2", config=stored) == 10 * 8 + layer + 8
    changed = {"config_file": config_file, "num_hidden_layers": "3"}
    assert params("transformers:llama", config=changed) == 10 * 8 + 3 * layer + 8


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read a.json: No such file or directory"),
        ("[]", "cannot read a.json: it does not hold a JSON object"),
    ],
)
def test_a_config_file_that_is_not_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("a.json").write_text(content)
    asked: dict[str, Any] = {"config": {"config_file": "a.json"}}
    assert error_text("transformers:bert", **asked).splitlines()[0] == text


@pytest.mark.parametrize(
    ("model", "asked", "text"),
    [
        (
            "transformers:bert:BertModle",
            {},
            "unknown class of transformers 'BertModle'\n  hint: did you mean BertModel or "
            "BertLMHeadModel? for example BertForMaskedLM; classes are named as in transformers",
        ),
        (
            "transformers:llama",
            {"config": {"hidden_size": "large"}},
            "--config hidden_size=large is not a whole number\n"
            "  hint: the default is hidden_size=4096",
        ),
        (
            "transformers:gpt2",
            {"seq_len": 2000},
            "transformers:gpt2 has 1024 positions, fewer than --seq-len 2000\n"
            "  hint: use a shorter sequence, or --config max_position_embeddings=2000",
        ),
    ],
)
def test_wrong_wishes(model: str, asked: dict[str, Any], text: str) -> None:
    assert error_text(model, **asked) == text


def test_a_type_whose_input_we_do_not_know() -> None:
    text = error_text("transformers:time_series_transformer")
    assert text == (
        "TimeSeriesTransformerModel needs past_values, past_time_features, past_observed_mask: "
        "ridgeline has no such input\n  hint: write a file with a function that builds it and "
        "inputs(batch_size), and name it path/to/file.py:function"
    )
