"""The project's own files: no trace of a machine, no dead link, a quick --help."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from ridgeline.cli.app import app

ROOT = Path(__file__).parents[1]
MACHINE_PATH = re.compile(r"(?<![\w.~<>-])/(?:home|root|work|Users|scratch)/\w+")
PRIVATE_HOST = re.compile(
    r"https?://(?:localhost|127\.|10\.|192\.168\.|[\w.-]+\.(?:local|internal))"
)
CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(<?([^)\s>]+)")
HEAVY = ("torch", "torchvision", "timm", "transformers", "pandas", "matplotlib", "pyarrow")


@cache
def project_files() -> tuple[Path, ...]:
    """Files that are in the repository or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so the project's files are not known")
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return tuple(path for path in paths if path.is_file())


def texts() -> dict[Path, str]:
    found = {}
    for path in project_files():
        try:
            found[path.relative_to(ROOT)] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or a table, not text
    return found


def test_no_file_names_a_machine() -> None:
    named = {
        str(path): match[0]
        for path, text in texts().items()
        for pattern in (MACHINE_PATH, PRIVATE_HOST)
        for match in pattern.finditer(text)
    }
    assert named == {}


def test_every_relative_link_leads_somewhere() -> None:
    dead = [
        f"{path}: {link}"
        for path, text in texts().items()
        if path.suffix == ".md"
        for link in relative_links(text)
        if not (ROOT / path.parent / link).exists()
    ]
    assert dead == []


def test_the_readme_names_every_command_and_none_as_missing() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]  # the app is a group
    missing = re.search(r"What is not there yet:(.*?)\.", readme, re.DOTALL)
    assert missing is not None
    assert commands - set(re.findall(r"ridgeline (\w+)", readme)) == set()
    assert commands & set(re.findall(r"`(\w+)`", missing[1])) == set()


def relative_links(markdown: str) -> list[str]:
    """Targets that are files, without their anchors; code is not looked at."""
    targets = LINK.findall(CODE.sub("", markdown))
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    return [file for file in files if file and not file.startswith("mailto:")]


def test_links_are_found_and_code_is_left_alone() -> None:
    text = (
        "[a](x.md#top) ![b](y.png) [c](https://e.org) [d](#here) `[e](z.md)`\n```\n[f](w.md)\n```\n"
    )

    assert relative_links(text) == ["x.md", "y.png"]


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "ridgeline", "--help"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0, done.stderr[-500:]
    assert sorted(imported & set(HEAVY)) == []
