"""Which machine predictions are for, what is refused, and what stored runs add."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.analyzed_here import store_passport
from tests.predict.calibrations import calibration, counted, store_own, use
from tests.report.compared import write as write_run

from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import datasheet_for, list_datasheets
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.passport import read_passport
from ridgeline.pipeline import predict
from ridgeline.pipeline.predict import (
    Machine,
    calibrate_machine,
    find_larger_gpu,
    find_machine,
    import_calibration,
    open_predictor,
)
from ridgeline.predict.calibration import Calibration, Calibrations
from ridgeline.predict.predict import predict_step
from ridgeline.store import ResultsFolder

H200 = Path(__file__).parent.parent / "data" / "passport-h200.json"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with a calibration of another machine and the passport of an H200."""
    Calibrations(tmp_path).write(calibration())
    shutil.copy(H200, tmp_path / "machines" / "nvidia-h200.json")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "machine", "source", "peak"),
    [
        ("small", "small", "measured", 5e10),
        ("nvidia-h200", "nvidia-h200", "scaled from its passport of 2026-11-15", None),
        ("NVIDIA H100 SXM5 80GB", "nvidia-h100-sxm5-80gb",
         "scaled from the datasheet of NVIDIA H100 SXM5 80GB", 66.9e12),
        ("EPYC 9654", "amd-epyc-9654", "scaled from the datasheet of AMD EPYC 9654", None),
    ],
)  # fmt: skip
def test_a_machine_by_its_name(
    name: str, machine: str, source: str, peak: float | None, results: Path
) -> None:
    found = find_machine(name, results)

    known = found.calibration
    assert (known.machine, known.source, found.is_here) == (machine, source, False)
    fp32 = known.peak("fp32")
    assert fp32 is not None
    assert peak is None or fp32.sustained_flops_per_s == pytest.approx(peak, rel=0.01)


def test_every_datasheet_gives_times(results: Path) -> None:
    from tests.predict.calibrations import MEBI, product, relu

    uses = [use(product(512, 512, 512)), use(relu(MEBI))]
    for sheet in list_datasheets():
        known = predict._read_datasheet(sheet)
        step = predict_step(counted(), known, uses=uses)
        assert 0 < step.kernel_time_s < 0.1, sheet.name
        assert step.provenance == {"scaled": 1.0}
        assert step.interval_s[1] / step.time_s > 1.5


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("H100", "no machine 'H100' is known", "nvidia-h200, small; datasheets: NVIDIA H100 PCIe"),
        ("nothing", "no machine 'nothing' is known", "nvidia-h200, small; "),
        ("no.calibration.json.gz", "there is no calibration no.calibration.json.gz", "make one"),
        ("no.json", "there is no passport no.json", ""),
    ],
)
def test_unknown_machines(name: str, says: str, hint: str, results: Path) -> None:
    with pytest.raises(RidgelineError) as caught:
        find_machine(name, results)

    assert says in caught.value.problem
    assert hint in caught.value.hint


# ---------------------------------------------------------------- this machine


