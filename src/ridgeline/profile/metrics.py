"""Which metrics answer the question: the fewest that a chip has for a precision and a level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ridgeline.captures.tensor_counters import PREFIX, TensorCounter, parse

TIERS = ("counters", "time")
LEVELS = ("dram", "hierarchical")
AUTO, CUPTI, NCU = "auto", "cupti", "ncu"
TOOLS = (AUTO, CUPTI, NCU)  # that read the counters
TOOL_NAMES = {CUPTI: "CUPTI", NCU: "Nsight Compute"}
DURATION = "gpu__time_duration.sum"
DRAM = (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes.sum",))  # what a chip has
CACHES = {"lts__t_bytes.sum": "L2 bytes", "l1tex__t_bytes.sum": "L1 bytes"}
VECTOR = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
KINDS = {  # what tensor cores take in, by the precision of the step
    "fp32": ("tf32",),  # none is expected; a kernel that uses them all the same must be seen
    "tf32": ("tf32",),
    "amp": ("fp16",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
    "": ("fp16", "bf16", "tf32", "fp8"),  # a program of which nothing is known
}


@dataclass(frozen=True, slots=True)
class ChosenMetrics:
    """Metrics that belong together, and what is left out because the chip does not have it."""

    atoms: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what a total consists of


def choose_metrics(known: Iterable[str], precision: str, level: str = "dram") -> ChosenMetrics:
    """The metrics of a step, in groups that must not be torn apart; `known` are without endings."""
    sums = frozenset(f"{name}.sum" for name in known)
    missing: list[str] = []
    atoms = [_vector(sums)]
    traffic = next((names for names in DRAM if sums.issuperset(names)), ())
    if not traffic:
        missing.append("DRAM bytes")
    atoms += [traffic, (DURATION,) if DURATION in sums else ()]
    counters = [counter for counter in map(parse, sums) if counter is not None]
    parts: dict[str, tuple[str, ...]] = {}
    for kind in KINDS[precision]:
        totals = tensor_totals(counters, kind)
        chosen = tuple(c.name for c in totals) or tensor_parts(counters, kind)
        atoms += [(name,) for name in chosen]
        divided = {c.name: tensor_parts(counters, c.src, c.dst, c.sparsity) for c in totals}
        parts |= {name: members for name, members in divided.items() if len(members) > 1}
        if not chosen and precision:
            missing.append(f"tensor-core work in {kind}")
    if level == "hierarchical":
        atoms += [(name,) for name in CACHES if name in sums]
        missing += [what for name, what in CACHES.items() if name not in sums]
    once = dict.fromkeys(atom for atom in atoms if atom)  # one counter may serve several kinds
    return ChosenMetrics(tuple(once), tuple(missing), parts)


def _vector(known: frozenset[str]) -> tuple[str, ...]:
    """Additions, products and both in one, of each width; packed ones where a chip has them."""
    operations = [f"{letter}{name}" for letter in "fdh" for name in ("add", "mul", "fma")]
    operations += ["fadd2", "fmul2", "ffma2"]
    return tuple(name for one in operations if (name := VECTOR.format(one)) in known)


def is_of_tensors(metrics: Sequence[str]) -> bool:
    """Whether nothing but tensor-core work is counted."""
    return all(name.startswith(PREFIX) for name in metrics)


def counts_warp_groups(name: str) -> bool:
    """Whether a counter of tensor-core work includes what whole groups of warps do together."""
    counter = parse(name)
    return counter is not None and (not counter.op or "gmma" in counter.op)


def tensor_totals(known: Iterable[TensorCounter], kind: str) -> list[TensorCounter]:
    """Totals of tensor-core work on one kind of operand: no parts of them, nothing twice."""
    of_kind = [c for c in known if not c.op and kind in c.src.split("_")]
    found = [c for c in of_kind if not c.sparsity] or of_kind
    return sorted(found, key=lambda c: c.name)


def tensor_parts(
    known: Iterable[TensorCounter], src: str, dst: str = "", sparsity: str = ""
) -> tuple[str, ...]:
    """What such work consists of, by instruction; none contains another."""
    found = [
        c for c in known
        if c.op and c.src == src and dst in ("", c.dst) and c.sparsity == sparsity
    ]  # fmt: skip
    divided = {c.op for c in found if c.dst}  # the results of which are told apart
    return tuple(sorted(c.name for c in found if c.dst or c.op not in divided))
