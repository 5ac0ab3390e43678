"""Why executed work differs from the model's: one short rule for each cause, the first that fits.

Executed FLOPs are additions, multiplications and multiply-adds that the hardware counted. The
model's are those of the mathematics: they include comparisons and divisions, which no counter
sees, and leave out transcendental functions, which kernels expand into additions and
multiplications. So products are compared with products, and the rest with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ridgeline.roofline.work import SPLIT_PRECISION, family

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
FULL = ("fp64", "fp32", "tf32")  # numbers of 16 bits are in none of these runs
LOWER = {"fp64": {"fp32", "tf32", "bf16", "fp16"}, "fp32": {"tf32", "bf16", "fp16"}}

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


@dataclass(slots=True, kw_only=True)
class LayerWork:
    """The work of a layer in a phase, by the model and by the hardware. None: not collected."""

    layer: str = ""
    phase: str = ""
    precision: str = ""  # of the run
    is_compiled: bool = False
    # by the model
    kind: str = ""  # of its largest operator
    largest: float = 0.0  # work of that operator
    model_products: float = 0.0  # FLOPs: two for each multiply-add
    model_other: float = 0.0
    model_bytes: float = 0.0
    operators: int = 0  # that move anything
    # by the hardware
    kernels: set[str] = field(default_factory=set)  # by name
    launches: float = 0.0
    time_s: float = 0.0
    products: float | None = None  # FLOPs executed
    other: float | None = None
    tensor_precisions: set[str] = field(default_factory=set)  # of tensor cores that were at work
    converting: float = 0.0  # of the products: in fp16, by kernels that compute in fp32
    half: float = 0.0  # of all that was executed: in fp16, outside of tensor cores
    summed_flops: float = 0.0  # of sums of gradients …
    summed_bytes: float = 0.0  # … and what these move
    dram_bytes: float | None = None
    copied_bytes: float = 0.0  # by the driver, beside the kernels
    bytes_by_family: dict[str, float] = field(default_factory=dict)
    uncounted_s: float = 0.0  # time of kernels without counters …
    uncounted: int = 0  # … and how many there are
    is_forward_again: bool = False  # kernels of this layer's forward in its backward …
    is_counted_again: bool = False  # … where the model has these products, too: recomputation
    has_loss_scaling: bool = False  # a kernel that unscales gradients
    # why they differ
    cause: str = ""
    bytes_cause: str = ""

    @property
    def model_flops(self) -> float:
        return self.model_products + self.model_other

    @property
    def flops(self) -> float | None:
        return sum_known((self.products, self.other))

    @property
    def products_ratio(self) -> float | None:
        return ratio(self.products, self.model_products)

    @property
    def more_products(self) -> float:
        """Than the model has."""
        return (self.products or 0.0) - self.model_products

    @property
    def more_others(self) -> float:
        return (self.other or 0.0) - self.model_other

    @property
    def more_bytes(self) -> float:
        return (self.dram_bytes or 0.0) - self.model_bytes

    @property
    def families(self) -> set[str]:
        return set(map(family, self.kernels))

    @property
    def is_half(self) -> bool:
        """Whether the run has numbers of 16 bits."""
        return self.precision not in FULL

    @property
    def uncounted_share(self) -> float:
        """Of its time: kernels without counters; all of it where times do not tell."""
        if not self.uncounted:
            return 0.0
        return self.uncounted_s / self.time_s if self.uncounted_s else 1.0


Rule = Callable[[LayerWork], bool]


def ratio(executed: float | None, model: float) -> float | None:
    """Executed over model; None where one is not known or the model has none."""
    return None if executed is None or model <= 0 else executed / model


def sum_known(values: Iterable[float | None]) -> float | None:
    """None where nothing is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def agrees(executed: float, model: float, tolerance: float = AGREES) -> bool:
    return abs(executed - model) <= tolerance * model


def find_flops_cause(work: LayerWork) -> str:
    """Why a layer executes more or fewer FLOPs than its model has."""
    executed, model = work.flops, work.model_flops
    absent = _explain_absence(work, model)
    if absent is not None or executed is None:
        return absent or UNKNOWN
    if agrees(executed, model):
        return AGREE
    if model == 0 and work.model_bytes and work.half >= MOST_OF * executed:  # it moves alone
        return "conversion" if work.is_half else "moved constants"
    if model == 0:
        return "no model work"
    products, other = work.more_products, work.more_others
    if executed < model and _is_partly_counted(work, executed, model):
        return PARTLY
    if abs(products) >= abs(other):
        return _find_first(FEWER_PRODUCTS if products < 0 else MORE_PRODUCTS, work)
    return _find_first(FEWER_OTHERS if other < 0 else MORE_OTHERS, work)


