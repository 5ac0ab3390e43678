"""Captures that went through other hands: quoted, commented, listed, turned round, unquoted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.profile.captures import NCU, read, written

from ridgeline.errors import RidgelineError

TEXT = """[4711] ./app@node1
  scale(float *, int) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6
    Section: Command line profiler metrics
    ---------------------- ----------- ------------
    Metric Name            Metric Unit Metric Value
    ---------------------- ----------- ------------
    dram__bytes.sum              Kbyte        12.50
    gpu__time_duration.sum          us         3.20
    ---------------------- ----------- ------------
  scale(float *, int) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6
    Section: Command line profiler metrics
    dram__bytes.sum              Kbyte        10.00
    gpu__time_duration.sum          us         3.00
"""
TABLE = """"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","scale(float *, int)","dram__bytes.sum","byte","12,500"
"0","7","scale(float *, int)","gpu__time_duration.sum","ns","3,200"
"1","7","scale(float *, int)","dram__bytes.sum","byte","10,000"
"1","7","scale(float *, int)","gpu__time_duration.sum","ns","3,000"
"""
NUMBERS = {"dram_bytes": [12_500.0, 10_000.0], "time_s": [3.2e-6, 3e-6]}


def numbers(path: Path) -> dict[str, list[float]]:
    kernels = read(path).kernels
    return {name: kernels[name].round(12).tolist() for name in NUMBERS}


def each_line(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "".join(
        change(n, line) for n, line in enumerate(text.splitlines(keepends=True))
    )


PASTED: dict[str, Callable[[str], str]] = {
    "quoted": each_line(lambda n, line: f"> {line}"),
    "commented": each_line(lambda n, line: f"// {line}"),
    "listed": each_line(lambda n, line: f"{n + 17}: {line}"),
    "in a block of comments": each_line(lambda n, line: f" * {line}"),
    "quoted twice": each_line(lambda n, line: f"> > {line}"),
    "found by grep": each_line(lambda n, line: f"{n + 17}:{line}"),
    "numbered by cat": each_line(lambda n, line: f"{n + 1:6d}\t{line}"),
    "of a rank": each_line(lambda n, line: f"[rank0]: {line}"),
    "of a task": each_line(lambda n, line: f"0: {line}"),
    "further in": each_line(lambda n, line: f"        {line}"),
    "in a page": lambda text: (
        "# Results\n\nIt ran:\n" + PASTED["quoted"](text) + "\nThat was it.\n"
    ),
}


@pytest.mark.parametrize("how", PASTED)
@pytest.mark.parametrize("text", [TEXT, TABLE], ids=["text", "table"])
def test_what_was_put_before_lines_is_taken_off(tmp_path: Path, text: str, how: str) -> None:
    assert numbers(written(tmp_path, "pasted.txt", PASTED[how](text))) == NUMBERS


def test_lines_of_several_tasks_are_not_mixed(tmp_path: Path) -> None:
    # given the output of two tasks, whose lines alternate, or one after the other
    first, other = each_line(lambda n, line: f"0: {line}"), each_line(lambda n, line: f"1: {line}")
    noise = "0: step\n" * 2**18
    ranks = each_line(lambda n, line: f"[rank0]: {line}[rank1]: {line}")(TEXT)
    with pytest.raises(RidgelineError, match=r"several tasks \(\[rank0\] and \[rank1\]\)"):
        read(written(tmp_path, "ranks.txt", ranks))
    for both in (each_line(lambda n, line: f"0: {line}1: {line}")(TEXT),
                 first(TEXT) + noise + other(TEXT)):  # fmt: skip
        with pytest.raises(RidgelineError, match=r"lines of several tasks \(0 and 1\)"):
            read(written(tmp_path, "tasks.txt", both))


def test_text_without_indentation(tmp_path: Path) -> None:
    flat = each_line(lambda n, line: line.lstrip(" "))(TEXT)
    assert numbers(written(tmp_path, "flat.txt", flat)) == NUMBERS


def test_remarks_behind_values(tmp_path: Path) -> None:
    remarked = TEXT.replace("12.50\n", "12.50  # little, 3 times less than before\n")
    assert numbers(written(tmp_path, "remarked.txt", remarked)) == NUMBERS


def test_a_text_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    path = written(tmp_path, "twice.txt", TEXT + "\n" + TEXT)
    assert numbers(path) == NUMBERS
    [said] = [text for text in read(path).warnings if "again" in text]
    assert said == "kernels that are told again under the same process and number count once: 2"


def test_a_text_that_ends_in_the_line_of_a_kernel_says_so(tmp_path: Path) -> None:
    whole, last = TEXT[: TEXT.rindex("  scale")], TEXT[TEXT.rindex("  scale") :]
    capture = read(written(tmp_path, "cut.txt", whole + last[:30]))
    assert capture.kernels["dram_bytes"].tolist() == [12_500.0]
    assert any(text.startswith("the file is cut off") for text in capture.warnings)


def test_other_words_at_the_end_are_no_loss(tmp_path: Path) -> None:
    said = read(written(tmp_path, "words.txt", f"{TEXT}\nThat was it.")).warnings
    assert not any("cut off" in text for text in said)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3], [0, 2, 3, 1]])
def test_launches_without_numbers_are_told_by_their_order(tmp_path: Path, order: list[int]) -> None:
    # given the metrics of two launches of a kernel, one launch or one metric after the other
    bare = TABLE.replace('"ID",', "").replace('"0","7"', '"7"').replace('"1","7"', '"7"')
    header, *rows = bare.splitlines(keepends=True)
    path = written(tmp_path, "bare.csv", header + "".join(rows[n] for n in order))
    assert sorted(read(path).kernels["dram_bytes"]) == sorted(NUMBERS["dram_bytes"])
    assert sorted(read(path).kernels["time_s"].round(12)) == sorted(NUMBERS["time_s"])
    assert any(text.startswith("kernels have no numbers") for text in read(path).warnings)


def test_rules_are_no_launches(tmp_path: Path) -> None:
    header = '"Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value","Rule Name"\n'
    rows = '"7","a","gpu__time_duration.sum","ns","5",""\n' + '"7","a","","","","Rule"\n' * 2
    assert read(written(tmp_path, "rules.csv", header + rows)).kernels["kernel"].tolist() == ["a"]


TURNED = """ID,0,1
Function Name,scale,scale
Demangled Name,scale(float..,scale(float..
Original Demangled Name,"scale(float *, int)","scale(float *, int)"
Device Name,NVIDIA GeForce RTX 4050 Laptop GPU,NVIDIA GeForce RTX 4050 Laptop GPU
gpu__time_duration.sum [us],3.20,3.00
dram__bytes.sum [Kbyte],12.50,10.00
"""


def test_metrics_below_each_other(tmp_path: Path) -> None:
    path = written(tmp_path, "turned.csv", TURNED)
    assert numbers(path) == NUMBERS
    assert read(path).kernels["kernel"].tolist() == ["scale(float *, int)"] * 2
    assert read(path).device == "NVIDIA GeForce RTX 4050 Laptop GPU"


def test_names_in_a_turned_table_may_look_like_metrics(tmp_path: Path) -> None:
    odd = TURNED.replace("scale(float *, int)", "sm90_xmma__5x(const __half *, int)")
    path = written(tmp_path, "turned.csv", odd)
    assert numbers(path) == NUMBERS


def test_a_turned_table_that_is_too_long_is_refused(tmp_path: Path) -> None:
    lines = [line.split(",", 1)[0] + ",1" * 40_000 for line in TURNED.splitlines()]
    with pytest.raises(RidgelineError, match="too long to turn round"):
        read(written(tmp_path, "long.csv", "\n".join(lines) + "\n" + "x" * 2**20))


def test_a_line_with_many_commas_is_no_row(tmp_path: Path) -> None:
    # given what a program prints in the middle of a table with quotes
    header, *rows = TABLE.splitlines(keepends=True)
    path = written(
        tmp_path, "noise.csv", header + rows[0] + "a,b,c,d,e,f,g,h,i\n" + "".join(rows[1:])
    )
    assert numbers(path) == NUMBERS
    assert not any("quotes" in text for text in read(path).warnings)


@pytest.mark.parametrize("name", ["h200_resnet50_bs32_amp_per_launch_config_raw.csv",
                                  "h200_gemm_dtypes_details.csv"])  # fmt: skip
def test_a_table_that_lost_its_quotes_is_refused(tmp_path: Path, name: str) -> None:
    # given names and sizes with commas in them, and nothing around them
    text = (NCU / name).read_text().replace('"', "")
    with pytest.raises(RidgelineError, match="quotes around names and numbers were lost"):
        read(written(tmp_path, "unquoted.csv", text))


def test_rows_that_lost_their_quotes_are_left_out(tmp_path: Path) -> None:
    # given a number with a comma in it, and others without
    plain = TABLE.replace('"', "").replace("(float *, int)", "").replace("3,200", "320")
    path = written(tmp_path, "unquoted.csv", plain.replace("3,000", "300"))
    assert read(path).kernels["time_s"].tolist() == pytest.approx([320e-9, 300e-9])
    assert "dram_bytes" not in read(path).kernels
    assert (
        "rows have more cells than titles: quotes around names and numbers were lost; such rows"
        " are left out: 2" in read(path).warnings
    )


def test_a_name_that_is_cut_at_its_comma_is_no_name(tmp_path: Path) -> None:
    # given a row whose lost quotes and lost end make up for each other
    text = """ID,Kernel Name,gpu__time_duration.sum [ns],dram__bytes.sum [byte],launch__threads
0,"f(int, float)",1000,2000,3000
1,g(int, float),1000,2000
"""
    capture = read(written(tmp_path, "cut.csv", text))
    assert capture.kernels["kernel"].tolist() == ["f(int, float)"]
    assert any("quotes around names" in said for said in capture.warnings)


def test_nanoseconds_are_whole(tmp_path: Path) -> None:
    # given times alone, from a country where a full stop groups digits
    rows = [line for line in TABLE.splitlines(keepends=True) if "dram" not in line]
    path = written(tmp_path, "times.csv", "".join(rows).replace("3,", "3."))
    assert read(path).kernels["time_s"].tolist() == pytest.approx([3.2e-6, 3e-6])
