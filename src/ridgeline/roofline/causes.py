"""Why executed work differs from the model's: one short rule for each cause, the first that fits.

Executed FLOPs are additions, multiplications and multiply-adds that the hardware counted. The
model's are those of the mathematics: they include comparisons and divisions, which no counter
sees, and leave out transcendental functions, which kernels expand into additions and
multiplications. So products are compared with products, and the rest with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

AGREES = 0.05  # of the model: the self-test trusts counters to so much
BYTES_AGREE = 0.1  # bytes depend on what a cache held before
MOST_OF = 0.5  # of a difference: what explains less does not explain it
CAUSAL = (0.4, 0.75)  # half of the scores are masked; the tiles on the diagonal are computed whole
RECOMPUTED_SCORES = (1.05, 1.5)  # flash attention's backward has 5 products where the model has 4
CAUSAL_BACKWARD = (CAUSAL[0], 5 / 4 * CAUSAL[1])  # fewer scores, and one product more
RECOMPUTED_FORWARD = (1.35, 1.65)  # backward is twice a forward: one more is half of it again
TILED = (1.0, 2.0)  # of depthwise kernels: whole tiles of pixels, 20 for 14 in both directions
BORDER = 0.6  # of a 3×3 window over 4×4 pixels, 69 % is not zero padding; over 7×7 it is 82 %
SPLITS = (3, 6, 9)  # products of lower precision that stand in for one
NEAR = 0.1  # of such a number
MORE_KERNELS = 1.5  # than the operators that move anything
FEW_BYTES = 1 << 17  # of a launch, by the model
LITTLE_MOVED = 1 << 20  # by it, at most, where its neighbours may have
COMPARING = ("pointwise", "pool", "loss", "reduce", "dropout", "softmax", "sort")  # or dividing
SUMMING = ("norm", "softmax")  # over their input, before they can use it

AGREE, UNKNOWN, UNEXPLAINED = "agrees", "not counted", "not explained"
PARTLY = "partly counted"
CAUSES = {
    AGREE: f"within {100 * AGREES:.0f} % of the model (bytes: {100 * BYTES_AGREE:.0f} %)",
    "Winograd": "Winograd kernels need fewer multiplications for the same convolution",
    "FFT": "convolution by Fourier transform: another number of multiplications",
    "causal skipping": "the masked half of causal attention is not computed; the count has it",
    "borders skipped": "direct kernels skip the zero padding; the count takes it as data",
    "precision split": "one product is made of several of a lower precision",
    "recompute": "backward computes again what forward did not keep",
    "conversion": "without tensor cores fp16 numbers become fp32 first, which counts as additions",
    "moved constants": "half-precision instructions that move constants count as FLOPs",
    "gradient sums": "gradients of several uses or batches are added up outside of layers",
    "tile padding": "kernels compute whole tiles, also where a shape does not fill them",
    "loss scaling": "gradients are unscaled and checked in amp, which the count leaves out",
    "elementwise": "elementwise kernels and normalisations execute more than the convention counts",
    "no counter": "comparisons and divisions are FLOPs of the model, and no counter sees them",
    "no model work": "kernels that no counted operator stands for",
    "fused": "a compiler merged it with its neighbours: its work is in their kernels",
    "not attributed": "the model has work here, and no kernel was attributed to it",
    "memory copy": "the driver copies or fills it: no kernel does, and no counter sees it",
    "cache reuse": "part of its data was in a cache, so DRAM did not deliver it",
    "layout conversion": "kernels that copy, cast or transpose between layouts",
    "workspace": "partial sums and workspaces (split-K, Winograd tiles, transforms)",
    "two passes": "a norm or a softmax reads its input for sums over it, and again to apply them",
    "unfused intermediates": "more kernels than operators, each with results of its own",
    "read again": "tiles of the operands come from DRAM more than once",
    "few bytes": "code, arguments and what neighbours left in the cache outweigh its own data",
    PARTLY: "some of its kernels have no counters: others ran when it was counted",
    UNKNOWN: "the capture has no such counter",
    UNEXPLAINED: "no rule fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The work of one piece, by the model and by the hardware. None: the capture does not tell."""

    model_products: float = 0.0  # FLOPs: two for each multiply-add
    model_other: float = 0.0
    model_bytes: float = 0.0
    operators: int = 0  # of the model, that move anything
    launches: float = 0.0
    products: float | None = None  # executed, likewise
    other: float | None = None
    converting: float = 0.0  # of the products: in fp16, by kernels that compute in fp32
    half: float = 0.0  # of all that was executed: in fp16, outside of tensor cores
    is_half: bool = False  # the run has numbers of 16 bits
    summed_flops: float = 0.0  # of sums of gradients …
    summed_bytes: float = 0.0  # … and what these move
    dram_bytes: float | None = None
    copied_bytes: float = 0.0  # by the driver, beside the kernels
    bytes_by_family: Mapping[str, float] = field(default_factory=dict)
    families: frozenset[str] = frozenset()  # of its kernels
    kind: str = ""  # of its largest operator
    phase: str = ""
    has_matrix: bool = False  # tensor cores did some of it
    has_split_name: bool = False  # a kernel's name says that it splits a precision
    is_lower: bool = False  # tensor cores computed in less than the precision that was asked for
    is_forward_again: bool = False  # kernels of this layer's forward in its backward …
    is_counted_again: bool = False  # … where the model has these products, too: recomputation
    has_loss_scaling: bool = False  # a kernel that unscales gradients
    uncounted_share: float = 0.0  # of its time: kernels without counters
    is_compiled: bool = False

    @property
    def model_flops(self) -> float:
        return self.model_products + self.model_other

    @property
    def flops(self) -> float | None:
        known = [part for part in (self.products, self.other) if part is not None]
        return sum(known) if known else None

    @property
    def products_ratio(self) -> float | None:
        return ratio(self.products, self.model_products)


