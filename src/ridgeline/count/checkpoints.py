"""What a checkpoint does again in the backward pass, it does where and as it did it first.

A checkpoint keeps PyTorch's own state: random numbers, and the autocast of devices. What else
holds while it begins, such as the module it is in, has to be brought back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

from torch.utils import checkpoint

State = Callable[[], AbstractContextManager[Any]]
DONE: Any = checkpoint._StopRecomputationError  # how the work that is done again ends
_frame: Any = checkpoint._CheckpointFrame
_function: Any = checkpoint.CheckpointFunction


@contextmanager
def done_again_in(state_now: Callable[[], State]) -> Iterator[None]:
    """Ask for the state when a checkpoint begins, and enter it whenever its function runs."""

    def kept(function: Any) -> Any:
        state = state_now()

        @wraps(function)
        def again(*args: Any, **kwargs: Any) -> Any:
            with state():
                return function(*args, **kwargs)

        return again

    begin, forward = _frame.__init__, _function.forward

    def begin_kept(self: Any, function: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, kept(function), *args, **kwargs)

    def forward_kept(ctx: Any, function: Any, *args: Any) -> Any:
        return forward(ctx, kept(function), *args)

    _frame.__init__, _function.forward = begin_kept, staticmethod(forward_kept)
    try:
        yield
    finally:
        _frame.__init__, _function.forward = begin, staticmethod(forward)
