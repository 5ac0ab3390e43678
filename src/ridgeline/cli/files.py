"""The files that `ridgeline count` writes: tables, text per model, summary.json, run folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.cli import show
from ridgeline.cli.tables import Rows
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.store import ResultsFolder, atomic_write_text, write_parquet
from ridgeline.workloads.sources import file_digest

if TYPE_CHECKING:
    from ridgeline.cli.counted import Asked, Counted

FOUND_WITH = ("model", "batch_size", "mode", "precision", "optimizer")
ASKED_FOR = ("input_size", "seq_len", "config", "causal")


def keep(asked: Asked, counted: Counted) -> None:
    """Write the files that were asked for, and say where they are."""
    written = [_write(asked, counted, path) for path in asked.outputs]
    if asked.output_dir is not None:
        written += _write_folder(counted, asked.output_dir)
    if asked.results is not None:
        written += _write_runs(asked, counted, asked.results)
    if not asked.quiet:
        for path in written:
            print(f"wrote {path}", file=sys.stderr)


def _write(asked: Asked, counted: Counted, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            write_parquet(show.table(asked, counted), path)
        elif path.suffix == ".csv":
            atomic_write_text(path, show.table(asked, counted).to_csv(index=False))
        elif path.suffix == ".md":
            atomic_write_text(path, show.as_markdown(asked, counted) + "\n")
        else:
            atomic_write_text(path, json.dumps(show.as_json(counted, asked), indent=2) + "\n")
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _cannot_write(path: Path, error: OSError) -> RidgelineError:
    return RidgelineError(
        f"cannot write {path}: {error.strerror}", hint="name a place that you may write to"
    )


def _write_folder(counted: Counted, folder: Path) -> list[Path]:
    """A text file for each model and batch, and the summary.json that roofline scripts read."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for result in counted.results:
            path = folder / f"{safe_name(result.model)}_bs{result.batch_size}.txt"
            atomic_write_text(path, as_text(result))
            written.append(path)
        summary = folder / "summary.json"
        atomic_write_text(summary, json.dumps(complexity(counted.results), indent=2) + "\n")
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return [*written, summary]


def safe_name(name: str) -> str:
    """A model's name as part of a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def as_text(result: CountResult) -> str:
    """Everything about one model in plain text: all layers, shapes and formulas."""
    parts = [
        show.heading(result),
        _aligned(show.SUMMARY_HEADER, show.summary_rows([result])),
        _aligned(show.PHASE_HEADER, show.phase_rows(result)),
        _aligned(["memory", "bytes"], show.memory_rows(result)),
        _aligned([*show.LAYER_HEADER, "formula"], show.layer_rows(result, None, formulas=True)),
        *show.note_lines(result),
    ]
    return "\n\n".join(parts) + "\n"


def _aligned(header: list[str], rows: Rows) -> str:
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def complexity(results: Iterable[CountResult]) -> dict[str, dict[str, Any]]:
    """Model → batch → counts of the forward pass, in the names that roofline scripts use."""
    summary: dict[str, dict[str, Any]] = {}
    for r in results:
        forward, batch = r.phase("forward"), r.batch_size
        summary.setdefault(r.model, {})[str(batch)] = {
            "mult_adds_per_batch_forward": forward.macs,
            "mult_adds_per_sample_forward": forward.macs / batch,
            "flops_per_batch_forward": forward.flops,
            "flops_per_sample_forward": forward.flops / batch,
            **r.to_dict(),
        }
    return summary


def _write_runs(asked: Asked, counted: Counted, folder: Path) -> list[Path]:
    """Each count as a run folder: what was asked, what was found, where, and the tables."""
    from ridgeline.provenance import collect

    store = ResultsFolder(folder)
    where = collect()
    paths = []
    for result in counted.results:
        run_id = store.save_run(
            f"count-{safe_name(result.model)}-bs{result.batch_size}",
            _question(asked, result),
            {"provenance": "static", **result.to_dict()},
            where,
            tables={"ops": result.ops, "layers": result.layers()},
        )
        paths.append(store.runs_path / run_id)
    return paths


def _question(asked: Asked, result: CountResult) -> dict[str, Any]:
    """Enough to count the same again."""
    return {
        "command": "count",
        **{name: getattr(result, name) for name in FOUND_WITH},
        "digest": file_digest(result.model),
        **{name: getattr(asked, name) for name in ASKED_FOR},
    }
