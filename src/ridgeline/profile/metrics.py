"""Which metrics answer the question: the fewest that a chip has for a precision and a level."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TIERS = ("counters", "time")
LEVELS = ("dram", "hierarchical")
TENSOR = "sm__ops_path_tensor_src_"
VECTOR = "smsp__sass_thread_inst_executed_op_{}_pred_on"
KINDS = {  # what tensor cores take in, by the precision of the step
    "fp32": ("tf32",),  # none is expected; a kernel that uses them all the same must be seen
    "tf32": ("tf32",),
    "amp": ("fp16",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
    "": ("fp16", "bf16", "tf32", "fp8"),  # a program of which nothing is known
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Metrics that belong together, and what is left out because the chip does not have it."""

    atoms: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what a total consists of


def wanted(known: frozenset[str], precision: str, level: str = "dram") -> Wanted:
    """The metrics of a step, in groups that must not be torn apart."""
    missing: list[str] = []
    atoms = [_vector(known)]
    traffic = _first(known, (("dram__bytes_read", "dram__bytes_write"), ("dram__bytes",)))
    if traffic:
        atoms.append(traffic)
    else:
        missing.append("DRAM bytes")
    atoms.append(_first(known, (("gpu__time_duration",),)))
    parts: dict[str, tuple[str, ...]] = {}
    for kind in KINDS.get(precision, KINDS[""]):
        names = tensor_metrics(known, kind) or tensor_members(known, kind)
        for name in names:
            members = tensor_members(known, name.removeprefix(TENSOR))
            if len(members) > 1:
                parts[f"{name}.sum"] = tuple(f"{member}.sum" for member in members)
        atoms += [(name,) for name in names]
        if not names and precision:
            missing.append(f"tensor-core work in {kind}")
    if level == "hierarchical":
        for name, what in (("lts__t_bytes", "L2 bytes"), ("l1tex__t_bytes", "L1 bytes")):
            if name in known:
                atoms.append((name,))
            else:
                missing.append(what)
    once = dict.fromkeys(atom for atom in atoms if atom)  # one counter may serve several kinds
    endings = tuple(tuple(f"{name}.sum" for name in atom) for atom in once)
    return Wanted(endings, tuple(missing), parts)


def _vector(known: frozenset[str]) -> tuple[str, ...]:
    """Additions, products and both in one, of each width; packed ones where a chip has them."""
    operations = [f"{letter}{name}" for letter in "fdh" for name in ("add", "mul", "fma")]
    operations += ["fadd2", "fmul2", "ffma2"]
    return tuple(name for one in operations if (name := VECTOR.format(one)) in known)


def _first(known: frozenset[str], choices: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return next((names for names in choices if known.issuperset(names)), ())


def is_of_tensors(metrics: Sequence[str]) -> bool:
    """Whether nothing but tensor-core work is counted."""
    return all("__ops_path_tensor_" in name for name in metrics)


def tensor_metrics(known: frozenset[str], kind: str) -> tuple[str, ...]:
    """Totals of tensor-core work on one kind of operand: no parts of them, nothing twice."""
    pattern = re.compile(rf"{TENSOR}(?:\w+_)?{kind}(?:_\w+?)?(?:_dst_\w+?)?")
    found = [n for n in known if n.startswith(TENSOR) and pattern.fullmatch(n)]
    of_kind = [n for n in found if kind in n.removeprefix(TENSOR).split("_dst_")[0].split("_")]
    whole = [n for n in of_kind if not re.search(r"_(?:realtime|sparsity_o(?:n|ff))$", n)]
    parts = [n for n in of_kind if re.search(r"_sparsity_o(?:n|ff)$", n)]
    return tuple(sorted(whole or parts))


def tensor_members(known: frozenset[str], total: str) -> tuple[str, ...]:
    """The parts of a total (`fp16`, `fp16_dst_fp32`) by instruction, none inside another."""
    pattern = re.compile(rf"sm__ops_path_tensor_op_[a-z]+_src_{total}(?:_dst_[a-z0-9]+)?")
    found = [name for name in known if pattern.fullmatch(name)]
    return tuple(
        sorted(n for n in found if not any(other.startswith(f"{n}_dst_") for other in found))
    )
