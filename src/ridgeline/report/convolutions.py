"""Studies of convolutions, joined: per layer the best algorithm, and what PyTorch's choice costs.

A row of the table of layers is one algorithm on one pass of one layer. Only results that are right
and in the precision of the run are compared. `best` is the fastest of them; `find` and `guess` run
one of the others and are never the best themselves. `lost` is the share of a chosen time that the
best saves, `lost_s` that time in a step, with all uses of the layer. A loss is in doubt where the
samples of one of the two vary much: then other programs had the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.records import RANKED, AlgorithmResult, ConvLayer
from ridgeline.report.stored import Machines
from ridgeline.report.text import counted, no_rows, number, plain, records, times
from ridgeline.roofline.floors import add_floors, flops_column
from ridgeline.store import MeasuredRun, StoredConv, StoredConvNetwork
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd

CHOOSERS = ("find", "guess")  # run one of the other algorithms
CHOICES = ("default", "benchmark", "guess")  # whose losses are shown
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
TOO_MUCH = 0.2  # of a layer's time lost is worth a finding
UNSTEADY = 1.5  # a median over the least sample; chosen, not calibrated
ALGORITHM = "algorithm"  # the kind of a finding
SETUP = ("precision", "layout", "device_name")  # in which passes of one shape differ
NETWORK = ("model", "batch_size", "input_size", "mode", *SETUP)
LAYER = (*NETWORK, "layer", "uses", "shape", "phase")
OF_CONVOLUTIONS = ("algorithms", "losses", "executed-flops")  # kinds of figures
MOST_LOSSES, LONGEST = 15, 80  # rows, characters of a text
MEASURED = (
    "status", "reason", "time_s", "warm_time_s", "samples_s", "clock", "workspace_bytes",
    "rel_error", "bound", "precision_computed", "kernels", "implementation", "flops_executed",
    "flops_source",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions:
    """All studies of convolutions in a folder."""

    rows: pd.DataFrame = field(default_factory=no_rows)  # an algorithm on a pass of a layer
    losses: pd.DataFrame = field(default_factory=no_rows)
    networks: pd.DataFrame = field(default_factory=no_rows)  # whole models, timed

    @property
    def of_networks(self) -> pd.DataFrame:
        """The losses of layers, without those of single shapes."""
        return self.losses[self.losses["model"].ne("")] if len(self.losses) else self.losses


def join_convolutions(
    convolutions: Iterable[StoredConv],
    networks: Sequence[StoredConvNetwork],
    runs: Iterable[MeasuredRun],
    machines: Machines,
    layers: str = "",
) -> Convolutions:
    """Join what is stored of convolutions (of `layers` with this text in their names), of networks
    and of whole models.
    """
    rows = layer_rows(networks, pass_rows(convolutions, machines))
    if len(rows):
        rows = rows[rows["layer"].str.contains(layers, regex=False)]
    return Convolutions(rows=rows, losses=find_losses(rows), networks=network_rows(networks, runs))


# ---------------------------------------------------------------- tables


def pass_rows(runs: Iterable[StoredConv], machines: Machines) -> pd.DataFrame:
    """A row for each algorithm on each pass of each shape: the latest that was measured."""
    import pandas as pd

    rows = [
        {**_pass_row(run, one), "_roofs": machines.of(run).roofs}
        for run in runs
        for one in run.result.timings
    ]
    if not rows:
        return no_rows()
    table = pd.DataFrame(rows)
    table = table.drop_duplicates([*SETUP, "shape", "phase", "algorithm"], keep="last")
    tables = [
        _with_floors(same.drop(columns="_roofs"), same["_roofs"].iloc[0])
        for _, same in table.groupby(table["_roofs"].map(id), sort=False)
    ]
    return pd.concat(tables).sort_index()


def _pass_row(run: StoredConv, one: AlgorithmResult) -> dict[str, Any]:
    request, shape = run.request, run.request.shape
    moved = BYTES[request.precision] * shape.elements
    return {
        "precision": request.precision, "layout": request.layout,
        "device_name": run.result.device_name, "shape": str(shape), "phase": request.phase,
        "algorithm": one.algorithm, **{name: getattr(one, name) for name in MEASURED},
        "flops_model": 2 * shape.macs, "dram_bytes": moved, "run_id": run.run_id,
    }  # fmt: skip


def _with_floors(table: pd.DataFrame, roofs: Any) -> pd.DataFrame:
    """With the floor of the mathematics: model FLOPs, each operand moved once, one launch."""
    work = table.assign(flops=table["flops_model"], launches=1)
    for precision in table["precision"].unique():
        column = flops_column(str(precision), "matrix")
        work[column] = work["flops"].where(work["precision"].eq(precision), 0.0)
    floors = add_floors(work.astype({"time_s": float}), roofs)
    return table.assign(floor_s=floors["floor_s"], efficiency=floors["efficiency"])


def layer_rows(networks: Iterable[StoredConvNetwork], passes: pd.DataFrame) -> pd.DataFrame:
    """The rows of every layer of every network; then of shapes that no network here has."""
    import pandas as pd

    if passes.empty:
        return no_rows()
    layers = pd.DataFrame(
        [_layer_row(one, layer) for one in networks for layer in one.result.layers if layer.shape],
        columns=["model", "batch_size", "input_size", "mode", "precision", "layout", "layer",
                 "uses", "shape"],
    ).drop_duplicates()  # fmt: skip
    joined = layers.merge(passes, on=["shape", "precision", "layout"])
    if len(joined):
        joined = joined[joined["mode"].eq("train") | joined["phase"].eq("forward")]
    alone = passes[~passes["shape"].isin(layers["shape"])]
    alone = alone.assign(model="", batch_size=0, input_size="", mode="infer", uses=1, layer="")
    whole = pd.concat([one for one in (joined, alone) if len(one)], ignore_index=True)
    columns = [*LAYER, *(name for name in whole.columns if name not in LAYER)]
    return whole[columns]


def _layer_row(network: StoredConvNetwork, layer: ConvLayer) -> dict[str, Any]:
    request = network.request
    return {
        "model": request.model, "batch_size": request.batch_size,
        "input_size": size_text(request.input_size), "mode": request.mode,
        "precision": request.precision, "layout": request.layout, "layer": layer.layer,
        "uses": layer.uses, "shape": str(layer.shape),
    }  # fmt: skip


def size_text(size: Sequence[int] | None) -> str:
    """`224`, `224x160`; empty for the model's own."""
    return "x".join(map(str, size or ()))


