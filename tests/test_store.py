"""Runs are stored whole or not at all, and read back as they were."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ridgeline import store
from ridgeline.errors import RidgelineError
from ridgeline.records import CountRequest, CountSummary, Host, Provenance
from ridgeline.store import (
    ResultsFolder,
    Run,
    atomic_write_text,
    new_run_id,
    run_label,
    whole_file,
)

TRAIN = {"command": "train"}
OPS = pd.DataFrame({"kind": ["conv", "relu"], "macs": [118_013_952, 0]})


def write(folder: ResultsFolder, *, label: str = "resnet50") -> Run:
    request = CountRequest(model=label, input_size=(224, 224))
    result = {"macs": np.int64(118_013_952), "coverage": float("nan")}
    made = {"host": {"name": "node7"}}
    run_id = folder.save_run(label, request, result, made, tables={"ops": OPS}, log="counted\n")
    return folder.read_run(run_id)


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "results")

    run = write(folder)

    assert run.path == tmp_path / "results" / "runs" / run.run_id
    assert run.request == CountRequest(model="resnet50", input_size=(224, 224))
    assert run.result == CountSummary(macs=118_013_952, coverage=None)
    assert run.made == Provenance(host=Host(name="node7"))
    assert folder.read_runs() == [run]
    assert folder.read_log(run.run_id) == "counted\n"
    pd.testing.assert_frame_equal(folder.read_table(run.run_id, "ops"), OPS)
    assert list(folder.read_table(run.run_id, "ops", columns=["macs"])) == ["macs"]
    assert sorted(p.name for p in run.path.iterdir()) == ["log.txt", "ops.parquet", "run.json"]


def test_labels_of_runs() -> None:
    assert run_label("run", "resnet50", 32) == "run-resnet50-bs32"
    assert run_label("count", "nets/net.py:make", 1) == "count-net.py:make-bs1"
    assert run_label("profile", "train.py") == "profile-train.py"
    assert run_label("run", "vgg16", 8, label="m" * 99) == f"{'m' * 24}-vgg16-bs8"


def test_run_ids_sort_by_time_and_are_safe() -> None:
    noon = datetime(2026, 3, 1, 13, 0, 0, 5000, tzinfo=timezone(timedelta(hours=1)))

    first = new_run_id("timm:vit/tiny patch", now=noon)
    later = new_run_id("alexnet", now=noon + timedelta(milliseconds=1))

    assert re.fullmatch(r"2026-03-01T120000\.005Z-timm-vit-tiny-patch-[0-9a-f]{6}", first)
    assert first < later
    assert new_run_id("x", now=noon) != new_run_id("x", now=noon)
    assert re.fullmatch(r"\S+Z-run-[0-9a-f]{6}", new_run_id("../", now=noon))
    assert len(new_run_id("m" * 500)) < 100


def test_a_stored_run_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "new_run_id", lambda label: "same")
    folder = ResultsFolder(tmp_path)
    run = write(folder, label="first")

    with pytest.raises(RidgelineError, match="cannot write to"):
        write(folder, label="second")

    assert folder.read_runs() == [run]
    assert [p.name for p in folder.runs_path.iterdir()] == ["same"]


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)

    with pytest.raises(TypeError):
        folder.save_run("x", TRAIN, {"what": object()}, {})

    assert list(folder.runs_path.iterdir()) == []


# A writer whose table takes its time: half of it is on disk when the writer says so and waits.
HALF_WAY = """
import sys, time
from pathlib import Path
from ridgeline.store import ResultsFolder

class SlowTable:
    def to_parquet(self, path, index):
        Path(path).write_bytes(b"PAR1 and half of the rows")
        print("half-way", flush=True)
        time.sleep(60)

ResultsFolder(Path(sys.argv[1])).save_run(
    "killed", {"command": "train"}, {}, {}, tables={"ops": SlowTable()})
