"""Compare what users get now with what was stored, or store it.

    python -m tests.golden.freeze                    all parts: differences, exit code 1 if any
    python -m tests.golden.freeze --part views       one part; may be repeated
    python -m tests.golden.freeze --part views --write

Floats are equal within 1e-9 of their size; everything else must be the same. The goldens belong to
the versions of the libraries in goldens/versions.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.golden import parts

STORED = parts.HERE / "goldens"
VERSIONS = STORED / "versions.json"
LIBRARIES = ("numpy", "onnx", "onnxruntime", "onnxscript", "pandas", "rich", "timm", "torch",
             "torchvision", "transformers", "typer")  # fmt: skip
LARGE = 400_000  # bytes of text that are compressed
WIDTH = 100  # of a line in the files
EXAMPLES = 3  # of the same difference
TOLERANCE = 1e-9
ABSENT = "(absent)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that changed; the path leads to it from the top of its part."""

    path: tuple[str, ...]
    was: Any
    now: Any


def find_differences(was: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Each place where two JSON values differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from find_differences(was.get(key, ABSENT), now.get(key, ABSENT), (*path, key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from find_differences(before, after, (*path, str(place)))
    elif not is_equal(was, now):
        yield Difference(path=path, was=was, now=now)


def is_equal(was: Any, now: Any) -> bool:
    if isinstance(was, float) and isinstance(now, float):
        return math.isclose(was, now, rel_tol=TOLERANCE) or (was != was and now != now)
    return type(was) is type(now) and bool(was == now)


def to_text(value: Any, indent: str = "", key: str = "") -> str:
    """JSON with sorted keys: what fits is one line, what does not has a line for each item."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(indent + key + line) <= WIDTH:
        return f"{indent}{key}{line}"
    deeper = f"{indent} "
    if isinstance(value, dict):
        items = [to_text(value[k], deeper, f"{json.dumps(k, ensure_ascii=False)}: ")
                 for k in sorted(value)]  # fmt: skip
    else:
        items = [to_text(item, deeper) for item in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{indent}{key}{start}\n" + ",\n".join(items) + f"\n{indent}{end}"


def write(part: str, value: Any) -> Path:
    """Store a part; its file is compressed if it is large, always to the same bytes."""
    content = f"{to_text(value)}\n".encode()
    for path in STORED.glob(f"{part}.json*"):
        path.unlink()
    STORED.mkdir(exist_ok=True)
    path = STORED / (f"{part}.json.gz" if len(content) > LARGE else f"{part}.json")
    is_compressed = path.suffix == ".gz"
    path.write_bytes(gzip.compress(content, mtime=0) if is_compressed else content)
    return path


def read(part: str) -> dict[str, Any]:
    """What is stored of a part."""
    path = next(STORED.glob(f"{part}.json*"), None)
    if path is None:
        sys.exit(f"{part} is not stored: run with --part {part} --write")
    content = path.read_bytes()
    stored: dict[str, Any] = json.loads(
        gzip.decompress(content) if path.suffix == ".gz" else content
    )
    return stored


def compute(part: str, *, fast: bool = False, shared: Path = parts.SHARED) -> Any:
    """A part as it is now, in JSON's own types; the terminal has 100 columns."""
    terminal = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict(os.environ, terminal):
        found = parts.captures(fast, shared) if part == "captures" else parts.PARTS[part](fast)
    return json.loads(json.dumps(found))


def compare(part: str, now: Mapping[str, Any], *, fast: bool = False) -> list[Difference]:
    """What changed; of a sample, and of captures that are not here, only what is there."""
    was = read(part)
    if fast:
        was = {key: value for key, value in was.items() if key in now}
    if part == "captures" and not any(key.startswith("shared/") for key in now):
        was = {key: value for key, value in was.items() if not key.startswith("shared/")}
    return list(find_differences(was, dict(now)))


def describe(part: str, differences: list[Difference]) -> list[str]:
    """A few lines: differences of the same name are told once, with examples."""
    by_name: dict[str, list[Difference]] = {}
    for one in differences:
        names = [name for name in one.path if not name.isdigit()]
        by_name.setdefault(names[-1] if names else "", []).append(one)
    lines = []
    for name, same in by_name.items():
        lines.append(f"{part}: {name}: {len(same)} differences")
        for one in same[:EXAMPLES]:
            lines.append(f"  {' / '.join(one.path)}: was {short(one.was)}, is {short(one.now)}")
    return lines


def short(value: Any) -> str:
    if isinstance(value, list):
        value = f"a list of {len(value)}: {json.dumps(value, ensure_ascii=False)}"
    text = value if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


def read_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in LIBRARIES}


def find_other_versions() -> list[str]:
    """The libraries that are not those of the goldens."""
    stored, here = json.loads(VERSIONS.read_text()), read_versions()
    return [f"{n} {here[n]}, goldens {stored.get(n)}" for n in here if stored.get(n) != here[n]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", action="append", choices=parts.PARTS, help="default: all")
    parser.add_argument("--write", action="store_true", help="store instead of comparing")
    parser.add_argument("--shared", type=Path, default=parts.SHARED, help="more captures")
    options = parser.parse_args()
    if options.write:
        STORED.mkdir(exist_ok=True)
        VERSIONS.write_text(f"{to_text(read_versions())}\n")
    for text in find_other_versions():
        say(f"note: here is {text}: counts may differ")
    different = 0
    for part in options.part or parts.PARTS:
        different += run(part, options)
    return 1 if different else 0


def run(part: str, options: argparse.Namespace) -> int:
    """Compare or store one part; how many differences there are."""
    start = time.monotonic()
    now = compute(part, shared=options.shared)
    took = f"{time.monotonic() - start:.0f} s"
    if part == "captures" and not options.shared.is_dir():
        say(f"{part}: {options.shared} is not here: its captures are left out")
        if options.write:
            now = {**{k: v for k, v in read(part).items() if k.startswith("shared/")}, **now}
    if options.write:
        say(f"{part}: wrote {write(part, now).name}, {len(now)} entries, {took}")
        return 0
    differences = compare(part, now)
    for line in describe(part, differences):
        say(line)
    say(f"{part}: {len(now)} entries, {len(differences)} differences, {took}")
    return len(differences)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