Rule = Callable[[Piece], bool]


def ratio(executed: float | None, model: float) -> float | None:
    """Executed over model; None where one is not known or the model has none."""
    return None if executed is None or model <= 0 else executed / model


def agrees(executed: float, model: float, tolerance: float = AGREES) -> bool:
    return abs(executed - model) <= tolerance * model


def flops_cause(piece: Piece) -> str:
    """Why a piece executes more or fewer FLOPs than its model has."""
    executed, model = piece.flops, piece.model_flops
    absent = _absent(piece, model)
    if absent is not None or executed is None:
        return absent or UNKNOWN
    if agrees(executed, model):
        return AGREE
    if model == 0 and piece.model_bytes and piece.half >= MOST_OF * executed:  # it moves alone
        return "conversion" if piece.is_half else "moved constants"
    if model == 0:
        return "no model work"
    products = _more_products(piece)
    other = _more_others(piece)
    if executed < model and _is_partly_counted(piece, executed, model):
        return PARTLY
    if abs(products) >= abs(other):
        return _first(FEWER_PRODUCTS if products < 0 else MORE_PRODUCTS, piece)
    return _first(FEWER_OTHERS if other < 0 else MORE_OTHERS, piece)


def bytes_cause(piece: Piece) -> str:
    """Why a piece moves more or fewer bytes from and to DRAM than its operators touch."""
    moved, model = piece.dram_bytes, piece.model_bytes
    if not piece.launches and model and _is_copied(piece):
        return "memory copy"
    absent = _absent(piece, model)
    if absent is not None or moved is None:
        return absent or UNKNOWN
    if agrees(moved, model, BYTES_AGREE):
        return AGREE
    if model == 0:
        return "no model work"
    if moved < model and _is_partly_counted(piece, moved, model):
        return PARTLY
    if moved < model and _is_copied(piece):
        return "memory copy"
    if moved < model:
        return "fused" if piece.is_compiled else "cache reuse"
    return _first(MORE_BYTES, piece)


def _is_partly_counted(piece: Piece, executed: float, model: float) -> bool:
    """Whether kernels without counters may have done most of what is missing."""
    return piece.uncounted_share > 0 and piece.uncounted_share >= MOST_OF * (1 - executed / model)


def _absent(piece: Piece, model: float) -> str | None:
    """Of a piece without kernels."""
    if piece.launches:
        return None
    if model == 0:
        return AGREE
    return "fused" if piece.is_compiled else "not attributed"


def _first(rules: Mapping[str, Rule], piece: Piece) -> str:
    return next((cause for cause, fits in rules.items() if fits(piece)), UNEXPLAINED)


def _more_products(piece: Piece) -> float:
    return (piece.products or 0.0) - piece.model_products


