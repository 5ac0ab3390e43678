"""`ridgeline machine`: what this machine is and what it can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.machine_text import print_as, print_datasheet, print_table, value
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from ridgeline.machine.datasheets import Datasheet
    from ridgeline.machine.describe import Description
    from ridgeline.machine.passport import Passport, Passports

EXAMPLES = """
[bold]Examples[/]

  ridgeline machine describe
  ridgeline machine measure --quick
  ridgeline machine measure --device cuda:0 --device cpu --name my-server
  ridgeline machine show my-server --png roofs.png
  ridgeline machine diff my-server other.json
  ridgeline machine export my-server --peaks peaks.json
"""

app = typer.Typer(
    no_args_is_help=True, help="What this machine is and what it can do.", epilog=EXAMPLES
)

Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="The results folder.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no advice.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
DEFAULT = Path("results")


@app.command(epilog=EXAMPLES)
def describe(as_json: Json = False, debug: Debug = False) -> None:
    """Describe this machine: CPU, caches, memory, GPUs, drivers, libraries, as Markdown or JSON."""
    from ridgeline.machine.describe import describe as look
    from ridgeline.store import to_json

    found = look()
    print(to_json(found.to_dict()).rstrip() if as_json else found.to_markdown())


@app.command(epilog=EXAMPLES)
def measure(
    device: Annotated[
        list[str] | None,
        typer.Option(
            help="cpu, cuda:0, mps; may be repeated. Default: all accelerators, or the CPU."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer samples: about a third of the time.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the passport.")] = None,
    results: Results = DEFAULT,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure every ceiling of this machine and keep them as its passport.

    About a minute on a GPU and two on a CPU. No clock or power setting is changed.
    """
    from ridgeline.machine.describe import describe as look
    from ridgeline.machine.describe import machine_name
    from ridgeline.machine.measure import choose_devices, count_steps

    devices = choose_devices(device or [])
    description = look()
    passports = _passports(results)
    called = _safe(name) if name else machine_name(description)
    before = _passport_before(passports, called, description)
    _check_writable(results)
    with progress_bar(count_steps(devices, quick=quick), quiet=quiet, first="starting") as progress:
        passport = _measure(called, devices, description, quick=quick, progress=progress)
    path = _write(passports, passport)
    print_as(passport, as_json=as_json)
    if not quiet:
        for line in _changes(before, passport):
            print(line, file=sys.stderr)
        print(f"wrote {path}", file=sys.stderr)


def _measure(
    name: str,
    devices: list[str],
    description: Description,
    *,
    quick: bool,
    progress: Callable[[str], None],
) -> Passport:
    from ridgeline.machine.measure import measure_machine
    from ridgeline.provenance import collect

    where = collect()
    return measure_machine(
        name,
        devices,
        quick=quick,
        progress=progress,
        description=description,
        provenance=where,
        measured_at=where.time,
    )


def _passport_before(passports: Passports, name: str, description: Description) -> Passport | None:
    """The passport that will be replaced. Checked before the work, so that none of it is lost."""
    from ridgeline.machine.compare import another_machine

    if name not in passports.names():
        return None
    try:
        before = passports.read(name)
    except RidgelineError as error:  # its own hint is to measure again, which would end here
        raise RidgelineError(
            error.problem,
            hint=f"remove {passports.path(name)}, or keep this one under another name: --name NAME",
        ) from error
    other = another_machine(before.description, description)
    if other is not None:
        raise RidgelineError(
            f"{passports.path(name)} is the passport of another machine ({other})",
            hint="keep this one under another name: --name NAME",
        )
    return before


def _changes(before: Passport | None, passport: Passport) -> list[str]:
    """What moved since the passport that this one replaces."""
    from ridgeline.machine.compare import another_device, drift

    if before is None:
        return []
    other = another_device(before.description, passport.description)
    return [*([other] if other else []), *drift(before, passport)]


