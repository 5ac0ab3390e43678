"""What a stage brought, as files: one folder for each model and GPU, with overall and layers.

    sweeps/NAME/STAGE/MODEL_GPU/MODEL_overall.csv and MODEL_layers.csv

The columns are those of the results folder's own views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.report import views
from ridgeline.store import MeasuredRun, ResultsFolder, atomic_write_text
from ridgeline.sweep.ledger import CaseRecord, Ledger
from ridgeline.sweep.plan import SweepCase

if TYPE_CHECKING:
    import pandas as pd

LONGEST_NAME = 80


def write_stage(ledger: Ledger, stage: str, cases: Iterable[SweepCase]) -> list[Path]:
    """Write the tables of a stage; their paths."""
    records = ledger.records()
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for case in cases:
        run = _read_run(ledger.results, records.get(case.case_id))
        if run is not None:
            key = (_safe(case.spec.model), _safe(run.result.device_name or run.result.backend))
            groups.setdefault(key, []).append(run)
    written = []
    for (model, device), runs in groups.items():
        folder = ledger.path / stage / f"{model}_{device}"
        written.append(_write(folder / f"{model}_overall.csv", views.overall(runs)))
        layers = views.all_layers(runs, problems=[])
        if layers is not None:
            written.append(_write(folder / f"{model}_layers.csv", layers))
    return written


def _read_run(results: ResultsFolder, record: CaseRecord | None) -> MeasuredRun | None:
    if record is None or not record.is_done or not record.run_ids:
        return None
    with suppress(RidgelineError):
        return results.read_run(record.run_ids[0])
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:LONGEST_NAME].strip("-.") or "model"


def _write(path: Path, table: pd.DataFrame) -> Path:
    atomic_write_text(path, table.to_csv(index=False))
    return path