def find_losses(rows: pd.DataFrame) -> pd.DataFrame:
    """What each choice of PyTorch and cuDNN loses against the best of the same precision."""
    import pandas as pd

    if rows.empty:
        return no_rows()
    right = rows[rows["status"].eq(RANKED) & rows["time_s"].notna()]
    found = []
    for key, group in right.groupby(list(LAYER), sort=False, dropna=False):
        able = group[~group["algorithm"].isin(CHOOSERS)]
        if len(able) < 2:
            continue  # nothing to compare
        best = min(records(able), key=lambda row: float(row["time_s"]))
        for chosen in records(group[group["algorithm"].isin(CHOICES)]):
            lost_s = max(0.0, chosen["time_s"] - best["time_s"])
            found.append({
                **dict(zip(LAYER, key, strict=True)),
                "chosen": chosen["algorithm"],
                "chosen_kernels": ran_text(chosen), "chosen_time_s": chosen["time_s"],
                "best": best["algorithm"], "best_time_s": best["time_s"],
                "lost": lost_s / chosen["time_s"],
                "lost_s": lost_s * chosen["uses"], "run_id": chosen["run_id"],
                "doubt": describe_doubt(chosen) or describe_doubt(best),
            })  # fmt: skip
    return pd.DataFrame(found)


