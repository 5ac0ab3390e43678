"""A stand-in for Nsight Compute that plays back what the real one wrote on an H200.

It knows what ridgeline asks: the version, the metrics of the chip, and a step between marks.
FAKE_NCU names a way to fail.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
import time
from pathlib import Path

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
    return count(metrics, Path(arguments[arguments.index("--log-file") + 1]), fault)


def count(metrics: list[str], log: Path, fault: str) -> int:
    """Take the part of the program, too: load, get ready, wait, and write what was recorded."""
    if fault == "dies":
        sys.stdout.write("Traceback …\nRuntimeError: the model broke" + "\n")
        return 1
    stem = log.with_suffix("")
    for said, sign in (("loaded", "begin"), ("ready", "go")):
        stem.with_suffix(f".{said}").touch()
        while not stem.with_suffix(f".{sign}").exists():
            time.sleep(0.005)
    log.write_text(ERRORS.get(fault) or recorded(metrics))
    return 1 if fault in ("permission", "busy", "lock") else 0


def recorded(metrics: list[str]) -> str:
    """What ncu wrote of these metrics: of the group with most of them, and of others row by row."""
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
    kept = [n for n, name in enumerate(rows[0]) if not name.endswith(".sum") or name in metrics]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([row[n] for n in kept] for row in rows)
    return before + out.getvalue()


def table_of(text: str) -> list[list[str]]:
    return list(csv.reader("".join(text.partition('"ID"')[1:]).splitlines()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