def _check_writable(results: Path) -> None:
    """Refuse before a measurement of minutes, not after it."""
    from ridgeline.machine.system import is_writable

    if not is_writable(str(results)):
        raise RidgelineError(
            f"cannot write to {results}", hint="name another folder with --results DIR"
        )


def _write(passports: Passports, passport: Passport) -> Path:
    """Store a measurement; what the results folder does not take goes to the temporary one."""
    try:
        return passports.write(passport)
    except RidgelineError as error:
        spare = _passports(Path(mkdtemp(prefix="ridgeline-"))).write(passport)
        raise RidgelineError(
            error.problem,
            hint=f"the measurement is in {spare}: ridgeline machine import {spare} --results DIR",
        ) from error


def _safe(name: str) -> str:
    if not name or not all(c.isalnum() or c in "._-" for c in name) or name.startswith("."):
        raise RidgelineError(
            f"{name!r} cannot be the name of a passport",
            hint="use letters, digits, '.', '_' and '-'",
        )
    return name


def _passports(results: Path) -> Passports:
    from ridgeline.machine.passport import Passports

    return Passports(results)


@app.command("list", epilog=EXAMPLES)
def list_passports(results: Results = DEFAULT, as_json: Json = False, debug: Debug = False) -> None:
    """List the passports of the results folder."""
    passports = _passports(results)
    found = _readable(passports)
    if as_json:
        rows = [
            {"machine": p.name, "measured_at": p.measured_at, "is_quick": p.is_quick,
             "ceilings": len(p.ceilings)}
            for p in found
        ]  # fmt: skip
        print(json.dumps(rows, indent=2))
        return
    if not found:
        raise RidgelineError(
            f"there are no passports in {passports.folder}",
            hint="make one: ridgeline machine measure",
        )
    width = max(len(p.name) for p in found)
    for p in found:
        quick = ", quick" if p.is_quick else ""
        print(f"{p.name:<{width}}  {p.measured_at[:19]}  {len(p.ceilings)} ceilings{quick}")


def _readable(passports: Passports) -> list[Passport]:
    """The passports that can be read; a damaged one is named and passed over."""
    found = []
    for name in passports.names():
        try:
            found.append(passports.read(name))
        except RidgelineError as error:
            print(f"ridgeline: passed over: {error.problem}", file=sys.stderr)
    return found


