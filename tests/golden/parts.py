"""What users get today, part by part: each part maps keys to plain JSON values.

Counts come from the public functions, everything else from the command line. Measured values are
reduced to their structure. `fast` takes a spread sample of a part, for the tests.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = ROOT.parent / "shared" / "data" / "ncu"  # captures that are not in the repository
Goldens = dict[str, Any]


# ---------------------------------------------------------------- the command line


def call(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process: exit code, standard output, standard error."""
    from ridgeline.cli import main

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as stopped:
            code = stopped.code
    return int(str(code or 0)), clean(out.getvalue()), clean(err.getvalue())


def clean(text: str) -> str:
    """Without colours, trailing spaces, paths of this machine and the version of ridgeline."""
    from ridgeline import __version__

    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for folder in (Path.cwd(), ROOT):
        text = text.replace(str(folder), "FOLDER")
    text = re.sub(rf"ridgeline {re.escape(__version__)}\b", "ridgeline VERSION", text)
    return re.sub(r"[ \t]+(?=\n)", "", text)


def answer(*arguments: str) -> Any:
    """The JSON of a command; of a refusal the exit code and its first line."""
    code, out, err = call(*arguments)
    if code == 0:
        return json.loads(out)
    return {"exit": code, "error": refusal_in(err)}


def refusal_in(err: str) -> str:
    """The line that says what happened; lines on progress may stand before it."""
    lines = err.splitlines() or [""]
    return next((line for line in lines if line.startswith("ridgeline: ")), lines[0])


def structure(value: object) -> Any:
    """Key paths and types; the records of a list are one, its texts and numbers are left out.

    How many warnings and samples there are differs from one measurement to the next.
    """
    types: dict[str, set[str]] = {}
    for path, kind in type_paths(value, ""):
        types.setdefault(path, set()).add(kind)
    return {path: "|".join(sorted(kinds)) for path, kinds in types.items()}


