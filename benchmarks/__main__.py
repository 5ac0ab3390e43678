"""Run benchmarks by name, print their tables and write them to docs/results/."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from benchmarks import peers, report
from ridgeline import provenance

NAMES = (  # in the order of a whole run: what is quick and says most comes first
    "speed",
    "llama70b",
    "cpu_ceilings",
    "run_overhead",
    "kills",
    "sweeps",
    "breakages",
    "report_scale",
    "import_scale",
    "hand_cases",
    "onnx_peers",
    "onnx_scale",
    "onnx_exports",
    "pagoda",
    "conv_a100",
    "training_products",
    "torchvision_ops",
    "timm_sweep",
    "transformers_sweep",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run what was asked, write a page each."""
    args = parser().parse_args(argv)
    if args.list:
        print("\n".join(f"{name:<20} {title(name)}" for name in NAMES))
        return 0
    if args.peers:
        print("\n".join(peers.requirements()))
        return 0
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in args.names or NAMES:
        run_one(name)
    return 0


def parser() -> argparse.ArgumentParser:
    """The few options there are."""
    found = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    found.add_argument(
        "names", nargs="*", metavar="NAME", help="which to run; all if none is named"
    )
    found.add_argument("--list", action="store_true", help="list the benchmarks")
    found.add_argument(
        "--peers", action="store_true", help="print what `make bench` installs to compare with"
    )
    return found


def run_one(name: str) -> None:
    """Run, print and keep one benchmark."""
    print(f"== {name}: {title(name)}", flush=True)
    made = provenance.collect()  # before: the code that runs is the code there is now
    start_s = time.perf_counter()
    found = import_module(f"benchmarks.{name}").run()
    path = report.write(name, found, made)
    print(path.read_text(encoding="utf-8"))
    took_s = time.perf_counter() - start_s
    print(f"wrote {path.relative_to(report.ROOT)} in {took_s:.0f} s\n", flush=True)


def title(name: str) -> str:
    """The first line of the benchmark's docstring."""
    return (import_module(f"benchmarks.{name}").__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
