"""Sweeps on a real Slurm: arrays, stages, jobs that die, a controller that is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sweep import networks
from tests.sweep.cluster import PATIENCE_S, Cluster, reason_to_skip

from ridgeline.store import ResultsFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip()),
    pytest.mark.xdist_group("slurm"),
]
NET = f"{networks.__file__}:good"
SLURM = {"partition": "main", "gpus": "1", "time": "10", "cpus": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()


class User:
    """Calls ridgeline as somebody at the login node of the cluster would."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def write(self, **matrix: Any) -> None:
        content = {"models": [NET], "backend": "cpu", "mode": "infer", "iters": 2, "slurm": SLURM}
        (self.folder / "study.yaml").write_text(json.dumps(content | matrix))

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ridgeline", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.cluster.environment, text=True,
                              capture_output=True, check=False, timeout=PATIENCE_S)  # fmt: skip

    def submit(self, name: str = "study.yaml", *more: str) -> str:
        done = self.call("sweep", name, "--executor", "slurm", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """By stage."""
        stages = json.loads(self.call("status", "--json").stdout)["sweeps"]
        return {stage["stage"]: stage for stage in stages}

    def wait_done(self, stage: str) -> dict[str, Any]:
        def is_finished() -> bool:
            one = self.status()[stage]
            return bool(one["done"] + one["failed"] == one["total"])

        self.cluster.wait_for(is_finished, f"the stage {stage}")
        return dict(self.status()[stage])

    def wait_empty(self) -> None:
        queue = ("squeue", "-h", "-r", "-o", "%A")
        self.cluster.wait_for(lambda: not self.cluster.ask(*queue).split(), "an empty queue")

    def leases(self) -> list[Path]:
        return list((self.folder / "results/sweeps/study/leases").glob("*.json"))

    def runs(self) -> Counter[str]:
        runs = ResultsFolder(self.folder / "results").index().runs
        return Counter(run.run_id.split("Z-")[1][:12] for run in runs)


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> Iterator[User]:
    yield User(cluster, tmp_path)
    cluster.call("scancel", "-u", "root")


def test_stages_of_arrays_follow_each_other(user: User) -> None:
    file = networks.__file__
    models = [f"{file}:good", f"{file}:other", f"{file}:third", f"{file}:fourth", f"{file}:broken"]
    full = {"batch_size": [1, 2], "models": models[:1]}
    user.write(models=models, stages={"quick": {"batch_size": 1, "promote": "75%"}, "full": full})

    said = user.submit()

    assert said.count("stage quick") == 2  # five shards; an array has three tasks at most here
    last = user.wait_done("full")  # submitted by the job that waits for the first stage
    quick = user.status()["quick"]
    assert (quick["done"], quick["failed"]) == (4, 1)
    assert "this network cannot be run" in quick["failures"][0]["reason"]
    assert (last["total"], last["done"]) == (2, 2)
    assert Counter(user.runs().values()) == {1: 5}
    shards = [json.loads(p.read_text()) for p in user.folder.rglob("shards/*.json")]
    assert {shard["job"].partition("_")[2] for shard in shards} == {"0", "1", "2"}
    user.wait_empty()
    (folder,) = user.folder.glob("results/sweeps/study/full/*good_default_*")
    (output,) = folder.glob("ridgeline-study-full-*_0.out")  # beside the tables
    assert "batch 2, infer, fp32" in output.read_text()


def test_a_worker_that_dies_hard_is_replaced(user: User) -> None:
    user.write(batch_size=[1, 2, 3])
    user.submit()
    user.cluster.wait_for(lambda: bool(user.leases()), "a case at work")
    holder = json.loads(user.leases()[0].read_text())

    os.kill(holder["pid"], signal.SIGKILL)
    user.wait_empty()
    before = user.runs()
    assert user.status()["full"]["running"] == 0
    user.submit("study")  # the same sweep again

    assert user.wait_done("full")["done"] == 3
    assert before <= user.runs()
    assert Counter(user.runs().values()) == {1: 3}


def test_a_job_whose_time_ends_is_put_back(user: User) -> None:
    user.write(batch_size=[1, 2, 3])
    user.submit()
    user.cluster.wait_for(lambda: bool(user.leases()), "a case at work")
    job = json.loads(user.leases()[0].read_text())["job"]

    user.cluster.call("scancel", "--signal=USR2", "--batch", job)  # as Slurm does near the end

    assert user.wait_done("full")["done"] == 3
    assert Counter(user.runs().values()) == {1: 3}
    restarts = [p for p in user.folder.rglob("jobs/*.out") if "put back" in p.read_text()]
    assert len(restarts) == 1


def test_cancel_ends_what_runs_and_keeps_what_is_done(user: User) -> None:
    user.write(batch_size="1:12", stages={"quick": {}, "full": {"batch_size": "1:14"}})
    user.submit()
    user.cluster.wait_for(lambda: user.status()["quick"]["done"] >= 1, "a case that is done")

    done = user.call("sweep", "cancel", "study")

    assert done.returncode == 0, done.stderr
    user.wait_empty()
    quick = user.status()["quick"]
    assert 1 <= quick["done"] < 12
    assert quick["failed"] == 0
    assert sum(user.runs().values()) == quick["done"]


def test_a_controller_that_is_away_is_no_failure(user: User) -> None:
    user.write(batch_size=[1, 2])
    user.submit()
    user.cluster.wait_for(lambda: bool(user.leases()), "a case at work")

    user.cluster.stop_controller()
    try:
        away = user.status()["full"]
        again = user.call("sweep", "study", "--executor", "slurm")
    finally:
        user.cluster.start_controller()

    assert away["failed"] == 0
    assert away["waits"] == ["squeue does not answer: what jobs do is not known"]
    assert "nothing was submitted" in again.stdout
    assert user.wait_done("full")["done"] == 2
    assert Counter(user.runs().values()) == {1: 2}


def test_jobs_that_wait_say_why(user: User) -> None:
    user.write(batch_size=[1], slurm=SLURM | {"gpus": "4", "cpus": 4})
    user.cluster.call("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        user.submit()
        waits = user.status()["full"]["waits"]
    finally:
        user.cluster.call("scontrol", "update", "PartitionName=main", "State=UP")

    assert waits[0].startswith("1 waiting: ")
    assert waits[1].startswith("free by sinfo: ")
    assert user.wait_done("full")["done"] == 1


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        ({"partition": "gpu"}, "there is no partition 'gpu'"),
        ({"partition": "short", "time": "00:10:00"}, "00:10:00 is beyond the limit"),
        ({"partition": "main", "gpus": "9"}, "sbatch refused the job"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused(
    user: User, slurm: dict[str, Any], words: str
) -> None:
    user.write(slurm=slurm)

    done = user.call("sweep", "study.yaml", "--executor", "slurm")

    assert done.returncode == 2
    assert words in done.stderr
