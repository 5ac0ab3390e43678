"""A process that counts its own step, with a stand-in for the library and no GPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from tests.profile.fake_cupti import FakeLibrary
from tests.profile.recorded import text

from ridgeline.profile import model_process
from ridgeline.profile.counting import (
    FILES,
    CountedLaunches,
    CounterPlan,
    read_counted_table,
    read_record,
)
from ridgeline.profile.cupti import GRAPH_LAUNCHES, Cupti, RefusedError
from ridgeline.profile.model_process import count_inside
from ridgeline.profile.profile_step import INSIDE, REFUSED, Job

SETUP, COPY = ["fill", "ridgeline:test:setup"], ["neg", "ridgeline:test:copy:8"]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    library = FakeLibrary()
    monkeypatch.setattr(model_process, "loaded_cupti", lambda: Cupti(library))
    monkeypatch.setattr(model_process, "current_context", lambda: 1)
    monkeypatch.setattr(model_process, "load_known_work", lambda kinds: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def known_work(
        kinds: tuple[str, ...],
        copy_bytes: int,
        named: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        library.launch("fill")
        with named(f"ridgeline:test:copy:{copy_bytes}"):
            library.launch("neg")

    sizes = iter((8, 4))  # memory gets short
    monkeypatch.setattr(model_process, "copy_size", lambda: next(sizes))
    monkeypatch.setattr(model_process, "run_known_work", known_work)
    return library


def job_in(folder: Path, **asked: object) -> Job:
    given = {"role": INSIDE, "precision": "amp", "warmup": 2, **asked}
    job = Job(name="inside", folder=str(folder), **given)  # type: ignore[arg-type]
    job.path("go").write_text("2")  # kernels of the step
    return job


def test_the_step_is_counted_once_for_every_pass(library: FakeLibrary, tmp_path: Path) -> None:
    job, steps = job_in(tmp_path), []

    def step() -> None:
        steps.append(1)
        torch.ones(2).neg()
        library.launch("gemm")
        library.launch("relu")

    # when a step of two kernels is counted after two for warm-up
    count_inside(job, 0, step)
    # then it ran once for each of two passes
    assert len(steps) == 2 + 2
    # and its kernels are there behind the work of known size, with all that the chip can count
    names = read_record(job, CounterPlan).metrics
    counted = read_record(job, CountedLaunches)
    assert counted.launches == [SETUP, COPY, ["gemm", ""], ["relu", ""]]
    assert counted.values == [[100.0 * n + m for m in range(len(names))] for n in range(4)]
    assert job.path("done").exists()
    assert not job.path(REFUSED).exists()


def test_kernels_are_told_by_their_operator(library: FakeLibrary, tmp_path: Path) -> None:
    job = job_in(tmp_path)
    # given operators that launch a kernel each
    with torch.library._scoped_library("ridgeline_test", "DEF") as operators:
        for name in ("one", "two"):
            operators.define(f"{name}(Tensor x) -> Tensor")
            operators.impl(name, launching(library, name), "CPU")
        x = torch.zeros(3)

        def step() -> None:
            x.neg()  # operator 0, without a kernel
            torch.ops.ridgeline_test.one(x)
            torch.ops.ridgeline_test.two(x)

        count_inside(job, 0, step)
    # then each kernel has the number of its own
    found = read_record(job, CountedLaunches).launches[2:]
    assert found == [["one", "ridgeline:op:1"], ["two", "ridgeline:op:2"]]


def _launch_another(library: FakeLibrary) -> None:
    library.launch(f"kernel {len(library.counted)}")


def _launch_graph(library: FakeLibrary) -> None:
    library.launch("", GRAPH_LAUNCHES[0])


def _launch_uncounted(library: FakeLibrary) -> None:
    library.launch("seen")
    library.launch("not seen by the chip")
    if library.is_on:
        library.counted[-1] -= 1


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (_launch_another, "the step launches other kernels each time"),
        (_launch_graph, "kernels of a CUDA graph cannot be told apart"),
        (_launch_uncounted, "4 kernels were launched and 3 counted"),
    ],
)
def test_each_way_to_refuse_says_why(
    library: FakeLibrary, tmp_path: Path, step: Callable[[FakeLibrary], None], why: str
) -> None:
    job = job_in(tmp_path)
    count_inside(job, 0, lambda: step(library))
    assert job.path(REFUSED).read_text() == why
    assert not job.path("done").exists()
    with pytest.raises(RefusedError, match=why):
        read_record(job, CountedLaunches)


def test_without_permission(library: FakeLibrary, tmp_path: Path) -> None:
    library.refuses = "cuptiProfilerGetCounterAvailability"
    job = job_in(tmp_path)
    count_inside(job, 0, lambda: library.launch("gemm"))
    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in job.path(REFUSED).read_text()
    with pytest.raises(RefusedError):
        read_record(job, CounterPlan)


def launching(library: FakeLibrary, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def launch(x: torch.Tensor) -> torch.Tensor:
        library.launch(name)
        return x.clone()

    return launch


# ---------------------------------------------------------------- what the parent reads


def test_what_an_h200_told(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    job.path(FILES[CounterPlan]).write_text(text("foretold.json"))
    job.path(FILES[CountedLaunches]).write_text(text("counted.json"))
    table, _ = read_counted_table(job)
    is_of_step = table["nvtx"].str.startswith("ridgeline:op:")
    step, known = table[is_of_step], table[~is_of_step].set_index("nvtx")
    # then the step's tensor FLOPs are those that Nsight Compute counted, to the last one
    assert len(step) == 631
    assert step["flops_fp16_matrix"].sum() == 797_680_599_040
    assert step["flops_fp32_vector"].sum() == pytest.approx(13.5189e9, rel=1e-5)
    assert step["dram_bytes"].sum() == 9_925_320_448
    # and the product of 2048³ is what it is
    assert known.loc["ridgeline:test:product:fp16", "flops_fp16_matrix"] == 2 * 2048**3
