"""A stand-in for a program with a marked step: writes the trace that torch's profiler wrote."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "profile"

if __name__ == "__main__":
    fault = os.environ.get("FAKE_PROGRAM", "")
    if fault == "dies":
        sys.exit("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    if fault == "unmarked":
        sys.exit(0)
    job = json.loads(Path(os.environ["RIDGELINE_PROFILE_JOB"]).read_text())
    stem = Path(job["folder"]) / job["name"]
    stem.with_suffix(".times.json").write_text("[0.8, 0.019, 0.018]")
    for said, sign in (("loaded", "begin"), ("ready", "go")):
        stem.with_suffix(f".{said}").touch()
        while not stem.with_suffix(f".{sign}").exists():
            time.sleep(0.005)
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
