"""Which storage of a trace is which."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor


class Storages:
    """Numbers for storages: none is given twice, though an address is, to the next storage."""

    def __init__(self) -> None:
        self._last = 0
        self.sizes: dict[int, int] = {}  # bytes by number
        self._live: dict[int, tuple[int, weakref.ref[object]]] = {}  # by address

    def number_of(self, tensor: Tensor) -> int:
        """That of the tensor's storage; a storage that is met first gets the next one."""
        storage = tensor.untyped_storage()
        known = self._live.get(storage._cdata)
        if known is not None:
            return known[0]
        self._last += 1
        self.sizes[self._last] = storage.nbytes()
        return self._note(storage, self._last)

    def share(self, twin: Tensor, original: Tensor) -> None:
        """Let what stands for another tensor have the number of that one."""
        self._note(twin.untyped_storage(), self.number_of(original))

    def _note(self, storage: torch.UntypedStorage, number: int) -> int:
        key = storage._cdata
        self._live[key] = (number, weakref.ref(storage, lambda _: self._live.pop(key)))
        return number
