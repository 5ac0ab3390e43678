"""The shape corpus: which operator calls popular networks make, and how much they weigh.

    python -m benchmarks.shape_corpus

counts about 150 networks at several batch sizes and writes `src/ridgeline/predict/corpus.json.gz`:
unique operator points with their weights, the heaviest first. The weight of a point is the sum of
its shares of the time of all counted steps, by a plain roofline of FLOPs, bytes and 2 µs a call.
The networks on which predictions are tested, on a CPU and on GPUs, are not in it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from dataclasses import asdict, fields
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from ridgeline.count.counting import count_workload
from ridgeline.count.records import Settings
from ridgeline.errors import RidgelineError
from ridgeline.predict.operators import OPTIMIZER, OperatorPoint, points_of
from ridgeline.records import WorkloadSpec

TARGET = Path("src/ridgeline/predict/corpus.json.gz")
MOST_BYTES = 300_000
FLOPS_PER_S, BYTES_PER_S, CALL_S = 1e13, 1e12, 2e-6  # any device: only shares of time are used


def _names(text: str) -> list[str]:
    return text.split()


CPU_TESTS = _names("""
    resnet34 mobilenet_v3_large shufflenet_v2_x1_0 squeezenet1_1 googlenet mnasnet1_0
    regnet_y_800mf densenet169 convnext_tiny swin_t efficientnet_b1 vgg13
    timm:deit_small_patch16_224 timm:mixer_b16_224 timm:resmlp_12_224 timm:poolformer_s12
    timm:xcit_nano_12_p16_224 timm:ghostnet_100 transformers:distilbert transformers:gpt_neo
""")
GPU_TESTS = _names("""
    resnet34 resnet50 resnext50_32x4d wide_resnet50_2 densenet169 mobilenet_v3_large
    efficientnet_b1 efficientnet_v2_s regnet_y_3_2gf convnext_tiny vgg13 googlenet swin_t
    vit_b_16 shufflenet_v2_x1_0 maxvit_t fasterrcnn_resnet50_fpn retinanet_resnet50_fpn
    deeplabv3_resnet50 timm:deit_small_patch16_224 timm:mixer_b16_224 timm:resmlp_12_224
    timm:poolformer_s12 timm:xcit_nano_12_p16_224 timm:ghostnet_100 timm:eva02_small_patch14_224
    timm:nfnet_l0 timm:gmlp_s16_224 transformers:distilbert transformers:gpt_neo
    transformers:bert transformers:t5 transformers:opt transformers:whisper transformers:qwen2
""")
NETWORKS = _names("""
    alexnet vgg11 vgg16 vgg16_bn vgg19 resnet18 resnet101 resnet152 resnext101_32x8d
    wide_resnet101_2 densenet121 densenet201 densenet161 mobilenet_v2 mobilenet_v3_small
    mnasnet0_5 mnasnet1_3 shufflenet_v2_x0_5 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
    inception_v3 efficientnet_b0 efficientnet_b2 efficientnet_b3 efficientnet_b4
    efficientnet_v2_m regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_y_400mf
    regnet_y_1_6gf regnet_y_8gf convnext_small convnext_base swin_s swin_b swin_v2_t vit_b_32
    vit_l_16 mvit_v2_s deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large
    ssd300_vgg16 ssdlite320_mobilenet_v3_large r3d_18 s3d resnet18_cifar
    vgg11_cifar lstm timm:vit_tiny_patch16_224 timm:vit_small_patch16_224
    timm:vit_base_patch16_224 timm:vit_small_patch32_224 timm:vit_large_patch16_224
    timm:vit_base_patch16_384 timm:deit_tiny_patch16_224 timm:deit3_base_patch16_224
    timm:deit3_small_patch16_224 timm:beit_base_patch16_224 timm:cait_xxs24_224
    timm:cait_s24_224 timm:crossvit_9_240 timm:convit_tiny timm:pit_s_224 timm:levit_128
    timm:levit_256 timm:coat_lite_tiny timm:coat_lite_small timm:twins_pcpvt_small
    timm:twins_svt_small timm:pvt_v2_b0 timm:pvt_v2_b2 timm:mixer_s32_224 timm:mixer_s16_224
    timm:mixer_l16_224 timm:resmlp_24_224 timm:resmlp_36_224 timm:gmixer_24_224
    timm:poolformer_s24 timm:poolformer_s36 timm:poolformerv2_s12 timm:xcit_tiny_12_p16_224
    timm:xcit_small_12_p16_224 timm:xcit_tiny_24_p8_224 timm:ghostnet_050 timm:ghostnet_130
    timm:ghostnetv2_100 timm:tf_efficientnet_lite0 timm:tf_efficientnetv2_b0
    timm:efficientnet_es timm:mixnet_s timm:mobilenetv4_conv_small timm:mobilenetv4_conv_medium
    timm:fbnetc_100 timm:spnasnet_100 timm:hardcorenas_a timm:lcnet_100 timm:tinynet_a
    timm:mobileone_s1 timm:mobilevit_s timm:mobilevitv2_100 timm:edgenext_small
    timm:efficientformer_l1 timm:efficientformerv2_s0 timm:fastvit_t8 timm:repvgg_a0
    timm:repvgg_b0 timm:rexnet_100 timm:resnet26d timm:resnet50d timm:resnest14d timm:resnest50d
    timm:res2net50_26w_4s timm:seresnet50 timm:ecaresnet50t timm:skresnet18 timm:dla34
    timm:dla60 timm:dpn68 timm:hrnet_w18_small timm:cspresnet50 timm:cspdarknet53 timm:darknet53
    timm:selecsls42b timm:vovnet39a timm:ese_vovnet19b_dw timm:xception41 timm:inception_v4
    timm:nf_resnet50 timm:convnext_atto timm:convnext_femto timm:convnext_nano
    timm:convnextv2_tiny timm:convmixer_768_32 timm:coatnet_0_rw_224 timm:maxvit_tiny_rw_224
    timm:nest_tiny timm:gcvit_xxtiny timm:davit_tiny timm:focalnet_tiny_srf
    timm:swinv2_tiny_window8_256 timm:sequencer2d_s timm:volo_d1_224 timm:tnt_s_patch16_224
    timm:eva02_tiny_patch14_224 timm:visformer_small timm:regnetz_b16 transformers:gpt2
    transformers:bert-generation transformers:roberta transformers:electra transformers:albert
    transformers:deberta-v2 transformers:mpnet
    transformers:gpt_neox transformers:bart transformers:mt5
    transformers:llama transformers:clip transformers:vit
    transformers:wav2vec2 transformers:segformer
    transformers:dinov2 transformers:mobilebert transformers:funnel
    transformers:openai-gpt transformers:ctrl transformers:biogpt transformers:codegen
