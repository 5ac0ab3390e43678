"""What can be chosen when a model is exported."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from ridgeline.errors import RidgelineError
from ridgeline.records import MODES

OLDEST_OPSET = 9  # of torch's older exporter that is still worth having
LARGEST_INLINE_BYTES = 2_000_000_000  # protobuf stops at 2 GiB, and the graph needs some of it
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
INSTALL = "pip install 'ridgeline[onnx]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Everything but the model and the place of the file."""

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


def check_mode(mode: str) -> None:
    if mode not in MODES:
        raise RidgelineError(f"mode {mode!r} is not known", hint=f"choose {', '.join(MODES)}")


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
