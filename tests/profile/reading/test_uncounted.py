"""Summaries of Nsight Compute that do not tell how many launches a row is of."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.profile.captures import read, told, written

from ridgeline.errors import RidgelineError

TIME = "gpu__time_duration.sum"
HEADER = "Kernel Name,Invocations,Metric Name,Metric Unit,Minimum,Maximum,Average\n"
LEFT_OUT = "rows of a summary that tell no number of launches are left out"
ODD = ["", "0", "-3", "2.5", "n/a", "1e300"]


@pytest.mark.parametrize("number", ODD)
def test_such_a_row_is_left_out_and_that_is_said(tmp_path: Path, number: str) -> None:
    text = f"{HEADER}a,2,{TIME},us,1,3,2\nb,{number},{TIME},us,1,3,2\n"
    found = told(written(tmp_path, "a.csv", text))
    assert (found["kernels"], found["kernel_time_s"]) == (2, pytest.approx(4e-6))
    assert f"{LEFT_OUT}: 1" in found["warnings"]


@pytest.mark.parametrize("number", ODD)
def test_a_summary_of_nothing_else_is_refused(tmp_path: Path, number: str) -> None:
    path = written(tmp_path, "a.csv", f"{HEADER}b,{number},{TIME},us,1,3,2\n")
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} has no kernel to count: {LEFT_OUT}: 1"
    assert refused.value.hint == "export it again; the column Invocations has the numbers"
