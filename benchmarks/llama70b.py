"""A 70-billion-parameter language model and a mixture of experts, without their weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import fresh
from benchmarks.report import Report, Table, one_line

Count = Callable[[Any, Any], int | None]
SEQ_LEN = 2048
REPEATS = 3  # of each process; the best time and the least memory count
LLAMA: Mapping[str, int] = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
}
MIXTRAL: Mapping[str, int] = {  # 8x7B
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
WAYS = {
    "by_name": "`ridgeline.count(name)`",
    "ours": "`ridgeline.count(module, inputs)`",
    "flop_counter_masked": "FlopCounterMode, 4-D mask passed",
    "flop_counter": "FlopCounterMode, no mask",
    "forward_masked": "forward alone, 4-D mask passed",
}


def run() -> Report:
    """Every way in processes of its own, for both models."""
    models = (("llama", "Llama-3-70B", LLAMA), ("mixtral", "Mixtral-8x7B", MIXTRAL))
    tables, claims = [], []
    for model_type, title, sizes in models:
        expected = closed_form(sizes, SEQ_LEN)
        found = {way: best(way, model_type, sizes) for way in WAYS}
        tables.append(table(title, found, expected))
        claims.append(claim(title, found["by_name"], expected))
    return Report(
        title="Large language models without their weights",
        summary=[" ".join(claims)],
        tables=tables,
        notes=[
            f"Sequence {SEQ_LEN}, batch 1, meta tensors. Each line is a process of its own, best "
            f"of {REPEATS}. Before the clock starts torch and transformers are imported and "
            "nothing else: what has to be loaded later is in the times and in the memory, which is "
            "the peak above that start. “Again” is a second call in the same process. ridgeline "
            "gets token numbers only. “Build” makes the module on meta; `ridgeline.count(name)` "
            "does that itself, so its time has both.",
            "Expected: for each token and layer the projections h·h + 2·h·h_kv + h·h and the MLP's "
            "3·h·f (for Mixtral 2 of 8 experts, and the router's h·8), the scores and values "
            "2·s·h, and once h·V for the output layer.",
        ],
    )


def best(way: str, model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The best of a few processes."""
    runs = []
    for _ in range(REPEATS):
        runs.append(fresh.call(f"{__name__}:{way}", model_type=model_type, sizes=dict(sizes)))
        if "error" in runs[-1]:
            return runs[-1]
    keys = runs[0].keys()
    return {key: min(run[key] for run in runs) for key in keys}


def closed_form(sizes: Mapping[str, int], length: int) -> int:
    """Multiply-adds from the sizes alone; attention is counted whole."""
    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    kv_width = hidden // heads * sizes["num_key_value_heads"]
    chosen = sizes.get("num_experts_per_tok", 1)
    router = hidden * sizes.get("num_local_experts", 0)
    per_token = (
        2 * hidden * hidden
        + 2 * hidden * kv_width
        + chosen * 3 * hidden * sizes["intermediate_size"]
        + router
        + 2 * length * hidden
    )
    return length * (sizes["num_hidden_layers"] * per_token + hidden * sizes["vocab_size"])


def table(title: str, found: Mapping[str, dict[str, Any]], expected: int) -> Table:
    rows = [row(WAYS[way], result, expected) for way, result in found.items()]
    return Table(
        title=f"{title}: {expected / 1e12:.4f} TMACs expected",
        columns=("way", "TMACs", "error", "build, s", "count, s", "again, s", "memory, MiB"),
        rows=rows,
    )


def row(way: str, result: dict[str, Any], expected: int) -> tuple[object, ...]:
    if "error" in result:
        return (way, one_line(result["error"], 120), "", "", "", "", "")
    macs = result.get("macs")
    error = "" if macs is None else ("exact" if macs == expected else percent(macs, expected))
    return (
        way,
        "" if macs is None else f"{macs / 1e12:.4f}",
        error,
        f"{result['build_s']:.2f}" if "build_s" in result else "–",
        f"{result['time_s']:.2f}",
        f"{result['again_s']:.2f}",
        f"{result['memory_bytes'] / 2**20:.0f}",
    )