""")
CASES = (("infer", 1), ("infer", 8), ("train", 8), ("train", 32))
LARGEST_FLOPS, LARGEST_BYTES = 4e13, 3 << 30  # of a step; of an operand set: others are left out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the shape corpus.")
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--counted", type=Path, default=Path("/tmp/shape_corpus"))
    parser.add_argument(
        "--seconds", type=float, default=inf, help="count so long; then go on later"
    )
    args = parser.parse_args(arguments)
    args.counted.mkdir(parents=True, exist_ok=True)
    start_s = perf_counter()
    for name in NETWORKS:
        path = args.counted / f"{name.replace(':', '-')}.json"
        if perf_counter() - start_s > args.seconds:
            print("call it again for the rest")
            return 1
        if not path.exists():
            path.write_text(json.dumps(count_network(name)))
            print(name, file=sys.stderr, flush=True)
    used, points, weights = join(args.counted)
    kept = write_corpus(args.target, used, points, weights)
    print(f"{len(used)} networks, {len(points)} points, {kept} kept in {args.target}")
    return 0


def count_network(name: str) -> list[list[Any]]:
    """The points of a network in all cases, each with its share of the time; none if it fails."""
    if name in {*CPU_TESTS, *GPU_TESTS}:
        raise ValueError(f"{name} is a network of the tests")
    weights: dict[str, float] = defaultdict(float)
    points: dict[str, OperatorPoint] = {}
    for mode, batch_size in CASES:
        try:
            spec = WorkloadSpec(model=name, batch_size=batch_size, mode=mode)
            count = count_workload(spec, Settings(mode=mode))
        except RidgelineError as error:
            print(f"{name}, {mode}: {error.problem}", file=sys.stderr)
            break
        if count.total.flops > LARGEST_FLOPS:
            break
        uses = [use for use in points_of(count) if use.point.kind != OPTIMIZER]
        total = sum(cost_s(use.point) for use in uses)
        for use in uses:
            if use.point.moved_bytes < LARGEST_BYTES:
                points[use.point.key] = use.point
                weights[use.point.key] += cost_s(use.point) / total
    return [[*asdict(points[key]).values(), weight] for key, weight in weights.items()]


def join(folder: Path) -> tuple[list[str], dict[str, OperatorPoint], dict[str, float]]:
    """The points of all networks, their weights added."""
    names = [f.name for f in fields(OperatorPoint)]
    points: dict[str, OperatorPoint] = {}
    weights: dict[str, float] = defaultdict(float)
    used = []
    for name in NETWORKS:
        rows = json.loads((folder / f"{name.replace(':', '-')}.json").read_text())
        used += [name] if rows else []
        for *values, weight in rows:
            point = OperatorPoint(**dict(zip(names, values, strict=True)))
            points[point.key] = point
            weights[point.key] += weight
    return used, points, weights


def cost_s(point: OperatorPoint) -> float:
    return max(point.flops / FLOPS_PER_S, point.moved_bytes / BYTES_PER_S) + CALL_S


def write_corpus(
    target: Path, used: list[str], points: dict[str, OperatorPoint], weights: dict[str, float]
) -> int:
    """The heaviest points that fit the file."""
    order = sorted(points, key=lambda key: -weights[key])
    kept = len(order)
    while True:
        rows = [[*asdict(points[key]).values(), round(weights[key], 5)] for key in order[:kept]]
        fields = [*asdict(next(iter(points.values()))), "weight"]
        content = {"networks": used, "fields": fields, "points": rows}
        data = gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)
        if len(data) <= MOST_BYTES:
            target.write_bytes(data)
            return kept
        kept = int(kept * min(0.98, MOST_BYTES / len(data)))


if __name__ == "__main__":
    sys.exit(main())
