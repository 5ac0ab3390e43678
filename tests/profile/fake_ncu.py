"""A stand-in for Nsight Compute that plays back what the real one wrote on an H200.

It knows the questions that ridgeline asks: the version, the metrics of the chip, the passes of a
tiny kernel, and a step between marks. FAKE_NCU names a way to fail.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
import time
from pathlib import Path

from ridgeline.profile.operators import RANGE, may_use_tensor_cores

DATA = Path(__file__).parents[1] / "data" / "profile"
ERRORS = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
    "GPU Performance Counters on the target device 0.",
    "busy": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
    "other tool (like DCGM) is concurrently collecting profiling data.",
    "lock": "==ERROR== InterprocessLockFailed",
    "empty": "==WARNING== No kernels were profiled.",
}


def main(arguments: list[str]) -> int:
    fault = os.environ.get("FAKE_NCU", "")
    if "--version" in arguments:
        sys.stdout.write(
            f"Version {'2019.5.1' if fault == 'old' else '2025.3.1.0'} (build 36398880)" + "\n"
        )
        return 0
    if "--query-metrics" in arguments:
        sys.stdout.write(
            gzip.decompress((DATA / "metrics-gh100.txt.gz").read_bytes()).decode() + "\n"
        )
        return 0
    metrics = arguments[arguments.index("--metrics") + 1].split(",")
    if any(part.endswith("probe.py") for part in arguments):
        if fault in ("permission", "busy", "lock"):
            sys.stdout.write(ERRORS[fault] + "\n")
            return 1
        sys.stdout.write('"ID","Kernel Name","profiler__replayer_passes"\n"","",""' + "\n")
        sys.stdout.write(f'"0","ridgeline_probe","{passes(metrics)}"' + "\n")
        return 0
    return count(metrics, Path(arguments[arguments.index("--log-file") + 1]), fault)


def passes(metrics: list[str]) -> int:
    """As an H200 answers: the total of fp16 takes three, instrumented ones stay alone."""
    if "sm__ops_path_tensor_src_fp16.sum" in metrics:
        return 3
    kinds = {"sass" if "__sass_" in name else "chip" for name in metrics}
    return 3 if len(kinds) > 1 or sum("tensor" in name for name in metrics) > 2 else 1


def count(metrics: list[str], log: Path, fault: str) -> int:
    """Take the part of the program, too: load, get ready, wait, and write what was recorded."""
    if fault == "dies":
        sys.stdout.write("Traceback …\nRuntimeError: the model broke" + "\n")
        return 1
    stem = log.with_suffix("")
    for said, sign in (("loaded", "begin"), ("ready", "go")):
        stem.with_suffix(f".{said}").touch()
        while fault != "unmarked" and not stem.with_suffix(f".{sign}").exists():
            time.sleep(0.005)
    if fault == "empty":
        log.write_text(ERRORS["empty"])
        return 0
    go = stem.with_suffix(".go")
    picks = go.read_text() if go.exists() else ""
    job = json.loads(stem.with_suffix(".job.json").read_text())
    log.write_text(recorded(metrics, picked(job) if picks == "distinct" else None))
    return 0


def picked(job: dict[str, object]) -> frozenset[str]:
    """The ranges of operators that are the first of their work, as the step would surround them."""
    calls = json.loads(gzip.decompress((DATA / "ops.json.gz").read_bytes()))
    first = [call for call in calls if call["index"] == call["like"]]
    if job["products_only"]:
        first = [call for call in first if may_use_tensor_cores(call["op"])]
    return frozenset(f"{RANGE}{call['index']}" for call in first)


def recorded(metrics: list[str], ranges: frozenset[str] | None = None) -> str:
    """What ncu wrote of these metrics: of the group with most of them, and of others row by row.

    `ranges` are the operators that it looked at, beside the work of known size; None for all.
    """
    texts = [gzip.decompress((DATA / f"group{n}.csv.gz").read_bytes()).decode() for n in range(3)]
    text = max(reversed(texts), key=lambda one: sum(name in one for name in metrics))
    rows = table_of(text)
    for other in (table_of(one) for one in texts if "__sass_" not in one + text):
        for n, name in enumerate(other[0]):
            if name in metrics and name not in rows[0]:
                rows = [[*row, more[n]] for row, more in zip(rows, other, strict=True)]
    for name in metrics:  # of precisions that the step did not have
        if name not in rows[0]:
            rows = [[*row, name if n == 0 else "" if n == 1 else "0"] for n, row in enumerate(rows)]
    before = text.partition('"ID"')[0]
    if ranges is not None:
        rows = [row for row in rows if not row[0].isdigit() or is_looked_at(row, ranges)]
    kept = [n for n, name in enumerate(rows[0]) if not name.endswith(".sum") or name in metrics]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([row[n] for n in kept] for row in rows)
    return before + out.getvalue()


def table_of(text: str) -> list[list[str]]:
    return list(csv.reader("".join(text.partition('"ID"')[1:]).splitlines()))


def is_looked_at(row: list[str], ranges: frozenset[str]) -> bool:
    said = " ".join(row)
    numbered = re.search(rf"{RANGE}\d+", said)
    return numbered[0] in ranges if numbered else "ridgeline:test:" in said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