def describe_doubt(row: Mapping[str, Any]) -> str:
    """Why a time is to be doubted; empty if it is not."""
    ratio = row["time_s"] / min(row["samples_s"])
    return f"{row['algorithm']}: its median is {times(ratio)} its least" if ratio > UNSTEADY else ""


def ran_text(row: Mapping[str, Any]) -> str:
    """What ran, by the name that its library gives; else its kernels or operators."""
    return str(row["implementation"] or ", ".join(row["kernels"]))


def network_rows(
    networks: Iterable[StoredConvNetwork], runs: Iterable[MeasuredRun]
) -> pd.DataFrame:
    """Whole models under their algorithms: the latest run of each."""
    import pandas as pd

    known = {_whole_key(one.request) for one in networks}
    rows = [_network_row(run) for run in runs if _whole_key(run.request) in known]
    if not rows:
        return no_rows()
    table = pd.DataFrame(rows).drop_duplicates("key", keep="last")
    return table.drop(columns="key").reset_index(drop=True)


def _network_row(run: MeasuredRun) -> dict[str, Any]:
    request, result = run.request, run.result
    return {
        "key": (_whole_key(request), request.algorithm, result.device_name),
        "model": request.model, "algorithm": request.algorithm,
        "batch_size": request.batch_size, "input_size": size_text(request.input_size),
        "mode": request.mode, "precision": result.precision,
        "time_s": result.step_time_s.median,
        "energy_j": result.energy.energy_j_per_step if result.energy else None,
        "device_name": result.device_name, "run_id": run.run_id,
        "notes": [text for text in result.warnings if "convolutions ran under" in text],
    }  # fmt: skip


def _whole_key(request: Any) -> tuple[Any, ...]:
    return (request.model, request.batch_size, request.input_size, request.mode,
            request.precision, request.layout)  # fmt: skip


# ---------------------------------------------------------------- findings


def find_convolutions(
    losses: pd.DataFrame, runs: Iterable[MeasuredRun], machines: Machines
) -> list[dict[str, Any]]:
    """A finding for each layer of a run whose default loses too much, with the columns of others.

    What is saved is what the study of single convolutions says, not a floor.
    """
    if losses.empty:
        return []
    much = losses[losses["chosen"].eq("default") & losses["lost"].gt(TOO_MUCH)]
    much = much[much["doubt"].eq("")]
    found = []
    for run in runs:
        request, result = run.request, run.result
        if request.algorithm != "default":
            continue
        known = (request.model, request.batch_size, size_text(request.input_size), request.mode,
                 result.precision, request.layout, result.device_name)  # fmt: skip
        for row in records(much):
            if tuple(row[name] for name in NETWORK) == known:
                found.append(_make_finding(run, row, machines.of(run).env))
    return found


def _make_finding(run: MeasuredRun, row: Mapping[str, Any], env: str) -> dict[str, Any]:
    change = f"{format_time(row['best_time_s'])} instead of {format_time(row['chosen_time_s'])}"
    return {
        "run_id": run.run_id, "env": env, "model": row["model"], "mode": row["mode"],
        "precision": row["precision"], "batch_size": row["batch_size"],
        "layer": f"{row['layer']} ({ALGORITHM})", "kind": ALGORITHM, "bound": None,
        "time_s": row["chosen_time_s"] * row["uses"],
        "floor_s": row["best_time_s"] * row["uses"], "efficiency": 1 - row["lost"],
        "headroom_s": row["lost_s"], "share": row["lost_s"] / run.result.step_time_s.median,
        "meaning": f"the {row['phase']} pass by {row['best']} takes {change} by PyTorch's choice"
        f" ({row['chosen_kernels']}), measured alone",
        "advice": f"run the model with --algorithm '{row['best']}' and compare the step; other"
        " layers may lose by it",
    }  # fmt: skip


# ---------------------------------------------------------------- for programs


