"""onnx is an extra: what to do where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ridgeline.errors import RidgelineError


@contextmanager
def onnx_needed() -> Iterator[None]:
    """Around imports of onnx, or of modules that import it."""
    try:
        yield
    except ImportError as error:
        raise RidgelineError(
            f"onnx cannot be imported: {' '.join(str(error).split())}",
            hint="pip install 'ridgeline[onnx]'",
        ) from error
