"""The shape of the code: which packages there are, what they may import, how things are named.

Data flows one way: a package may import only the packages before it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ridgeline

ROOT = Path(ridgeline.__file__).parent
PACKAGES = [  # in import order; siblings on one line do not import each other
    ["version"],
    ["plain"],
    ["errors"],
    ["signals"],
    ["serialize"],
    ["settings"],
    ["records"],
    ["units"],
    ["store"],
    ["sensors"],
    ["provenance"],  # which GPU it was, by its sensors
    ["tracing"],  # which module runs, for all that follow
    ["workloads"],
    ["costs"],  # formulas of shapes, for PyTorch and ONNX
    ["machine"],
    ["conv"],  # a step of measure runs under its algorithms
    ["count", "measure"],
    ["train"],
    ["onnx"],  # counts with the formulas of costs, exports with the processes of measure
    ["captures"],  # files of profilers, whoever made them
    ["profile"],  # of the very step that measure takes
    ["roofline"],
    ["findings"],
    ["predict"],
    ["report"],
    ["pipeline"],
    ["sweep"],  # repeats the pipeline over a matrix
    ["api"],
    ["cli"],
    ["__init__"],  # the public API: everything above may appear in it, nothing above may use it
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(PACKAGES) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))
MOST_MODULES = 240  # never raise it
MOST_WITH_ONE_IMPORTER = 40  # such a module is usually a part of its importer
STEP_SETTINGS = ("channels_last", "cudnn_benchmark", "grad_accum_steps", "pin_memory")
MOST_FILES_OF_A_SETTING = 4  # the record, the option, its use, and one more
PRIVATE_WORDS = (  # a reader would not search for these; docs/glossary.md has the words to use
    "told", "untold", "asked", "wanted", "given", "said", "piece", "pieces", "grain", "room",
    "beside", "alive", "mend", "hear", "somebody",
)  # fmt: skip


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """`ridgeline.count.trace`; of a package's __init__, the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Full names in the imports of a module, wherever in the module they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def imported_packages(tree: ast.Module) -> set[str]:
    """`ridgeline.store.Run` is in store; `ridgeline.count` as a function is in __init__."""
    ours = [name.split(".") for name in imported_names(tree) if name.startswith("ridgeline")]
    return {parts[1] if len(parts) > 1 and parts[1] in RANK else "__init__" for parts in ours}


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules of ours that a module imports, also inside functions and for types only."""
    found = set()
    for name in imported_names(tree):
        parent = name.rpartition(".")[0]
        found |= {name} & set(NAMES) or {parent} & set(NAMES)
    return found


@cache
def import_graph() -> dict[str, set[str]]:
    return {name: imported_modules(tree_of(path)) - {name} for name, path in NAMES.items()}


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one import cycle, in order; none where there is no cycle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if cycle := visit(target, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines: functions, classes, arguments, variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def words_of(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", identifier)]


# ---------------------------------------------------------------- the tools of this file


def test_imports_are_seen_in_every_form() -> None:
    source = """
import ridgeline.store as s
from ridgeline import units, Result
from ridgeline.count.trace import Tracer
def late():
    from ridgeline.cli import main
import numpy
"""
    tree = ast.parse(source)
    assert imported_packages(tree) == {"store", "units", "__init__", "count", "cli"}
    assert imported_modules(tree) == {
        "ridgeline", "ridgeline.store", "ridgeline.units", "ridgeline.count.trace", "ridgeline.cli",
    }  # fmt: skip


def test_a_cycle_is_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_words_of_identifiers() -> None:
    assert words_of("_told_once_S2") == ["told", "once", "s"]


# ---------------------------------------------------------------- packages and modules


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_backwards(path: Path) -> None:
    here = package_of(path)
    assert here in RANK, "give the new package a place in PACKAGES and in docs/architecture.md"

    late = {p for p in imported_packages(tree_of(path)) - {here} if RANK[p] >= RANK[here]}

    assert not late, f"{path.relative_to(ROOT)} imports {late}, which come later or beside it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_are_written_in_full(path: Path) -> None:
    nodes = ast.walk(tree_of(path))
    dots = [node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level]

    assert not dots, f"relative imports hide the package they name: lines {dots}"


def test_no_module_imports_itself_in_a_round() -> None:
    assert find_cycle(import_graph()) == []


def test_the_number_of_modules() -> None:
    assert len(MODULES) <= MOST_MODULES


def test_few_modules_serve_one_importer() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in import_graph().items():
        for target in targets:
            importers[target].add(name)
    commands = import_graph()["ridgeline.cli.app"]  # the list of commands alone imports these
    single = {name for name, users in importers.items() if len(users) == 1}
    packages = {name for name, path in NAMES.items() if path.name == "__init__.py"}

    counted = sorted(single - commands - packages)

    assert len(counted) <= MOST_WITH_ONE_IMPORTER, counted


def test_no_command_imports_another_command() -> None:
    commands = {name for name in import_graph()["ridgeline.cli.app"] if is_own_command(name)}
    crossing = {name: import_graph()[name] & commands for name in sorted(commands)}

    assert {name: targets for name, targets in crossing.items() if targets} == {}


def is_own_command(name: str) -> bool:
    """Whether a module of cli registers a command: it uses typer's options."""
    return name.startswith("ridgeline.cli.") and "typer" in set(
        imported_names(tree_of(NAMES[name]))
    )


# ---------------------------------------------------------------- records, settings, words


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_requests_and_results_are_records(path: Path) -> None:
    """`run.request["x"]` and `run.result.get("x")` would be dictionaries again."""
    if package_of(path) in ("records", "store", "serialize"):
        return
    subscripts = [node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Subscript)]
    reads = [
        node.func.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
    ]
    bad = [
        node.lineno
        for node in (*subscripts, *reads)
        if isinstance(node, ast.Attribute) and node.attr in ("request", "result", "asked", "found")
    ]
    assert not bad, f"dictionary access to a run in lines {bad}"


@pytest.mark.parametrize("setting", STEP_SETTINGS)
def test_a_setting_of_the_step_stands_in_few_files(setting: str) -> None:
    others = ("train", "onnx", "count", "machine", "workloads")  # they mean something else by it
    users = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if package_of(path) not in others
        and path.stem != "train"
        and re.search(rf"\b{setting}\b", path.read_text())
    ]
    assert len(users) <= MOST_FILES_OF_A_SETTING, users


def test_identifiers_use_the_words_of_the_field() -> None:
    used: Counter[str] = Counter()
    places: dict[str, str] = {}
    for path in MODULES:
        for identifier in identifiers(tree_of(path)):
            for word in set(words_of(identifier)) & set(PRIVATE_WORDS):
                used[word] += 1
                places.setdefault(word, f"{path.relative_to(ROOT)}: {identifier}")

    assert dict(used) == {}, places
