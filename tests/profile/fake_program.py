"""A stand-in for the program that takes the step.

It writes what torch's profiler wrote of it, or, as the one that counts its own step, what CUPTI
counted. FAKE_PROGRAM names a way to fail for both, FAKE_CUPTI one for the latter.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "profile"

KERNELS = 631  # of the step; those before are the work of known size
NO_PERMISSION = "cuptiProfilerGetCounterAvailability answers CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"


def wait(stem: Path, said: str, sign: str) -> None:
    stem.with_suffix(f".{said}").touch()
    while not stem.with_suffix(f".{sign}").exists():
        time.sleep(0.005)


def count(stem: Path, steps: int, fault: str) -> None:
    """The step by CUPTI; what cannot be is refused at once, in time, or late."""
    if fault == "absent":
        stem.with_suffix(".refused").write_text("this PyTorch comes without CUPTI")
        return
    wait(stem, "loaded", "begin")
    if fault == "dies":
        sys.exit("Segmentation fault")
    if fault == "late":
        time.sleep(60)
    if fault == "permission":
        stem.with_suffix(".refused").write_text(NO_PERMISSION)
        return
    told = gzip.decompress((DATA / "foretold.json.gz").read_bytes())
    stem.with_suffix(".foretold.json").write_bytes(told)
    wait(stem, "ready", "go")
    if fault == "graphs":
        stem.with_suffix(".refused").write_text("kernels of a CUDA graph cannot be told apart")
        return
    if fault == "hangs":
        time.sleep(60)
    counted = json.loads(gzip.decompress((DATA / "counted.json.gz").read_bytes()))
    for name, rows in counted.items():
        counted[name] = rows[:-KERNELS] + rows[-KERNELS:] * steps
    stem.with_suffix(".counted.json").write_text(json.dumps(counted))
    stem.with_suffix(".done").touch()


if __name__ == "__main__":
    fault = os.environ.get("FAKE_PROGRAM", "")
    if fault == "dies":
        sys.exit("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    if fault == "unmarked":
        sys.exit(0)
    job = json.loads(Path(os.environ["RIDGELINE_PROFILE_JOB"]).read_text())
    stem = Path(job["folder"]) / job["name"]
    if job["role"] == "inside":
        count(stem, job["steps"], os.environ.get("FAKE_CUPTI", ""))
        sys.exit(0)
    stem.with_suffix(".times.json").write_text("[0.8, 0.019, 0.018]")
    wait(stem, "loaded", "begin")
    wait(stem, "ready", "go")
    trace = gzip.decompress((DATA / "trace.json.gz").read_bytes())
    if fault == "no-kernels":
        trace = b'{"traceEvents": []}'
    ops = json.loads(gzip.decompress((DATA / "ops.json.gz").read_bytes()))
    if fault == "no-backward":
        ops = [{**one, "phase": "forward"} for one in ops]
    for step in range(1, job["steps"] + 1):
        stem.with_suffix(f".trace{step}.json").write_bytes(trace)
        stem.with_suffix(f".ops{step}.json").write_text(json.dumps(ops))
    if fault == "ends late":
        stem.with_suffix(".done").touch()
        time.sleep(0.3)
        stem.with_suffix(".ended").touch()
