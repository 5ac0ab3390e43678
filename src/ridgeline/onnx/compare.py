"""Comparison of a PyTorch model's count with that of its ONNX file.

Operators and nodes are matched module by module, by the scopes that torch's exporters write into a
file. Operators and nodes of equal cost cancel. The others belong to one of six causes, by rules
that look at one module alone, or to "other". So the causes add up to the whole difference.

    compare_with_onnx  counts the file at the model's sizes and compares
    compare_counts     arithmetic on two counts: reads no file, imports neither torch nor onnx
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.count.records import OpCost, cost_dict
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.onnx.node import Constants, NodeCall
from ridgeline.records import Cost, WorkloadSpec

SEQUENCE = "sequence"  # the dimension's name in files of `ridgeline export`

FOLDED_NORM = "folded batch norm"
BIAS = "bias"
CONSTANT = "constant folded"
SHAPES = "shape operators"
COPY = "layout copy"
DECOMPOSED = "decomposed operator"
OTHER = "other"
EXPLANATIONS = {
    FOLDED_NORM: "its scale is in the weights of the product before it, its shift in the bias",
    BIAS: "exporters drop a bias of zeros, and add one for a folded batch norm",
    CONSTANT: "it does not depend on the input: the exporter computed it once",
    SHAPES: "sizes, indices and constants that the file computes in every step",
    COPY: "data are copied where the other side has a view, or are copied in other steps",
    DECOMPOSED: "one operator is several nodes, or several are one: other data lie in between",
    OTHER: "no rule names a cause",
}

MOVES = frozenset({"move", "gather", "view", "fill", "cast", "scatter", "constant"})
BATCH_NORMS = ("native_batch_norm", "batch_norm")
FLOATS = ("fp", "bf", "tf")  # beginnings of floating-point types
LARGEST_RATIO = 6  # between the work of an operator and that of the nodes written for it
MOST_NAMES = 4  # operators named in a row
NUMBER = re.compile(r"_\d+$")  # of a call, after the name of its module


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One cause in one form, summed over the modules that have it."""

    cause: str
    what: str  # "addmm → MatMul + Add"
    modules: int
    change: Cost  # ONNX less PyTorch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCosts:
    """One module, without its submodules, on both sides."""

    module: str  # "" is the model itself
    pytorch: Cost
    onnx: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxComparison:
    """Two counts of one model. Without `modules` and `differences` where `totals_only` says why."""

    model: str
    file: str
    batch_size: int
    pytorch: Cost
    onnx: Cost
    modules: tuple[ModuleCosts, ...] = ()
    differences: tuple[Difference, ...] = ()
    totals_only: str = ""

    @property
    def change(self) -> Cost:
        return self.onnx - self.pytorch

    @property
    def unequal_modules(self) -> tuple[str, ...]:
        """The modules whose MACs differ."""
        return tuple(m.module for m in self.modules if m.pytorch.macs != m.onnx.macs)

    @property
    def has_equal_macs(self) -> bool:
        return self.pytorch.macs == self.onnx.macs and not self.unequal_modules

    @property
    def unexplained_macs(self) -> int:
        """MACs that the file has more, or less, without a named cause."""
        if self.totals_only:
            return self.change.macs
        return sum(row.change.macs for row in self.differences if row.cause == OTHER)

    @property
    def other_share(self) -> float:
        """The larger share, of the model's FLOPs or of its bytes, that no cause accounts for."""
        rows = [row.change for row in self.differences if row.cause == OTHER]
        flops = sum(abs(change.flops) for change in rows) / max(self.pytorch.flops, 1)
        moved = sum(abs(change.moved_bytes) for change in rows) / max(self.pytorch.moved_bytes, 1)
        return max(flops, moved)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; see docs/count.md."""
        sides = {name: cost_dict(getattr(self, name)) for name in ("pytorch", "onnx", "change")}
        return {
            "model": self.model,
            "file": self.file,
            "batch_size": self.batch_size,
            "has_equal_macs": self.has_equal_macs,
            "unexplained_macs": self.unexplained_macs,
            "other_share": self.other_share,
            "totals_only": self.totals_only or None,
            **sides,
            "modules": [
                {"module": m.module, "pytorch": cost_dict(m.pytorch), "onnx": cost_dict(m.onnx)}
                for m in self.modules
            ],
            "differences": [
                {
                    "cause": row.cause,
                    "explanation": EXPLANATIONS[row.cause],
                    "what": row.what,
                    "modules": row.modules,
                    "change": cost_dict(row.change),
                }
                for row in self.differences
            ],
        }


# ---------------------------------------------------------------- a model and its file


def compare_with_onnx(
    pytorch: CountResult, path: Path, *, spec: WorkloadSpec, dims: Mapping[str, int] | None = None
) -> tuple[CountResult, OnnxComparison]:
    """Count `path` at the sizes of `pytorch`, which is the count of `spec`, and compare them."""
    from ridgeline.onnx import count_onnx  # these need onnx
    from ridgeline.onnx.dims import open_dims
    from ridgeline.onnx.load import load

    check_comparable(path, mode=pytorch.mode, precision=pytorch.precision)
    names = open_dims(load(path).graph)
    # a static file has its own batch, which its inputs need not show: a list of images
    batch_size = pytorch.batch_size if names else None
    sizes = {**_sequence_length(names, spec), **(dims or {})}
    onnx = count_onnx(path, batch_size=batch_size, dims=sizes)
    return onnx, compare_counts(pytorch, onnx)


def check_comparable(path: Path, *, mode: str, precision: str) -> None:
    """Refuse anything but a forward pass in fp32: that is what an exported file holds."""
    if not path.is_file():
        raise RidgelineError(
            f"--compare-onnx: there is no file {path}",
            hint="`ridgeline export MODEL -o FILE` writes one",
        )
    refused = [f"--mode {mode}"] if mode != "infer" else []
    refused += [f"--precision {precision}"] if precision != "fp32" else []
    if refused:
        raise RidgelineError(
            f"--compare-onnx cannot compare {' and '.join(refused)}",
            hint=f"it compares a forward pass in fp32; leave {' and '.join(refused)} out",
        )


def _sequence_length(names: Collection[str], spec: WorkloadSpec) -> dict[str, int]:
    """The model's own, for a file that leaves its sequence open."""
    from ridgeline.workloads import resolve

    if SEQUENCE not in names:
        return {}
    length = spec.seq_len or resolve(spec).describe.get("seq_len")
    return {SEQUENCE: length} if isinstance(length, int) else {}


