"""What an analysis did, stage by stage: done, kept from before, skipped or failed, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.report.study import STAGES_FILE
from ridgeline.store import atomic_write_text, to_json


@dataclass(slots=True, kw_only=True)
class Stage:
    """One stage. Whoever does the work may say more in `status` and `reason`."""

    stage: str
    status: str = "done"  # or cached, skipped, failed
    reason: str = ""
    time_s: float = 0.0


@dataclass(slots=True)
class Stages:
    """The stages so far."""

    done: list[Stage] = field(default_factory=list)

    @contextmanager
    def begin(self, name: str) -> Iterator[Stage]:
        """A stage; an error for people makes it a failed one, and the next stages go on."""
        stage = Stage(stage=name)
        self.done.append(stage)
        start_s = monotonic()
        try:
            yield stage
        except RidgelineError as error:
            stage.status, stage.reason = "failed", str(error).replace("\n", " ")
        finally:
            stage.time_s = monotonic() - start_s

    def note(self, name: str, reason: str) -> None:
        """A stage that could not have failed without ending the analysis."""
        self.done.append(Stage(stage=name, reason=reason))

    def skip(self, name: str, reason: str) -> None:
        self.done.append(Stage(stage=name, status="skipped", reason=reason))

    def status(self, name: str) -> str | None:
        return next((s.status for s in self.done if s.stage == name), None)

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"stage": s.stage, "status": s.status, "reason": s.reason, "time_s": s.time_s}
            for s in self.done
        ]

    def for_report(self) -> tuple[dict[str, str], ...]:
        """All stages but the report's own."""
        return tuple(
            {"stage": s.stage, "status": s.status, "reason": s.reason}
            for s in self.done
            if s.stage != "report"
        )

    def write(self, results: Path, run_ids: Sequence[str]) -> Path:
        """Keep them for the report."""
        path = results / STAGES_FILE
        atomic_write_text(path, to_json({"stages": self.to_dict(), "runs": list(run_ids)}))
        return path
