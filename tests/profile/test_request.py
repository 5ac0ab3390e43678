"""What is to be profiled: for a stored run, and before there is one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.profile.recorded import DATA, run_of_an_h200

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task
from ridgeline.profile.request import Request, request_of, request_of_program
from ridgeline.records import Device, Host, WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.store import to_run

TASK = Task(
    spec=WorkloadSpec(model="resnet50", batch_size=32, mode="train"),
    settings=Settings(backend="cuda", precision="amp"),
)


def test_the_request_of_a_run_knows_its_memory_and_device() -> None:
    request = request_of(run_of_an_h200(), TASK, level="hierarchical")
    assert request == Request(
        task=TASK,
        level="hierarchical",
        memory_bytes=21_145_583_616,
        device_bytes=150_754_820_096,
        device="NVIDIA H200",
    )


def test_a_run_of_which_little_is_known() -> None:
    content = json.loads((DATA.parent / "run-h200-vgg16.json").read_text())
    content["found"] |= {"memory": None, "device_name": ""}
    content["provenance"] = {}
    assert request_of(to_run(Path("r1"), content), TASK) == Request(task=TASK)


@pytest.mark.parametrize(
    ("names", "device"),
    [
        (["NVIDIA H200"], "NVIDIA H200"),
        (["NVIDIA H200", "NVIDIA H200"], "NVIDIA H200"),
        (["NVIDIA H200", "NVIDIA T400"], ""),  # which one it will use is not known
        ([], ""),
    ],
)
def test_the_device_of_a_program(names: list[str], device: str) -> None:
    gpus = (Device(kind="cuda", index=n, name=name) for n, name in enumerate(names))
    host = Host(devices=(Device(kind="cpu", name="Xeon"), *gpus))
    assert request_of_program(["python", "train.py"], "bf16", host, tier="time") == Request(
        program=("python", "train.py"), program_precision="bf16", device=device, tier="time"
    )


@pytest.mark.parametrize(
    ("wrong", "there_are"),
    [({"tier": "all"}, "counters, time"), ({"level": "l3"}, "dram, hierarchical")],
)
def test_a_request_that_makes_no_sense(wrong: dict[str, str], there_are: str) -> None:
    with pytest.raises(RidgelineError, match=there_are):
        Request(task=TASK, **wrong)  # type: ignore[arg-type]


def test_compiled_code_has_no_marks() -> None:
    compiled = replace(TASK, settings=replace(TASK.settings, compile="default"))
    assert not Request(task=compiled).has_marks
    assert Request(task=TASK).has_marks
    assert Request(program=("python", "train.py")).has_marks
