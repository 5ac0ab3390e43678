"""The YAML file of a sweep: what it stands for, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.sweep.matrix import (
    Matrix,
    SlurmOptions,
    matrix_from_dict,
    parse_matrix,
)
from ridgeline.sweep.plan import plan_stage
from ridgeline.sweep.run import read_all_ready

STUDY = """\
models: [resnet50, vgg16]
batch_size: [1, 8]
precision: [fp32, amp]
input_size: ["224:288:32", 224x320]
exclude:
  - {models: vgg16, precision: amp}
what: [layers, run]
repeats: 2
timeout: 15min
stages:
  quick: {batch_size: 8, input_size: 224, repeats: 1, promote: 90%}
  full:
slurm: {partition: gpu, gpus: 1, time: 02:00:00, cpus: 4, setup: "module load cuda"}
"""


def read(text: str) -> Matrix:
    return parse_matrix(text, name="study", file="study.yaml")


def test_a_matrix_and_its_stages() -> None:
    matrix = read(STUDY)
    quick, full = matrix.stages

    assert quick.values == {
        "models": ("resnet50", "vgg16"), "batch_size": (8,), "input_size": ((224,),),
        "precision": ("fp32", "amp"),
    }  # fmt: skip
    assert full.values["input_size"] == ((224,), (256,), (288,), (224, 320))
    assert (quick.repeats, quick.promote, quick.timeout_s) == (1, 0.9, 900.0)
    assert (full.repeats, full.promote, full.what) == (2, 1.0, ("run", "layers"))
    assert matrix.slurm == SlurmOptions(
        partition="gpu", gpus="1", time="02:00:00", cpus=4, setup=("module load cuda",)
    )


def test_numbers_with_colons_are_no_numbers_in_base_60() -> None:
    matrix = read("models: a\nbatch_size: 1:3\nslurm: {time: 05:30}")

    assert matrix.stages[0].values["batch_size"] == (1, 2, 3)
    assert matrix.slurm.time == "05:30"


def test_exclude_takes_what_has_all_its_values() -> None:
    quick = read(STUDY).stages[0]

    chosen = [(case["models"], case["precision"]) for case in quick.combinations()]

    assert chosen == [("resnet50", "fp32"), ("resnet50", "amp"), ("vgg16", "fp32")]


def test_include_adds_combinations_of_its_own() -> None:
    stage = read("""\
