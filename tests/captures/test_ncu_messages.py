"""What the words of Nsight Compute mean."""

from __future__ import annotations

import pytest

from ridgeline.captures.ncu_messages import REASONS, ReadingLog, explain_failure

SAID = {  # what ncu says → the problem, and a part of the hint
    "permission": (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
        "the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)",
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    "busy": (
        "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
        "other tool (like DCGM) is concurrently collecting profiling data.",
        "another profiler held the GPU's counters (DCGM, Nsight Systems, another ncu)",
        "dcgmi profile --pause",
    ),
    "lock": (
        "==ERROR== Failed to create lock file /tmp/nsight-compute-lock",
        "ncu cannot take its lock file, which another user's ncu may have left",
        "set TMPDIR",
    ),
    "driver": (
        "==ERROR== Cuda driver is not compatible with Nsight Compute",
        "this ncu does not know this GPU or its driver",
        "as new as the driver",
    ),
    "launch": (
        "==ERROR== LaunchFailed",
        "a kernel could not be launched again for counting",
        "a smaller batch",
    ),
    "program": (
        "==ERROR== The application returned an error code (1).\n"
        "==WARNING== No kernels were profiled.",
        "the program that was profiled ended with an error",
        "runs without the profiler",
    ),
    "empty": (
        "==WARNING== No kernels were profiled.",
        "no kernels were profiled",
        "ridgeline.profile_step()",
    ),
}
NO_TIMES_EITHER = ("program", "empty")  # where kernel times could not be had without counters


@pytest.mark.parametrize("what", SAID)
def test_every_reason_has_its_message(what: str) -> None:
    said, problem, hint = SAID[what]
    error = explain_failure(f"==PROF== Connected\n{said}\n", "ncu failed")
    assert error.problem == problem
    assert hint in error.hint
    assert ("; --tier time needs no counters" in error.hint) is (what not in NO_TIMES_EITHER)


def test_every_reason_is_tested() -> None:
    assert {reason.problem for reason in REASONS} == {problem for _, problem, _ in SAID.values()}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("hello\n==ERROR== Something\n  new.\n", "ncu failed: ==ERROR== Something"),
        ("one\ntwo\nthree\nfour\n", "ncu failed: two three four"),
        ("", "ncu failed"),
    ],
)
def test_other_words_are_passed_on(said: str, problem: str) -> None:
    assert explain_failure(said, "ncu failed").problem == problem


def test_the_reason_of_a_file_without_kernels() -> None:
    log = ReadingLog()
    log.add_line("==ERROR== Cuda driver is not compatible with Nsight Compute")
    error = log.refusal("a.csv", "holds no kernels")
    assert error.problem == "a.csv holds no kernels: this ncu does not know this GPU or its driver"
    assert error.hint.startswith("use an ncu as new as the driver")
