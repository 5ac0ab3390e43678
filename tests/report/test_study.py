"""What a results folder holds, joined."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tests.report.hand_study import make_study, run_row, step_row
from tests.stored import write_run
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ridgeline
from ridgeline.machine.cpu import Cpu
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Passports, read_passport
from ridgeline.records import RunRequest
from ridgeline.report.stored import rename_fused_of_layers, uncounted
from ridgeline.report.study import read_study
from ridgeline.report.summary import describe_case
from ridgeline.roofline.floors import find_energies
from ridgeline.store import ResultsFolder, Run

DATA = Path(__file__).parent.parent / "data"
MEASURED = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
OP_COLUMNS = ["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
              "flops", "read_bytes", "written_bytes"]  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    """An H200's passport, a recorded run of VGG-16 on it, and what a step of that would do."""
    (tmp_path / "machines").mkdir()
    passport = (DATA / "passport-h200.json").read_text()
    (tmp_path / "machines" / "nvidia-h200.json").write_text(passport)
    folder = ResultsFolder(tmp_path)
    store_run(folder)
    return folder


def store_run(folder: ResultsFolder, asked: Any = None, **found: Any) -> Run:
    """The recorded run, perhaps with other settings and results; `host` is of its provenance."""
    made = dict(MEASURED["provenance"])
    made["host"] = {**made["host"], **found.pop("host", {})}
    return write_run(
        folder,
        label="run",
        asked={**MEASURED["asked"], **(asked or {})},
        found={**MEASURED["found"], **found},
        provenance=made,
    )


def store_count(folder: ResultsFolder, ops: pd.DataFrame | None = None, **changes: Any) -> None:
    """11.87 TFLOP of tf32 products and 82 GB: two operators that stand for all of VGG-16's."""
    vgg16 = pd.DataFrame(
        [("features", "aten::convolution", "conv", "forward", "fp32", "128x3", 1.9e12, 0, 3.8e12,
          20e9, 11e9),
         ("features", "aten::convolution_backward", "conv", "weight-grad", "fp32", "128x3", 4.0e12,
          0, 8.0e12, 30e9, 20e9)],
        columns=OP_COLUMNS,
    )  # fmt: skip
    asked = {"command": "count", "model": "vgg16", "batch_size": 128, "mode": "train",
             "precision": "tf32", "optimizer": "sgd", "input_size": None, "seq_len": None,
             "config": {}, "causal": "full", **changes}  # fmt: skip
    found = {"flops": 11.8e12, "macs": 5.9e12, "read_bytes": 50e9, "written_bytes": 31e9,
             "fused_bytes": {"read_bytes": 12e9, "written_bytes": 8e9}, "params": 138357544,
             "memory": {"peak_bytes": 10**10}, "coverage": 1.0}  # fmt: skip
    write_run(folder, label="count", asked=asked, found=found, provenance={},
                     tables={"ops": vgg16 if ops is None else ops})  # fmt: skip


def test_a_run_is_joined_with_its_count_and_its_machine(results: ResultsFolder) -> None:
    # given a run, a passport and a count, when the folder is read
    store_count(results)
    study = read_study(results)
    # then the step stands under the roofs of the card that ran it
    step = study.points[study.points["grain"] == "step"].iloc[0]
    tf32 = 416780367406910.8
    assert study.problems == ()
    assert [m.env for m in study.machines] == ["nvidia-h200"]
    assert step["compute_s"] == pytest.approx(11.8e12 / tf32)
    assert step["dram_s"] == pytest.approx(81e9 / 4488817041788.28)
    assert step["bound"] == "compute"
    assert step["fused_floor_s"] == pytest.approx(11.8e12 / tf32)
    run = study.runs.iloc[0]
    assert (run["params"], run["flops"], run["fused_bytes"]) == (138357544, 11.8e12, 20e9)
    datasheet = study.machines[0].datasheet
    assert datasheet is not None
    assert datasheet.compute["tf32 matrix"] > tf32