models: [resnet50, vgg16]
precision: fp32
batch_size: [16, 32]
include: [{models: resnet50, precision: amp}]
""").stages[0]

    chosen = [(c["models"], c["precision"], c["batch_size"]) for c in stage.combinations()]

    assert chosen == [
        ("resnet50", "fp32", 16), ("resnet50", "fp32", 32), ("vgg16", "fp32", 16),
        ("vgg16", "fp32", 32), ("resnet50", "amp", 16), ("resnet50", "amp", 32),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "line 1: the matrix is empty", "models"),
        ("[1, 2]", "line 1: this is no mapping", "models"),
        ("models: [a\nbatch_size: 1", "not valid YAML", "check the line"),
        ("models: a\nbatchsize: 1", "line 2: unknown key 'batchsize'", "did you mean batch_size"),
        ("models: a\nmodels: b", "line 2: the key 'models' stands twice", "join"),
        ("batch_size: 1", "the stage full has no models", "models: [resnet50]"),
        ("models: []", "line 1: models has no value", "at least one"),
        ("models: [1]", "line 1: models is 1, not a name", "docs/sweep"),
        ("models: a\nbatch_size: [1, x]", "line 2: batch_size is 'x'", "docs/sweep"),
        ("models: a\nbatch_size: 0", "line 2: batch_size is 0, not a whole", "docs/sweep"),
        ("models: a\nbatch_size: 1.5", "line 2: batch_size is 1.5", "docs/sweep"),
        ("models: a\ninput_size: '9:1:1'", "line 2: the range '9:1:1'", "docs/sweep"),
        ("models: a\nmode: fast", "line 2: unknown mode 'fast'", "infer, train"),
        ("models: a\nchannels_last: 3", "line 2: channels_last is 3, not true", "run --help"),
        ("models: a\nwhat: [run, speed]", "line 2: what: ['speed'] is not any of run", "docs"),
        ("models: a\nrepeats: 0", "line 2: repeats is 0, not a whole number", "docs/sweep"),
        ("models: a\ntimeout: soon", "line 2: timeout: 'soon' is no duration such", "docs/sweep"),
        ("models: a\npromote: 120%", "line 2: promote: '120%' is not `no failures`", "docs/sweep"),
        ("models: a\nstages: []", "line 2: stages is no mapping", "quick"),
        ("models: a\nstages:\n  quick: 7", "line 3: the stage quick is no mapping", "quick: {}"),
        ("models: a\nstages:\n  quick: {size: 7}", "line 3: unknown key 'size'", "input_size"),
        ("models: a\nexclude: 3", "line 2: exclude is no list", "exclude: [{models"),
        ("models: a\nexclude: [{models: a}]", "line 1: the stage full has no case left", "loosen"),
        ("models: a\nslurm: {gpu: 1}", "line 2: unknown key 'gpu'", "did you mean gpus"),
        ("models: a\nslurm: {cpus: many}", "line 2: cpus is 'many'", "docs/sweep"),
        ("models: a\nslurm: {time: [1]}", "line 2: time is [1], not a text", "docs/sweep"),
        ("models: a\nslurm: {time: 99x}", "line 2: time: '99x' is not valid: 30", "docs/"),
        ("models: a\nslurm: {gpus: lots}", "line 2: gpus: 'lots' is not valid", "docs/"),
        ("models: a\nprecision: fp8", "line 2: unknown precision 'fp8'", "choose fp32, tf32"),
        ("models: a\nbackend: gpu", "line 2: unknown backend 'gpu'", "choose auto, cuda"),
        ("models: a\nstages:\n b:\n  algorithm: [fast]", "line 4: unknown algorithm", "fft"),
        ("models: a\niters: 0", "line 2: --iters 0 is not possible", "1 or more"),
        ("models: a\nname: ../b", "line 2: '../b' cannot be a sweep's name", "letters"),
        ("models: a\nbatch_size: '1:5000000'", "line 2: the range", "docs/sweep"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_error_with_its_line(text: str, problem: str, hint: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        read(text)

    assert caught.value.problem.startswith("study.yaml")
    assert problem in caught.value.problem
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: a\noptimizer: sgd\nmomentum: 2.0", "--momentum 2.0 is not possible"),
        ("models: a.onnx", "no such file: a.onnx"),
        ("models: a\nprefetch_factor: 2", "--prefetch-factor needs workers"),
    ],
)
def test_a_combination_that_cannot_be_is_named(text: str, problem: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        plan_stage(read(text).stages[0])

    assert problem in caught.value.problem
    assert "study.yaml, line 1: the stage full has a combination" in caught.value.problem
    assert "exclude" in caught.value.hint


def test_a_dictionary_is_the_same_matrix() -> None:
    content = {"models": ("resnet50",), "batch_size": range(1, 4), "stages": {"quick": {}}}

    matrix = matrix_from_dict(content, name="mine")

    assert matrix.name == "mine"
    assert matrix.stages[0].values == {"models": ("resnet50",), "batch_size": (1, 2, 3)}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"models": "a", "batch_size": "x"}, "the matrix: batch_size is 'x', not a whole number"),
        ({"models": "a", "stages": {"quick": {"size": 1}}},
         "the matrix, stages.quick: unknown key 'size'"),
        ({"models": "a", "promote": [1]}, "the matrix: promote: [1] is not"),
        ({"models": "a", "slurm": {"cpus": "x"}}, "the matrix, slurm: cpus is 'x', not a whole"),
        ({}, "the matrix: the matrix is empty"),
    ],
)  # fmt: skip
def test_a_wrong_dictionary_is_one_error_with_its_key(
    content: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RidgelineError) as caught:
        matrix_from_dict(content, name="mine")

    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize("name", read_all_ready())
def test_ready_matrices_can_be_planned(name: str) -> None:
    matrix = parse_matrix(read_all_ready()[name], name=name, file=name)

    sizes = {stage.name: len(plan_stage(stage)) for stage in matrix.stages}

    assert (
        sizes
        == {
            "batch-sizes": {"full": 5 * 2 * 7},
            "conv-algorithms": {"sanity": 60, "quick": 60 * 10, "full": 60 * 100},
            "cuda-counters": {"full": 3 * 2 * 2},
            "cuda-training": {"full": 3 * (3 * 4 + 4)},
            "input-sizes": {"sanity": 6, "quick": 6 * 10, "full": 6 * 100},
            "laptop-cpu": {"full": 3 * 2 * 3},
            "mac-training": {"full": 3 * 2 * 4 * 3},
        }[name]
    )
