"""Advice names only options that the command has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from typer.main import get_command

import ridgeline
from ridgeline.cli.app import app

PACKAGE = Path(ridgeline.__file__).parent
STEPS = ("run", "analyze", "profile")
SHOWN_BY = {  # modules with advice, and the commands that show it
    "findings.py": ("run", "analyze"),
    "measure/advice.py": STEPS,
    "measure/energy.py": ("run", "analyze"),
    "measure/isolation.py": ("run", "analyze"),
    "measure/backends.py": ("run", "analyze", "train"),
    "train/trainer.py": ("train",),
    "train/checkpoints.py": ("train",),
    "machine/compare.py": ("analyze",),
    "report/stored.py": ("roofline", "report"),
    "report/compare.py": ("compare",),
    "report/study.py": ("roofline", "report"),
    "count/step.py": ("count", *STEPS),
    "cli/show_study.py": ("roofline",),
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
NAMED = re.compile(r"ridgeline (\w+)[^`;()]*")  # `ridgeline run … --repeats 3`


def options_of(command: str) -> set[str]:
    parsers = get_command(app).commands  # type: ignore[attr-defined]  # the app is a group
    return {
        option
        for parameter in parsers[command].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def texts_in(module: str) -> list[str]:
    """What a module says: its strings without docstrings, with {} for what is put in."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in node.values}  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            ))  # fmt: skip
        elif isinstance(node, ast.Constant) and id(node) not in docs | inner:
            found.append(str(node.value))
    return found


def unknown_options(text: str, commands: tuple[str, ...]) -> list[str]:
    """Options in a text that the command it names, or one of those that show it, does not have."""
    if OPTION.fullmatch(text):
        return []  # the name of an option that was given, not advice
    named = [(found.span(), found[1]) for found in NAMED.finditer(text)]
    missing = []
    for option in OPTION.finditer(text):
        inside = [name for (start, end), name in named if start <= option.start() < end]
        for command in inside or commands:
            if option[0] not in options_of(command):
                missing.append(f"{command} {option[0]}")
    return missing


@pytest.mark.parametrize("module", SHOWN_BY)
def test_every_option_in_advice_is_one_of_its_command(module: str) -> None:
    texts = texts_in(module)
    assert any(OPTION.search(text) for text in texts)  # else the module is not to be here
    missing = {text: unknown_options(text, SHOWN_BY[module]) for text in texts}
    assert {text: options for text, options in missing.items() if options} == {}


def test_an_option_that_a_command_lacks_is_seen() -> None:
    assert unknown_options("try --workers 2", ("run", "analyze")) == ["analyze --workers"]
    assert unknown_options("try `ridgeline run … --workers 2`", ("analyze",)) == []
    assert unknown_options("`ridgeline count … --workers 2`", ("run",)) == ["count --workers"]
