"""The command that makes a stored run or capture again, alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ridgeline.captures.capture import PROGRAM, sources_of
from ridgeline.report.run_facts import environment_text
from ridgeline.store import Run

VALUES = {  # option: what it is where nobody asked for anything else
    "backend": "auto", "device": 0, "warmup_iters": None, "iters": None, "optimizer": "sgd",
    "lr": None, "momentum": None, "weight_decay": None, "grad_accum_steps": 1, "seed": 0,
    "seq_len": None, "data": "synthetic", "workers": 0, "prefetch_factor": None, "label": "",
    "energy_time_s": 5.0,
}  # fmt: skip
SWITCHES = ("channels_last", "deterministic", "cudnn_benchmark", "nvtx", "pin_memory", "layers",
            "layer_energy")  # fmt: skip
OBJECT = "object"  # the source of a module from somebody's program


def repeat_command(run: Run) -> str:
    """`ridgeline run MODEL …`, after environment variables that change its speed.

    Of a module from a program, what started the program.
    """
    if run.found.get("source") == OBJECT:
        recorded = run.provenance.get("command") or ()
        return shlex.join(str(word) for word in recorded)
    variables = environment_text(run.made.environment)
    command = shlex.join(["ridgeline", "run", *_words(run.asked)])
    return f"{variables} {command}" if variables else command


def capture_command(capture: Run) -> str:
    """`ridgeline import FILE… --label …`; of a program that was profiled, `… profile -- …`."""
    label = capture.asked.get("label")
    named = ["--label", str(label)] if label else []
    sources = sources_of(capture)
    if "program" in capture.asked or capture.found.get("kind") == PROGRAM:
        return f"{shlex.join(['ridgeline', 'profile', *named, '--'])} {' '.join(sources)}"
    return shlex.join(["ridgeline", "import", *sources, *named])


def _words(asked: Mapping[str, Any]) -> Iterator[str]:
    yield str(asked["model"])
    for flag, name in (("-b", "batch_size"), ("--mode", "mode"), ("--precision", "precision")):
        yield from (flag, str(asked[name]))
    if asked.get("input_size"):
        yield from ("--input-size", ",".join(str(side) for side in asked["input_size"]))
    if asked.get("config"):
        yield from ("--config", ",".join(f"{k}={v}" for k, v in asked["config"].items()))
    for name, usual in VALUES.items():
        if asked.get(name, usual) not in (usual, None):
            yield from (f"--{name.removesuffix('_s').replace('_', '-')}", f"{asked[name]}")
    for name in SWITCHES:
        if asked.get(name):
            yield f"--{name.replace('_', '-')}"
    if asked.get("compile"):
        yield from ("--compile-mode", str(asked["compile"]))
    if asked.get("energy") is not None:
        yield "--energy" if asked["energy"] else "--no-energy"
    if asked.get("augment") is False:
        yield "--no-augment"