"""


def test_a_writer_killed_half_way_leaves_no_run(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    kept = write(folder)
    writer = subprocess.Popen(
        [sys.executable, "-c", HALF_WAY, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half-way\n"

    writer.kill()

    assert writer.wait() == -signal.SIGKILL
    assert len(list(folder.runs_path.glob(".tmp-*/ops.parquet"))) == 1  # it did get half-way
    assert folder.read_runs() == [kept]


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda n: write(folder, label=f"net{n}"), range(32)))

    assert folder.read_runs() == sorted(runs, key=lambda run: run.run_id)
    assert {run.request.model for run in runs} == {f"net{n}" for n in range(32)}


def test_a_missing_run_says_which_there_are(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    with pytest.raises(RidgelineError, match="hint: there are no runs in this folder"):
        folder.read_run("nosuch")

    run = write(folder)
    for name in ("nosuch", f"../runs/{run.run_id}"):
        with pytest.raises(RidgelineError, match=f"there is no run '{name}' .*\n.*{run.run_id}"):
            folder.read_run(name)
    with pytest.raises(RidgelineError, match="has no table 'layers'\n  hint: its tables: ops"):
        folder.read_table(run.run_id, "layers")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_ver', "cannot read .*run.json: Unterminated string"),
        ("[]", "it is not a JSON object"),
        ("{}", "it has no schema_version"),
        ('{"schema_version": 1, "asked": {}}', "it has no 'found'"),
        ('{"schema_version": 99}', "by a later ridgeline: its schema is 99, .* up to 1\n.*update"),
    ],
)
def test_a_run_that_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    folder = ResultsFolder(tmp_path)
    run = write(folder)
    (run.path / "run.json").write_text(text)
    (run.path / "ops.parquet").write_bytes(b"PAR1 and no more")

    with pytest.raises(RidgelineError, match=message):
        folder.read_run(run.run_id)
    with pytest.raises(RidgelineError, match=r"cannot read .*ops\.parquet"):
        folder.read_table(run.run_id, "ops")


def test_a_folder_that_cannot_be_written_gives_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(RidgelineError) as caught:
        write(ResultsFolder(tmp_path / "file"))

    assert caught.value.hint == (
        "make room or get permission there, or name another place: --results DIR"
    )
    with pytest.raises(RidgelineError, match=r"another place: -o FILE, --results DIR"):
        atomic_write_text(tmp_path / "file" / "deep.csv", "text")


def test_a_place_is_tried_before_anything_is_measured(tmp_path: Path) -> None:
    ResultsFolder(tmp_path / "deep" / "results").check_writable()
    assert list(tmp_path.iterdir()) == []  # and nothing is left of that


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a file system that takes no files")
def test_a_place_that_takes_no_files_is_refused_for_root_too() -> None:
    with pytest.raises(RidgelineError, match="cannot write to /proc/results: "):
        ResultsFolder(Path("/proc/results")).check_writable()


def test_atomic_write_text(tmp_path: Path) -> None:
    path = tmp_path / "deep" / ("é" * 125 + ".json")  # 255 bytes, as long as file systems take

    atomic_write_text(path, "first\n")
    atomic_write_text(path, "2 · 3 = 6\n")

    assert {p.name: p.read_text("utf-8") for p in path.parent.iterdir()} == {
        path.name: "2 · 3 = 6\n"
    }


def test_a_link_is_followed_and_a_pipe_is_left_a_pipe(tmp_path: Path) -> None:
    # given a link to a file, and a named pipe with a reader
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # when both are written to
    atomic_write_text(link, "new")
    atomic_write_text(pipe, "through")
    # then the link is still a link, and the text went through the pipe
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert os.read(reader, 100) == b"through"
    assert not pipe.is_file()
    os.close(reader)


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old")

    with whole_file(tmp_path / "a.csv") as file:
        file.write(b"new")
        hidden = [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp-a.csv-")]
        during = (tmp_path / "a.csv").read_text()

    assert (len(hidden), during) == (1, "old")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "new"