# ---------------------------------------------------------------- two counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpRecord:
    """An operator call of PyTorch, or a node of the file."""

    name: str  # without its domain: "addmm", "MatMul"
    kind: str
    module: str
    cost: Cost
    is_constant: bool  # it does not depend on the input
    is_float: bool

    @property
    def work(self) -> int:
        return self.cost.flops + self.cost.transcendentals


@dataclass(slots=True)
class Group:
    """Operators and nodes that stand for each other."""

    pytorch: list[OpRecord] = field(default_factory=list)
    onnx: list[OpRecord] = field(default_factory=list)

    @property
    def change(self) -> Cost:
        return _total(self.onnx) - _total(self.pytorch)


Explained = list[tuple[str, Group]]


def compare_counts(pytorch: CountResult, onnx: CountResult) -> OnnxComparison:
    """A model's count and that of its file; by totals alone where modules cannot be matched."""
    modules = _match_modules(pytorch, onnx)
    totals_only = _why_totals_only(pytorch, onnx, modules)
    explained = [] if totals_only else [p for group in modules.values() for p in _explain(group)]
    return OnnxComparison(
        model=pytorch.model,
        file=onnx.model,
        batch_size=pytorch.batch_size,
        pytorch=_total(pytorch.op_costs),
        onnx=_total(onnx.op_costs),
        modules=() if totals_only else tuple(_module_costs(modules)),
        differences=_sum_differences(explained),
        totals_only=totals_only,
    )


def _why_totals_only(pytorch: CountResult, onnx: CountResult, modules: dict[str, Group]) -> str:
    """Why modules cannot be compared, as a sentence; empty where they can."""
    known = {op.path for op in pytorch.op_costs}
    strange = [op for name, g in modules.items() if name not in known for op in g.onnx]
    if any(op.cost.macs for op in strange):
        return "the file does not name the model's modules: only totals are compared"
    dtypes = [{op.dtype for op in one.op_costs if op.cost.macs} for one in (pytorch, onnx)]
    if others := sorted(dtypes[1] - dtypes[0]):
        return f"the file computes products in {', '.join(others)}: only totals are compared"
    return ""


