"""Hardware counters of single calls: what a GPU executes and moves under each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    import pandas as pd

Calls = Mapping[str, Callable[[], object]]
SPARE_KERNELS = 64


class CallCounter:
    """Runs calls under the counters of CUPTI, one after the other; an error where it must not.

    Without a precision, FLOPs of all kinds are counted, which takes more passes.
    """

    def __init__(self, device: int, precision: str = "") -> None:
        import torch

        from ridgeline.profile.cupti import (
            Chip,
            LaunchLog,
            RangeCounters,
            current_context,
            loaded_cupti,
        )
        from ridgeline.profile.request import choose_metrics

        with _refusals():
            self._cupti, self._log = loaded_cupti(), LaunchLog()
            chip = Chip.of(self._cupti, current_context(), device)
            chosen = choose_metrics(chip.metrics(), precision, "hierarchical")
            self._counters = RangeCounters(chip, chosen.metrics)
        self._capability = "{}.{}".format(*torch.cuda.get_device_capability(device))

    def count(self, calls: Calls) -> pd.DataFrame:
        """Quantities by call; a call that fails has no row."""
        import pandas as pd
        import psutil

        from ridgeline.captures.quantities import derive_quantities
        from ridgeline.profile.counting import S_PER_NS
        from ridgeline.profile.request import DURATION

        calls, log, counters = _keep_working(calls), self._log, self._counters
        with _refusals(), log.listening(self._cupti):
            most = len(self._run(calls)) + SPARE_KERNELS
            with counters.enabled(most, psutil.virtual_memory().available // 4):
                for _ in range(counters.passes):
                    counters.start()
                    names = self._run(calls)
                    counters.stop()
                values = counters.values()
        if len(values) != len(names):
            raise RidgelineError(
                f"{len(names)} kernels were launched and {len(values)} counted",
                hint="a call has to launch the same kernels each time",
            )
        table = pd.DataFrame(values, columns=list(counters.metrics), dtype=float)
        if DURATION in table:
            table[DURATION] *= S_PER_NS
        derived = derive_quantities(table, compute_capability=self._capability).table
        return derived.select_dtypes("number").groupby(names).sum()

    def flops(self, calls: Calls) -> dict[str, int]:
        """FLOPs of each call that does not fail, in all."""
        table = self.count(calls)
        flops = table.filter(regex="^flops_.*_(matrix|vector)$").sum(axis=1)
        return {name: int(flops[name]) for name in calls if name in flops.index}

    def _run(self, calls: Calls) -> list[str]:
        """The name of the call of each launch, which any thread may have made."""
        import torch

        names: list[str] = []
        for name, call in calls.items():
            self._log.take()
            call()
            torch.cuda.synchronize()
            names += [name] * len(self._log.take())
        return names


@contextmanager
def _refusals() -> Iterator[None]:
    from ridgeline.profile.cupti import RefusedError

    try:
        yield
    except RefusedError as error:
        raise RidgelineError(
            f"counters cannot be read: {error}", hint="`ridgeline doctor` says why"
        ) from error


def _keep_working(calls: Calls) -> dict[str, Callable[[], object]]:
    """Those that do not fail; the first call of a library also sets it up."""
    import torch

    working = {}
    for name, call in calls.items():
        try:
            call()
            torch.cuda.synchronize()
        except Exception:  # of any library
            continue
        working[name] = call
    return working
