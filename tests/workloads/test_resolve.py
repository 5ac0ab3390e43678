"""A name finds its source, and a wrong one finds its neighbours."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import timm
from tests.workloads.running import error_text, workload
from torchvision import models
from transformers.models.auto import modeling_auto

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import list_models, own, resolve, sources
from ridgeline.workloads.workload import parse_value

OTHERS = (
    "other sources are timm:NAME, transformers:TYPE, ultralytics:NAME and path/to/file.py:factory"
)


def test_listing_the_models_imports_none_of_their_packages() -> None:
    heavy = {"torch", "torchvision", "timm", "transformers"}
    code = (
        "import sys, ridgeline; ridgeline.list_models(); "
        f"sys.exit(bool({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("model", "is_one"),
    [("NET.ONNX", True), (Path("models") / "net.onnx", True), ("net.onnx.data", False)],
)
def test_what_is_an_onnx_file(model: str | Path, is_one: bool) -> None:
    assert sources.is_onnx(model) == is_one


@pytest.mark.parametrize(
    ("model", "name", "source"),
    [
        ("resnet50", "resnet50", "torchvision"),
        ("torchvision:resnet50", "resnet50", "torchvision"),
        ("yolo", "yolo", "ridgeline"),
        ("ridgeline:lstm", "lstm", "ridgeline"),
        ("timm:resnet18", "resnet18", "timm"),
        ("bert", "bert", "transformers"),
        ("transformers:bert:BertModel", "bert.BertModel", "transformers"),
    ],
)
def test_names_and_sources(model: str, name: str, source: str) -> None:
    made = workload(model)
    assert (made.name, made.source, made.mode) == (name, source, "infer")


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "resnt50",
            "unknown model 'resnt50'\n  hint: did you mean resnet50, resnet152 or resnet101? "
            f"`ridgeline count --list PATTERN` lists the models; {OTHERS}",
        ),
        (
            "vit_tiny_patch16_224",
            "unknown model 'vit_tiny_patch16_224'\n"
            "  hint: timm has it: write timm:vit_tiny_patch16_224",
        ),
        ("llama", "unknown model 'llama'\n  hint: transformers has it: write transformers:llama"),
        (
            "torchvison:resnet50",
            "unknown source 'torchvison'\n  hint: did you mean torchvision? the sources are "
            "ridgeline, torchvision, timm, transformers, ultralytics and path/to/file.py:factory",
        ),
        (
            "torchvision:alexnett",
            "unknown torchvision model 'alexnett'\n  hint: did you mean alexnet? "
            "`ridgeline count --list PATTERN` lists the models",
        ),
        (
            "transformers:mixtrall",
            "unknown transformers type 'mixtrall'\n"
            "  hint: did you mean mixtral, pixtral or mistral? "
            "`ridgeline count --list PATTERN` lists the models",
        ),
    ],
)
def test_unknown_names(model: str, text: str) -> None:
    assert error_text(model) == text


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"batch_size": 0}, "batch size 0 is not possible"),
        ({"input_size": (224, -1)}, "input size 224x-1 is not possible"),
        ({"input_size": (1, 224, 224)}, "input size 1x224x224 does not fit resnet50"),
        ({"seq_len": 0}, "sequence length 0 is not possible"),
        ({"seq_len": 16}, "resnet50 has no sequence length"),
        ({"mode": "test"}, "unknown mode 'test'"),
        ({"config": {"depth": 3}}, "resnet50 takes no --config (depth)"),
    ],
)
def test_impossible_wishes(asked: dict[str, Any], text: str) -> None:
    assert error_text("resnet50", **asked).startswith(f"{text}\n  hint: ")


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Make one package look as if it were not installed."""
    monkeypatch.setattr(sources, "find_spec", lambda n: None if n == missing else find_spec(n))


@pytest.mark.parametrize(
    ("model", "package", "hint"),
    [
        ("timm:resnet18", "timm", "pip install 'ridgeline[hf]'"),
        ("resnet50", "torch", "pip install 'ridgeline[torch]'"),
        (
            "ultralytics:yolov8n",
            "ultralytics",
            "pip install ultralytics (its licence is AGPL-3.0: ",
        ),
    ],
)
def test_a_source_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, model: str, package: str, hint: str
) -> None:
    without(monkeypatch, package)
    text = error_text(model)
    assert text.startswith(f"{model} needs {package}, which is not installed\n  hint: {hint}")


def test_without_torchvision_our_own_networks_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torchvision")
    assert resolve(WorkloadSpec(model="resnet18_cifar")).source == "ridgeline"
    assert error_text("alexnet").endswith(
        "torchvision is not installed: pip install 'ridgeline[torch]'"
    )


def test_list_by_part_by_pattern_and_by_source() -> None:
    assert list_models("_cifar") == [
        ("resnet18_cifar", "ridgeline", "classification, ResNet-18 for CIFAR-10, 3x32x32"),
        ("resnet34_cifar", "ridgeline", "classification, ResNet-34 for CIFAR-10, 3x32x32"),
        ("vgg11_cifar", "ridgeline", "classification, VGG-11 for CIFAR-10, 3x32x32"),
    ]
    assert list_models("r?d_18") == [("r3d_18", "torchvision", "video")]
    assert list_models("transformers:gpt2") == [
        ("transformers:gpt2", "transformers", "causal lm, GPT2LMHeadModel")
    ]
    assert list_models("no such model") == []


def test_the_names_are_those_that_the_packages_know() -> None:
    others = {name for name in models.list_models() if name.startswith(("quantized_", "raft_"))}
    assert set(sources.models_of("torchvision")) == set(models.list_models()) - others
    assert set(sources.models_of("timm")) == set(timm.list_models())
    tables = [getattr(modeling_auto, f"{head}_MAPPING_NAMES") for head in sources.HEADS]
    assert set(sources.models_of("transformers")) == set().union(*tables)
    assert set(sources.OWN) == {*own.NETWORKS, "bert"}


@pytest.mark.parametrize(
    ("value", "default", "got"),
    [
        ("8192", 1, 8192),
        ("8_192", 1, 8192),
        ("1e-5", 0.1, 1e-5),
        ("true", False, True),
        ("0", True, False),
        ("gelu", "silu", "gelu"),
        ("128", "silu", "128"),
        ("64", None, 64),
        ("None", None, None),
        ("[1, 2]", [3], [1, 2]),
        ("swish", None, "swish"),
        (7, 1, 7),
    ],
)
def test_types(value: object, default: object, got: object) -> None:
    assert parse_value("key", value, default) == got
    assert type(parse_value("key", value, default)) is type(got)


def test_what_does_not_fit() -> None:
    with pytest.raises(RidgelineError, match="size=x is not a whole number"):
        parse_value("size", "x", 1)
