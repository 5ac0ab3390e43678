"""What a checkpoint does again in the backward pass, it does where and as it did it first.

A checkpoint keeps PyTorch's own state: random numbers, and the autocast of devices. What else
holds while it begins, such as the module it is in, has to be brought back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.utils import checkpoint

State = Callable[[], AbstractContextManager[Any]]
# names of PyTorch's own: where one is not there, its checkpoints go on without what is kept here
DONE: Any = getattr(checkpoint, "_StopRecomputationError", ())  # how what is done again may end
_frame: Any = getattr(checkpoint, "_CheckpointFrame", object)
_function: Any = getattr(checkpoint, "CheckpointFunction", object)


@contextmanager
def done_again_in(state_now: Callable[[], State]) -> Iterator[None]:
    """Ask for the state when a checkpoint begins, and enter it whenever its function runs."""

    def kept(function: Any) -> Any:
        state = state_now()

        def again(*args: Any, **kwargs: Any) -> Any:
            with state():
                return function(*args, **kwargs)

        return again

    with _replaced(_frame, "__init__", kept, at=1), _replaced(_function, "forward", kept, at=1):
        yield


@contextmanager
def _replaced(owner: Any, name: str, kept: Callable[[Any], Any], *, at: int) -> Iterator[None]:
    """Inside the block, the argument `at` a place of a method is what `kept` makes of it."""
    if owner is object:
        yield
        return
    original = vars(owner)[name]
    call = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        return call(*args[:at], kept(args[at]), *args[at + 1 :], **kwargs)

    setattr(owner, name, staticmethod(method) if isinstance(original, staticmethod) else method)
    try:
        yield
    finally:
        setattr(owner, name, original)
