"""What a model was when it was run or counted: the same name may mean another network later."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

KEPT = 16  # characters of a digest


def file_digest(model: str) -> str | None:
    """Of the Python file that a model comes from; None for a name, or where no file is."""
    name, dot, _ = model.rpartition(".py")
    path = Path(f"{name}.py").expanduser()
    if not dot or not path.is_file():
        return None
    return sha256(path.read_bytes()).hexdigest()[:KEPT]


def module_digest(module: Any, shapes: Any) -> str:
    """Of a module's structure, the shapes of its weights, and those of its inputs."""
    weights = [(name, tuple(weight.shape)) for name, weight in module.named_parameters()]
    text = f"{type(module).__qualname__}\n{module!r}\n{weights}\n{shapes}"
    return sha256(text.encode()).hexdigest()[:KEPT]
