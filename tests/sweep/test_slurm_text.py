"""What ridgeline writes for Slurm and reads from it, as text."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.store import ResultsFolder
from ridgeline.sweep.matrix import SlurmOptions
from ridgeline.sweep.run import SlurmRun, open_sweep
from ridgeline.sweep.slurm import (
    Partition,
    Slurm,
    TaskState,
    describe_reason,
    format_tasks,
    make_script,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    parse_time_s,
)

SINFO = "main*|1:00:00|1|mix|gpu:fake:4\ndebug|5:00|2|idle|(null)\ngone|infinite|1|down*|(null)\n"
CONFIG = (
    "Configuration data as of 2026-11-18\nMaxArraySize            = 1001\nMaxJobCount = 10000\n"
)


def answer(answers: dict[str, str], codes: dict[str, int] | None = None) -> Slurm:
    """A cluster that answers each command with a text."""

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        text, code = answers.get(command[0], ""), (codes or {}).get(command[0], 0)
        return subprocess.CompletedProcess(command, code, text, text if code else "")

    return Slurm(run=run, has=lambda program: program in answers)


def test_a_job_script() -> None:
    options = SlurmOptions(
        partition="gpu", gpus="1", time="02:00:00", cpus=4, exclusive=True, parallel=3,
        setup=("module load cuda",),
    )  # fmt: skip

    text = make_script(
        name="ridgeline-study-quick", tasks="0-7", options=options, output=Path("/r/jobs"),
        command=["python", "-m", "ridgeline", "--shard", "$SLURM_ARRAY_TASK_ID", "a b"],
        about="two words",
    )  # fmt: skip

    assert (
        text
        == """\
#!/bin/bash
# two words
#SBATCH --job-name=ridgeline-study-quick
#SBATCH --array=0-7%3
#SBATCH --output=/r/jobs/%x-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --time=02:00:00
#SBATCH --cpus-per-task=4
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --exclusive

module load cuda
exec python -m ridgeline --shard "$SLURM_ARRAY_TASK_ID" 'a b'
"""
    )


def test_a_kind_of_gpu_from_the_matrix_is_asked_for() -> None:
    text = make_script(name="n", tasks="", options=SlurmOptions(gpus="2"), output=Path("o"),
                       command=["x"], about="a", gpu="h100")  # fmt: skip

    assert "#SBATCH --gres=gpu:h100:2\n" in text
    assert "--gpus" not in text


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([5], "5"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), ([2, 0], "0,2")]
)
def test_tasks_of_an_array(numbers: list[int], text: str) -> None:
    assert format_tasks(numbers) == text


def test_squeue() -> None:
    text = "12|10|3|RUNNING|None\n13|10|4|PENDING|Resources\n14|14|N/A|PENDING|Dependency\nslurm_load_jobs error\n"  # noqa: E501

    assert parse_squeue(text) == [
        TaskState(job_id="10", task="3", state="RUNNING"),
        TaskState(job_id="10", task="4", state="PENDING", reason="Resources"),
        TaskState(job_id="14", task="", state="PENDING", reason="Dependency"),
    ]


def test_sacct_shows_the_last_start_of_a_task() -> None:
    text = (
        "10_3|PREEMPTED\n10_3.batch|CANCELLED\n10_3|CANCELLED by 0\n10_[4-9]|PENDING\n11|TIMEOUT\n"
    )

    assert parse_sacct(text) == [
        TaskState(job_id="10", task="3", state="CANCELLED"),
        TaskState(job_id="11", task="", state="TIMEOUT"),
    ]


def test_sinfo() -> None:
    assert parse_sinfo(SINFO)[:2] == [
        Partition(name="main", is_default=True, time_limit="1:00:00", nodes=1, state="mix",
                  gres="gpu:fake:4"),
        Partition(name="debug", is_default=False, time_limit="5:00", nodes=2, state="idle",
                  gres=""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("5:30", 330), ("02:00:00", 7200), ("1-12", 129600), ("1-00:00:01", 86401),
     ("infinite", None), ("UNLIMITED", None), ("soon", None)],
)  # fmt: skip
def test_times(text: str, seconds: float | None) -> None:
    assert parse_time_s(text) == seconds


def test_what_would_wait_for_ever_is_refused() -> None:
    slurm = answer({"sinfo": SINFO})

    slurm.check_options(SlurmOptions(partition="main", time="01:00:00"))
    for options, problem in (
        (SlurmOptions(partition="gpu"), "there is no partition 'gpu'"),
        (SlurmOptions(partition="debug", time="10"), "10 is beyond the limit"),
        (SlurmOptions(time="1-0"), "1-0 is beyond the limit"),
        (SlurmOptions(time="soon"), "'soon' is no time"),
    ):
        with pytest.raises(RidgelineError, match=problem):
            slurm.check_options(options)


def test_sizes_of_arrays() -> None:
    assert answer({"scontrol": CONFIG}).largest_array() == 1000
    assert answer({}).largest_array() == 1000  # nothing is known: Slurm's default


def test_an_answer_that_is_missing_is_not_an_empty_queue() -> None:
    assert answer({"squeue": ""}).queue(["a"]) == []
    assert answer({"squeue": "error"}, {"squeue": 1}).queue(["a"]) is None
    assert answer({}).queue(["a"]) is None


def test_a_refused_job_says_what_sbatch_said(tmp_path: Path) -> None:
    slurm = answer({"sbatch": "invalid partition specified: gpu"}, {"sbatch": 1})

    with pytest.raises(RidgelineError, match="sbatch refused the job: invalid partition"):
        slurm.submit(tmp_path / "job.sh")


def test_reasons_that_never_end_say_what_to_do() -> None:
    assert "lower slurm.time" in describe_reason("PartitionTimeLimit")
    assert describe_reason("Priority") == "Priority: others are before it"
    assert describe_reason("SomethingNew") == "SomethingNew"


def test_where_a_job_needs_a_gpu_the_job_that_starts_the_next_stage_takes_one(
    tmp_path: Path,
) -> None:
    # given a cluster that refuses jobs without a GPU
    sent: list[str] = []

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if command[0] != "sbatch":
            return subprocess.CompletedProcess(command, 0, "", "")
        script = Path(command[-1]).read_text()
        is_fine = "#SBATCH --gpus=1" in script
        sent.append(f"{Path(command[-1]).name}: {is_fine}")
        return subprocess.CompletedProcess(command, 0 if is_fine else 1, "7\n", "GPUs are needed")

    matrix = {"name": "study", "models": "lstm", "slurm": {"gpus": 1},
              "stages": {"quick": {"batch_size": 1}, "full": {"batch_size": 2}}}  # fmt: skip
    sweep = open_sweep(matrix, ResultsFolder(tmp_path))
    sweep.save()

    SlurmRun(sweep=sweep, slurm=Slurm(run=run, has=lambda program: True)).run()

    assert sent == ["quick.sh: True", "quick-next.sh: False", "quick-next.sh: True"]
