"""Write the table of docs/datasheets.md from the datasheets: `python docs/datasheets_table.py`."""

from __future__ import annotations

from pathlib import Path

from ridgeline.machine.datasheets import Datasheet, list_datasheets
from ridgeline.units import si

PAGE = Path(__file__).with_name("datasheets.md")
START, END = "<!-- table: start -->", "<!-- table: end -->"
TITLES = {
    "nvidia_datacenter": "NVIDIA, data centre and workstation",
    "nvidia_geforce": "NVIDIA GeForce, desktop",
    "nvidia_laptop": "NVIDIA GeForce, laptop",
    "nvidia_jetson": "NVIDIA Jetson",
    "amd_instinct": "AMD Instinct",
    "amd_radeon": "AMD Radeon",
    "apple": "Apple",
    "cpu": "CPUs, one socket",
}
COLUMNS = (
    ("fp64", "vector", "fp64", None),
    ("fp32", "vector", "fp32", None),
    ("tf32", "matrix", "tf32", "fp32"),
    ("fp16, sum in fp16", "matrix", "fp16", "fp16"),
    ("fp16", "matrix", "fp16", None),
    ("bf16", "matrix", "bf16", "fp32"),
    ("fp8", "matrix", "fp8", "fp32"),
    ("int8", "matrix", "int8", "int32"),
)


def table() -> str:
    """Every family's table; a column that nobody in the family has is left out."""
    sheets = list_datasheets()
    parts = []
    for family, title in TITLES.items():
        parts += [f"### {title}", "", *_rows([s for s in sheets if s.family == family]), ""]
    return "\n".join(parts).rstrip()


def with_table(page: str) -> str:
    """The page's text with the table between its marks."""
    before, rest = page.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


def _rows(sheets: list[Datasheet]) -> list[str]:
    columns = [c for c in COLUMNS if any(s.peak(c[1], c[2], c[3]) for s in sheets)]
    head = ["device", "units", "clock", "memory", *(title for title, *_ in columns), "power"]
    rows = [
        [
            sheet.name,
            f"{sheet.units} {sheet.unit}",
            si(sheet.boost_clock_hz, "Hz") if sheet.boost_clock_hz else "–",
            si(sheet.dram_bytes_per_s, "B/s"),
            *(_cell(sheet, *key) for _, *key in columns),
            si(sheet.tdp_w, "W") if sheet.tdp_w else "–",
        ]
        for sheet in sheets
    ]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]


def _cell(sheet: Datasheet, path: str, precision: str, accumulator: str | None) -> str:
    peak = sheet.peak(path, precision, accumulator)
    if peak is None:
        return "–"
    return si(peak.flops_per_s, "") + ("" if peak.confidence == "published" else "*")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
