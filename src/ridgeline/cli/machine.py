"""`ridgeline machine`: what this machine is and what it can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import end_interrupted, print_json, show_message, show_problem
from ridgeline.cli.progress import progress_bar
from ridgeline.cli.tables import Columns, Grid, make_grid, print_grid
from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import (
    Ceiling,
    EnergyModel,
    Passport,
    Passports,
    peaks,
    read_passport,
)
from ridgeline.plain import plain_text
from ridgeline.settings import PRECISIONS, one_of
from ridgeline.store import DEFAULT_RESULTS, atomic_write_text, to_json
from ridgeline.units import format_change, format_percent, parse_seconds, si

if TYPE_CHECKING:
    from ridgeline.machine.datasheets import Datasheet
    from ridgeline.predict.calibration import Calibration

EXAMPLES = """
[bold]Examples[/]

  ridgeline machine describe -o env_info.md
  ridgeline machine note my-server 'zone us-west4-a, 450 W cable'
  ridgeline machine measure --quick
  ridgeline machine measure --energy
  ridgeline machine measure --energy --from loads.csv --name my-board
  ridgeline machine show my-server
  ridgeline machine diff my-server other.json
  ridgeline machine calibrate --budget 90s
  ridgeline machine export my-server --peaks peaks.json
"""

LOADS = 15  # of a GPU; the bar of a CPU ends early

app = typer.Typer(
    no_args_is_help=True, help="What this machine is and what it can do.", epilog=EXAMPLES
)


@app.command(epilog=EXAMPLES)
def describe(
    outputs: opt.Outputs = None, as_json: opt.Json = False, debug: opt.Debug = False
) -> None:
    """Describe this machine: CPU, caches, memory, GPUs, drivers, libraries, as Markdown or JSON."""
    from ridgeline.machine.describe import describe as describe_machine

    opt.check_outputs("table", ("table",), outputs, (".md", ".json"))
    description = describe_machine()
    forms = {".json": to_json(description.to_dict()), ".md": description.to_markdown() + "\n"}
    for path in outputs or ():
        atomic_write_text(path, forms[path.suffix], elsewhere="-o FILE")
        show_message(f"wrote {path}")
    if not outputs:
        print(forms[".json" if as_json else ".md"].rstrip())


@app.command(epilog=EXAMPLES)
def note(
    name: str = opt.argument(..., "NAME", "A machine, as reports and `machine list` name it."),
    text: str | None = opt.argument(None, "TEXT", "What to remember; left out, the note is shown."),
    results: opt.Results = DEFAULT_RESULTS,
    debug: opt.Debug = False,
) -> None:
    """Note what no program can see about a machine (a zone, a cable); reports show it."""
    passports = Passports(results)
    if text is not None:
        show_message(f"wrote {passports.write_note(name, text)}")
        return
    known = passports.note(name)
    if not known:
        raise RidgelineError(
            f"there is no note on {name}", hint=f"ridgeline machine note {name} 'zone us-west4-a'"
        )
    print(plain_text(known))


@app.command(epilog=EXAMPLES)
@opt.takes_groups
def measure(
    device: list[str] | None = opt.option(
        None, "cpu, cuda:0, mps; may be repeated. Default: all accelerators, or the CPU."
    ),
    quick: bool = opt.option(False, "Fewer samples: about a third of the time.", "--quick"),
    name: str | None = opt.option(None, "Name of the passport."),
    energy: bool = opt.option(
        False, "Joules per FLOP, per byte and constant power instead of ceilings.", "--energy"
    ),
    file: Path | None = opt.option(
        None,
        "With --energy: fit the loads of a CSV instead of measuring.",
        "--from",
        metavar="FILE",
    ),
    *,
    output: opt.Output,
) -> None:
    """Measure every ceiling of this machine and keep them as its passport.

    About a minute on a GPU and two on a CPU. No clock or power setting is changed. With --energy,
    loads of known work run for a minute, and what they cost joins the passport.
    """
    from ridgeline.machine.measure import choose_devices, count_steps
    from ridgeline.pipeline import machine

    if file is not None and not energy:
        raise RidgelineError("--from goes with --energy", hint="add --energy, or leave it out")
    devices = choose_devices(device or []) if file is None else device or []
    steps = LOADS * len(devices) if energy else count_steps(devices, quick=quick)
    with progress_bar(steps, quiet=output.quiet) as progress:
        options: Any = {"name": name, "on_progress": progress.start}
        if file is not None:
            chosen = next(iter(devices), None)
            stored = [machine.import_energy(file, output.results, name=name, device=chosen)]
        elif energy:
            stored = [machine.measure_energy(one, output.results, **options) for one in devices]
        else:
            stored = [machine.measure_passport(devices, output.results, quick=quick, **options)]
    for one in stored[-1:] if output.as_json else stored:
        _print_passport(one.passport, as_json=output.as_json)
        if one.passport.noise > machine.NOISY and not energy:
            noise = machine.describe_noise(one.passport)
            show_message(f"note: {noise}; measure again when it is quiet")
        for line in () if output.quiet else (*one.changes, f"wrote {one.path}"):
            show_message(line)


@app.command(epilog=EXAMPLES)
@opt.takes_groups
def calibrate(
    backend: str = opt.option("auto", "cuda or cpu.", choices=("auto", "cuda", "cpu")),
    precision: str | None = opt.option(
        None, "One or several: fp32,tf32,bf16,amp.", show_default="fp32; on a GPU all of these"
    ),
    budget: float = opt.option(
        90.0, "How long: 90s, 3min.", metavar="SECONDS", parser=parse_seconds, show_default="90s"
    ),
    add: list[str] | None = opt.option(
        None, "Measure more of these only: conv, matmul, attention, 'conv 3x3'.", metavar="CLASS"
    ),
    name: str | None = opt.option(None, "Name of the calibration."),
    output: opt.Output = opt.Output(),
) -> None:
    """Measure single operators, from which `ridgeline predict` knows the time of whole steps.

    They are of the sizes that popular networks have. Later calls add to what is there; Ctrl-C keeps
    what was measured.
    """
    with stopped_at_once():
        from ridgeline.pipeline.predict import calibrate_machine

    precisions = [one.strip() for one in precision.split(",")] if precision else []
    for one in precisions:
        one_of("--precision", one, PRECISIONS)
    with progress_bar(100, quiet=output.quiet, first="importing") as progress:
        stored = calibrate_machine(
            output.results, backend=backend, precisions=precisions, budget_s=budget,
            groups=add or (), name=name,
            on_progress=lambda what, share: progress.update(what, round(100 * share), 100),
        )  # fmt: skip
    print_calibration(stored.calibration, as_json=output.as_json)
    if not output.quiet:
        refused = f", {len(stored.refused)} could not be called" if stored.refused else ""
        show_message(f"{stored.added} operators measured{refused}; wrote {stored.path}")
    if stored.was_interrupted:
        end_interrupted("; what was measured until then is kept")


@app.command("list", epilog=EXAMPLES)
def list_passports(
    results: opt.Results = DEFAULT_RESULTS, as_json: opt.Json = False, debug: opt.Debug = False
) -> None:
    """List the passports of the results folder."""
    from ridgeline.predict.calibration import Calibrations

    folder, calibrated = Passports(results), Calibrations(results).names()
    passports = []
    for name in folder.names():
        try:
            passports.append(folder.read(name))
        except RidgelineError as error:
            show_problem(f"passed over: {error.problem}")
    if as_json:
        rows = [
            {"machine": p.name, "measured_at": p.measured_at, "is_quick": p.is_quick,
             "ceilings": len(p.ceilings), "is_calibrated": p.name in calibrated}
            for p in passports
        ]  # fmt: skip
        print_json(rows)
        return
    if not passports and not calibrated:
        raise RidgelineError(
            f"there are no passports in {folder.folder}", hint="make one: ridgeline machine measure"
        )
    for p in passports:
        quick = ", quick" if p.is_quick else ""
        print(f"{p.name}  {p.measured_at[:19]}  {len(p.ceilings)} ceilings{quick}")
    for one in calibrated:
        print(f"{one}  calibrated: ridgeline machine show {one} --calibration")


@app.command(epilog=EXAMPLES)
def show(
    name: str = opt.argument(
        ..., "NAME", "A name from `machine list`, a .json file, or a device with a datasheet."
    ),
    calibration: bool = opt.option(
        False, "The operators that were measured for predictions.", "--calibration"
    ),
    results: opt.Results = DEFAULT_RESULTS,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Show a passport: its ceilings and its energy coefficients; or a calibration.

    Of a device that was never measured, it shows the published figures.
    """
    if calibration:
        from ridgeline.predict.calibration import Calibrations

        return print_calibration(Calibrations(results).read(name), as_json=as_json)
    from ridgeline.machine.datasheets import datasheet_for

    passports = Passports(results)
    is_stored = name in passports.names() or name.endswith(".json")
    if not is_stored and (sheet := datasheet_for(name)):
        return _print_datasheet(sheet, as_json=as_json)
    passport = passports.read(name)
    _print_passport(passport, as_json=as_json)
    if (known := passports.note(passport.name)) and not as_json:
        print(plain_text(f"note: {known}"))


