"""Whole networks against published figures and closed forms."""

from functools import cache

import pytest
import torch
from torchvision import models

import ridgeline
from ridgeline.records import Cost

ROUNDING = 0.0005 + 1e-9  # torchvision publishes GMACs with three decimals


@cache
def published() -> dict[tuple[str, int], float]:
    """(model, resolution) → GMACs, for every set of weights that says so."""
    cases = {}
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            if "_ops" in weights.meta:
                cases[name, weights.transforms().crop_size[0]] = weights.meta["_ops"]
    return cases


def test_the_published_cases_are_all_there() -> None:
    assert len(published()) >= 86


@pytest.mark.parametrize(("name", "size"), sorted(published()), ids=lambda v: str(v))
def test_macs_are_the_published_ones(name: str, size: int) -> None:
    result = ridgeline.count(name, input_size=size)
    assert result.total.macs / 1e9 == pytest.approx(published()[name, size], abs=ROUNDING)
    assert (result.traced_on, result.coverage) == ("meta", 1.0)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t", "vit_b_16"])
def test_a_real_module_on_the_cpu_gives_the_same(name: str) -> None:
    # given the same network with data, in eval mode and without gradients, where PyTorch has
    # faster paths of its own
    model = models.get_model(name)
    with torch.no_grad():
        real = ridgeline.count(model.eval(), torch.zeros(1, 3, 224, 224))
    assert real.total == ridgeline.count(name).total


TRAINED = {
    # first convolution: (Cin/g)·Cout·Kh·Kw·Hout·Wout, whose input gradient nobody needs
    "mobilenet_v2": 3 * 32 * 9 * 112 * 112,
    "regnet_y_400mf": 3 * 32 * 9 * 112 * 112,
    "resnet50": 3 * 64 * 49 * 112 * 112,
    "vit_b_16": 3 * 768 * 256 * 14 * 14,
    "swin_t": 3 * 96 * 16 * 56 * 56,
}


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("name", TRAINED)
def test_training_is_three_forwards_less_the_first_input_grad(name: str, precision: str) -> None:
    result = ridgeline.count(name, mode="train", precision=precision, batch_size=2)
    forward = ridgeline.count(name, batch_size=2).total.macs
    assert result.phase("forward").macs == forward
    assert result.total.macs == 3 * forward - 2 * TRAINED[name]
    if "vit" not in name and "swin" not in name:  # attention's products have no weights
        assert result.phase("weight-grad").macs == forward
        assert result.phase("input-grad").macs == forward - 2 * TRAINED[name]


LLAMA_3_70B = {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
}  # fmt: skip


def decoder_macs(c: dict[str, int], tokens: int, *, experts: int = 1) -> int:
    """Closed form: projections, feed-forward (three matrices), full attention, language head."""
    width, heads = c["hidden_size"], c["num_attention_heads"]
    kv = width * c["num_key_value_heads"] // heads
    router = c.get("num_local_experts", 0) * width
    layer = 2 * width**2 + 2 * width * kv + experts * 3 * width * c["intermediate_size"] + router
    attention = 2 * tokens * width
    return tokens * (c["num_hidden_layers"] * (layer + attention) + width * c["vocab_size"])


def test_llama_70b_counts_without_weights_or_mask() -> None:
    result = ridgeline.count("transformers:llama", seq_len=2048, config=LLAMA_3_70B)
    assert decoder_macs(LLAMA_3_70B, 2048) == 147_837_069_295_616
    # older versions of transformers make the rotary angles by a product of 64 × 1 and 1 × 2048
    assert result.total.macs - decoder_macs(LLAMA_3_70B, 2048) in (0, 64 * 2048)
    assert (result.traced_on, result.coverage) == ("meta", 1.0)
    assert result.params == 70_553_706_496


def test_mixtral_counts_its_experts() -> None:
    config = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320,
        "num_key_value_heads": 2, "intermediate_size": 112, "num_local_experts": 8,
    }  # fmt: skip
    result = ridgeline.count("transformers:mixtral", seq_len=24, config=config)
    assert result.total.macs - decoder_macs(config, 24, experts=2) in (0, 8 * 24)
    assert result.traced_on == "meta"


def test_training_costs_of_every_phase_are_whole() -> None:
    result = ridgeline.count("resnet18_cifar", mode="train", optimizer="momentum")
    parts = sum(result.phases.values(), Cost())
    assert (parts.macs, parts.flops) == (result.total.macs, result.total.flops)
    assert parts.moved_bytes == result.total.moved_bytes
