"""Two machines by their passports: which roofs differ, by how much, and what may explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ridgeline.machine.ceiling import LOWER_IS_BETTER
from ridgeline.machine.compare import (
    Difference,
    another_machine,
    changed_settings,
    differences,
    drift,
    label,
)
from ridgeline.report.sides import Side
from ridgeline.units import format_change


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineComparison:
    """Two passports side by side; the largest change first."""

    before: Side
    after: Side
    differences: tuple[Difference, ...]
    settings: tuple[str, ...]  # drivers, caps and libraries that differ
    notes: tuple[str, ...]

    def slower_by_more_than(self, share: float) -> list[str]:
        """The roofs that are worse by more than this share, and by more than their noise."""
        return [
            f"the {label(d.before)} roof of {d.before.device}, {format_change(d.change)}"
            for d in self.differences
            if d.before.kind != "power" and _worse(d) > max(share, d.before.spread, d.after.spread)
        ]

    def undecided(self, share: float) -> list[str]:
        """None: a roof is compared with its own noise."""
        return []

    def not_judged(self) -> list[str]:
        """None: a roof is the best of many rounds, which a busy moment does not move."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "before": {"name": self.before.text, "kind": self.before.kind},
            "after": {"name": self.after.text, "kind": self.after.kind},
            "differences": [
                {"ceiling": label(d.before), "device": d.before.device, "before": d.before.best,
                 "after": d.after.best, "change": d.change, "explanation": d.explanation}
                for d in self.differences
            ],
            "settings": list(self.settings),
            "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        from ridgeline.report.compare_text import as_markdown

        return as_markdown(self)


def _worse(difference: Difference) -> float:
    """By what share the second machine has less, or takes longer."""
    return difference.change * (1 if difference.before.kind in LOWER_IS_BETTER else -1)


def compare_machines(before: Side, after: Side) -> MachineComparison:
    """Compare two sides that are passports."""
    assert before.passport is not None and after.passport is not None
    found = differences(before.passport, after.passport)
    other = another_machine(before.passport.description, after.passport.description)
    notes = [f"these are two different machines ({other})"] if other else []
    if not found:
        notes.append("the two passports have no ceiling in common")
    if not other:
        notes += drift(before.passport, after.passport)
    return MachineComparison(
        before=before,
        after=after,
        differences=tuple(found),
        settings=() if other else tuple(changed_settings(before.passport, after.passport)),
        notes=tuple(notes),
    )
