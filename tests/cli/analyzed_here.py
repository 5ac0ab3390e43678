"""`ridgeline analyze` on small models, on a machine whose passport is there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.cli import main
from ridgeline.machine.describe import describe, machine_name
from ridgeline.machine.passport import Ceiling, Passport, Passports
from ridgeline.provenance import collect

Printed = pytest.CaptureFixture[str]  # what a command printed


def store_passport(results: Path, *, is_quick: bool = False) -> str:
    """Round roofs for this machine: 1 TFLOP/s, 100 GB/s from DRAM."""
    description = describe()
    where = collect()
    ceilings = (
        Ceiling(kind="compute", device="cpu", path="matrix", precision="fp32", samples=(1e12,),
                how="torch.mm 64x64x64"),
        Ceiling(kind="compute", device="cpu", path="vector", precision="fp32", samples=(1e12,),
                how="by hand"),
        Ceiling(kind="bandwidth", device="cpu", level="dram", pattern="copy", samples=(1e11,),
                how="by hand"),
        Ceiling(kind="launch", device="cpu", what="eager dispatch", samples=(1e-9,), how="by hand"),
    )  # fmt: skip
    passport = Passport(
        name=machine_name(description),
        measured_at=where.time,
        is_quick=is_quick,
        ceilings=ceilings,
        description=description,
        provenance=where,
    )
    Passports(results).write(passport)
    return passport.name


def command(*arguments: str) -> int:
    """Any command; answers the exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def analyze_here(*arguments: str) -> int:
    """`ridgeline analyze` on the CPU, without processes of its own."""
    return command("analyze", *arguments, "--in-process", "--backend", "cpu", "--iters", "5")
