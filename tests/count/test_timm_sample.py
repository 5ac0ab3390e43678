"""Forty networks of timm, one or two of each family; all of them are counted in a benchmark."""

import pytest
import timm
import torch

import ridgeline

SAMPLE = """
beit_base_patch16_224 cait_xxs24_224 coat_tiny coatnet_0_rw_224 convit_tiny convmixer_768_32
convnext_tiny crossvit_tiny_240 cspresnet50 davit_tiny deit3_small_patch16_224 densenet121 dla34
dm_nfnet_f0 edgenext_small efficientformer_l1 efficientnet_b0 efficientvit_b0
eva02_tiny_patch14_224 fastvit_t8 focalnet_tiny_srf ghostnet_100 hrnet_w18_small levit_128s
maxvit_tiny_rw_224 mixer_s16_224 mobilenetv4_conv_small mobilevit_s mvitv2_tiny nest_tiny
pit_ti_224 poolformer_s12 pvt_v2_b0 repvgg_b0 resnetv2_50 rexnet_100 tiny_vit_5m_224
twins_svt_small vit_tiny_patch16_224 xcit_nano_12_p16_224
""".split()  # noqa: SIM905 - names read better as text


def test_there_are_forty() -> None:
    assert len(set(SAMPLE)) == 40


@pytest.mark.parametrize("name", SAMPLE)
def test_counts_without_weights(name: str) -> None:
    result = ridgeline.count(f"timm:{name}")
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    assert result.params == sum(p.numel() for p in model.parameters())
    assert result.total.macs > 0
    assert (result.traced_on, result.unknown) == ("meta", {})
