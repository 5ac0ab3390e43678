"""A model as an ONNX file, checked before it is moved to its path.

    model_inputs.py a model and its inputs at any batch and sequence length; its open axes
    checked.py      export with the first of torch's exporters whose file passes the checks

Here are the settings, the result, and the file: a draft beside its path, moved when it is whole.
Importing this package imports neither torch nor onnx.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.store import writing
from ridgeline.workloads.sources import ONNX_ENDING

OLDEST_OPSET = 9  # of torch's older exporter that is still worth having
LARGEST_INLINE_BYTES = 2_000_000_000  # protobuf stops at 2 GiB, and the graph needs some of it
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
ELSEWHERE = "-o FILE"
INSTALL = "pip install 'ridgeline[onnx]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Everything but the model and the path of the file."""

    opset: int | None = None  # None: what torch's exporter uses by itself
    is_static: bool = False  # all dimensions are numbers
    is_checked: bool = True
    external_above_bytes: int = 1_000_000_000  # weights of more than this get a file of their own

    def __post_init__(self) -> None:
        if self.opset is not None and self.opset < OLDEST_OPSET:
            raise RidgelineError(
                f"opset {self.opset} is too old",
                hint=f"{OLDEST_OPSET} is the oldest; leave --opset out for torch's own choice",
            )

    @property
    def inline_bytes(self) -> int:
        """So many bytes of weights go into the model's own file."""
        return min(self.external_above_bytes, LARGEST_INLINE_BYTES)


def check_packages(settings: ExportSettings) -> None:
    """Say how to install what is missing."""
    needed = PACKAGES if settings.is_checked else PACKAGES[:-1]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RidgelineError(f"export needs {', '.join(missing)}", hint=INSTALL)


def check_opset(settings: ExportSettings) -> None:
    """Refuse an opset that the onnx package does not know. Imports onnx."""
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    if settings.opset is not None and settings.opset > newest:
        raise RidgelineError(
            f"opset {settings.opset} is not known", hint=f"{newest} is the newest of this onnx"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the file; a dimension is a number or a name."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(str(side) for side in self.shape)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """torch and onnxruntime on the same input: how far their outputs are apart.

    The relative difference of an output is its largest difference over its largest value.
    """

    batch_size: int
    seq_len: int | None
    outputs: int
    numbers: int  # compared in all outputs; NaN and infinity cannot be
    absolute: float  # the largest of all outputs
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An ONNX file, what is in it, and how it was made."""

    model: str
    path: Path
    exporter: str  # "dynamo" or "torchscript"
    opset: int
    nodes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    file_bytes: int
    data_bytes: int = 0  # of the weights beside it, if they have a file of their own
    checks: tuple[CheckResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def data_path(self) -> Path | None:
        """Where the weights are, if they have a file of their own."""
        return data_file(self.path) if self.data_bytes else None

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the dimensions that are left open."""
        sides = (side for port in self.inputs for side in port.shape)
        return tuple(dict.fromkeys(side for side in sides if isinstance(side, str)))

    def at(self, path: Path) -> Exported:
        """The same, moved."""
        return replace(self, path=path)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; see docs/export.md."""
        own = asdict(self)
        del own["path"]
        data = str(self.data_path) if self.data_path else None
        return {**own, "file": str(self.path), "data_file": data, "dimensions": self.dimensions}


def data_file(path: Path) -> Path:
    """Where weights that are too large for the file itself go: beside it."""
    return path.with_name(path.name + ".data")


# ---------------------------------------------------------------- the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The path of the file, and where it is written first: in the same file system."""

    path: Path
    draft: Path  # of the same name, so that it can name its weights' file

    def commit(self) -> None:
        """Move the draft to its path; its weights first, so that it never lacks them."""
        with writing(self.path.parent, elsewhere=ELSEWHERE):
            if data_file(self.draft).exists():
                self.path.unlink(missing_ok=True)  # an older file must not find new weights
                data_file(self.draft).replace(data_file(self.path))
                self.draft.replace(self.path)
            else:
                self.draft.replace(self.path)
                data_file(self.path).unlink(missing_ok=True)  # of an older file


@contextmanager
def destination(path: Path, *, force: bool = False) -> Iterator[Destination]:
    """A draft to write, and its path; what was not committed is gone afterwards."""
    check_path(path, force=force)
    with writing(path.parent, elsewhere=ELSEWHERE):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Named before it is made, so that an interrupt at any moment finds its name.
    folder = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}"
    try:
        with writing(path.parent, elsewhere=ELSEWHERE):
            folder.mkdir()
        yield Destination(path=path, draft=folder / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_path(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be meant."""
    if path.suffix != ONNX_ENDING:
        raise RidgelineError(
            f"{path} does not end in {ONNX_ENDING}",
            hint=f"for example -o {path.stem or 'model'}{ONNX_ENDING}",
        )
    if path.is_dir():
        raise RidgelineError(f"{path} is a folder", hint="name the file")
    if path.exists() and not force:
        raise RidgelineError(f"{path} is there already", hint="--force replaces it")
