"""What `ridgeline machine` prints: passports, datasheets and their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.machine.datasheets import Datasheet
    from ridgeline.machine.passport import Ceiling, Passport


def value(ceiling: Ceiling, number: float | None = None) -> str:
    """The best of a ceiling, or another number of its kind, with its unit."""
    from ridgeline.units import si

    unit = {"compute": "FLOP/s", "bandwidth": "B/s", "launch": "s", "power": "W"}[ceiling.kind]
    if ceiling.precision == "int8":
        unit = "OP/s"
    return si(ceiling.best if number is None else number, unit)


def print_as(passport: Passport, *, as_json: bool) -> None:
    """A passport for programs or for people."""
    from ridgeline.store import to_json

    if as_json:
        print(to_json(passport.to_dict()), end="")
    else:
        _print_passport(passport)


def _print_passport(passport: Passport) -> None:
    from ridgeline.machine.compare import label
    from ridgeline.machine.datasheets import find_datasheet_rate, find_published_roofs
    from ridgeline.report.roofs_text import draw_roofs
    from ridgeline.roofline.roofs import measured_roofs
    from ridgeline.units import format_percent

    noise = format_percent(passport.noise)
    print(f"{passport.name}, measured {passport.measured_at[:19]}, noise {noise}\n")
    sheets = find_published_roofs(passport)
    rows = []
    for c in passport.ceilings:
        rate = find_datasheet_rate(c, sheets)
        of_sheet = format_percent(c.best / rate) if rate else ""
        rows.append([c.device, label(c), value(c), value(c, c.sustained), format_percent(c.spread),
                     of_sheet, *_conditions(c), _how(c)])  # fmt: skip
    header = ["device", "ceiling", "best", "sustained", "spread", "of datasheet", "clock", "power",
              "limited by", "how"]  # fmt: skip
    print_table(header, rows, names=2, spare="how|limited by|power|clock|of datasheet|sustained")
    for device in dict.fromkeys(c.device for c in passport.ceilings):
        picture = draw_roofs(measured_roofs(passport, device))
        if picture:
            print(f"{device}\n{picture}\n")
    for absent in passport.missing:
        print(f"not measured: {absent.what}: {absent.reason}")


def _how(ceiling: Ceiling) -> str:
    """What ran, and for a power level the energy of one unit of its work."""
    from ridgeline.units import si

    if ceiling.energy_j_per_flop:
        return f"{ceiling.how}: {si(ceiling.energy_j_per_flop, 'J')} per FLOP"
    if ceiling.energy_j_per_byte:
        return f"{ceiling.how}: {si(ceiling.energy_j_per_byte, 'J')} per byte"
    return ceiling.how


def _conditions(ceiling: Ceiling) -> tuple[str, str, str]:
    seen = ceiling.conditions
    clock = f"{seen.clock_hz / 1e6:.0f} MHz" if seen.clock_hz else ""
    power = f"{seen.power_w:.0f} W" if seen.power_w else ""
    return clock, power, ", ".join(seen.throttle_reasons)


def print_datasheet(sheet: Datasheet) -> None:
    """What the maker publishes for a device."""
    from ridgeline.units import si

    print(f"{sheet.name}: nothing was measured; these are published figures ({sheet.source})\n")
    rows = []
    for c in sheet.ceilings("datasheet"):
        if c["kind"] == "compute":
            unit = "OP/s" if c["precision"].startswith("int") else "FLOP/s"
            sums = f", sums in {c['accumulator']}" if c["accumulator"] else ""
            name = f"{c['precision']} {c['path']}{sums}"
            rows.append([name, si(c["flops_per_s"], unit), c["confidence"]])
        elif c["kind"] == "bandwidth":
            rows.append([f"{c['level']} bandwidth", si(c["bytes_per_s"], "B/s"), c["confidence"]])
        else:
            rows.append([f"power {c['what']}", si(c["power_w"], "W"), c["confidence"]])
    print_table(["ceiling", "published, dense", "confidence"], rows, names=1)


def print_table(header: list[str], rows: list[list[str]], *, names: int, spare: str = "") -> None:
    """A table that fits the terminal; columns in `spare` may go, the least important first."""
    from ridgeline.cli.tables import Grid, print_grid, screen

    columns = tuple((name,) for name in spare.split("|") if name)
    print_grid(screen(), Grid(header=header, rows=rows, text_columns=names, spare=columns))
