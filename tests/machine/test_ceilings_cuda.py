"""The logic around the GPU's measurements, with clocks and meters replaced."""

from types import SimpleNamespace
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine import ceilings_cuda as cuda
from ridgeline.machine.ceilings_cuda import find_cache_end
from ridgeline.machine.passport import Ceiling, Missing


class FakeTorch:
    """A torch with one device that can be asked for its properties and nothing else."""

    def __init__(self, *, capability: tuple[int, int] = (9, 0)) -> None:
        major, minor = capability
        properties = SimpleNamespace(major=major, minor=minor, L2_cache_size=60 << 20, uuid="x")
        self.cuda = SimpleNamespace(
            get_device_properties=lambda _device: properties,
            empty_cache=lambda: None,
        )


def measurement(torch: Any) -> cuda.CudaCeilings:
    return cuda.CudaCeilings(torch, 0, quick=True, progress=lambda _what: None)


@pytest.mark.parametrize("is_ill", [False, True])  # then it cannot even be tidied up
def test_a_part_that_fails_is_listed_and_what_else_was_measured_is_kept(
    monkeypatch: pytest.MonkeyPatch, is_ill: bool
) -> None:
    torch = FakeTorch()
    found = measurement(torch)
    idle = Ceiling(kind="power", device="cuda:0", what="idle", samples=(80.0,), how="x")

    def fail() -> None:
        torch.cuda.empty_cache = fail if is_ill else (lambda: None)
        raise RuntimeError("no kernel image\nis available")

    parts = [
        ("idle power", lambda: found.ceilings.append(idle)), ("L1", fail), ("L2", lambda: None)
    ]  # fmt: skip
    monkeypatch.setattr(found, "parts", lambda: iter(parts))
    ceilings, missing = found.run()
    assert ceilings == [idle]
    assert missing == [
        Missing(what=what, reason="no kernel image is available")
        for what in (("L1", "L2") if is_ill else ("L1",))
    ]


def test_a_device_on_which_nothing_can_be_measured_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measurement(FakeTorch())

    def fail() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(found, "parts", lambda: iter([("L1", fail)]))
    with pytest.raises(RidgelineError, match="nothing could be measured on cuda:0: CUDA error"):
        found.run()


def test_old_devices_lack_new_precisions() -> None:
    # given a V100: no bf16, tf32 or fp8 products
    found = measurement(FakeTorch(capability=(7, 0)))
    for product in cuda.PRODUCTS:
        if product.min_capability > (7, 0):
            found._product(product)
    assert [m.what for m in found.missing] == [
        "bf16 products", "tf32 products", "fp8 products", "int8 products",
    ]  # fmt: skip
    assert found.missing[2].reason == "needs compute capability 8.9"


@pytest.mark.parametrize(
    ("sizes", "rates", "end", "fall"),
    [
        # 8 and 2 at the ends: the middle is 4, between 20 and 40
        ([10, 20, 40, 80], [7.0, 8.0, 3.0, 2.0], 20, "falls between 20 and 40 B"),
        ([10, 20], [5.0, 5.0], 20, "does not fall"),
    ],
)
def test_the_end_of_the_cache(sizes: list[int], rates: list[float], end: int, fall: str) -> None:
    assert find_cache_end(sizes, rates, 30) == (end, f"the curve {fall}; described L2 30 B")
