"""What a check of `ridgeline doctor` is, and where each one is entered.

A check is a short function of the facts. It answers with `ok`, `missing`, `broken` or `note`:

missing   not there, and ridgeline does without it; `mend` says how to get it
broken    there, but not usable; `mend` says what to change
note      nothing to mend in ridgeline's eyes, but it shows in measurements
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ridgeline.machine.describe import Description, describe
from ridgeline.machine.probe import Probe

STATES = ("ok", "missing", "broken", "note")
GROUPS = ("software", "gpu", "counters", "power", "noise")

# In a process of its own: an import that crashes must not take the doctor along, and a
# calculation that works is worth more than a version number.
TORCH_QUESTION = """
import json
try:
    import torch
    answer = {"version": torch.__version__, "devices": [], "problem": None}
    answer["mps"] = torch.backends.mps.is_available()
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            answer["devices"].append(torch.cuda.get_device_name(i))
            (torch.ones(8, device=f"cuda:{i}") + 1).sum().item()
        from ridgeline.machine.cupti_library import has_cupti
        answer["cupti"] = has_cupti()
except Exception as error:
    answer = {**locals().get("answer", {}), "problem": f"{type(error).__name__}: {error}"}
print(json.dumps(answer))
"""
ASK_TORCH = (sys.executable, "-c", TORCH_QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one check found."""

    name: str
    state: str  # one of STATES
    found: str
    mend: str = ""  # a command or a setting; empty if there is nothing to do
    group: str = "software"  # one of GROUPS

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the checks look at; costly answers are asked for once."""

    probe: Probe = field(default_factory=Probe)
    results: str = "results"  # the folder that results will go to

    @cached_property
    def description(self) -> Description:
        return describe(self.probe)

    @cached_property
    def torch(self) -> dict[str, Any] | None:
        """What torch says about itself; None if it does not even start."""
        answer = self.probe.run_slow(ASK_TORCH)
        try:
            # The last line: imports of others may print.
            return dict(json.loads((answer or "").strip().splitlines()[-1]))
        except (ValueError, IndexError, TypeError):
            return None

    @property
    def has_nvidia(self) -> bool:
        return any(gpu.kind == "cuda" for gpu in self.description.gpus)


Finding = tuple[str, str, str]  # state, found, mend
CHECKS: dict[tuple[str, str], Callable[[Facts], Finding | None]] = {}


def check(group: str, name: str) -> Callable[[Callable[[Facts], Finding | None]], Any]:
    """Enter a check. It may answer None where its question does not arise."""

    def enter(function: Callable[[Facts], Finding | None]) -> Callable[[Facts], Finding | None]:
        if (group, name) in CHECKS:
            raise ValueError(f"two checks are called {name!r}")
        CHECKS[group, name] = function
        return function

    return enter


def ok(found: str) -> Finding:
    return ("ok", found, "")


def missing(found: str, mend: str = "") -> Finding:
    return ("missing", found, mend)


def broken(found: str, mend: str) -> Finding:
    return ("broken", found, mend)


def note(found: str, advice: str = "") -> Finding:
    return ("note", found, advice)


def first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")
