"""What a sweep brought, as files: one folder for each model, algorithm and device.

    sweeps/NAME/STAGE/MODEL_ALGORITHM_GPU/MODEL_ALGORITHM_overall.csv and _layers.csv

The columns are those of the results folder's own views. The output of the jobs is beside them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
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


def write_tables(ledger: Ledger, plans: Mapping[str, Iterable[SweepCase]]) -> list[Path]:
    """Write the views of the results folder and the tables of each stage; paths of the latter."""
    views.write_views(ledger.results)
    records = ledger.records()
    return [path for stage, cases in plans.items()
            for path in _write_stage(ledger, stage, cases, records)]  # fmt: skip


def _write_stage(
    ledger: Ledger, stage: str, cases: Iterable[SweepCase], records: Mapping[str, CaseRecord]
) -> list[Path]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    shards: dict[tuple[str, str], set[str]] = {}
    for case in cases:
        record = records.get(case.case_id)
        run = _read_run(ledger.results, record)
        if record is not None and run is not None:
            model = case.spec.model.rpartition("/")[2]  # of a file, without the folders before it
            name = f"{_safe(model)}_{_safe(run.request.algorithm)}"
            key = (name, _safe(run.result.device_name or run.result.backend))
            groups.setdefault(key, []).append(run)
            shards.setdefault(key, set()).add(record.shard)
    written = []
    for (name, device), runs in groups.items():
        folder = ledger.path / stage / f"{name}_{device}"
        written.append(_write(folder / f"{name}_overall.csv", views.overall(runs)))
        layers = views.all_layers(runs, problems=[])
        if layers is not None:
            written.append(_write(folder / f"{name}_layers.csv", layers))
        _copy_outputs(ledger, shards[name, device], folder)
    return written


def _copy_outputs(ledger: Ledger, shards: Iterable[str], folder: Path) -> None:
    """What the jobs printed that ran these cases, as far as they are."""
    for shard in shards:
        job = shard.removeprefix("job-")
        for output in (ledger.path / "jobs").glob(f"*-{job}.out") if job else ():
            with suppress(OSError):
                shutil.copyfile(output, folder / output.name)


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
