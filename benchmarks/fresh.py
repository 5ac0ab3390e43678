"""One function in a process of its own, so that neither its time nor its memory has leftovers.

`python -m benchmarks.fresh module:function [JSON]` calls it with the keywords in JSON and prints
the dictionary it returns as the last line.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def call(function: str, **keywords: Any) -> dict[str, Any]:
    """What `module:function` returns in a new process; its last words under "error" if it fails."""
    command = [sys.executable, "-m", "benchmarks.fresh", function, json.dumps(keywords)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": lines[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start_memory() -> int:
    """Bytes in use now; from here on the peak counts afresh, where the system can do that."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return peak_bytes()
    return peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process has had."""
    if STATUS.exists():
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    with redirect_stdout(sys.stderr):
        found = getattr(import_module(module), function)(**json.loads(sys.argv[2]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
