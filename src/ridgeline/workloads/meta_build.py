"""Building on the meta device, also for constructors that compute with small real tensors.

Some networks work out their widths with tensors (RegNet does): on meta those have no values.
Then everything is made on the CPU, and only parameters go to meta, each as it is registered:
none is ever initialised, so none takes memory: pages that nobody writes do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


def build_anywhere(make: Callable[[], nn.Module]) -> nn.Module:
    """`make()` on the default device; on meta with real small tensors where it must have them."""
    device = torch.empty(0).device
    try:
        return make()
    except Exception as error:
        if device.type != "meta" or not wanted_a_value(error):
            raise
    with torch.device("cpu"), parameters_on_meta():
        module = make()
    return module.to(device)


def wanted_a_value(error: BaseException | None) -> bool:
    """Whether somebody looked into a tensor on meta."""
    while error is not None:
        if "meta tensor" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Move each parameter to meta at the moment a module takes it; shared ones stay shared."""
    register = nn.Module.register_parameter
    moved: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # keeps the first, so its id is its

    def register_on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and param.device.type != "meta":
            new = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
            _, param = moved.setdefault(id(param), (param, new))
        register(self, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
