"""The logic around the GPU's measurements, with clocks and meters replaced."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine import ceilings_cuda as cuda
from ridgeline.machine.ceilings_cuda import CacheEnd, cache_end
from ridgeline.machine.passport import Ceiling, Missing
from ridgeline.machine.sampling import sample_seconds


def test_a_sample_lasts_about_as_long_as_asked() -> None:
    # given a call of 1 ms on a clock that counts
    times: list[int] = []

    def clock(call: Callable[[], object], n: int) -> float:
        times.append(n)
        return 0.001

    samples = sample_seconds(lambda: None, clock, samples=3, sample_s=0.02)
    assert samples == [0.001] * 3
    assert times[-3:] == [20, 20, 20]


class FakeTorch:
    """A torch with one device that can be asked for its properties and nothing else."""

    def __init__(self, *, alive: bool = True, capability: tuple[int, int] = (9, 0)) -> None:
        major, minor = capability
        properties = SimpleNamespace(major=major, minor=minor, L2_cache_size=60 << 20, uuid="x")
        self.cuda = SimpleNamespace(
            get_device_properties=lambda _device: properties,
            is_available=lambda: alive,
            empty_cache=lambda: None,
        )


def measurement(torch: Any, monkeypatch: pytest.MonkeyPatch) -> cuda.CudaCeilings:
    return cuda.CudaCeilings(torch, 0, quick=True, progress=lambda _what: None)


def test_a_part_that_fails_is_listed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measurement(FakeTorch(), monkeypatch)
    done: list[str] = []

    def fail() -> None:
        raise RuntimeError("no kernel image\nis available")

    parts = [("L1", fail), ("L2", lambda: done.append("L2"))]
    monkeypatch.setattr(found, "parts", lambda: iter(parts))
    _, missing = found.run()
    assert [(m.what, m.reason) for m in missing] == [("L1", "no kernel image is available")]
    assert done == ["L2"]


def test_a_device_that_cannot_even_be_tidied_up_keeps_what_it_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = FakeTorch()
    found = measurement(torch, monkeypatch)

    def fail() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    torch.cuda.empty_cache = fail
    monkeypatch.setattr(found, "parts", lambda: iter([("L1", fail), ("L2", fail)]))
    _, missing = found.run()
    assert [m.what for m in missing] == ["L1", "L2"]


def test_a_device_that_vanishes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measurement(FakeTorch(alive=False), monkeypatch)

    def fail() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(found, "parts", lambda: iter([("L1", fail)]))
    with pytest.raises(RidgelineError, match="cuda:0 stopped answering before anything"):
        found.run()


def test_what_was_measured_before_a_device_vanished_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measurement(FakeTorch(alive=False), monkeypatch)
    idle = Ceiling(kind="power", device="cuda:0", what="idle", samples=(80.0,), how="x")
    done: list[str] = []

    def fail() -> None:
        raise RuntimeError("unspecified launch failure")

    parts = [
        ("idle power", lambda: found.ceilings.append(idle)),
        ("DRAM", fail),
        ("L2", lambda: done.append("L2")),
    ]
    monkeypatch.setattr(found, "parts", lambda: iter(parts))
    ceilings, missing = found.run()
    assert (ceilings, done) == ([idle], [])
    assert missing == [
        Missing(
            what="DRAM and all after it",
            reason="cuda:0 stopped answering: unspecified launch failure",
        )
    ]


def test_old_devices_lack_new_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a V100: no bf16, tf32 or fp8 products
    found = measurement(FakeTorch(capability=(7, 0)), monkeypatch)
    for product in cuda.PRODUCTS:
        if product.min_capability > (7, 0):
            found._product(product)
    assert [m.what for m in found.missing] == [
        "bf16 products", "tf32 products", "fp8 products", "int8 products",
    ]  # fmt: skip
    assert found.missing[2].reason == "needs compute capability 8.9"


def test_progress_is_told_for_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(measurement(FakeTorch(), monkeypatch).parts())) == cuda.cuda_steps()


def test_no_device_is_a_clear_error() -> None:
    with pytest.raises(RidgelineError, match="there is no CUDA device 7: torch sees"):
        cuda.measure_cuda(7)


# ---- the end of the cache


def test_a_curve_by_hand() -> None:
    # 8 and 2 at the ends: the middle is 4, between 20 and 40
    assert cache_end([10, 20, 40, 80], [7.0, 8.0, 3.0, 2.0]) == CacheEnd(20, 40)


def test_agreement_with_the_description() -> None:
    end = CacheEnd(20, 40)
    assert end.agrees(30)
    assert not end.agrees(300)
    assert end.text(30) == "the curve falls between 20 and 40 B; described L2 30 B"


def test_a_curve_that_does_not_fall() -> None:
    flat = cache_end([10, 20], [5.0, 5.0])
    assert flat.outside_bytes is None
    assert not flat.agrees(10)
    assert flat.text(10) == "the curve does not fall; described L2 10 B"
