"""What works here, and how to get what does not.

    for check in diagnose():
        print(check.state, check.name, check.found, check.mend)

A check lives with its subject (doctor_software.py, doctor_gpu.py, doctor_noise.py) and cannot fail:
an exception in one becomes a line like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

# Importing a module enters its checks, in this order.
from ridgeline.machine import doctor_software  # noqa: F401 # isort: skip
from ridgeline.machine import doctor_gpu  # noqa: F401 # isort: skip
from ridgeline.machine import doctor_noise  # noqa: F401 # isort: skip
from ridgeline.machine.checks import CHECKS, GROUPS, Check, Facts, Finding


def diagnose(
    facts: Facts | None = None, *, before: Callable[[str], object] = lambda name: None
) -> list[Check]:
    """Every check that applies here, by group. `before` hears the name of each as it begins."""
    facts = facts or Facts()
    checks = []
    for (group, name), function in sorted(CHECKS.items(), key=lambda e: GROUPS.index(e[0][0])):
        before(name)
        finding = _find(function, facts)
        if finding is not None:
            state, found, mend = finding
            checks.append(Check(group=group, name=name, state=state, found=found, mend=mend))
    return checks


def _find(function: Callable[[Facts], Finding | None], facts: Facts) -> Finding | None:
    try:
        return function(facts)
    except Exception as error:  # a doctor that falls ill helps nobody
        said = " ".join(str(error).split())[:200]
        return (
            "broken",
            f"the check itself failed: {type(error).__name__}: {said}",
            "please report this line as a bug of ridgeline",
        )


def is_healthy(checks: Iterable[Check]) -> bool:
    """Whether nothing is broken; what is only missing does not count."""
    return all(check.state != "broken" for check in checks)
