"""The place of the file: whatever happens, there is a whole file there or none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export.records import data_file
from ridgeline.workloads.sources import ONNX_ENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the file will be, and where it is written first: in the same file system."""

    path: Path
    draft: Path  # of the same name, so that it can name its weights' file

    def commit(self) -> None:
        """Move the draft to its place; its weights first, so that it never lacks them."""
        with _write_errors(self.path):
            if data_file(self.draft).exists():
                self.path.unlink(missing_ok=True)  # an older file must not find new weights
                data_file(self.draft).replace(data_file(self.path))
                self.draft.replace(self.path)
            else:
                self.draft.replace(self.path)
                data_file(self.path).unlink(missing_ok=True)  # of an older file


@contextmanager
def destination(path: Path, *, force: bool = False) -> Iterator[Destination]:
    """A draft to write, and its place; what was not committed is gone afterwards."""
    check_path(path, force=force)
    with _write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield Destination(path=path, draft=folder / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_path(path: Path, *, force: bool) -> None:
    """Refuse a place that cannot be meant."""
    if path.suffix != ONNX_ENDING:
        raise RidgelineError(
            f"{path} does not end in {ONNX_ENDING}",
            hint=f"for example -o {path.stem or 'model'}{ONNX_ENDING}",
        )
    if path.is_dir():
        raise RidgelineError(f"{path} is a folder", hint="name the file")
    if path.exists() and not force:
        raise RidgelineError(f"{path} is there already", hint="--force replaces it")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RidgelineError(
            f"cannot write {path}: {error.strerror}", hint="name a place that you may write to"
        ) from error