def _more_others(piece: Piece) -> float:
    return (piece.other or 0.0) - piece.model_other


def _more_bytes(piece: Piece) -> float:
    return (piece.dram_bytes or 0.0) - piece.model_bytes


def _within(piece: Piece, band: tuple[float, float]) -> bool:
    times = piece.products_ratio
    return times is not None and band[0] <= times <= band[1]


def _is_copied(piece: Piece) -> bool:
    """Whether the driver moved most of what counters did not see."""
    return piece.copied_bytes >= -MOST_OF * _more_bytes(piece)


def _is_small(piece: Piece) -> bool:
    """Whether code, arguments and what neighbours wrote may be all that is too much."""
    moved = piece.dram_bytes or 0.0
    is_few = piece.model_bytes < FEW_BYTES * piece.launches
    return is_few and moved < LITTLE_MOVED * piece.launches


def _is_converting(piece: Piece) -> bool:
    return piece.converting >= MOST_OF * _more_products(piece)


def _is_split(piece: Piece) -> bool:
    """By name, or by a ratio near 3, 6 or 9 on units of a lower precision."""
    times = piece.products_ratio
    is_near = times is not None and any(abs(times - n) <= NEAR * n for n in SPLITS)
    return piece.has_split_name or (piece.is_lower and is_near)


def _is_causal(piece: Piece) -> bool:
    band = CAUSAL_BACKWARD if piece.phase == "backward" else CAUSAL
    return "attention" in piece.families and _within(piece, band)


def _is_recomputed(piece: Piece) -> bool:
    if piece.phase != "backward":
        return False
    if "attention" in piece.families:
        return _within(piece, RECOMPUTED_SCORES)
    is_more = piece.is_forward_again and not piece.is_counted_again
    return is_more and _within(piece, RECOMPUTED_FORWARD)


def _is_padded(piece: Piece) -> bool:
    if piece.has_matrix or "product" in piece.families:
        return True
    times = ratio((piece.products or 0.0) - piece.converting, piece.model_products)
    is_tiled = times is not None and TILED[0] <= times <= TILED[1]
    return "direct" in piece.families and is_tiled


def _moved_by(*families: str) -> Rule:
    """Whether kernels of some families move most of what is beyond the model's bytes."""

    def fits(piece: Piece) -> bool:
        moved = sum(piece.bytes_by_family.get(name, 0.0) for name in families)
        return moved >= MOST_OF * _more_bytes(piece)

    return fits


FEWER_PRODUCTS: dict[str, Rule] = {
    "Winograd": lambda piece: "winograd" in piece.families,
    "FFT": lambda piece: "fft" in piece.families,
    "causal skipping": _is_causal,
    "borders skipped": lambda piece: "direct" in piece.families and _within(piece, (BORDER, 1.0)),
}
FEWER_OTHERS: dict[str, Rule] = {"no counter": lambda piece: piece.kind in COMPARING}
MORE_OTHERS: dict[str, Rule] = {
    "loss scaling": lambda piece: piece.has_loss_scaling,
    "gradient sums": lambda piece: piece.summed_flops >= MOST_OF * _more_others(piece),
    "elementwise": lambda piece: True,
}
MORE_PRODUCTS: dict[str, Rule] = {
    "no model work": lambda piece: piece.model_products == 0,
    "precision split": _is_split,
    "recompute": _is_recomputed,
    "FFT": lambda piece: "fft" in piece.families,
    "conversion": lambda piece: piece.is_half and _is_converting(piece),
    "moved constants": lambda piece: not piece.is_half and _is_converting(piece),
    "tile padding": _is_padded,
}
MORE_BYTES: dict[str, Rule] = {
    "loss scaling": lambda piece: piece.has_loss_scaling,
    "gradient sums": lambda piece: piece.summed_bytes >= MOST_OF * _more_bytes(piece),
    "layout conversion": _moved_by("layout"),
    "workspace": _moved_by("split", "winograd", "fft"),
    "two passes": lambda piece: piece.kind in SUMMING and _moved_by("norm")(piece),
    "few bytes": _is_small,
    "unfused intermediates": lambda piece: piece.launches > MORE_KERNELS * max(piece.operators, 1),
    "read again": _moved_by("product", "direct", "attention"),
}
