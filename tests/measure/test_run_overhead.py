"""The benchmark of the loop: when it times layers, and what it tells on the way."""

import pytest
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


def test_a_case_is_told_of_when_it_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = (Case(model="one", batch_size=1), Case(model="two", batch_size=2, mode="infer"))
    monkeypatch.setattr(run_overhead, "CASES", {"cpu": cases, "cuda": cases})
    monkeypatch.setattr(run_overhead, "compare", lambda case, backend: compared(case))
    run_overhead.run()
    assert capsys.readouterr().err == (
        "one, batch 1, fp32 train: throughput, ours / bare 1.0000 (0.0000 … 0.0000)\n"
        "two, batch 2, fp32 infer: throughput, ours / bare 1.0000 (0.0000 … 0.0000)\n"
    )
