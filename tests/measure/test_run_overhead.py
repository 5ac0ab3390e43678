"""The benchmark of the loop: when it times layers, and what it tells on the way."""

from benchmarks import run_overhead
from benchmarks.run_overhead import Case, Compared


def compared(case: Case) -> Compared:
    return Compared(
        case=case, bare_s=(1.0, 3.0, 2.0), ours_s=(1.0, 4.0, 2.0), before_s=(4.0,), after_s=(5.0,),
        layer_sums_s=(3.0,), hooks_left=0,
    )  # fmt: skip


def test_layers_are_timed_in_three_rounds_that_are_always_the_same() -> None:
    assert {rounds: run_overhead.layer_rounds(rounds, 3) for rounds in (3, 10, 20)} == {
        3: (0, 1, 2), 10: (1, 5, 8), 20: (3, 10, 16),
    }  # fmt: skip


def test_ratios_are_of_blocks_of_the_same_round() -> None:
    one = compared(Case(model="net", batch_size=1))
    assert (one.ratio[0], one.after_ratio, one.layer_ratio) == (1.0, 1.25, 0.75)
