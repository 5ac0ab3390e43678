"""Activation checkpointing: recomputation runs in the state in which the work first ran.

A checkpoint keeps PyTorch's own state: random numbers, and the autocast of devices. Any other
state, such as the module in which it began, has to be restored for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.utils import checkpoint

State = Callable[[], AbstractContextManager[Any]]
# PyTorch's own names: where one is missing, its checkpoints run without the restored state
RECOMPUTATION_ENDS: Any = getattr(checkpoint, "_StopRecomputationError", ())
_frame: Any = getattr(checkpoint, "_CheckpointFrame", object)
_function: Any = getattr(checkpoint, "CheckpointFunction", object)


@contextmanager
def restore_on_recompute(current_state: Callable[[], State]) -> Iterator[None]:
    """Ask for the state when a checkpoint begins, and enter it whenever its function runs."""

    def in_state(function: Any) -> Any:
        state = current_state()

        def run(*args: Any, **kwargs: Any) -> Any:
            with state():
                return function(*args, **kwargs)

        return run

    with (
        _wrap_function(_frame, "__init__", in_state),
        _wrap_function(_function, "forward", in_state),
    ):
        yield


@contextmanager
def _wrap_function(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Inside the block, the second argument of a method, a function, is wrapped."""
    if owner is object:
        yield
        return
    original = vars(owner)[name]
    call = getattr(owner, name)

    def method(first: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        return call(first, wrap(function), *args, **kwargs)

    setattr(owner, name, staticmethod(method) if isinstance(original, staticmethod) else method)
    try:
        yield
    finally:
        setattr(owner, name, original)
