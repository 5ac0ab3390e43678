"""Published times of cuDNN's algorithms on an A100: who wins, and what a choice costs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.report import Report, Table

PUBLISHED = Path(__file__).parent / "data" / "a100_convolutions.csv.xz"
NAMES = (  # in cuDNN's order
    "implicit gemm", "implicit precomp gemm", "gemm", "direct", "fft", "fft tiling", "winograd",
    "winograd nonfused",
)  # fmt: skip
REFUSED = "NOT SUPPORT!"
HEAVY = (200, 800)  # shapes


def read_times() -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Milliseconds by algorithm, missing where it was refused; what cuDNN's find chose; uses."""
    table = pd.read_csv(PUBLISHED, na_values=[REFUSED])
    times = table[[f"algo{number}" for number in range(len(NAMES))]].astype(float)
    times.columns = pd.Index(NAMES)
    chosen = [times.iat[row, number] for row, number in enumerate(table["algoSelected"])]
    return times, pd.Series(chosen, index=times.index), table["counts"]


def run() -> Report:
    """Compute everything from the published table."""
    times, found, uses = read_times()
    best = times.min(axis=1)
    precomp, fused = times["implicit precomp gemm"], times["winograd"]
    choices = {
        "always implicit precomp gemm": precomp,
        "fused winograd where supported, else implicit precomp gemm": fused.fillna(precomp),
        "cuDNN's find": found,
    }
    rows = [
        (name, f"{chosen.sum() / best.sum():.3f}", f"{1 - best.sum() / chosen.sum():.1%}",
         f"{chosen.eq(best).mean():.1%}")
        for name, chosen in choices.items()
    ]  # fmt: skip
    winners = times.idxmin(axis=1).value_counts(normalize=True)
    work = best * uses
    heavy = work.sort_values(ascending=False).cumsum() / work.sum()
    able = [
        (name, f"{times[name].notna().mean():.1%}", f"{winners.get(name, 0.0):.1%}")
        for name in NAMES
    ]
    return Report(
        title="Convolution algorithms on an A100, from published times",
        summary=(
            f"{len(times):,} convolutions of real networks, fp32 without tensor cores, NCHW. **A"
            f" fixed choice takes {rows[0][1]} times as long as the best for each shape, a simple"
            f" rule {rows[1][1]}, cuDNN's own search {rows[2][1]}**: all shapes together, each"
            " once.",
            "These are the numbers that `ridgeline conv` gives for other devices as *lost*.",
        ),
        tables=(
            Table(columns=("choice", "time over the best", "lost", "picks the fastest"), rows=rows,
                  title="What a choice costs"),
            Table(columns=("algorithm", "can do", "is the fastest"), rows=able,
                  title="Who wins"),
        ),
        notes=(
            "Time over the best: the sum over all shapes of the chosen algorithm's time, over that"
            " of the fastest one's. The share of right picks says little: what counts is the time"
            " that wrong ones cost.",
            *(
                f"The {count} heaviest shapes have {heavy.iloc[count - 1]:.0%} of the time of all"
                " uses."
                for count in HEAVY
            ),
            "`direct` was refused for every shape. Source: `benchmarks/data/README.md`.",
        ),
    )  # fmt: skip
