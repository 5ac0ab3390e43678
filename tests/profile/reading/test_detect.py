"""What a file is: behind program output, packed, from a pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.profile.captures import NCU, PRODUCTS, TRACES, read, told, written

from ridgeline.errors import RidgelineError

TABLE = (
    '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","us"\n"0","7","gemm","2"\n'
)
TEXT = (NCU / "sections.txt").read_text()
NSYS_ROW = '{"Time (%)": 100.0, "Total Time (ns)": 2000, "Instances": 1, "Name": "gemm"}'
CSV_OF_NSYS = "nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep"

# ---------------------------------------------------------------- program output that is no trace


@pytest.mark.parametrize(
    "before",
    [
        "[INFO] start",
        "[rank0]: warming up",
        "[W socket.cpp:697] retrying",
        "[1/10] loss 0.5",
        "[1, 2, 3]",
        "[] nothing",
        '[{"name": "a", "ph": "X"}]',
        '{"step": 1}',
        '{"step": 1}\n{"step": 2}',
        '{\n  "model": "resnet50"\n}',
        '{"step": 1, half of a line',
        '{"Total Time (s)": 3}',
        "{'loss': 0.5}",
        "{}",
    ],
)
def test_a_table_below_a_line_that_begins_like_json(tmp_path: Path, before: str) -> None:
    found = read(written(tmp_path, "a.csv", f"{before}\n{TABLE}"))
    assert (found.kind, found.kernels["time_s"].tolist()) == ("ncu-raw", [2e-6])


def test_a_recorded_table_below_a_line_in_brackets(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", f"[INFO] start\n{PRODUCTS.read_text()}")
    assert told(path) == told(PRODUCTS)


def test_text_that_begins_with_its_process(tmp_path: Path) -> None:
    # given the text of ncu without its words above
    text = TEXT[TEXT.index("[828] products") :]
    # then it tells the same
    assert told(written(tmp_path, "b.txt", text)) == told(NCU / "sections.txt")


def test_words_of_the_profiler_below_json_are_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", '{"step": 1}\n==WARNING== No kernels were profiled.\n')
    with pytest.raises(RidgelineError, match="holds no kernels: no kernels were profiled"):
        read(path)


@pytest.mark.parametrize("text", ['{"step": 1}\n{"step": 2}\n', '{"a": 1', "{}"])
def test_json_with_nothing_else_is_no_trace(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "a.json", text)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} is JSON, but no trace: it has no traceEvents"


@pytest.mark.parametrize(
    "text",
    [
        f"[\n{NSYS_ROW}\n]\n",
        f"Processing [a.sqlite] with [cuda_gpu_kern_sum.py]...\n[\n{NSYS_ROW}\n]\n",
        f"[{NSYS_ROW}]\n\n[{NSYS_ROW}]\n",
    ],
)
def test_json_of_nsys_says_what_to_export_instead(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "a.json", text)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} is JSON of nsys stats, of which only the CSV is read"
    assert refused.value.hint == CSV_OF_NSYS


def test_a_trace_that_is_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "a" * 500, "ts": 1, "dur": 2}
    text = json.dumps({"schemaVersion": 1, "traceEvents": [event] * 5000})
    assert read(written(tmp_path, "a.json", text)).launches == 5000


# ---------------------------------------------------------------- packed


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        lambda content: gzip.compress(gzip.compress(content)),
        lambda content: lzma.compress(bz2.compress(content)),
    ],
    ids=["gzip", "bzip2", "xz", "gzip twice", "bzip2 in xz"],
)
def test_packed_files(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.csv.packed"
    path.write_bytes(pack(PRODUCTS.read_bytes()))
    assert told(path) == told(PRODUCTS)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_that_are_cut_off(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.csv.packed"
    path.write_bytes(pack(PRODUCTS.read_bytes())[:-100])
    with pytest.raises(RidgelineError, match="cannot be unpacked: it is damaged or not whole"):
        read(path)


def tar_of(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        about = tarfile.TarInfo("a.csv")
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x28\xb5\x2f\xfd and more", "packed with zstd"),
        (b"\x04\x22\x4d\x18 and more", "packed with lz4"),
        (b"7z\xbc\xaf\x27\x1c and more", "a 7z archive"),
        (tar_of(TABLE.encode()), "a tar archive"),
    ],
    ids=["zstd", "lz4", "7z", "tar"],
)
def test_what_must_be_unpacked_first(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "a.csv.packed"
    path.write_bytes(content)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} is {what}"
    assert refused.value.hint == "unpack it and name what is in it"


@pytest.mark.parametrize(
    ("pack", "program"),
    [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")],
)
def test_a_packed_report_says_how_to_unpack_it(
    tmp_path: Path, pack: Callable[[bytes], bytes], program: str
) -> None:
    path = tmp_path / "a.ncu-rep.packed"
    path.write_bytes(pack(b"NVR\0 and more"))
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} is a packed report"
    assert refused.value.hint == f"unpack it: {program} --keep a.ncu-rep.packed"


@pytest.mark.parametrize("text", [TABLE, TEXT], ids=["table", "text"])
def test_lines_that_end_in_carriage_returns_only(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "a.csv", text.replace("\n", "\r"))
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} has lines that end in carriage returns only"
    assert refused.value.hint == r"tr '\r' '\n' < a.csv > lines-a.csv, and import that"


# ---------------------------------------------------------------- pipes


def sent(content: bytes, into: Path) -> threading.Thread:
    """A pipe at a path, and the thread that writes into it."""
    os.mkfifo(into)
    writer = threading.Thread(target=into.write_bytes, args=[content], daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize("source", [PRODUCTS, TRACES / "kineto.json"], ids=lambda path: path.name)
def test_a_pipe_is_read_like_the_file(tmp_path: Path, source: Path) -> None:
    pipe = tmp_path / "pipe"
    writer = sent(source.read_bytes(), pipe)
    found = read(pipe)
    writer.join(timeout=10)
    assert found.file == str(pipe)
    assert found.kernels.equals(read(source).kernels)


def test_the_end_of_a_pipe_by_its_number(tmp_path: Path) -> None:
    # given what a shell makes of <(…)
    end, start = os.pipe()
    os.write(start, TABLE.encode())
    os.close(start)
    try:
        assert read(Path(f"/dev/fd/{end}")).kernels["time_s"].tolist() == [2e-6]
    finally:
        os.close(end)


def test_a_pipe_that_is_refused_keeps_its_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    writer = sent(b"hello\n", pipe)
    with pytest.raises(RidgelineError) as refused:
        read(pipe)
    writer.join(timeout=10)
    assert refused.value.problem == f"{pipe} is no capture that ridgeline knows"


def test_a_device_is_no_file() -> None:
    with pytest.raises(RidgelineError, match="/dev/zero is a terminal or another device, no file"):
        read(Path("/dev/zero"))
