"""Which module runs: a stack of module paths, kept by forward hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from ridgeline.tracing import MODEL
from ridgeline.tracing.autograd import current_node
from ridgeline.tracing.recomputation import State, restore_on_recompute


class Running(NamedTuple):
    """A module that runs, and the autograd node that ran when it began: None in forward."""

    path: str
    node: Any


class ModuleTracker:
    """The module that runs now. Subclasses add what to do when one begins and ends."""

    def __init__(self, *, outside: str = "") -> None:
        self.outside = outside  # stands for a path where no module runs
        self._stack: list[Running] = []

    @property
    def path(self) -> str:
        return self._stack[-1].path if self._stack else self.outside

    @property
    def node(self) -> Any:
        """The node that autograd ran when the module began; None in the forward pass."""
        return self._stack[-1].node if self._stack else None

    @property
    def is_inside(self) -> bool:
        """Whether the forward of any module is running."""
        return bool(self._stack)

    def path_of(self, module: nn.Module) -> str:
        """The path by which a module that begins is known."""
        raise NotImplementedError

    def on_enter(self, path: str, module: nn.Module, args: Any) -> None:
        """A module has begun."""

    def on_leave(self, path: str, args: Any, output: Any) -> None:
        """A module has ended, perhaps by an error."""

    def enter(self, path: str) -> None:
        self._stack.append(Running(path, current_node()))

    def leave(self) -> str | None:
        """The path of the module that ends; None where its beginning was not seen."""
        return self._stack.pop().path if self._stack else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow every module of the process while the block lasts."""
        with ExitStack() as stack:
            before = module_hooks.register_module_forward_pre_hook(self._enter)
            stack.callback(before.remove)
            after = module_hooks.register_module_forward_hook(self._leave, always_call=True)
            stack.callback(after.remove)
            stack.enter_context(restore_on_recompute(self._current_state))
            yield

    def _enter(self, module: nn.Module, args: Any) -> None:
        path = self.path_of(module)
        self.enter(path)
        self.on_enter(path, module, args)

    def _leave(self, _module: nn.Module, args: Any, output: Any) -> None:
        path = self.leave()
        if path is not None:
            self.on_leave(path, args, output)

    def _current_state(self) -> State:
        """The module that runs now, to be entered again."""
        path = self.path

        @contextmanager
        def inside() -> Iterator[None]:
            self.enter(path)
            try:
                yield
            finally:
                self.leave()

        return inside


def name_modules(root: nn.Module | None, model: str = MODEL) -> dict[int, str]:
    """The path of each module by its id; `model` is that of the root itself."""
    named = root.named_modules() if root is not None else ()
    return {id(module): path or model for path, module in named}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of a nested value: tuples, lists, dictionaries, dataclasses, model outputs."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "to_tuple"):
        yield from tensors_in(value.to_tuple())
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from tensors_in(getattr(value, part.name))
