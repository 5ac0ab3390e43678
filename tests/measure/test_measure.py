"""`ridgeline.measure` of a module and its inputs."""

import pytest
import torch
from torch import nn

import ridgeline
from ridgeline.errors import RidgelineError

NET, BATCH = nn.Linear(3, 2), torch.zeros(4, 3)


def test_a_batch_size_that_is_not_that_of_the_inputs_is_refused() -> None:
    with pytest.raises(RidgelineError) as caught:
        ridgeline.measure(NET, BATCH, batch_size=8)

    assert (caught.value.problem, caught.value.hint) == (
        "batch_size=8 has no effect: the inputs carry a batch of 4 already",
        "leave batch_size out, or give inputs whose first dimension is 8",
    )


@pytest.mark.parametrize("given", [{}, {"batch_size": 4}])
def test_the_batch_is_that_of_the_inputs(
    given: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgeline.measure.timing.LEAST_WARMUP_S", 0)
    monkeypatch.setattr("ridgeline.measure.timing.STEADY", float("inf"))

    result = ridgeline.measure(NET, BATCH, mode="infer", iters=2, energy=False, **given)  # type: ignore[arg-type]

    assert (result.batch_size, result.found["samples_per_step"]) == (4, 4)
