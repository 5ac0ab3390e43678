"""What came of an export."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the file; a dimension is a number or a name."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(str(side) for side in self.shape)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """torch and onnxruntime on the same input: how far their outputs are apart.

    The relative difference of an output is its largest difference over its largest value.
    """

    batch_size: int
    seq_len: int | None
    outputs: int
    numbers: int  # of all outputs that were compared; NaN and infinity cannot be
    absolute: float  # the largest of all outputs
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An ONNX file, what is in it, and how it was made."""

    model: str
    path: Path
    mode: str
    exporter: str  # "dynamo" or "torchscript"
    opset: int
    nodes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    file_bytes: int
    data_bytes: int = 0  # of the weights beside it, if they have a file of their own
    checks: tuple[Checked, ...] = ()
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
        return {
            "model": self.model,
            "file": str(self.path),
            "data_file": str(self.data_path) if self.data_path else None,
            "file_bytes": self.file_bytes,
            "data_bytes": self.data_bytes,
            "mode": self.mode,
            "exporter": self.exporter,
            "opset": self.opset,
            "nodes": self.nodes,
            "dimensions": list(self.dimensions),
            "inputs": [_port_dict(port) for port in self.inputs],
            "outputs": [_port_dict(port) for port in self.outputs],
            "checks": [asdict(check) for check in self.checks],
            "notes": list(self.notes),
        }


def data_file(path: Path) -> Path:
    """Where weights that are too large for the file itself go: beside it."""
    return path.with_name(path.name + ".data")


def _port_dict(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}