def to_json(
    rows: pd.DataFrame, networks: pd.DataFrame, losses: pd.DataFrame
) -> dict[str, list[dict[str, Any]]]:
    """Layers, networks and losses, as `ridgeline conv --json` writes them."""
    layers = [
        {
            "model": row["model"], "batch_size": row["batch_size"],
            "input_size": row["input_size"], "mode": row["mode"], "layer": row["layer"],
            "uses": row["uses"], "shape": row["shape"], "pass": row["phase"],
            **{name: row[name] for name in ("algorithm", *MEASURED, "flops_model", "floor_s",
                                            "efficiency", "precision", "run_id")},
        }
        for row in _plain_records(rows)
    ]  # fmt: skip
    shown = [{"pass" if name == "phase" else name: value for name, value in row.items()}
             for row in _plain_records(losses)]  # fmt: skip
    return {"layers": layers, "networks": _plain_records(networks), "losses": shown}


def _plain_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: null for what is not known."""
    return [{name: _plain(value) for name, value in row.items()} for row in records(table)]


def _plain(value: Any) -> Any:
    return [plain(one) for one in value] if isinstance(value, tuple | list) else plain(value)


# ---------------------------------------------------------------- for people


def describe_totals(found: Convolutions) -> list[str]:
    """A sentence for each choice on each network: what it costs, all layers and passes together."""
    if found.losses.empty:
        return []
    losses = found.of_networks
    groups = losses.groupby([*NETWORK, "chosen"], sort=False, dropna=False)
    return [_describe_total(records(same)[0], same) for _, same in groups]


def _describe_total(row: Mapping[str, Any], same: pd.DataFrame) -> str:
    time_s = float((same["chosen_time_s"] * same["uses"]).sum())
    best_s = float((same["best_time_s"] * same["uses"]).sum())
    doubts = int((same["doubt"].ne("") & same["lost"].gt(0)).sum())
    return (
        f"{row['model']}{at_size(row)}, {row['mode']}, {row['precision']}, batch"
        f" {row['batch_size']}: the convolutions of a step take {format_time(time_s)} by"
        f" {row['chosen']} and {format_time(best_s)} with the best algorithm for each layer:"
        f" {format_percent(same['lost_s'].sum() / time_s)} is lost"
        + (f"; {counted(doubts, 'loss', 'losses')} in doubt" if doubts else "")
    )


def at_size(row: Mapping[str, Any]) -> str:
    return f" at {row['input_size']}" if row["input_size"] else ""


def largest_losses(found: Convolutions) -> list[dict[str, str]]:
    """The layers that lose most, as texts."""
    if found.losses.empty:
        return []
    worst = found.losses[found.losses["lost"].gt(0)].nlargest(MOST_LOSSES, "lost_s")
    return [
        {
            "network": f"{row['model'] or 'a single convolution'}{at_size(row)}",
            "layer": f"{row['layer'] or row['shape']}, {row['phase']}",
            "chosen": f"{row['chosen']}: {row['chosen_kernels']}"[:LONGEST],
            "its time": format_time(row["chosen_time_s"]), "best": row["best"],
            "best time": format_time(row["best_time_s"]),
            "lost": format_percent(row["lost"]) + (" (in doubt)" if row["doubt"] else ""),
        }
        for row in records(worst)
    ]  # fmt: skip


def whole_networks(found: Convolutions) -> list[dict[str, str]]:
    """Whole models under their algorithms, as texts."""
    return [
        {
            "network": f"{row['model']}{at_size(row)}, batch {row['batch_size']}",
            "algorithm": row["algorithm"], "step": format_time(row["time_s"]),
            "energy": "" if number(row["energy_j"]) is None else f"{row['energy_j']:.3g} J",
            "not its own": "; ".join(note.partition(" convolutions")[0] for note in row["notes"]),
        }
        for row in records(found.networks)
    ]  # fmt: skip
