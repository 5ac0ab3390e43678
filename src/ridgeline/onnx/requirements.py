"""What to do where onnx is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ridgeline.errors import RidgelineError


@contextmanager
def require_onnx() -> Iterator[None]:
    """Around imports of onnx, or of modules that import it."""
    try:
        yield
    except ImportError as error:
        raise RidgelineError(
            f"onnx cannot be imported: {' '.join(str(error).split())}",
            hint="pip install 'ridgeline[onnx]'",
        ) from error
