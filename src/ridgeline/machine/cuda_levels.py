"""Where a GPU's cache ends, from the curve of bandwidth over working-set size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

SHARES_OF_L2 = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 2, 4, 8)
"""Working sets of the curve, as shares of the cache that the device describes."""


@dataclass(frozen=True, slots=True)
class CacheEnd:
    """The last working set that is served by the cache, and the first that is not."""

    inside_bytes: int
    outside_bytes: int | None

    def text(self, described_bytes: int) -> str:
        """For `how`: what the curve says beside what the device says."""
        if self.outside_bytes is None:
            return f"the curve does not fall; described L2 {described_bytes} B"
        span = f"between {self.inside_bytes} and {self.outside_bytes} B"
        return f"the curve falls {span}; described L2 {described_bytes} B"

    def agrees(self, described_bytes: int) -> bool:
        """Whether the fall is where the description puts it, within a factor of four.

        A cache in several parts that keep copies of each other's data holds less than its size.
        """
        if self.outside_bytes is None:
            return False
        return (
            self.inside_bytes <= 2 * described_bytes and self.outside_bytes >= described_bytes / 4
        )


def cache_end(sizes: Sequence[int], rates: Sequence[float]) -> CacheEnd:
    """The fall of the curve: where it crosses the middle of its ends, on a logarithmic scale."""
    middle = sqrt(max(rates) * rates[-1])
    inside = max(size for size, rate in zip(sizes, rates, strict=True) if rate >= middle)
    beyond = [size for size in sizes if size > inside]
    return CacheEnd(inside, min(beyond, default=None))