def _match_modules(pytorch: CountResult, onnx: CountResult) -> dict[str, Group]:
    """The operators and nodes of each module, in the order of the model."""
    groups: dict[str, Group] = defaultdict(Group)
    depends = _find_dependent(pytorch)
    for number, op in enumerate(pytorch.op_costs):
        groups[op.path].pytorch.append(_record(op, op.path, is_constant=number not in depends))
    known = frozenset(groups)
    constants = Constants(op.call for op in onnx.op_costs if isinstance(op.call, NodeCall))
    # a node's path is that of its module, if the file has it, and the node's name
    scopes = [op.path.rpartition(".")[0] for op in onnx.op_costs]
    modules = {scope: _resolve(scope, known) for scope in set(scopes)}
    norms = _find_normed_products(pytorch)
    for op, scope in zip(onnx.op_costs, scopes, strict=True):
        module = modules[scope]
        if op.cost.macs and module in norms:  # exporters put the folded product there
            module = norms[module]
        is_constant = all(tensor in constants for tensor in op.call.inputs)
        groups[module].onnx.append(_record(op, module, is_constant=is_constant))
    return groups


def _record(op: OpCost, module: str, *, is_constant: bool) -> OpRecord:
    return OpRecord(
        name=op.op.rpartition("::")[2].removesuffix("_"),
        kind=op.kind,
        module=module,
        cost=op.cost,
        is_constant=is_constant,
        is_float=op.dtype.startswith(FLOATS),
    )


def _resolve(scope: str, known: Collection[str]) -> str:
    """The model's module: exporters may write the end of its path, or number its calls."""
    outer, dot, inner = scope.partition(".")
    for name in (scope, NUMBER.sub("", scope), f"{NUMBER.sub('', outer)}{dot}{inner}"):
        if name in known:
            return name
        ending = [path for path in known if path.endswith(f".{name}")]
        if name and len(ending) == 1:
            return ending[0]
    return scope


def _find_dependent(pytorch: CountResult) -> set[int]:
    """The operators, by number, that have the model's input in them."""
    if not pytorch.input_storages:
        return set(range(len(pytorch.op_costs)))
    storages = set(pytorch.input_storages)
    dependent = set()
    for number, op in enumerate(pytorch.op_costs):
        is_filled = op.kind == "fill" and not op.op.endswith("_")  # it takes the size alone
        if not is_filled and storages & _storages(op.call.inputs):
            storages |= _storages(op.call.outputs)
            dependent.add(number)
    return dependent


def _find_normed_products(pytorch: CountResult) -> dict[str, str]:
    """The module of each batch norm without products → that of the product which it reads."""
    producers: dict[int, str] = {}  # storage → module
    products = {op.path for op in pytorch.op_costs if op.cost.macs}
    sources_of: dict[str, str] = {}
    for op in pytorch.op_costs:
        if op.op.rpartition("::")[2] in BATCH_NORMS and op.path not in products:
            sources = [producers[s] for s in _storages(op.call.inputs) if s in producers]
            if sources:
                sources_of[op.path] = sources[0]
        if op.kind != "view":
            made = _storages(op.call.outputs)
            producers = {s: path for s, path in producers.items() if s not in made}
            producers |= dict.fromkeys(made, op.path) if op.cost.macs else {}
    return sources_of


def _storages(tensors: Iterable[Any]) -> set[int]:
    return {int(tensor.storage) for tensor in tensors}


# ---------------------------------------------------------------- rules


def _explain(module: Group) -> Explained:
    """Everything in a module that has no equal on the other side, under a cause.

    Each rule takes away what it explains.
    """
    rest = _cancel_equal(module)
    return [*_explain_products(rest), *_explain_alone(rest), *_explain_work(rest)]


def _cancel_equal(module: Group) -> Group:
    """The module without pairs of equal cost."""
    waiting: dict[Cost, list[OpRecord]] = defaultdict(list)
    for node in module.onnx:
        waiting[node.cost].append(node)
    rest = Group()
    for op in module.pytorch:
        if op.cost != Cost() and waiting[op.cost]:
            waiting[op.cost].pop(0)
        elif op.cost != Cost():
            rest.pytorch.append(op)
    rest.onnx = [node for cost, nodes in waiting.items() if cost != Cost() for node in nodes]
    return rest


