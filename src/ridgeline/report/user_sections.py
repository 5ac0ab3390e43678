"""Places in a generated file for what its user writes; they survive when it is made again.

A place is what stands between two lines:

    <!-- yours: analysis -->
    <!-- /yours -->

A file ends in a digest of all that was generated. If an older file does not match its own, or has
none, somebody changed it outside these places, or it is not ours: it is then kept beside the new
one, so that nothing is ever lost.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ridgeline.store import atomic_write_text, whole_file, writing

NAME = r"[A-Za-z0-9 _.-]+"
_BLOCK = re.compile(
    rf"^<!-- yours: (?P<name>{NAME}) -->\n(?P<words>.*?)^<!-- /yours -->$", re.DOTALL | re.MULTILINE
)
_DIGEST = re.compile(r"^<!-- generated: (?P<digest>[0-9a-f]{64}) -->$", re.MULTILINE)
KEPT_TITLE = "## From an earlier report"
_KEPT = re.compile(  # with nothing in it but places that are empty
    rf"^{KEPT_TITLE}$(?:\s*^<!-- yours: {NAME} -->\n<!-- /yours -->$)+", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """What an older file holds of its user's."""

    words: Mapping[str, str] = field(default_factory=dict)  # by the name of the place
    is_as_generated: bool = True  # but for the words


def place(name: str) -> str:
    """An empty place."""
    return f"<!-- yours: {name} -->\n<!-- /yours -->"


def read_old(text: str) -> Old:
    """The words in an older file; several places of one name become one."""
    words: dict[str, str] = {}
    for block in _BLOCK.finditer(text):
        words[block["name"]] = words.get(block["name"], "") + block["words"]
    return Old(words=words, is_as_generated=_digest_in(text) == digest(text))


def _digest_in(text: str) -> str | None:
    found = _DIGEST.findall(_BLOCK.sub("", text))
    return found[0] if len(found) == 1 else None


def digest(text: str) -> str:
    """Of all that is generated: neither the words nor spaces at the ends of lines matter."""
    generated = _BLOCK.sub(lambda block: place(block["name"]), text)
    generated = _DIGEST.sub("", _KEPT.sub("", generated))
    lines = "\n".join(line.rstrip() for line in generated.split("\n")).strip()
    return hashlib.sha256(lines.encode("utf-8", errors="backslashreplace")).hexdigest()


def with_words(generated: str, words: Mapping[str, str]) -> str:
    """A generated text with the user's words in their places, and its digest.

    Words whose place is no more come at the end.
    """
    known = {block["name"] for block in _BLOCK.finditer(generated)}
    text = _BLOCK.sub(lambda block: _filled(block["name"], words.get(block["name"], "")), generated)
    left = {name: own for name, own in words.items() if name not in known and own.strip()}
    if left:
        kept = "\n\n".join(_filled(name, own) for name, own in left.items())
        text = f"{text.rstrip()}\n\n{KEPT_TITLE}\n\n{kept}\n"
    return f"{text.rstrip()}\n\n<!-- generated: {digest(generated)} -->\n"


def _filled(name: str, words: str) -> str:
    ending = "" if not words or words.endswith("\n") else "\n"
    return f"<!-- yours: {name} -->\n{words}{ending}<!-- /yours -->"


def write_keeping(
    path: Path,
    generated: str,
    *,
    note: Callable[[Path], str] = lambda kept: "",
    now: datetime | None = None,
) -> Path | None:
    """Write a generated text; the user's words in the file of that name stay.

    Returns where the older file was kept, if it was changed elsewhere than in its places; the new
    one then begins with what `note` says about that.
    """
    with writing(path.parent):
        old_bytes = path.read_bytes() if path.is_file() else None
    if old_bytes is None:
        atomic_write_text(path, with_words(generated, {}))
        return None
    text, is_utf8 = _decoded(old_bytes)
    old = read_old(text)
    new = with_words(generated, old.words)
    is_safe = old.is_as_generated and is_utf8 and read_old(new).words.items() >= _said(old).items()
    kept = None if is_safe else _keep(path, old_bytes, now or datetime.now(UTC))
    if kept is not None and note(kept):
        new = with_words(f"{note(kept)}\n\n{generated}", old.words)
    atomic_write_text(path, new)
    return kept


def _said(old: Old) -> dict[str, str]:
    return {name: words for name, words in old.words.items() if words.strip()}


def _decoded(content: bytes) -> tuple[str, bool]:
    """The text, and whether it is in UTF-8; some editors add a mark and other line ends."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n"), True
    except UnicodeDecodeError:
        return content.decode("latin-1").replace("\r\n", "\n"), False


def _keep(path: Path, content: bytes, now: datetime) -> Path:
    stem = f"{path.name}.bak-{now:%Y%m%dT%H%M%SZ}"
    names = [stem, *(f"{stem}-{n}" for n in range(2, 1000))]
    kept = next(new for name in names if not (new := path.with_name(name)).exists())
    with writing(path.parent), whole_file(kept) as file:
        file.write(content)
    return kept
