"""What memory costs a step on a CPU: pages that the system hands out anew in every step.

glibc's malloc gives large blocks back to the system when they are freed, and the end of its heap
when that is large; a page that is used again costs a fault of a microsecond or more. On networks
with large activations that is a third of a step. The rules that are followed here: a block of the
threshold or more is a mapping of its own; freeing one of up to 32 MB raises the threshold to its
size; the heap takes the best fit, and is cut when twice the threshold is free at its end.
Convolutions of oneDNN hold copies of input, weight and output in its own layout meanwhile.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult

PAGE = 4096
# after importing torch and building a network; by the first steps of training it has risen
FIRST_THRESHOLD, TRAIN_THRESHOLD, LAST_THRESHOLD = 2 << 20, 16 << 20, 32 << 20
OVERHEAD = 72  # of a block of 64-byte alignment
STEPS = 3  # until the threshold stays
TRAIN_SHARE = 0.3  # of training's faults: what autograd leaves in between keeps the heap's end
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")


class Heap:
    """Addresses only."""

    def __init__(self, threshold: int = FIRST_THRESHOLD) -> None:
        self.faults = 0
        self._threshold = threshold
        self._trim = 2 * threshold
        self._end = self._resident = 0
        self._free: list[tuple[int, int]] = []  # addresses and sizes, in order
        self._used: dict[object, tuple[int, int]] = {}
        self._mapped: dict[object, int] = {}

    def allocate(self, key: object, nbytes: int) -> None:
        size = (nbytes + OVERHEAD + 15) // 16 * 16
        if size >= self._threshold:
            self._mapped[key] = -(-size // PAGE) * PAGE
            self.faults += -(-size // PAGE)
            return
        fitting = [(free, address) for address, free in self._free if free >= size]
        if fitting:
            free, address = min(fitting)
            place = bisect_left(self._free, (address, free))
            rest = [(address + size, free - size)] if free > size else []
            self._free[place : place + 1] = rest
            self._used[key] = address, size
            return
        self._used[key] = self._end, size
        self._end += size
        if self._end > self._resident:
            self.faults += -(-(self._end - self._resident) // PAGE)
            self._resident = self._end

    def release(self, key: object) -> None:
        if key in self._mapped:
            size = self._mapped.pop(key)
            if self._threshold < size <= LAST_THRESHOLD:
                self._threshold, self._trim = size, 2 * size
            return
        address, size = self._used.pop(key)
        place = bisect_left(self._free, (address, 0))
        if place < len(self._free) and self._free[place][0] == address + size:
            size += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == address:
            place -= 1
            address, before = self._free.pop(place)
            size += before
        if address + size < self._end:
            self._free.insert(place, (address, size))
            return
        self._end = address
        if self._resident - self._end >= self._trim:
            self._resident = self._end


def count_faults(count: CountResult) -> float:
    """Pages that one step of many has to be given, with glibc."""
    calls: list[Any] = [op.call for op in count.op_costs]
    made = {t.storage for call in calls for t in call.outputs}
    ended = {number for number, nbytes in count.storage_changes if nbytes < 0}
    passing = made | ended
    is_training = count.mode == "train"
    heap = Heap(TRAIN_THRESHOLD if is_training else FIRST_THRESHOLD)
    copies = dict(_copies(count))
    for number, nbytes in count.storage_changes:
        if nbytes > 0 and number not in passing:
            heap.allocate(number, nbytes)
    changes = [change for change in count.storage_changes if change[0] in passing]
    for _ in range(STEPS):
        heap.faults = 0
        _take_step(heap, changes, copies)
    return heap.faults * (TRAIN_SHARE if is_training else 1.0)


def _take_step(
    heap: Heap, changes: list[tuple[int, int]], copies: dict[int, tuple[int, ...]]
) -> None:
    live: set[int] = set()
    for number, nbytes in changes:
        if nbytes < 0:
            if number in live:
                live.remove(number)
                heap.release(number)
            continue
        sizes = copies.get(number, ())
        for place, size in enumerate(sizes):
            heap.allocate(("copy", place), size)
        for place in range(len(sizes) - 1):
            heap.release(("copy", place))
        live.add(number)
        heap.allocate(number, nbytes)
        if sizes:
            heap.release(("copy", len(sizes) - 1))
    for number in live:
        heap.release(number)


def _copies(count: CountResult) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Of the results of convolutions: sizes of the copies, that of the result at the end."""
    for op in count.op_costs:
        if op.op in CONVOLUTIONS:
            call: Any = op.call
            operands = [t.nbytes for t in call.inputs if len(t.shape) > 1]
            for out in call.outputs:
                yield out.storage, (*operands[:2], out.nbytes)


def keep_memory() -> bool:
    """Let malloc of this process give nothing back; whether it is glibc's."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version.restype = ctypes.c_char_p
        library.gnu_get_libc_version()
        return bool(library.mallopt(M_MMAP_MAX, 0) and library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
    return False