def type_paths(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        yield path or ".", "object" if isinstance(value, dict) else "list"
        if isinstance(value, list):
            pairs = [("[]", item) for item in value if isinstance(item, dict | list)]
        else:
            pairs = list(value.items())
        for key, item in pairs:
            yield from type_paths(item, f"{path}.{key}")
    else:
        kind = "number" if isinstance(value, float) else type(value).__name__
        yield path, "null" if value is None else kind


@contextmanager
def workplace() -> Iterator[Path]:
    """A working directory with net.py and the stored results folders in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(HERE / "folders", folder, dirs_exist_ok=True)
        shutil.copy(HERE / "net.py", folder)
        with chdir(folder):
            yield folder


def sample(items: Iterable[Any], fast: int | None) -> list[Any]:
    """All of them, or about `fast`, spread evenly."""
    every = list(items)
    return every if fast is None else every[:: max(1, len(every) // fast)][:fast]


# ---------------------------------------------------------------- counts

AMP = ("densenet121", "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "resnet18",
       "resnet50", "swin_t", "vit_b_16")  # fmt: skip
LEAST_BATCH = {"inception_v3": 2}  # in training: its batch norm sees one value per channel
TIMM = """
beit_base_patch16_224 coatnet_0_rw_224 convmixer_768_32 convnext_tiny crossvit_tiny_240
deit3_small_patch16_224 dla34 dm_nfnet_f0 efficientnet_b0 eva02_tiny_patch14_224 fastvit_t8
focalnet_tiny_srf ghostnet_100 levit_128s maxvit_tiny_rw_224 mixer_s16_224 mobilenetv4_conv_small
mobilevit_s pvt_v2_b0 repvgg_b0 resnetv2_50 xcit_nano_12_p16_224
""".split()  # noqa: SIM905 - names read better as text
TRANSFORMERS = """
albert bart bert clip distilbert electra gemma2 gpt2 gpt_neox llama mamba mistral opt qwen2
roberta t5 vit whisper
""".split()  # noqa: SIM905
IMAGES = ("vit",)
TOKENS = 32
FAST_VISION = ("alexnet", "mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1",
               "vit_b_16")  # fmt: skip
FAST_ZOO = ("timm:ghostnet_100", "timm:repvgg_b0", "transformers:distilbert", "transformers:gpt2")


def count(model: str, **settings: Any) -> Any:
    """The JSON form of a count, or the first line of its error."""
    import ridgeline

    try:
        return ridgeline.count(model, **settings).to_dict()
    except ridgeline.RidgelineError as error:
        return {"error": str(error).splitlines()[0]}


def torchvision(fast: bool) -> Goldens:
    """All classification networks in both modes, and a few in mixed precision."""
    from torchvision import models

    names = FAST_VISION if fast else models.list_models(module=models)
    found = {}
    for name in names:
        size = LEAST_BATCH.get(name, 1)
        found[f"{name} infer"] = count(name)
        found[f"{name} train"] = count(name, mode="train", batch_size=size)
        if name in AMP:
            found[f"{name} train amp"] = count(name, mode="train", precision="amp", batch_size=size)
    return found


def zoo(fast: bool) -> Goldens:
    """Networks of timm and transformers in both modes."""
    names = [f"timm:{name}" for name in TIMM] + [f"transformers:{name}" for name in TRANSFORMERS]
    found = {}
    for name in FAST_ZOO if fast else names:
        source, _, kind = name.partition(":")
        tokens = TOKENS if source == "transformers" and kind not in IMAGES else None
        found[f"{name} infer"] = count(name, seq_len=tokens)
        found[f"{name} train"] = count(name, mode="train", batch_size=2, seq_len=tokens)
    return found


def onnx_nodes(fast: bool) -> Goldens:
    """The node tests that onnx makes of itself."""
    from tests.onnx.test_nodes_of_onnx import cases, open_dims, values_of

    from ridgeline import RidgelineError
    from ridgeline.onnx import count_onnx

    found: Goldens = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for case in sample(cases(), 150 if fast else None):
            path.write_bytes(case.model.SerializeToString())
            try:
                result = count_onnx(path, dims=open_dims(case), values=values_of(case))
            except RidgelineError as error:
                found[case.name] = {"error": str(error).splitlines()[0].replace(folder, "FOLDER")}
                continue
            total = result.total
            found[case.name] = {"macs": total.macs, "flops": total.flops}
            found[case.name] |= {"bytes": total.moved_bytes}
            if result.unknown:
                found[case.name]["unknown"] = sorted(result.unknown)
    return found


def exports(fast: bool) -> Goldens:
    """Exported networks: the counts of network and file by module, and their comparison."""
    from benchmarks.onnx_exports import CASES

    import ridgeline

    found = {}
    for case in CASES[:1] if fast else CASES:
        with workplace():
            ridgeline.export(case.name, "model.onnx", **case.export)
            size = str(case.batch)
            found[case.name] = answer("count", case.name, "-b", size, "--against", "model.onnx",
                                      "--depth", "2", "--json", "-q")  # fmt: skip
    return found


# ---------------------------------------------------------------- captures and views


def captures(fast: bool, shared: Path = SHARED) -> Goldens:
    """Every recorded file, as `ridgeline import` reads or refuses it."""
    found = {}
    for prefix, folder in (("", ROOT / "tests" / "data"), ("shared/", shared)):
        if not folder.is_dir():
            continue  # the comparison says what it leaves out
        with chdir(folder):
            for path in sorted(p for p in Path().rglob("*") if p.is_file() and p.suffix != ".md"):
                found[f"{prefix}{path}"] = answer("import", str(path), "--no-store", "--json")
    return found


FOLDERS = ("captures", "cpu", "h200")
COMPARED = {
    "two runs": ("0619e0", "d36c41", "--results", "cpu"),
    "two models": ("resnet18_cifar", "lstm", "--results", "cpu"),
    "two modes": ("0619e0", "09c2d7", "--results", "cpu"),
    "nothing in common": ("first", "second", "--results", "cpu"),
    "a folder and itself": ("cpu", "cpu"),
    "two machines": ("cpu/machines/amd-epyc-2c.json", "h200/machines/nvidia-h200.json"),
}
WORD_COLUMNS = """
id model mode precision time host limits meter count_id label status command versions warnings
no_energy setting flags files device grain name layer phase kind shapes provenance bound flag
cause where bytes_cause bytes_where kernel short family
""".split()  # noqa: SIM905
"""Columns of the page's data that hold places in its list of words."""


def views(fast: bool) -> Goldens:
    """What is made from stored results folders: CSV files, tables, report.md, the page."""
    from ridgeline.report.views import write_views
    from ridgeline.store import ResultsFolder

    found: Goldens = {}
    with workplace():
        for name in FOLDERS:
            write_views(ResultsFolder(Path(name)))
            code, _, err = call("report", "--results", name, "--no-figures", "--notebook")
            found[f"{name}: notes"] = {"exit": code, "lines": err.splitlines()}
            for path in sorted(Path(name).rglob("*")):
                if path.suffix in READERS and path.parts[1] not in ("runs", "machines"):
                    found[str(path)] = READERS[path.suffix](path.read_text(encoding="utf-8"))
        for name, sides in COMPARED.items():
            found[f"compare {name}"] = answer("compare", *sides, "--json")
    return found


def read_lines(text: str) -> list[str]:
    return clean(text).splitlines()


def read_table(text: str) -> dict[str, Any]:
    """A CSV file by columns."""
    header, *rows = csv.reader(io.StringIO(clean(text)))
    columns = {name: [read_cell(row[n]) for row in rows] for n, name in enumerate(header)}
    return {"order": header, "columns": columns}


def read_cell(text: str) -> Any:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return text


def read_page(text: str) -> dict[str, Any]:
    """The data of a page with its words put in, and the text around it."""
    scripts = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', text, re.S)
    payload = json.loads(scripts[0])
    words = payload.pop("words")
    executed = payload["executed"]
    for table in (payload["runs"], payload["points"], executed["reconciled"], executed["kernels"]):
        for name in set(WORD_COLUMNS) & set(table):
            table[name] = table[name] and [words[place] for place in table[name]]
    roofs = payload["runs"].get("roofs") or []
    payload["runs"]["roofs"] = [[words[place] for place in places] for places in roofs]
    body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    lines = (" ".join(line.split()) for line in clean(re.sub(r"<[^>]*>", "\n", body)).splitlines())
    return {"data": payload, "text": [line for line in lines if line]}


READERS: dict[str, Callable[[str], Any]] = {
    ".csv": read_table, ".html": read_page, ".ipynb": read_lines, ".md": read_lines,
    ".tex": read_lines,
}  # fmt: skip


# ---------------------------------------------------------------- commands

HELP: tuple[tuple[str, ...], ...] = (
    (), ("analyze",), ("doctor",), ("machine",), ("machine", "describe"), ("machine", "measure"),
    ("machine", "list"), ("machine", "show"), ("machine", "diff"), ("machine", "export"),
    ("machine", "import"), ("count",), ("export",), ("run",), ("train",), ("profile",),
    ("import",), ("roofline",), ("compare",), ("report",),
)  # fmt: skip
NET = ("net.py:make", "--input-size", "4")
CHECKPOINTED = ("net.py:make_checkpointed", "--input-size", "4", "--mode", "train")
H200 = ("--results", "h200")
PEAKS = ("--peak-compute", "8.1", "--peak-bw", "300")
STEPS = ("-b", "2", "--backend", "cpu", "--iters", "5", "--in-process", "--no-energy")
VALUES: tuple[tuple[str, ...], ...] = (  # their JSON is stored whole; in this order
    ("count", *CHECKPOINTED, "-b", "16", "--table", "ops"),
    ("count", "resnet18_cifar", "-b", "1,2", "--mode", "train", "--depth", "3", "--formulas"),
    ("count", "lstm", "bert", "--seq-len", "8", "--precision", "amp"),
    ("count", "resnet18_cifar", "--growth"),
    ("count", "resnet18_cifar", "--mode", "train", "--find-max-batch", "1GB"),
    ("count", "resnet18_cifar", "--optimizer", "adamw", "--mode", "train", "--causal", "half"),
    ("count", "no_such_model"),
    ("count", "--list", "*_cifar"),
    ("machine", "list", *H200),
    ("machine", "show", "nvidia-h200", *H200),
    ("machine", "show", "NVIDIA A100 SXM4 80GB"),
    ("machine", "diff", "nvidia-h200", "cpu/machines/amd-epyc-2c.json", *H200),
    ("roofline", *H200, "--no-figures"),
    ("roofline", "--no-figures", "--results", "captures", *PEAKS),
    ("report", "--no-figures", *H200),
    ("report", "--no-figures", "--results", "cpu", "no_such_run"),
    ("compare", "cpu", "cpu", "--fail-above", "5%"),
)
SLOW_VALUES: tuple[tuple[str, ...], ...] = tuple(  # with their figures
    ("report", "--results", name) for name in FOLDERS
)
TEXTS: tuple[tuple[str, ...], ...] = (  # what they print for people
    ("count", *CHECKPOINTED, "-b", "16"),
    ("count", "resnet18_cifar", "--mode", "train", "--depth", "2", "--format", "csv"),
    ("count", "lstm", "--formulas", "--format", "markdown"),
    ("import", f"{ROOT}/tests/data/ncu/sections.txt", "--no-store"),
    ("machine", "show", "nvidia-h200", *H200),
    ("machine", "export", "nvidia-h200", "--peaks", "peaks.json", *H200),
    ("roofline", *H200, "--layers", "--no-figures"),
    ("compare", "0619e0", "d36c41", "--results", "cpu"),
    ("compare", "0619e0", "09c2d7", "--results", "cpu", "--format", "markdown"),
)
STRUCTURES: tuple[tuple[str, ...], ...] = (  # measured: key paths and types only; in this order
    ("doctor",),
    ("run", *NET, *STEPS, "--warmup-iters", "1", "--layers"),
    ("run", *NET, *STEPS, "--warmup-iters", "1", "--mode", "infer"),
    ("train", "net.py:make_classifier", "--data", "synthetic", "--limit-train", "70",
     "--limit-test", "30", "--batch-size", "16", "--epochs", "1"),
)  # fmt: skip
SLOW_STRUCTURES: tuple[tuple[str, ...], ...] = (  # they take long, or differ between machines
    ("machine", "describe"),
    ("export", *NET, "-o", "net.onnx"),
    ("count", *NET, "--against", "net.onnx"),
    ("analyze", *NET, *STEPS, "--quick", "--results", "cpu"),
    ("profile", "resnet18_cifar", "--dry-run"),
    ("profile", "resnet18_cifar", "--results", "new"),
)


def commands(fast: bool) -> Goldens:
    """The help of every command, and its JSON."""
    found: Goldens = {}
    for words in HELP:
        _, out, _ = call(*words, "--help")
        found[" ".join(("ridgeline", *words, "--help"))] = out.splitlines()
    with workplace():
        for command in TEXTS:
            code, out, err = call(*command)
            found[title(command)] = {"exit": code, "out": read_lines(out), "err": read_lines(err)}
        found["peaks.json"] = json.loads(Path("peaks.json").read_text(encoding="utf-8"))
        for command in VALUES if fast else (*VALUES, *SLOW_VALUES):
            found[f"{title(command)} --json"] = answer(*command, "--json")
        for command in STRUCTURES if fast else (*STRUCTURES, *SLOW_STRUCTURES):
            found[f"{title(command)} --json, structure"] = structure_of(command)
    return found


def structure_of(command: Sequence[str]) -> Any:
    """Of a refusal the refusal; `doctor` ends with 1 where something is broken."""
    code, out, err = call(*command, "--json")
    if out.strip():
        return structure(json.loads(out))
    return {"exit": code, "error": refusal_in(err)}


def title(command: Sequence[str]) -> str:
    return clean(" ".join(("ridgeline", *command)))


PARTS: dict[str, Callable[[bool], Goldens]] = {
    "torchvision": torchvision, "zoo": zoo, "onnx_nodes": onnx_nodes, "exports": exports,
    "captures": captures, "views": views, "commands": commands,
}  # fmt: skip
