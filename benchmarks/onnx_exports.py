"""Networks and their ONNX files: the same MACs to the last one, and why the rest differs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Table, one_line
from ridgeline.errors import RidgelineError
from ridgeline.onnx.compare import EXPLANATIONS, Difference, OnnxComparison
from ridgeline.onnx.export import Exported

BATCH = 2  # of the counts; the files leave it open, and were made with another
CHANGES = ("other_flops", "read_bytes", "written_bytes")  # columns of both tables
LEAST_SHARE = 0.001  # of the bytes: smaller causes are in `ridgeline count --compare-onnx`


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network, and what its export needs."""

    name: str
    export: dict[str, Any] = field(default_factory=dict)
    batch: int = BATCH
    why: str = ""  # it is not exported like the others


CASES = (
    Case(name="resnet50"),
    Case(name="mobilenet_v2"),
    Case(name="vgg16"),
    Case(name="vit_b_16"),
    Case(name="swin_t"),
    Case(name="bert"),
    Case(name="lstm"),
    Case(name="yolo"),
    Case(
        name="ssdlite320_mobilenet_v3_large",
        export={"check": False, "static": True},
        batch=1,
        why="takes a list of images, so its batch is fixed; not compared with torch: with random "
        "weights all boxes score alike, and which of them are kept hangs on the last bit. In its "
        "file one NonMaxSuppression compares the boxes of all classes, where PyTorch takes each "
        "class by itself; that is nearly all of its other FLOPs",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    case: Case
    exported: Exported
    comparison: OnnxComparison


def run() -> Report:
    """Export each network, count it both ways."""
    found: list[Found] = []
    failed: list[tuple[Case, RidgelineError]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            try:
                found.append(measure(case, Path(folder)))
                print(f"  {case.name}: {found[-1].comparison.onnx.macs:,} MACs", flush=True)
            except RidgelineError as error:
                failed.append((case, error))
                print(f"  {case.name}: {error}", flush=True)
    return report(found, failed)


def measure(case: Case, folder: Path) -> Found:
    import ridgeline
    from ridgeline.onnx.compare import compare_with_onnx
    from ridgeline.workloads.sources import workload_spec as spec

    path = folder / f"{case.name}.onnx"
    exported = ridgeline.export(case.name, path, **case.export)
    pytorch = ridgeline.count(case.name, batch_size=case.batch)
    asked = spec(case.name, case.batch, None, None, None)
    _, comparison = compare_with_onnx(pytorch, path, spec=asked)
    path.unlink()
    return Found(case=case, exported=exported, comparison=comparison)


def report(found: list[Found], failed: list[tuple[Case, RidgelineError]]) -> Report:
    equal = sum(one.comparison.has_equal_macs for one in found)
    tables = [
        Table(
            columns=("network", "batch", "MACs, PyTorch", "MACs, ONNX", "difference",
                     "other FLOPs", "bytes read", "bytes written"),
            rows=[products(one) for one in found],
        ),
        Table(
            title="Why the rest differs",
            columns=("network", "cause", "operators", "modules", "other FLOPs", "bytes read",
                     "bytes written"),
            rows=[row for one in found for row in causes(one)],
            text_columns=3,
        ),
        Table(
            title="The causes",
            columns=("cause", "what it means"),
            rows=list(meanings(found).items()),
            text_columns=2,
        ),
        Table(
            title="The files",
            columns=("network", "inputs", "exporter", "opset", "nodes",
                     "largest difference to torch"),
            rows=[file_row(one) for one in found],
            text_columns=3,
        ),
    ]  # fmt: skip
    if failed:
        rows = [(case.name, one_line(error.problem)) for case, error in failed]
        columns = ("network", "reason")
        tables.append(Table(title="Not exported", columns=columns, rows=rows, text_columns=2))
    return Report(
        title="Networks and their ONNX files",
        summary=[
            f"**The MACs of {equal} of {len(CASES)} networks are the same through PyTorch and "
            "through the ONNX file, in total and in every module.** Other FLOPs and bytes differ "
            "because the file is another program; the causes below add up to the whole difference."
        ],
        tables=tables,
        notes=[
            "Each network is exported by `ridgeline export`, with random weights and with its "
            "batch (and sequence) left open, checked by onnx.checker and by onnxruntime beside "
            "torch at two batch sizes, and counted by `ridgeline count MODEL --compare-onnx FILE`. "
            "Changes are those from PyTorch to the file; "
            f"causes of less than {LEAST_SHARE:.1%} of the bytes and of the other FLOPs are left "
            "out of the table. A difference is relative to the largest value of the output.",
            *(f"`{case.name}` {case.why}." for case in CASES if case.why),
        ],
    )


def products(one: Found) -> tuple[object, ...]:
    comparison = one.comparison
    macs = comparison.onnx.macs - comparison.pytorch.macs
    return (
        one.case.name, one.case.batch, f"{comparison.pytorch.macs:,}", f"{comparison.onnx.macs:,}",
        f"**{macs:+,}**" if macs else "0",
        *(share(comparison, getattr(comparison.change, name), name) for name in CHANGES),
    )  # fmt: skip


def share(comparison: OnnxComparison, change: int, name: str) -> str:
    """A change as a part of what PyTorch does."""
    whole = getattr(comparison.pytorch, name)
    return f"{change / whole:+.2%}" if change and whole else "0"


def causes(one: Found) -> list[tuple[object, ...]]:
    return [
        (one.case.name, row.cause, row.what, row.modules,
         *(share(one.comparison, getattr(row.change, name), name) for name in CHANGES))
        for row in one.comparison.differences
        if matters(one.comparison, row)
    ]  # fmt: skip


def matters(comparison: OnnxComparison, row: Difference) -> bool:
    moved = abs(row.change.read_bytes) + abs(row.change.written_bytes)
    flops = abs(row.change.other_flops) / max(comparison.pytorch.other_flops, 1)
    return moved / max(comparison.pytorch.moved_bytes, 1) >= LEAST_SHARE or flops >= LEAST_SHARE


def meanings(found: list[Found]) -> dict[str, str]:
    named = {row.cause for one in found for row in one.comparison.differences}
    return {cause: text for cause, text in EXPLANATIONS.items() if cause in named}


def file_row(one: Found) -> tuple[object, ...]:
    made = one.exported
    inputs = ", ".join(f"`{port}`" for port in made.inputs)
    apart = max((check.relative for check in made.checks), default=None)
    return (one.case.name, inputs, made.exporter, made.opset, made.nodes,
            f"{apart:.1e}" if apart is not None else "–")  # fmt: skip