@app.command(epilog=EXAMPLES)
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from `machine list`, a .json file, or a device with a datasheet."
        ),
    ],
    png: Annotated[
        Path | None, typer.Option(help="Draw the roofs into a .png or .svg file.")
    ] = None,
    results: Results = DEFAULT,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a passport: its ceilings, and the roofs drawn in the terminal and as a picture."""
    from ridgeline.machine.datasheets import datasheet_for

    passports = _passports(results)
    if name not in passports.names() and not name.endswith(".json"):
        sheet = datasheet_for(name)
        if sheet is not None:
            _show_datasheet(sheet, as_json=as_json, png=png)
            return
        _suggest_datasheets(name, passports)
    passport = passports.read(name)
    print_as(passport, as_json=as_json)
    if png is not None:
        _draw(passport, png)
        print(f"wrote {png}", file=sys.stderr)


def _suggest_datasheets(name: str, passports: Passports) -> None:
    """Refuse a name that is nearly that of a device with a datasheet."""
    from ridgeline.machine.datasheets import closest_names

    close = closest_names(name)
    if close and not passports.path(name).exists():
        raise RidgelineError(
            f"there is neither a passport nor a datasheet of {name!r}",
            hint=f"datasheets of a similar name: {', '.join(close)}; "
            f"passports here: {', '.join(passports.names()) or 'none yet'}",
        )


def _show_datasheet(sheet: Datasheet, *, as_json: bool, png: Path | None) -> None:
    if png is not None:
        raise RidgelineError(
            f"{sheet.name} was not measured, so there are no roofs to draw",
            hint="on such a machine: ridgeline machine measure",
        )
    if as_json:
        content = {"machine": sheet.name, "ceilings": sheet.ceilings("datasheet")}
        print(json.dumps(content, indent=2))
    else:
        print_datasheet(sheet)


def _draw(passport: Passport, path: Path) -> None:
    from ridgeline.machine.datasheets import find_published_roofs
    from ridgeline.report.figures import write_machine
    from ridgeline.roofline.roofs import datasheet_roofs, measured_roofs

    if path.suffix not in (".png", ".svg"):
        raise RidgelineError(f"{path} is no picture", hint="name a .png or .svg file")
    device = passport.ceilings[0].device if passport.ceilings else ""
    roofs = measured_roofs(passport, device)
    if not roofs.compute or not roofs.bandwidth:
        raise RidgelineError(
            f"{passport.name} has no roofs to draw", hint="measure it: ridgeline machine measure"
        )
    entries = find_published_roofs(passport).get(device)
    sheet = datasheet_roofs(entries, env=roofs.env, device=device) if entries else None
    write_machine(roofs, sheet, path, title=f"{passport.name}, {passport.measured_at[:10]}")


@app.command(epilog=EXAMPLES)
def diff(
    before: Annotated[str, typer.Argument(help="A passport's name or file.")],
    after: Annotated[str, typer.Argument(help="The other one.")],
    results: Results = DEFAULT,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare two passports: what differs, by how much, and what may explain it."""
    from ridgeline.machine.compare import another_machine, changed_settings, differences, label
    from ridgeline.units import format_change

    passports = _passports(results)
    left, right = passports.read(before), passports.read(after)
    found = differences(left, right)
    settings = changed_settings(left, right)
    if as_json:
        rows = [{"ceiling": label(d.before), "device": d.before.device, "before": d.before.best,
                 "after": d.after.best, "change": d.change, "explanation": d.explanation}
                for d in found]  # fmt: skip
        print(json.dumps({"differences": rows, "settings": settings}, indent=2))
        return
    cells = [[d.before.device, label(d.before), value(d.before), value(d.after),
             format_change(d.change), d.explanation] for d in found]  # fmt: skip
    header = ["device", "ceiling", "before", "after", "change", "why"]
    print_table(header, cells, names=2, spare="why")
    other = another_machine(left.description, right.description)
    if other is not None:
        print(f"these are two different machines ({other})")
    else:
        print("\n".join(settings))
    if not found:
        print("the two passports have no ceiling in common")


@app.command(epilog=EXAMPLES)
def export(
    name: Annotated[str, typer.Argument(help="A name from `machine list`.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the passport here.")
    ] = None,
    peaks_file: Annotated[
        Path | None,
        typer.Option("--peaks", help="Write a peaks.json: GB/s, and GFLOP/s by precision."),
    ] = None,
    results: Results = DEFAULT,
    debug: Debug = False,
) -> None:
    """Export a passport as JSON, or as the peaks.json that roofline scripts read."""
    from ridgeline.machine.passport import peaks
    from ridgeline.store import atomic_write_text, to_json

    passport = _passports(results).read(name)
    if peaks_file is not None:
        atomic_write_text(peaks_file, to_json(peaks(passport)))
    if output is not None:
        atomic_write_text(output, to_json(passport.to_dict()))
    if output is None and peaks_file is None:
        print_as(passport, as_json=True)


@app.command("import", epilog=EXAMPLES)
def import_passport(
    file: Annotated[Path, typer.Argument(help="A passport that was exported elsewhere.")],
    name: Annotated[str | None, typer.Option(help="Keep it under another name.")] = None,
    results: Results = DEFAULT,
    debug: Debug = False,
) -> None:
    """Take a passport from a file into the results folder."""
    from dataclasses import replace

    from ridgeline.machine.passport import read_passport

    passport = read_passport(file)
    kept = replace(passport, name=_safe(name or passport.name))
    print(f"wrote {_passports(results).write(kept)}", file=sys.stderr)
