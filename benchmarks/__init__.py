"""What ridgeline claims, shown side by side with other counters in one run.

    __main__.py          `python -m benchmarks [NAMES…]`
    report.py            a benchmark's tables as Markdown, with what they were made on
    peers.py             the other counters, each as one function of a module and its inputs
    fresh.py             one function in a process of its own: time and memory without leftovers
    sweep.py             many models, each with a time limit, resumable

Every other module is a benchmark: its docstring's first line is its title, and its `run()`
returns a `Report`. The other counters are installed by `make bench` into build/bench-site, apart
from everything else: transformers behaves differently where some of them are installed.
"""
