"""Runs for tests, stored as plain values, as another version of ridgeline may have written them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ridgeline.store import ResultsFolder, Run


def write_run(
    results: ResultsFolder,
    *,
    label: str,
    asked: object,
    found: object,
    provenance: object,
    tables: Mapping[str, pd.DataFrame] | None = None,
    log: str = "",
) -> Run:
    """Store a run and read it back. `asked` and `found` are the keys of run.json."""
    run_id = results.save_run(label, asked, found, provenance, tables=tables or {}, log=log)
    return results.read_run(run_id)