def find_bytes_cause(work: LayerWork) -> str:
    """Why a layer moves more or fewer bytes from and to DRAM than its operators touch."""
    moved, model = work.dram_bytes, work.model_bytes
    if not work.launches and model and _is_copied(work):
        return "memory copy"
    absent = _explain_absence(work, model)
    if absent is not None or moved is None:
        return absent or UNKNOWN
    if agrees(moved, model, BYTES_AGREE):
        return AGREE
    if model == 0:
        return "no model work"
    if moved < model and _is_partly_counted(work, moved, model):
        return PARTLY
    if moved < model and _is_copied(work):
        return "memory copy"
    if moved < model:
        return "fused" if work.is_compiled else "cache reuse"
    return _find_first(MORE_BYTES, work)


def _is_partly_counted(work: LayerWork, executed: float, model: float) -> bool:
    """Whether kernels without counters may have done most of what is missing."""
    return work.uncounted_share > 0 and work.uncounted_share >= MOST_OF * (1 - executed / model)


def _explain_absence(work: LayerWork, model: float) -> str | None:
    """Of a layer without kernels."""
    if work.launches:
        return None
    if model == 0:
        return AGREE
    return "fused" if work.is_compiled else "not attributed"


def _find_first(rules: Mapping[str, Rule], work: LayerWork) -> str:
    return next((cause for cause, fits in rules.items() if fits(work)), UNEXPLAINED)


def _within(work: LayerWork, band: tuple[float, float]) -> bool:
    times = work.products_ratio
    return times is not None and band[0] <= times <= band[1]


def _is_copied(work: LayerWork) -> bool:
    """Whether the driver moved most of what counters did not see."""
    return work.copied_bytes >= -MOST_OF * work.more_bytes


def _is_small(work: LayerWork) -> bool:
    """Whether code, arguments and what neighbours wrote may be all that is too much."""
    moved = work.dram_bytes or 0.0
    is_few = work.model_bytes < FEW_BYTES * work.launches
    return is_few and moved < LITTLE_MOVED * work.launches


def _is_converting(work: LayerWork) -> bool:
    return work.converting >= MOST_OF * work.more_products


def _is_split(work: LayerWork) -> bool:
    """By name, or by a ratio near 3, 6 or 9 on units of a lower precision."""
    times = work.products_ratio
    is_near = times is not None and any(abs(times - n) <= NEAR * n for n in SPLITS)
    is_lower = bool(work.tensor_precisions & LOWER.get(work.precision, set()))
    return any(map(SPLIT_PRECISION.search, work.kernels)) or (is_lower and is_near)


def _is_causal(work: LayerWork) -> bool:
    band = CAUSAL_BACKWARD if work.phase == "backward" else CAUSAL
    return "attention" in work.families and _within(work, band)


def _is_recomputed(work: LayerWork) -> bool:
    if work.phase != "backward":
        return False
    if "attention" in work.families:
        return _within(work, RECOMPUTED_SCORES)
    is_more = work.is_forward_again and not work.is_counted_again
    return is_more and _within(work, RECOMPUTED_FORWARD)


def _is_padded(work: LayerWork) -> bool:
    if work.tensor_precisions or "product" in work.families:
        return True
    times = ratio((work.products or 0.0) - work.converting, work.model_products)
    is_tiled = times is not None and TILED[0] <= times <= TILED[1]
    return "direct" in work.families and is_tiled


def _moved_by(*families: str) -> Rule:
    """Whether kernels of some families move most of what is beyond the model's bytes."""

    def fits(work: LayerWork) -> bool:
        moved = sum(work.bytes_by_family.get(name, 0.0) for name in families)
        return moved >= MOST_OF * work.more_bytes

    return fits


FEWER_PRODUCTS: dict[str, Rule] = {
    "Winograd": lambda work: "winograd" in work.families,
    "FFT": lambda work: "fft" in work.families,
    "causal skipping": _is_causal,
    "borders skipped": lambda work: "direct" in work.families and _within(work, (BORDER, 1.0)),
}
FEWER_OTHERS: dict[str, Rule] = {"no counter": lambda work: work.kind in COMPARING}
MORE_OTHERS: dict[str, Rule] = {
    "loss scaling": lambda work: work.has_loss_scaling,
    "gradient sums": lambda work: work.summed_flops >= MOST_OF * work.more_others,
    "elementwise": lambda work: True,
}
MORE_PRODUCTS: dict[str, Rule] = {
    "no model work": lambda work: work.model_products == 0,
    "precision split": _is_split,
    "recompute": _is_recomputed,
    "FFT": lambda work: "fft" in work.families,
    "conversion": lambda work: work.is_half and _is_converting(work),
    "moved constants": lambda work: not work.is_half and _is_converting(work),
    "tile padding": _is_padded,
}
MORE_BYTES: dict[str, Rule] = {
    "loss scaling": lambda work: work.has_loss_scaling,
    "gradient sums": lambda work: work.summed_bytes >= MOST_OF * work.more_bytes,
    "layout conversion": _moved_by("layout"),
    "workspace": _moved_by("split", "winograd", "fft"),
    "two passes": lambda work: work.kind in SUMMING and _moved_by("norm")(work),
    "few bytes": _is_small,
    "unfused intermediates": lambda work: work.launches > MORE_KERNELS * max(work.operators, 1),
    "read again": _moved_by("product", "direct", "attention"),
}
