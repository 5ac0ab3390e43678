"""Storages of a trace: stable numbers, and the bytes that are live at each moment."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor


class Liveness:
    """Counts the bytes of live storages; a storage ends when its last tensor does."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_row: int | None = None
        self._live: dict[int, tuple[int, weakref.ref[object]]] = {}

    def reset_peak(self) -> None:
        self.peak_bytes, self.peak_row = self.live_bytes, None

    def add(self, tensors: Iterable[Tensor], row: int | None = None) -> None:
        """Note tensors that an operator made; those already known are passed over."""
        for tensor in dense_parts(tensors):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._live:
                nbytes = storage.nbytes()
                self._live[key] = (nbytes, weakref.ref(storage, self._ender(key)))
                self.live_bytes += nbytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_row = self.live_bytes, row

    def _ender(self, key: int) -> Callable[[object], None]:
        def end(_: object) -> None:
            nbytes, _ref = self._live.pop(key)
            self.live_bytes -= nbytes

        return end


def distinct_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors' storages, each once however many tensors share it."""
    stored = [t.untyped_storage() for t in dense_parts(tensors)]
    return sum({storage._cdata: storage.nbytes() for storage in stored}.values())


def dense_parts(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors that hold the data: a sparse one (an embedding's gradient) has two."""
    for tensor in tensors:
        if tensor.layout is torch.sparse_coo:
            yield from (tensor._indices(), tensor._values())
        elif tensor.layout is torch.strided:
            yield tensor


class StorageIds:
    """Numbers for storages. A number is used once, though an address is used again."""

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
