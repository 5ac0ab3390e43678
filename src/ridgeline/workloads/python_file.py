"""Somebody's Python file: imported, looked into, and its errors told in one line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.workloads.checks import closest, or_text
from ridgeline.workloads.offline import refuse_downloads
from ridgeline.workloads.workload import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFile:
    """An imported file."""

    path: Path
    shown: str  # as the user wrote it
    module: ModuleType

    def get(self, name: str) -> Any:
        return getattr(self.module, name, None)

    def defined(self) -> dict[str, Any]:
        """What the file itself defines, not what it imports, in its order."""
        return {
            name: value
            for name, value in vars(self.module).items()
            if not name.startswith("_") and self._is_own(value)
        }

    def _is_own(self, value: object) -> bool:
        """Functions and classes know where they are from; a module instance is the file's own."""
        home = getattr(value, "__module__", None)
        return home == self.module.__name__ or hasattr(value, "named_parameters")

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of the file; what it raises becomes one line that says where."""
        with told_in_one_line(self.path, self.shown):
            return function(*args, **kwargs)


def import_file(shown: str) -> PythonFile:
    path = Path(shown).expanduser()
    if not path.is_file():
        raise no_such_file(path, shown)
    path = path.resolve()
    spec = spec_from_file_location(f"ridgeline_file_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickles look themselves up there
    with told_in_one_line(path, shown), neighbours_importable(path):
        spec.loader.exec_module(module)
    return PythonFile(path=path, shown=shown, module=module)


def no_such_file(path: Path, shown: str) -> RidgelineError:
    """Name the files that are nearest to what was written."""
    there = [str(path.parent / file.name) for file in path.parent.glob("*.py")]
    near = closest(str(path), there) or sorted(there)[:3]
    hint = f"did you mean {or_text(near)}?" if near else "give the path of a Python file"
    return RidgelineError(f"no such file: {shown}", hint=hint)


@contextmanager
def neighbours_importable(path: Path) -> Iterator[None]:
    """A file may import what lies beside it, as if it were run as a script."""
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def told_in_one_line(path: Path, shown: str) -> Iterator[None]:
    """Turn an error of the file into ours: where in the file, and its own words."""
    try:
        with refuse_downloads(shown):
            yield
    except RidgelineError:
        raise
    except (Exception, SystemExit) as error:
        raise RidgelineError(
            f"{shown}:{line_of(error, path)}: {one_line(error)}",
            hint="mend the file, or try it alone with python; `--debug` shows the whole traceback",
        ) from error


def line_of(error: BaseException, path: Path) -> int:
    """The last line of the file that took part in the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] or 0 if lines else 0