def percent(macs: int, expected: int) -> str:
    return f"{100 * (macs / expected - 1):+.1f} %"


def claim(title: str, result: dict[str, Any], expected: int) -> str:
    if "error" in result:
        return f"**{title}: {one_line(result['error'])}**"
    how = "exactly" if result["macs"] == expected else "not exactly"
    return (
        f"**{title}: {result['macs'] / 1e12:.2f} TMACs, {how} the closed form, in "
        f"{result['time_s']:.1f} s and {result['memory_bytes'] / 2**20:.0f} MiB.**"
    )


# ---------------------------------------------------------------- each in a process of its own


def by_name(model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    import_libraries()
    start_bytes = fresh.start_memory()
    name = f"transformers:{model_type}"
    return timed(lambda: ridgeline_macs(name, seq_len=SEQ_LEN, config=sizes), start_bytes)


def ours(model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return built_and_timed(model_type, sizes, ridgeline_macs, masked=None)


def flop_counter(model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return built_and_timed(model_type, sizes, flop_counter_macs, masked=False)


def flop_counter_masked(model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return built_and_timed(model_type, sizes, flop_counter_macs, masked=True)


def forward_masked(model_type: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return built_and_timed(model_type, sizes, forward, masked=True)


def import_libraries() -> None:
    """What is there before the clock starts; transformers loads a model's code when it is named."""
    import torch
    import transformers

    assert torch and transformers


def built_and_timed(
    model_type: str, sizes: Mapping[str, int], count: Count, *, masked: bool | None
) -> dict[str, Any]:
    """Build on meta, then count; whatever `count` has to load first is in its time."""
    import_libraries()
    start_bytes = fresh.start_memory()
    module, build_s = build(model_type, sizes)
    inputs = real_tokens() if masked is None else inputs_on_meta(masked=masked)
    return {"build_s": build_s, **timed(lambda: count(module, inputs), start_bytes)}


def timed(count: Callable[[], int | None], start_bytes: int) -> dict[str, Any]:
    """Seconds of the first and of a second call; the memory of the first."""
    start_s = time.perf_counter()
    macs = count()
    time_s = time.perf_counter() - start_s
    memory_bytes = fresh.peak_bytes() - start_bytes
    start_s = time.perf_counter()
    count()
    again_s = time.perf_counter() - start_s
    found = {"time_s": time_s, "again_s": again_s, "memory_bytes": memory_bytes}
    return found if macs is None else {"macs": macs, **found}


def ridgeline_macs(model: Any, inputs: Any = None, **options: Any) -> int:
    import ridgeline

    return int(ridgeline.count(model, inputs, **options).total.macs)


def flop_counter_macs(module: Any, inputs: Mapping[str, Any]) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(**inputs)
    return int(counter.get_total_flops()) // 2


def forward(module: Any, inputs: Mapping[str, Any]) -> None:
    import torch

    with torch.no_grad():
        module(**inputs)


def build(model_type: str, sizes: Mapping[str, int]) -> tuple[Any, float]:
    """The module on meta, and the seconds that took."""
    import torch
    import transformers

    start_s = time.perf_counter()
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(model_type, **sizes)
        auto: Any = transformers.AutoModelForCausalLM
        module = auto.from_config(config).eval()
    return module, time.perf_counter() - start_s


def real_tokens() -> dict[str, Any]:
    """What a user passes: token numbers, and nothing else."""
    import torch

    return {"input_ids": torch.zeros(1, SEQ_LEN, dtype=torch.int64)}


def inputs_on_meta(*, masked: bool) -> dict[str, Any]:
    """Tokens; a ready mask keeps transformers from working one out, which needs values."""
    import torch

    tokens = torch.zeros(1, SEQ_LEN, dtype=torch.int64, device="meta")
    if not masked:
        return {"input_ids": tokens}
    shape = (1, 1, SEQ_LEN, SEQ_LEN)
    mask = torch.zeros(shape, dtype=torch.bool, device="meta")
    positions = torch.zeros(1, SEQ_LEN, dtype=torch.int64, device="meta")
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "use_cache": False,
    }