def _explain_products(module: Group) -> Explained:
    """Products of equal MACs and results: the bias is gone, is new, or is a node of its own."""
    explained: Explained = []
    for op in [op for op in module.pytorch if op.cost.macs]:
        same = [node for node in module.onnx if _product_key(node) == _product_key(op)]
        missing = op.cost.other_flops - same[0].cost.other_flops if same else 0
        if not missing:
            continue
        adds = [n for n in module.onnx if n.name == "Add" and n.cost.other_flops == missing]
        nodes = [same[0], *adds[:1]]
        explained.append((DECOMPOSED if adds else BIAS, Group([op], nodes)))
        module.pytorch.remove(op)
        for node in nodes:
            module.onnx.remove(node)
    return explained


def _product_key(op: OpRecord) -> tuple[int, int, int]:
    return op.cost.macs, op.cost.written_bytes, op.cost.transcendentals


def _explain_alone(module: Group) -> Explained:
    """Operators and nodes whose cause can be seen without a counterpart."""
    has_norm = any(node.kind == "norm" for node in module.onnx)
    missing_macs = -module.change.macs
    explained: Explained = []
    for op in list(module.pytorch):
        if op.cost.macs > max(missing_macs, 0):
            continue  # the file has this product, too
        if cause := _find_cause(op, is_added=False, has_norm=has_norm):
            explained.append((cause, Group([op], [])))
            module.pytorch.remove(op)
            missing_macs -= op.cost.macs
    for node in list(module.onnx):
        if not node.cost.macs and (cause := _find_cause(node, is_added=True)):
            explained.append((cause, Group([], [node])))
            module.onnx.remove(node)
    return explained


def _find_cause(op: OpRecord, *, is_added: bool, has_norm: bool = False) -> str:
    """The cause of an operator without a node, or of a node without an operator; empty for none."""
    if op.name in BATCH_NORMS and not has_norm:
        return FOLDED_NORM
    if op.is_constant:
        return SHAPES if is_added else CONSTANT
    if not op.is_float:
        return SHAPES
    return COPY if op.kind in MOVES else ""


def _explain_work(module: Group) -> Explained:
    """The rest is one operator as other nodes, if both sides have about as much work."""
    if not module.pytorch and not module.onnx:
        return []
    works = [sum(op.work for op in side) for side in (module.pytorch, module.onnx)]
    is_alike = max(works) <= LARGEST_RATIO * min(works) and not module.change.macs
    return [(DECOMPOSED if is_alike and module.pytorch and module.onnx else OTHER, module)]


# ---------------------------------------------------------------- sums


def _module_costs(modules: Mapping[str, Group]) -> Iterable[ModuleCosts]:
    for name, group in modules.items():
        costs = (_total(group.pytorch), _total(group.onnx))
        if any(cost != Cost() for cost in costs):
            yield ModuleCosts(module=name, pytorch=costs[0], onnx=costs[1])


def _sum_differences(explained: Explained) -> tuple[Difference, ...]:
    """A row for each cause and form of it, the largest first; without those that come to 0."""
    rows: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for cause, group in explained:
        rows[cause, _describe(group)].append(group)
    differences = [
        Difference(
            cause=cause,
            what=what,
            modules=len({op.module for g in groups for op in (*g.pytorch, *g.onnx)}),
            change=sum((group.change for group in groups), Cost()),
        )
        for (cause, what), groups in rows.items()
    ]
    changed = [row for row in differences if row.change != Cost()]
    return tuple(sorted(changed, key=lambda row: -abs(row.change.moved_bytes)))


def _describe(group: Group) -> str:
    """`addmm → MatMul + Add`, `native_batch_norm gone`, `Transpose`."""
    ours, theirs = _names(group.pytorch), _names(group.onnx)
    if ours and theirs:
        return f"{ours} → {theirs}"
    return f"{ours} gone" if ours else theirs


def _names(ops: list[OpRecord]) -> str:
    counts = Counter(op.name for op in ops)
    names = [name if n == 1 else f"{n} {name}" for name, n in counts.most_common(MOST_NAMES)]
    return " + ".join([*names, "…"] if len(counts) > MOST_NAMES else names)


def _total(ops: Iterable[OpRecord | OpCost]) -> Cost:
    return sum((op.cost for op in ops), Cost())
