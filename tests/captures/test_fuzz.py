"""Whatever a file holds: a table or our error, nothing else, and soon."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.captures.files import NCU, PRODUCTS, STEP, TRACES

from ridgeline.captures import read_capture
from ridgeline.captures.capture import Capture, totals
from ridgeline.errors import RidgelineError

SOURCES = {
    "raw": PRODUCTS.read_bytes(),
    "step": gzip.decompress(STEP.read_bytes())[:60_000],
    "details": (NCU / "h200_gemm_dtypes_details.csv").read_bytes()[:30_000],
    "ragged": (NCU / "b200_cublaslt_fp8_details_ragged.log").read_bytes(),
    "ui": (NCU / "ui_export.csv").read_bytes(),
    "text": (NCU / "sections.txt").read_bytes(),
    "comma": (NCU / "details_comma.csv").read_bytes(),
    "kineto": (TRACES / "kineto.json").read_bytes(),
    "nsys": (TRACES / "nsys_cuda_gpu_kern_sum.csv").read_bytes(),
    "nsys trace": (TRACES / "nsys_cuda_gpu_trace.csv").read_bytes(),
    "packed": STEP.read_bytes(),
}
PIECES = [
    b'"', b",", b"\n", b"\r\n", b"\0", b"nan", b"1e999", b'""', b"\xff\xfe", b"==", b"]", b"{",
    b"-1", b"9" * 400, b"\xe2\x80\xae", b'"ID"', b"Metric Name", b" " * 50, b";", b"\t",
]  # fmt: skip
QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_read_or_refused(content: bytes, name: str = "capture.csv") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            capture = read_capture(path)
        except RidgelineError as error:
            assert error.problem and error.hint
            return
    check(capture)


def check(capture: Capture) -> None:
    """A capture keeps its promises, whatever it was made of."""
    kernels = capture.kernels
    assert isinstance(kernels, pd.DataFrame) and len(kernels) >= 1
    assert kernels["launches"].ge(1).all()
    sums = totals(capture)
    assert sums["kernels"] >= 1
    for value in (
        *sums["flops"].values(),
        sums["dram_bytes"],
        sums["kernel_time_s"],
    ):
        assert value is None or value == value


@QUICK
@given(data=st.data(), source=st.sampled_from(sorted(SOURCES)))
def test_cut_off_files(data: st.DataObject, source: str) -> None:
    content = SOURCES[source]
    is_read_or_refused(content[: data.draw(st.integers(0, len(content)))])


@QUICK
@given(data=st.data(), source=st.sampled_from(sorted(SOURCES)))
def test_changed_files(data: st.DataObject, source: str) -> None:
    content = bytearray(SOURCES[source])
    for _ in range(data.draw(st.integers(1, 12))):
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 200))
        content[start : start + length] = data.draw(st.sampled_from(PIECES) | st.binary(max_size=8))
    is_read_or_refused(bytes(content))


def test_deeply_nested_json() -> None:
    is_read_or_refused(b'{"traceEvents": [' + b"[" * 200_000)
    is_read_or_refused(b"[" * 200_000)


def test_a_long_line_without_an_end() -> None:
    is_read_or_refused(b'"ID",' * 2_000_000)
    is_read_or_refused(b" " * 10_000_000)
    is_read_or_refused(b"-" * 5_000_000 + b", Context 1, Stream 7\n")