@pytest.fixture
def gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has the H200 of the passport."""
    described = read_passport(H200).description
    monkeypatch.setattr(predict, "describe", lambda: described)


def test_a_machine_that_is_not_calibrated_says_how_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "describe", Description)

    with pytest.raises(RidgelineError, match="this machine is not calibrated") as caught:
        find_machine(None, tmp_path)

    assert "ridgeline machine calibrate" in caught.value.hint
    assert "--on" in caught.value.hint


@pytest.mark.usefixtures("gpu_here")
def test_without_a_calibration_the_passport_then_the_datasheet(
    results: Path, tmp_path: Path
) -> None:
    by_passport, by_datasheet = (
        find_machine(None, folder).calibration for folder in (results, tmp_path / "empty")
    )

    assert by_passport.source == "scaled from its passport of 2026-11-15"
    assert by_datasheet.source == "scaled from the datasheet of NVIDIA H200 SXM"


def test_the_own_calibration_with_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_own(tmp_path)
    assert find_machine(None, tmp_path).widening.reasons == ()
    own = store_own(tmp_path, versions={"torch": "1.0"})

    found = find_machine(None, tmp_path)

    assert (found.is_here, found.calibration.machine) == (True, own.machine)
    assert found.widening.factor == 1.25
    assert found.widening.reasons[0].startswith("torch was 1.0 at the calibration and is ")
    assert found.widening.reasons[0].endswith(": calibrate again")


@pytest.mark.parametrize(("dram", "drift"), [(1.01e11, ""), (2e11, "the ceilings moved by -50%")])
def test_a_drifted_passport_widens(dram: float, drift: str, tmp_path: Path) -> None:
    store_passport(tmp_path)  # 1e11
    store_own(tmp_path, ceilings={"dram": dram})

    reasons = find_machine(None, tmp_path).widening.reasons

    assert [drift in reason for reason in reasons] == [True] * bool(drift)


@pytest.mark.parametrize(
    "changes", [{"threads": 999}, {"device_name": "Another CPU"}, {"instruction_set": "MMX"}]
)
def test_another_device_of_the_same_name_is_refused_or_labelled(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    own = store_own(tmp_path)
    Calibrations(tmp_path).write(replace(own, **changes))

    with pytest.raises(RidgelineError, match="is of another device"):
        find_machine(None, tmp_path)
    with pytest.raises(RidgelineError, match="is of another device"):
        calibrate_machine(tmp_path, backend="cpu", budget_s=1)
    named = find_machine(own.machine, tmp_path)
    assert not named.is_here
    assert "is of another device" in named.widening.reasons[0]


def test_an_imported_calibration_replaces_none_of_another_device(
    results: Path, tmp_path: Path
) -> None:
    file = Calibrations(results).path("small")
    other = replace(calibration(), machine="other", device_name="B CPU")
    Calibrations(tmp_path / "b").write(other)

    assert import_calibration(file, tmp_path / "b", "third").name == "third.calibration.json.gz"
    with pytest.raises(RidgelineError, match=r"other is of another device \(B CPU, 2 threads\)"):
        import_calibration(file, tmp_path / "b", "other")
    assert Calibrations(tmp_path / "b").read("other").device_name == "B CPU"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"backend": "cpu", "budget_s": 0}, "nothing is measured in no time"),
        ({"backend": "cpu", "precisions": ("tf32",)}, "cpu does not compute in tf32"),
        ({"backend": "cpu", "groups": ("foo",)}, "no operator is called foo"),
        ({"backend": "tpu"}, "tpu cannot be calibrated"),
    ],
)
def test_calibrations_that_cannot_be(wanted: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match=says):
        calibrate_machine(tmp_path, **wanted)

    assert not (tmp_path / "machines").exists()


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline.predict import calibrate as module

    def stop(plan: object, known: Calibration, measured: module.Measured, _: object) -> Calibration:
        measured.points += calibration().points
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "calibrate", stop)

    stored = calibrate_machine(tmp_path, backend="cpu")

    assert stored.was_interrupted
    assert stored.added == len(calibration().points)
    kept = Calibrations(tmp_path).read(machine_name(describe()))
    assert len(kept.points) == stored.added
    assert kept.measured_at


def test_stored_runs_of_this_machine_become_errors_of_the_past(tmp_path: Path) -> None:
    own = store_own(tmp_path)
    here = {"device_name": own.device_name, "threads": own.threads}
    results = ResultsFolder(tmp_path)
    for batch_size, found in ((2, here), (3, {**here, "threads": 999})):
        write_run(results, [0.5] * 10, found=found, model="squeezenet1_1", input_size=[32],
                  batch_size=batch_size, mode="infer")  # fmt: skip

    known = open_predictor(tmp_path).machines[0].calibration
    again = open_predictor(tmp_path).machines[0].calibration

    (past,) = known.past
    assert (past.model, past.measured_s) == ("squeezenet1_1", 0.5)
    assert again.past == known.past


def test_refining_is_for_this_machine(results: Path) -> None:
    predictor = open_predictor(results, ("small",), refine_s=1.0)

    with pytest.raises(RidgelineError, match="--refine measures here, and small is another one"):
        list(predictor.predict(counted()))


def test_the_next_larger_gpu() -> None:
    a100 = datasheet_for("NVIDIA A100-SXM4-80GB")
    assert a100 is not None

    larger = find_larger_gpu(a100)

    assert larger is not None
    assert larger.dram_bytes_per_s > a100.dram_bytes_per_s
    assert find_larger_gpu(replace(a100, dram_bytes_per_s=1e20)) is None


@pytest.mark.parametrize(
    ("device_name", "device", "names"),
    [
        ("A CPU", "cpu", ["batch x2"]),
        ("An unknown GPU", "cuda:0", ["batch x2", "amp", "CUDA graphs"]),
        ("NVIDIA A100-SXM4-80GB", "cuda:0",
         ["batch x2", "amp", "CUDA graphs", "on NVIDIA H100 SXM5 80GB"]),
    ],
)  # fmt: skip
def test_what_if_steps(device_name: str, device: str, names: list[str]) -> None:
    machine = Machine(calibration=calibration(device_name=device_name, device=device))

    steps = predict._list_what_ifs(predict.PlannedStep(8, "fp32", None), machine, is_module=False)

    assert [step.what_if for step in steps] == names
    assert (steps[0].batch_size, steps[0].precision) == (16, "fp32")
    last = steps[-1].calibration
    assert last is None or last.source == (
        "scaled from small by the datasheets of NVIDIA A100 SXM4 80GB and NVIDIA H100 SXM5 80GB"
    )
