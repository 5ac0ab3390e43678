"""Scaled dot-product attention in all its forms.

One convention for every backend: forward is two products, Q·Kᵀ and P·V; backward is four
(dV, dP, dQ, dK). A kernel that recomputes Q·Kᵀ in backward executes a fifth, which is not
model work. With grouped heads the products run once for each query head. Each score costs
one FLOP for the scale, one if a mask of numbers is added, two for dropout, and a softmax;
the scores themselves are never written. The log-sum-exp of each query is written only where
a backward needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.costs.norm import SOFTMAX
from ridgeline.costs.work import Terms, Work

ROTARY_FLOPS = 3  # x·cos ± y·sin


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The sizes of one attention."""

    batch: int
    heads: int  # of the queries
    queries: int
    keys: int  # with those of the past
    dim: int  # of a query and a key
    value_dim: int
    past: int = 0
    window: int | None = None  # how many keys a causal query sees at most

    def count_pairs(self, *, causal: bool, convention: str) -> int:
        """Query-key pairs of one head.

        Causal: query i sees the past and keys 0…i after it; the convention "full" counts all.
        With a window it sees the last of these alone, so many.
        """
        if not causal or convention == "full":
            return self.queries * self.keys
        most = self.keys if self.window is None else min(self.keys, self.window)
        rising = max(min(self.queries, most - self.past), 0)  # each sees one key more
        seen = rising * self.past + rising * (rising + 1) // 2
        return seen + (self.queries - rising) * most


def attend(sizes: Heads, pairs: int, *, more: int = 0, is_capped: bool = False) -> Work:
    """The two products and the softmax; so many FLOPs a score more."""
    terms = _terms(sizes, pairs, sizes.dim + sizes.value_dim)
    scores = sizes.batch * sizes.heads * pairs
    return Work(
        macs=scores * (sizes.dim + sizes.value_dim),
        other_flops=(SOFTMAX + 1 + more + 2 * is_capped) * scores,
        transcendentals=(1 + is_capped) * scores,
        factor=2,
        terms=terms,
    )


def attend_backward(
    sizes: Heads, pairs: int, needed: tuple[bool, bool, bool, bool], *, more: int = 0
) -> Work:
    """Only what is needed of q, k, v and mask: dV = Pᵀ·dO; dP = dO·Vᵀ where others need it."""
    for_q, for_k, for_v, for_mask = needed
    through = for_q or for_k or for_mask
    dims = (for_v + through) * sizes.value_dim + (for_q + for_k) * sizes.dim
    scores = sizes.batch * sizes.heads * pairs
    return Work(
        macs=dims * scores,
        other_flops=((SOFTMAX + 1) * through + for_mask + more) * scores,
        factor=2,
        terms=_terms(sizes, pairs, dims, "(dims)"),
    )


def _terms(sizes: Heads, pairs: int, dims: int, name: str = "(Dqk+Dv)") -> Terms:
    return (("B·H", sizes.batch * sizes.heads), ("pairs", pairs), (name, dims))


def linear_attention(
    *, tokens: int, heads: int, kv_heads: int, dim: int, value_dim: int, rule: str
) -> Work:
    """A state of Dk·Dv for each key head: k⊗v added, Sᵀ·k subtracted (delta), read by each q."""
    is_delta, is_gated = "delta" in rule, "gated" in rule
    state = dim * value_dim
    per_token = (kv_heads * (1 + is_delta) + heads) * state
    other = kv_heads * (is_gated * state + is_delta * 2 * value_dim) + heads * value_dim
    return Work(
        macs=tokens * per_token,
        other_flops=tokens * other,
        transcendentals=tokens * kv_heads * is_gated,
        factor=2,
        terms=(("tokens", tokens), ("Dk·Dv", state), ("uses", per_token // max(state, 1))),
    )
