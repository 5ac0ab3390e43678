"""What users write after an option, read with care."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError

LARGEST = 2**31  # beyond it, torch's own sizes overflow


def folder(text: str) -> Path:
    """The path of a folder; an empty text, as from an unset variable, would be this folder."""
    if not text:
        raise RidgelineError("the name of a folder is empty", hint="write . for this folder")
    return Path(text)


def whole_numbers(option: str, text: str, *, like: str, least: int = 1) -> tuple[int, ...]:
    """`16,32,64` as numbers; each must be 1 or more, or what is the least."""
    try:
        numbers = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        numbers = (least - 1,)
    if min(numbers) < least:
        raise RidgelineError(
            f"{option} {text!r} is not valid",
            hint=f"give whole numbers of {least} or more, separated by commas: {like}",
        )
    if max(numbers) > LARGEST:
        raise RidgelineError(
            f"{option} {max(numbers)} is too large", hint=f"{LARGEST} is the largest"
        )
    return numbers


def sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return whole_numbers("--input-size", text, like="224 or 224,320 or 3,64,64")


def config_values(text: str | None) -> dict[str, Any]:
    """`a=1,b=2`, or the path of a config.json."""
    if text is None:
        return {}
    if text.endswith(".json"):
        return {"config_file": text}
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise RidgelineError(
            f"--config {text!r} is not valid",
            hint="write key=value,key=value or name a config.json",
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


def named_sizes(option: str, texts: Sequence[str]) -> dict[str, int]:
    """`seq=128`, each with a name and one whole number of 0 or more; a name has one number."""
    found: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals or not name.strip():
            raise RidgelineError(
                f"{option} {text!r} is not valid", hint=f"write {option} NAME=N, as in seq=128"
            )
        size = _one_size(option, text, number)
        if found.setdefault(name.strip(), size) != size:
            raise RidgelineError(
                f"{option} {name.strip()} is given twice: {found[name.strip()]} and {size}",
                hint="give one of them",
            )
    return found


def _one_size(option: str, text: str, number: str) -> int:
    try:
        size = int(number)
    except ValueError:
        size = -1
    if size < 0:
        raise RidgelineError(
            f"{option} {text!r} is not valid",
            hint=f"give one whole number of 0 or more: {option} NAME=128;"
            " several sizes take a command each",
        )
    if size > LARGEST:
        raise RidgelineError(f"{option} {text} is too large", hint=f"{LARGEST} is the largest")
    return size
