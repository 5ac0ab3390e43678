"""Pages that malloc asks the system for, by its rules."""

from __future__ import annotations

from ridgeline.predict.allocator import OVERHEAD, PAGE, Heap

MB = 1 << 20


def pages(count: int) -> int:
    """Bytes of a request that fills so many pages."""
    return count * PAGE - OVERHEAD


def test_memory_that_was_freed_is_used_again() -> None:
    heap = Heap()
    heap.allocate("a", pages(8))
    heap.release("a")
    heap.allocate("b", pages(8))

    assert heap.faults == 8


def test_a_large_block_is_a_mapping_until_the_threshold_has_risen() -> None:
    heap = Heap()
    heap.allocate("a", 20 * MB)  # with its head: 5121 pages
    heap.release("a")
    first = heap.faults
    heap.allocate("b", 20 * MB)  # on the heap, which grows by its 5121 pages
    heap.release("b")
    heap.allocate("c", 20 * MB)

    assert (first, heap.faults) == (5121, 2 * 5121)


def test_blocks_above_the_last_threshold_fault_each_time() -> None:
    heap = Heap()
    for key in "abc":
        heap.allocate(key, 40 * MB)
        heap.release(key)

    assert heap.faults == 3 * (40 * MB // PAGE + 1)


def test_the_best_fit_is_taken_and_neighbours_are_joined() -> None:
    heap = Heap()
    for key, size in {"a": 4, "b": 1, "c": 2, "d": 1}.items():
        heap.allocate(key, pages(size))
    heap.release("a")
    heap.release("c")
    heap.allocate("e", pages(2))  # where c was
    heap.release("b")  # joins what was a
    heap.allocate("f", pages(5))

    assert heap.faults == 8


def test_a_heap_whose_end_is_free_is_cut() -> None:
    heap = Heap(16 * MB)
    for number in range(4):
        heap.allocate(number, 10 * MB)  # 2560 pages and a head
    for number in reversed(range(4)):
        heap.release(number)  # when 32 MB and more are free, they go back
    heap.allocate("again", pages(1))

    assert heap.faults == 4 * 2561 + 1
