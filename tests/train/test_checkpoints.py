"""Checkpoints: whole or absent, only what is plain, and a clear word about everything else."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.small_training import net_file, settings, trainer, what_differs

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.train import checkpoints
from ridgeline.train.checkpoints import CheckpointFolder, checkpoint, load, save
from ridgeline.workloads import resolve
from ridgeline.workloads.workload import load_weights, with_weights

STATE: dict[str, Any] = {
    "model": {"weight": torch.arange(1000.0)},
    "optimizer": {},
    "scheduler": {"step": 3},
    "scaler": None,
    "epoch": 1,
    "best_accuracy": 0.5,
    "history": [],
    "random": {},
    "settings": {"model": "resnet18", "lr": 0.1},
    "made_on": {},
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net_last.pt"
    save(path, checkpoint(STATE))
    return path


def complaint(path: Path) -> str:
    with pytest.raises(RidgelineError) as caught:
        load(path)
    return str(caught.value)


def test_what_was_saved_comes_back(saved: Path) -> None:
    found = load(saved)
    assert torch.equal(found.pop("model")["weight"], STATE["model"]["weight"])
    expected = {key: value for key, value in STATE.items() if key != "model"}
    assert found == {"format": "ridgeline-train", "version": 1, **expected}
    assert [path.name for path in saved.parent.iterdir()] == ["net_last.pt"]


def test_a_full_disk_leaves_the_older_one(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RidgelineError, match=r"cannot write .*net_last\.pt: No space left"):
        save(saved, checkpoint(STATE | {"epoch": 2}))
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["net_last.pt"]


def test_a_file_that_is_absent_or_was_cut(saved: Path) -> None:
    absent = saved.with_name("nett_last.pt")
    assert complaint(absent) == (
        f"there is no checkpoint {absent}\n  hint: {saved.parent} has net_last.pt"
    )
    whole = saved.read_bytes()
    for kept in (0, 5, 2000, -1):
        saved.write_bytes(whole[:kept])
        assert complaint(saved).startswith(f"{saved} is damaged, or no checkpoint: ")


def test_one_wrong_bit(saved: Path) -> None:
    # given a checkpoint with a bit of a weight turned; torch itself would not notice
    content = bytearray(saved.read_bytes())
    content[content.index(torch.arange(500.0, 510.0).numpy().tobytes())] ^= 1
    saved.write_bytes(content)
    torch.load(saved, weights_only=True)
    assert "the checksum of " in complaint(saved)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"format": checkpoints.FORMAT, "model": os.system}, " holds more than tensors and plain"),
        ({"weight": torch.zeros(2)}, " is not a checkpoint of `ridgeline train`"),
        ([1, 2], " is not a checkpoint of `ridgeline train`"),
        ({"format": "else"}, " is not a checkpoint of `ridgeline train`"),
        (checkpoint(STATE) | {"version": 2}, " is a checkpoint of version 2, and this ridgeline"),
    ],
)
def test_files_of_others_and_wrong_parts(saved: Path, content: Any, problem: str) -> None:
    torch.save(content, saved)
    assert complaint(saved).startswith(f"{saved}{problem}")


def test_other_settings_are_listed() -> None:
    there = {"model": "resnet18", "lr": 0.1, "epochs": 5, "seed": 0}
    checkpoints.refuse_differences(Path("a.pt"), there, {"model": "resnet18", "seed": 0})
    with pytest.raises(RidgelineError) as caught:
        checkpoints.refuse_differences(Path("a.pt"), there, {"seed": 0, "lr": 0.2, "epochs": 9})
    assert caught.value.problem == (
        "a.pt was made with other settings: lr: 0.1 there, 0.2 asked; epochs: 5 there, 9 asked"
    )


def test_a_training_is_not_overwritten_unasked(saved: Path) -> None:
    files = CheckpointFolder(folder=saved.parent, name="net")
    with pytest.raises(RidgelineError, match=r"already holds a training of net: net_last\.pt"):
        files.prepare(overwrite=False)
    files.prepare(overwrite=True)
    CheckpointFolder(folder=saved.parent / "new" / "folder", name="net").prepare(overwrite=False)
    assert (saved.parent / "new" / "folder").is_dir()


def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RidgelineError, match=r"cannot write to .*file: File exists"):
        CheckpointFolder(folder=tmp_path / "file", name="net").prepare(overwrite=False)


def test_weights_go_back_into_a_network(tmp_path: Path) -> None:
    # given a training's checkpoint, and its weights alone
    net = net_file(tmp_path)
    training = trainer(settings(net))
    save(tmp_path / "net_best.pt", checkpoint(training.state()))
    save(tmp_path / "net_final_weights.pt", training.weights())
    # when they are loaded, then they are in a network that does not train
    for path, model in ((tmp_path / "net_best.pt", None), (tmp_path / "net_final_weights.pt", net)):
        loaded = ridgeline.load_trained(path, model=model)
        assert not loaded.training
        assert not what_differs(dict(loaded.state_dict()), training.weights())
    # and a run starts with them; of another network they are refused
    workload = resolve(WorkloadSpec(model=net, input_size=(3, 32, 32)))
    built = with_weights(workload, tmp_path / "net_best.pt").build()
    assert not what_differs(dict(built.state_dict()), training.weights())
    with pytest.raises(RidgelineError, match="do not fit"):
        load_weights(torch.nn.Linear(2, 2), tmp_path / "net_best.pt", "line")
    (tmp_path / "x.pt").write_text("x")
    with pytest.raises(RidgelineError, match="cannot be read as weights"):
        load_weights(torch.nn.Linear(2, 2), tmp_path / "x.pt", "line")
