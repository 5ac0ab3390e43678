"""Storages of a trace: stable numbers, and the bytes that are live at each moment."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class _Storage:
    """What is known of a storage while it is there."""

    number: int
    nbytes: int
    is_live: bool  # its bytes are counted
    reference: weakref.ref[torch.UntypedStorage]


class Storages:
    """Numbers for storages, and the bytes of those that are live.

    A number is used once, though an address is used again. A storage ends with its last tensor.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_row: int | None = None
        self.sizes: dict[int, int] = {}  # bytes by number
        self.changes: list[tuple[int, int]] = []  # number and bytes, negative where one ends
        self._known: dict[int, _Storage] = {}  # by address

    def reset_peak(self) -> None:
        self.peak_bytes, self.peak_row = self.live_bytes, None

    def add(self, tensors: Iterable[Tensor], row: int | None = None) -> None:
        """Note tensors that an operator made; those already noted are passed over."""
        for tensor in dense_parts(tensors):
            storage = self._find(tensor)
            if not storage.is_live:
                storage.is_live = True
                self.live_bytes += storage.nbytes
                self.changes.append((storage.number, storage.nbytes))
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_row = self.live_bytes, row

    def number_of(self, tensor: Tensor) -> int:
        """That of the tensor's storage; a storage that is met first gets the next one."""
        return self._find(tensor).number

    def share(self, twin: Tensor, original: Tensor) -> None:
        """Let what stands for another tensor have the number of that one."""
        self._note(twin.untyped_storage(), self.number_of(original))

    def _find(self, tensor: Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is None:
            number = len(self.sizes) + 1
            self.sizes[number] = storage.nbytes()
            known = self._note(storage, number)
        return known

    def _note(self, storage: torch.UntypedStorage, number: int) -> _Storage:
        key = storage._cdata
        reference = weakref.ref(storage, lambda _: self._end(key))
        noted = self._known[key] = _Storage(number, storage.nbytes(), False, reference)
        return noted

    def _end(self, key: int) -> None:
        ended = self._known.pop(key)
        if ended.is_live:
            self.live_bytes -= ended.nbytes
            self.changes.append((ended.number, -ended.nbytes))


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
