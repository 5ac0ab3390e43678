"""Which metrics are counted: the fewest that a chip has for a precision and a level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ridgeline.captures.quantities import TENSOR_PREFIX, TensorCounter, parse_tensor_counter

TIERS = ("counters", "time")
LEVELS = ("dram", "hierarchical")
AUTO, CUPTI, NCU = "auto", "cupti", "ncu"
TOOLS = (AUTO, CUPTI, NCU)  # that read the counters
TOOL_NAMES = {CUPTI: "CUPTI", NCU: "Nsight Compute"}
DURATION = "gpu__time_duration.sum"
DRAM = (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes.sum",))  # what a chip has
CACHES = {"lts__t_bytes.sum": "L2 bytes", "l1tex__t_bytes.sum": "L1 bytes"}
SASS = "__sass_"  # counted by instrumented code, never beside the chip's own counters
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
    """The metrics of a step, and what is left out because the chip does not have it."""

    metrics: tuple[str, ...]
    missing: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what a total consists of

    def ncu_groups(self) -> tuple[tuple[str, ...], ...]:
        """The metrics as Nsight Compute counts them, a process for each group.

        Instrumented instructions stand alone. Memory and time go with two counters of tensor
        cores, and further pairs of these follow. A total of several instructions is counted by its
        parts: on an H200 it takes three passes, and each of these groups takes one.
        """
        instructions = [name for name in self.metrics if SASS in name]
        tensors = [
            part
            for name in self.metrics
            if is_of_tensors([name])
            for part in self.parts.get(name, (name,))
        ]
        others = [name for name in self.metrics if SASS not in name and not is_of_tensors([name])]
        pairs = [tensors[start : start + 2] for start in range(0, len(tensors), 2)] or [[]]
        groups = (instructions, others + pairs[0], *pairs[1:])
        return tuple(tuple(group) for group in groups if group)


def choose_metrics(known: Iterable[str], precision: str, level: str = "dram") -> ChosenMetrics:
    """The metrics of a step; `known` are those of the chip, without endings."""
    sums = frozenset(f"{name}.sum" for name in known)
    missing: list[str] = []
    traffic = next((names for names in DRAM if sums.issuperset(names)), ())
    if not traffic:
        missing.append("DRAM bytes")
    metrics = [*_vector(sums), *traffic, *([DURATION] if DURATION in sums else ())]
    counters = [counter for counter in map(parse_tensor_counter, sums) if counter is not None]
    parts: dict[str, tuple[str, ...]] = {}
    for kind in KINDS[precision]:
        totals = tensor_totals(counters, kind)
        chosen = tuple(c.name for c in totals) or tensor_parts(counters, kind)
        metrics += chosen
        divided = {c.name: tensor_parts(counters, c.src, c.dst, c.sparsity) for c in totals}
        parts |= {name: members for name, members in divided.items() if len(members) > 1}
        if not chosen and precision:
            missing.append(f"tensor-core work in {kind}")
    if level == "hierarchical":
        metrics += [name for name in CACHES if name in sums]
        missing += [what for name, what in CACHES.items() if name not in sums]
    once = dict.fromkeys(metrics)  # one counter may serve several kinds
    return ChosenMetrics(tuple(once), tuple(missing), parts)


def _vector(known: frozenset[str]) -> tuple[str, ...]:
    """Additions, products and both in one, of each width; packed ones where a chip has them."""
    operations = [f"{letter}{name}" for letter in "fdh" for name in ("add", "mul", "fma")]
    operations += ["fadd2", "fmul2", "ffma2"]
    return tuple(name for one in operations if (name := VECTOR.format(one)) in known)


def is_of_tensors(metrics: Sequence[str]) -> bool:
    """Whether nothing but tensor-core work is counted."""
    return all(name.startswith(TENSOR_PREFIX) for name in metrics)


def counts_warp_groups(name: str) -> bool:
    """Whether a counter of tensor-core work includes what whole groups of warps do together."""
    counter = parse_tensor_counter(name)
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