class Checkpointed(nn.Module):
    """Three layers of 1 GFLOP for 500 rows; the last two are in a checkpoint."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        first, *block = (nn.Linear(1000, 1000, bias=False, device="meta") for _ in range(3))
        self.first, self.block, self.use_reentrant = first, nn.Sequential(*block), use_reentrant

    def forward(self, rows: Tensor) -> Any:
        return checkpoint(self.block, self.first(rows), use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("is_of_earlier_version", [False, True])
@pytest.mark.parametrize(("use_reentrant", "again"), [(True, 2), (False, 1)])
def test_recomputation_is_the_same_in_count_and_report(
    results: ResultsFolder, use_reentrant: bool, again: int, is_of_earlier_version: bool
) -> None:
    # given a count of a step with recomputation; other checkpoints end before their last product
    model = Checkpointed(use_reentrant=use_reentrant)
    counted = ridgeline.count(model, torch.empty(500, 1000, device="meta"), mode="train")
    ops = counted.ops
    if is_of_earlier_version:
        ops = ops.assign(phase=ops["phase"].mask(ops["is_recomputed"], "forward"))
    store_count(results, ops)
    # when it is read under the roofs
    study = read_study(results)
    phases = study.points[study.points["grain"].eq("phase")].set_index("phase")["flops"].to_dict()
    # then count, points and report have the same FLOPs
    expected = {"forward": 3e9, "input-grad": 2e9, "weight-grad": 3e9, "recompute": again * 1e9,
                "optimizer": 2 * 3e6}  # fmt: skip
    assert phases == {**expected, "backward": (5 + again) * 1e9}
    assert {name: counted.phase(name).flops for name in expected} == expected


@pytest.mark.parametrize(
    ("mode", "known"), [("infer", [3.0, 5.0]), ("train", [None, None])], ids=["infer", "train"]
)
def test_layers_of_an_earlier_version_have_bytes_of_the_forward_pass(
    mode: str, known: list[float | None]
) -> None:
    layers = pd.DataFrame({"path": ["a", "b"], "ideal_bytes": [3.0, 5.0]})
    found = rename_fused_of_layers(layers, mode)["own_fused_bytes"]
    assert [None if value != value else value for value in found] == known


def test_a_run_that_nobody_counted_is_named(results: ResultsFolder) -> None:
    study = read_study(results)
    assert study.points.empty
    assert study.problems == (
        "vgg16, batch 128: not counted, so it has no place on a roofline (ridgeline count MODEL"
        " --results DIR counts it)",
    )
    assert [run.request.model for run in uncounted(results.index())] == ["vgg16"]


def test_without_a_passport_the_datasheet_stands_in(results: ResultsFolder) -> None:
    store_count(results)
    (results.path / "machines" / "nvidia-h200.json").unlink()
    study = read_study(results)
    assert study.machines[0].roofs.source == "datasheet"
    assert "its roofs are those of its datasheet" in study.problems[0]


def test_the_answer_in_a_sentence(results: ResultsFolder) -> None:
    store_count(results)
    one = read_study(results).cases[0]
    step_s = one.step_s
    floor_s = 11.8e12 / 416780367406910.8
    assert one.efficiency == pytest.approx(floor_s / step_s)
    assert describe_case(one) == (
        "vgg16, batch 128, tf32 training, runs at 1425 samples/s on nvidia-h200 (89.8 ms a step)."
        " The roofs would allow 4521 (28.3 ms): it reaches 31.5 %. What sets the floor is"
        " arithmetic."
    )


def test_a_run_that_failed_is_told_with_its_reason(results: ResultsFolder) -> None:
    asked = RunRequest(model="vgg16", batch_size=9999, mode="train")
    run = write_run(results, label="run", asked=asked, provenance={},
                            found={"status": "failed", "reason": "out of memory"})  # fmt: skip
    told = "vgg16, train, fp32, batch 9999: this run failed: out of memory"
    assert told in read_study(results).problems
    assert told in read_study(results, run_ids=[run.run_id]).problems
    assert told not in read_study(results, run_ids=[]).problems


def test_a_step_of_several_batches_has_its_optimizer_once(results: ResultsFolder) -> None:
    store_run(results, {"grad_accum_steps": 4})
    store_run(results, {"grad_accum_steps": 4, "mode": "infer"})
    store_count(results)
    store_count(results, mode="infer")
    flops = read_study(results).runs.set_index(["mode", "grad_accum_steps"])["flops"]
    assert flops["train", 1] == 11.8e12
    assert flops["train", 4] == 4 * 11.8e12
    assert flops["infer", 4] == 11.8e12  # inference gathers nothing


def test_processors_of_one_model_with_other_cores_are_other_machines(
    results: ResultsFolder,
) -> None:
    # given passports of a processor with 2 and with 64 cores, and a run on each
    passport = read_passport(DATA / "passport-h200.json")
    for cores, rate in ((2, 1e11), (64, 3e12)):
        cpu = Cpu(model="Xeon", usable_cores=cores)
        ceiling = Ceiling(kind="compute", device="cpu", path="vector", precision="fp32",
                          samples=(rate,), how="by hand")  # fmt: skip
        known = replace(passport, name=f"xeon-{cores}c", ceilings=(ceiling,))
        Passports(results.path).write(replace(known, description=Description(cpu=cpu)))
        store_run(results, host={"usable_cores": cores}, backend="cpu", device_name="Xeon")
    # then each stands under its own roof
    runs = read_study(results).runs
    assert runs[runs["backend"].eq("cpu")]["env"].to_list() == ["xeon-2c", "xeon-64c"]


def store_threads(results: ResultsFolder) -> dict[str, str]:
    """Two cores of 100 GFLOP/s, of which one does 60; runs of two threads and of one."""
    passport = read_passport(DATA / "passport-h200.json")
    ceilings = tuple(
        Ceiling(kind="compute", device="cpu", path="vector", precision="fp32", threads=threads,
                what=what, samples=(rate,), how="by hand")
        for threads, what, rate in ((2, None, 1e11), (1, "one core", 6e10))
    )  # fmt: skip
    cpu = Cpu(model="Xeon", usable_cores=2)
    known = replace(passport, name="xeon", ceilings=ceilings, description=Description(cpu=cpu))
    Passports(results.path).write(known)
    found = {"backend": "cpu", "device_name": "Xeon", "precision": "fp32"}
    store_count(results, precision="fp32")
    return {
        name: store_run(
            results, {"precision": "fp32"}, host={"usable_cores": 2}, threads=threads, **found
        ).run_id
        for name, threads in (("two", 2), ("one", 1), ("unknown", None))
    }  # fmt: skip


def test_a_run_of_one_thread_stands_under_the_ceilings_of_one_core(results: ResultsFolder) -> None:
    # given runs of two threads, of one, and of nobody knows how many
    ids = store_threads(results)
    study = read_study(results, run_ids=[*ids.values()])
    # then the one-thread run has the floor of one core: 11.8 TFLOP at 60 GFLOP/s
    steps = study.points[study.points["grain"].eq("step")].set_index("run_id")
    floors = {name: steps.loc[run_id, "floor_s"] for name, run_id in ids.items()}
    assert floors == pytest.approx(
        {"two": 11.8e12 / 1e11, "one": 11.8e12 / 6e10, "unknown": 11.8e12 / 1e11}
    )
    # and is on a machine of its own, whose ceilings are explained with the point
    assert [m.env for m in study.machines] == ["xeon", "xeon-1-thread"]
    basis = "ceilings of 1 of 2 threads: fp32 vector as measured on one core"
    notes = dict(zip(study.points["run_id"], study.notes_on(study.points), strict=True))
    assert [notes[run_id] for run_id in ids.values()] == ["", basis, ""]
    assert study.remarks == (f"xeon-1-thread: {basis}",)


def test_the_largest_headrooms_are_those_of_the_most_time() -> None:
    # given 3 ms of a step of 10 ms, and 20 ms of a step of 200 ms
    rows = [
        {"run_id": "a", "model": "small", "layer": "conv", "headroom_s": 0.003, "share": 0.3},
        {"run_id": "b", "model": "large", "layer": "conv", "headroom_s": 0.020, "share": 0.1},
    ]
    runs = [run_row(run_id="a", model="small"), run_row(run_id="b", model="large")]
    top = make_study(runs, findings=rows).top_findings()
    assert top["headroom_s"].to_list() == [0.020, 0.003]


def test_the_frugal_the_fast_and_the_front_are_named() -> None:
    # given a network in three power modes, of which one is slower and takes more than another
    modes = {"400": (0.02, 0.5), "300": (0.03, 0.3), "200": (0.04, 0.4)}
    runs = [run_row(run_id=w, energy_j_per_step=j, environment=f"power_limit_w={w}")
            for w, (_, j) in modes.items()]  # fmt: skip
    study = make_study(runs, [step_row(run_id=w, time_s=t) for w, (t, _) in modes.items()])
    study = replace(study, energies=find_energies(study.points, study.runs, {}))

    assert study.energy_sentences == [
        "net on toy: fewest joules: batch 8, fp32 training, power_limit_w=300 (37.5 mJ in 3.75 ms a"
        " sample); least time: batch 8, fp32 training, power_limit_w=400 (62.5 mJ in 2.50 ms a"
        " sample). No other step has both less time and fewer joules than: batch 8, fp32 training,"
        " power_limit_w=400; batch 8, fp32 training, power_limit_w=300"
    ]
