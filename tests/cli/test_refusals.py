"""What no command can do is one error with a hint, said before anything is measured or stored."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from tests.cli.analyzed_here import Printed, command
from tests.cli.small_runs import NET_MAKE, QUICK, folder

__all__ = ["folder"]  # a fixture

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
RUN = shlex.join(("run", *NET_MAKE, *QUICK, "--in-process"))
ANALYZE = "analyze net.py:make --input-size 4 --backend cpu --in-process"
EXPORT = "export net.py:make -o out.onnx"
SIZED = f"{EXPORT} --input-size 4"
COUNT = "count net.py:make --input-size 4"
TRAIN = "train --data synthetic"
ROOFLINE = "roofline --results cpu"
COMPARE = "compare first second --results cpu"
PASSPORT = "h200/machines/nvidia-h200.json"
REFUSED = [  # a command, the beginning of its error
    ("run --in-process", "no model was named\n  hint: for example"),
    (f"{RUN} --batch-size 0", "--batch-size '0' is not valid\n  hint: give whole numbers"),
    (f"{RUN} --batch-size 3000000000", "--batch-size '3000000000' is not valid"),
    (f"{RUN} --precision fp8", "unknown precision 'fp8'\n  hint: choose fp32, tf32, amp"),
    (f"{RUN} --precision fp32,,amp", "unknown precision ''"),
    (f"{RUN} --backend tpu", "unknown backend 'tpu'\n  hint: choose auto, cuda, mps, cpu"),
    (f"{RUN} --optimizer sdg", "unknown optimizer 'sdg'\n  hint: choose sgd"),
    (f"{RUN} --mode trian", "unknown mode 'trian'\n  hint: choose infer, train"),
    (f"{RUN} --compile-mode fast", "unknown compile mode 'fast'\n  hint: choose default"),
    (f"{RUN} --data nowhere", "there is no data at 'nowhere'\n  hint: name a folder, synthetic"),
    (f"{RUN} --label ''", "--label is empty\n  hint: give it a name"),
    (f"{RUN} --results ''", "the name of a folder is empty\n  hint: write . for this folder"),
    (f"{RUN} --iters 0", "--iters 0 is not possible\n  hint: it is 1 or more"),
    (f"{RUN} --lr nan", "--lr nan is not possible\n  hint: it is 0 or more"),
    (f"{RUN} --energy-time 0", "--energy-time 0.0 is not possible\n  hint: it is 0.1 or more"),
    (f"{RUN} --grad-accum-steps 0", "--grad-accum-steps 0 is not possible\n  hint: it is 1"),
    (f"{RUN} --prefetch-factor 2", "--prefetch-factor needs workers that could fetch"),
    (f"{RUN} --config width", "--config 'width' is not valid\n  hint: write key=value"),
    (f"{RUN} --device 9", "there is no "),
    (f"{RUN} --find-max-batch", "--batch-size and --find-max-batch exclude each other"),
    (
        "run --arch resnet18",
        "`ridgeline run` has no option --arch\n  hint: names stand without an"
        " option: ridgeline run resnet18",
    ),
    ("count --model=resnet18", "`ridgeline count` has no option --model\n  hint: names stand"),
    ("analyze --models resnet18", "`ridgeline analyze` has no option --models\n  hint: names"),
    ("sweep --models resnet18", "`ridgeline sweep` has no option --models\n  hint: it is about"),
    ("run --synthetic", "`ridgeline run` has no option --synthetic\n  hint: --data synthetic"),
    ("profile --list-models", "`ridgeline profile` has no option --list-models\n  hint: `ridgel"),
    (
        "count x --find-max-batch 24",
        "--find-max-batch 24 is 24 bytes, which hold no network\n"
        "  hint: write a unit: --find-max-batch 24GB",
    ),
    ("count", "no model was named\n  hint: for example: ridgeline count resnet50; --list shows"),
    (f"{COUNT} -b 0", "--batch-size '0' is not valid\n  hint: give whole numbers of 1 to"),
    (f"{COUNT} --input-size -1", "--input-size '-1' is not valid"),
    (f"{COUNT} --precision fp8", "unknown precision 'fp8'\n  hint: choose fp32, tf32"),
    (f"{COUNT} --mode trian", "unknown mode 'trian'\n  hint: choose infer, train"),
    (f"{COUNT} --mode train --optimizer sdg", "unknown optimizer 'sdg'"),
    (f"{COUNT} --causal both", "unknown causal 'both'\n  hint: choose full, half"),
    (f"{COUNT} --find-max-batch lots", "'lots' is not an amount of memory"),
    (f"{COUNT} -o table.xls", "unknown ending of --output '.xls'\n  hint: choose .csv"),
    (f"{COUNT} --table rows", "unknown --table 'rows'\n  hint: choose layers, ops"),
    (f"{COUNT} --format xml", "unknown --format 'xml'\n  hint: choose table, markdown"),
    (f"{COUNT} --output-dir ''", "the name of a folder is empty\n  hint: write . for this folder"),
    (f"{COUNT} --dim seq=3", "--dim is for .onnx files\n  hint: PyTorch models take --batch-size"),
    (
        f"{COUNT} --compare-onnx net.py --mode train",
        "--compare-onnx cannot compare --mode train\n  hint: it compares a forward pass",
    ),
    (f"{COUNT} --input-size 9", "layer 0 (Linear) failed on input 1x9: "),
    ("analyze", "no model was named"),
    ("analyze resnet5000 --in-process", "unknown model 'resnet5000'"),
    (f"{ANALYZE} --mode dream", "unknown mode 'dream'"),
    (f"{ANALYZE} -b 0", "--batch-size '0' is not valid"),
    (f"{ANALYZE} --results /proc/x", "cannot write to /proc/x"),
    ("profile", "no model was named"),
    ("profile --", "no model was named"),
    ("profile resnet50 -- python x.py", "name models or a program after --, not both"),
    ("profile resnet50 --label ''", "--label is empty"),
    ("profile resnet50 --precision fp12", "unknown precision 'fp12'"),
    ("profile resnet50 --mode dream", "unknown mode 'dream'"),
    ("profile resnet50 --tier all", "unknown tier 'all'"),
    ("profile resnet50 --level l3", "unknown level 'l3'"),
    ("profile resnet50 --tool nsys", "unknown tool 'nsys'"),
    ("profile resnet50 --tier time --tool ncu", "--tool is about counters"),
    ("profile resnet50 --tier time --dry-run", "--dry-run is about counters"),
    ("profile resnet50 -b many", "--batch-size 'many' is not valid"),
    ("profile --tool cupti -- python x.py", "CUPTI counts models; a program is counted"),
    ("profile -b 8 -- python x.py", "--batch-size is for models"),
    ("profile --device 1 -- python x.py", "--device is for models"),
    ("profile --channels-last -- python x.py", "--channels-last is for models"),
    ("export resnet5 -o out.onnx", "unknown model 'resnet5'"),
    ("export model.onnx -o out.onnx", "model.onnx is an ONNX file already"),
    ("export none.py:make -o out.onnx", "no such file: none.py"),
    ("export net.py:mkae -o out.onnx", "unknown factory in net.py: 'mkae'"),
    (EXPORT, "net.py:make: the shape of the input is not known"),
    (f"{SIZED} --opset 3", "opset 3 is too old"),
    (f"{SIZED} --external-above much", "'much' is not an amount of memory"),
    ("export net.py:make --input-size 4 -o net.py/net.onnx", "cannot write to net.py"),
    ("machine show nosuch", "there is no passport of 'nosuch'"),
    ("machine list", "there are no passports in"),
    ("machine show missing.json", "there is no passport missing.json"),
    ("machine measure --device tpu", "there is no device 'tpu' here"),
    ("machine measure --device cpu --name ../x", "'../x' cannot be the name"),
    ("machine measure --from loads.csv", "--from goes with --energy"),
    ("machine measure --energy --from loads.csv", "loads.csv cannot be read: [Errno 2]"),
    ("machine measure --energy --from net.py", "net.py, line 2, column after the last"),
    ("machine import missing.json", "there is no passport missing.json"),
    ("train resnet18 --model resnet34", "MODEL and --model exclude each other"),
    ("train --amp --precision bf16", "--amp and --precision exclude each other"),
    ("train --resume no_last.pt", "there is no checkpoint no_last.pt\n  hint: . has no .pt files"),
    ("train --resume no/last.pt", "there is no checkpoint no/last.pt\n  hint: no has no .pt"),
    (f"{TRAIN} --momentum 5", "--momentum 5.0 is not possible"),
    (f"{TRAIN} --lr -1", "lr -1.0 is not possible"),
    (f"{TRAIN} --out-dir ''", "the name of a folder is empty"),
    (f"{TRAIN} resnet19", "unknown model 'resnet19'"),
    (f"{ROOFLINE} nobody", "no run is called 'nobody'"),
    (f"{ROOFLINE} --format gif", "no format is called 'gif'"),
    (f"{ROOFLINE} --out a.gif", "no format is called 'gif'"),
    (f"{ROOFLINE} --out a.png --kind classic,time", "--out a.png is one file, and --kind names 2"),
    (f"{ROOFLINE} --kind round", "no kind of figure is called 'round'"),
    (f"{ROOFLINE} --peak-compute fp23=5", "there is no roof called 'fp23'"),
    (f"{ROOFLINE} --peak-compute much", "--peak-compute 'much' is not a rate"),
    (f"{ROOFLINE} --peak-bw 0", "a roof of 0 B/s is no roof"),
    (f"{ROOFLINE} --peaks nosuch.json", "nosuch.json cannot be read"),
    (f"{ROOFLINE} --peaks net.py", "net.py cannot be read"),
    ("roofline --results elsewhere", "there are no completed runs in elsewhere"),
    ("compare nothing first --results cpu", "there is nothing called 'nothing' to compare in cpu"),
    (f"{COMPARE} --format csv", "unknown --format 'csv'\n  hint: choose table, markdown, json"),
    (f"compare first {PASSPORT} --results cpu", f"{PASSPORT!r} is a machine's passport"),
    ("compare first second --results nowhere", "there is nothing called 'first' to compare in"),
    (f"{COMPARE} --fail-above five", "--fail-above 'five' is not a percentage"),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSED, ids=lambda text: text[:60])
def test_what_cannot_be_done_is_refused(
    folder: Path, words: str, complaint: str, capsys: Printed
) -> None:
    # given a small network, and runs and a machine that were measured elsewhere
    for name in ("cpu", "h200"):
        shutil.copytree(FOLDERS / name, folder / name)
    assert command(*shlex.split(words)) == 2
    streams = capsys.readouterr()
    error = next(line for line in streams.err.splitlines() if line.startswith("ridgeline: "))
    assert streams.err[streams.err.index(error) + 11 :].startswith(complaint)
    assert "\n  hint: " in streams.err and "Traceback" not in streams.err
    assert streams.out == ""
    assert not (folder / "results" / "runs").exists() and not (folder / "out.onnx").exists()