@app.command(epilog=EXAMPLES)
def diff(
    before: str = opt.argument(..., "BEFORE", "A passport's name or file."),
    after: str = opt.argument(..., "AFTER", "The other one."),
    results: opt.Results = DEFAULT_RESULTS,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Compare two passports: what differs, by how much, and what may explain it."""
    from ridgeline.machine.compare import another_machine, changed_settings, differences, label

    passports = Passports(results)
    left, right = passports.read(before), passports.read(after)
    changes, settings = differences(left, right), changed_settings(left, right)
    if as_json:
        rows = [{"ceiling": label(d.before), "device": d.before.device, "before": d.before.best,
                 "after": d.after.best, "change": d.change, "explanation": d.explanation}
                for d in changes]  # fmt: skip
        print_json({"differences": rows, "settings": settings})
        return
    columns: Columns = {
        "device": lambda d: d.before.device,
        "ceiling": lambda d: label(d.before),
        "before": lambda d: _format_rate(d.before, d.before.best),
        "after": lambda d: _format_rate(d.after, d.after.best),
        "change": lambda d: format_change(d.change),
        "why": lambda d: d.explanation,
    }
    print_grid(make_grid(changes, columns, names=2, spare=("why",)))
    other = another_machine(left.description, right.description)
    if other is not None:
        print(f"these are two different machines ({other})")
    else:
        print("\n".join(settings))
    if not changes:
        print("the two passports have no ceiling in common")


@app.command(epilog=EXAMPLES)
def export(
    name: str = opt.argument(..., "NAME", "A name from `machine list`."),
    output: Path | None = opt.option(None, "Write the passport here.", "-o", "--output"),
    peaks_file: Path | None = opt.option(
        None, "Write a peaks.json: GB/s, and GFLOP/s by precision.", "--peaks"
    ),
    results: opt.Results = DEFAULT_RESULTS,
    debug: opt.Debug = False,
) -> None:
    """Export a passport as JSON, or as the peaks.json that roofline scripts read.

    With -o NAME.json, the calibration of the machine goes to NAME.calibration.json.gz.
    """
    from ridgeline.predict.calibration import SUFFIX, Calibrations, write_calibration

    passports, calibrations = Passports(results), Calibrations(results)
    is_calibrated = name in calibrations.names()
    if output is not None and is_calibrated:
        place = output.with_name(output.name.removesuffix(".json") + SUFFIX)
        show_message(f"wrote {write_calibration(calibrations.read(name), place)}")
        if name not in passports.names() and peaks_file is None:
            return
    passport = passports.read(name)
    if peaks_file is not None:
        atomic_write_text(peaks_file, to_json(peaks(passport)))
    if output is not None:
        atomic_write_text(output, to_json(passport.to_dict()))
    if output is None and peaks_file is None:
        _print_passport(passport, as_json=True)


@app.command("import", epilog=EXAMPLES)
def import_passport(
    file: Path = opt.argument(..., "FILE", "A passport or a calibration from elsewhere."),
    name: str | None = opt.option(None, "Keep it under another name."),
    results: opt.Results = DEFAULT_RESULTS,
    debug: opt.Debug = False,
) -> None:
    """Take a passport from a file, and the calibration that lies there, into the results folder."""
    from ridgeline.pipeline.machine import check_passport_name
    from ridgeline.pipeline.predict import import_calibration
    from ridgeline.predict.calibration import SUFFIX

    is_calibration = file.name.endswith(SUFFIX)
    other = file if is_calibration else file.with_name(file.name.removesuffix(".json") + SUFFIX)
    if is_calibration or other.exists():
        show_message(f"wrote {import_calibration(other, results, name)}")
    if is_calibration:
        return
    passport = read_passport(file)
    renamed = replace(passport, name=check_passport_name(name or passport.name))
    show_message(f"wrote {Passports(results).write(renamed)}")


# ---------------------------------------------------------------- calibrations as text


def print_calibration(calibration: Calibration, *, as_json: bool) -> None:
    """For programs every point; for people the groups, and how well they fit."""
    if as_json:
        print(to_json(calibration), end="")
        return
    threads = f", {calibration.threads} threads" if calibration.threads else ""
    print(
        f"{calibration.machine}: {calibration.device_name}{threads}, calibrated"
        f" {calibration.measured_at[:19]}, {len(calibration.points)} operators\n"
    )
    rows = []
    for title, points in sorted(calibration.groups.items(), key=lambda one: -len(one[1])):
        curve = calibration.curve(title)
        errors = sorted(abs(e) for e in curve.leave_one_out()) if curve else []
        error = format_percent(errors[len(errors) // 2]) if len(errors) > 3 else ""
        group, _, precision = title.rpartition("|")
        rows.append([group, precision, str(len(points)), error])
    header = ["operators", "precision", "measured", "median error of one left out"]
    print_grid(Grid(header=header, rows=rows, text_columns=2))
    errors = [abs(one.predicted_s / one.measured_s - 1) for one in calibration.steps]
    if errors:
        mean = format_percent(sum(errors) / len(errors))
        print(f"\n{len(errors)} whole steps: off by {mean} on average")


# ---------------------------------------------------------------- datasheets as text


def _print_datasheet(sheet: Datasheet, *, as_json: bool) -> None:
    """The figures that the maker of a device publishes."""
    ceilings = sheet.ceilings("datasheet")
    if as_json:
        print_json({"machine": sheet.name, "ceilings": ceilings})
        return
    print(f"{sheet.name}: nothing was measured; these are published figures ({sheet.source})\n")
    columns: Columns = {
        "ceiling": _name_published,
        "published, dense": _format_published,
        "confidence": lambda c: c["confidence"],
    }
    print_grid(make_grid(ceilings, columns))


def _name_published(ceiling: dict[str, Any]) -> str:
    if ceiling["kind"] != "compute":
        return f"{ceiling['level']} bandwidth" if "level" in ceiling else f"power {ceiling['what']}"
    sums = f", sums in {ceiling['accumulator']}" if ceiling["accumulator"] else ""
    return f"{ceiling['precision']} {ceiling['path']}{sums}"


def _format_published(ceiling: dict[str, Any]) -> str:
    is_whole = ceiling.get("precision", "").startswith("int")
    units = {"flops_per_s": "OP/s" if is_whole else "FLOP/s", "bytes_per_s": "B/s", "power_w": "W"}
    return next(si(ceiling[name], unit) for name, unit in units.items() if name in ceiling)


# ---------------------------------------------------------------- passports as text


def _print_passport(passport: Passport, *, as_json: bool) -> None:
    """A passport for programs or for people: its ceilings."""
    from ridgeline.machine.compare import label
    from ridgeline.machine.datasheets import find_datasheet_rate, find_published_roofs

    if as_json:
        print(to_json(passport.to_dict()), end="")
        return
    noise = format_percent(passport.noise)
    print(f"{passport.name}, measured {passport.measured_at[:19]}, noise {noise}\n")
    sheets = find_published_roofs(passport)

    def format_share(ceiling: Ceiling) -> str:
        rate = find_datasheet_rate(ceiling, sheets)
        return format_percent(ceiling.best / rate) if rate else ""

    columns: Columns = {
        "device": lambda c: c.device,
        "ceiling": label,
        "best": lambda c: _format_rate(c, c.best),
        "sustained": lambda c: _format_rate(c, c.sustained),
        "spread": lambda c: format_percent(c.spread),
        "of datasheet": format_share,
        "clock": lambda c: _format_condition(c.conditions.clock_hz, 1e6, "MHz"),
        "power": lambda c: _format_condition(c.conditions.power_w, 1, "W"),
        "limited by": lambda c: ", ".join(c.conditions.throttle_reasons),
        "how": _describe_method,
    }
    spare = ("how", "limited by", "power", "clock", "of datasheet", "sustained")
    if passport.ceilings or not passport.energy:
        print_grid(make_grid(passport.ceilings, columns, names=2, spare=spare))
    for compiler in dict.fromkeys(c.compiler for c in passport.ceilings if c.compiler):
        print(f"C is compiled by {compiler}")
    for absent in passport.missing:
        print(f"not measured: {absent.what}: {absent.reason}")
    for model in passport.energy:
        _print_energy(model)


def _format_condition(number: float | None, per: float, unit: str) -> str:
    return f"{number / per:.0f} {unit}" if number else ""


def _format_rate(ceiling: Ceiling, number: float) -> str:
    """A number of a ceiling's kind, with its unit."""
    unit = {"compute": "FLOP/s", "bandwidth": "B/s", "launch": "s", "power": "W"}[ceiling.kind]
    return si(number, "OP/s" if ceiling.precision == "int8" else unit)


def _describe_method(ceiling: Ceiling) -> str:
    """What ran, and for a power level the energy of one unit of its work."""
    energies = {"FLOP": ceiling.energy_j_per_flop, "byte": ceiling.energy_j_per_byte}
    each = [f"{si(joules, 'J')} per {what}" for what, joules in energies.items() if joules]
    return ": ".join([ceiling.brief_how, *each[:1]])


POINTS: Columns = {
    "load": lambda p: p.label,
    "time": lambda p: si(p.time_s, "s"),
    "power": lambda p: si(p.power_w, "W"),
    "model": lambda p: "" if p.residual is None else format_change(p.residual),
    "left out": lambda p: p.note,
}


def _print_energy(model: EnergyModel) -> None:
    """Coefficients with their intervals, how well they fit, and every point."""
    print(f"\nenergy of {model.device}: {model.how}\n")
    named = {
        **{f"FLOP ({name})": (one, "J") for name, one in model.j_per_flop.items()},
        **{f"byte ({name})": (one, "J") for name, one in model.j_per_byte.items()},
        "constant power": (model.constant_power_w, "W"),
        **({"busy power": (model.busy_power_w, "W")} if model.busy_power_w else {}),
    }
    rows = [
        [what, si(one.value, unit), " to ".join(si(end, unit) for end in one.interval)]
        for what, (one, unit) in named.items()
    ]
    print_grid(Grid(header=["", "fitted", "95 % interval"], rows=rows))
    print(
        f"off by {format_percent(model.mean_residual)} on average; R² {model.r_squared:.3f} of the"
        f" joules, {model.r_squared_power:.3f} of the watts"
    )
    if model.clock_exponent is not None:
        least, most = model.clock_exponent.interval
        print(
            "under the power cap, joules of work are as the clock to the power of"
            f" {model.clock_exponent.value:.2f} ({least:.2f} to {most:.2f})"
        )
    unsure = [what for what, (one, _) in named.items() if one.interval[0] == 0]
    if unsure:
        print(f"may be nothing at all: {', '.join(unsure)}")
    print_grid(make_grid(model.points, POINTS, spare=("time",)))
