"""Which module runs (by forward hooks), whose an autograd node is, what is recomputed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.utils import checkpoint

from ridgeline.tracing import MODEL


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


# ---------------------------------------------------------------- autograd
# Whose operator each node of autograd's graph goes back through. When an operator runs, the nodes
# behind the results of the previous one and behind its own inputs are complete: they get their
# producer as owner. Until then a node goes by its sequence number: those created since the previous
# operator belong to the next one. Numbers alone would not do. An operator in place may have two
# nodes, where it keeps a copy of its input, and on a view autograd makes some only after it ran;
# they are behind the whole tensor, too.

PRODUCER = "_ridgeline_producer"  # of a tensor
OWNER = "ridgeline owner"  # in the metadata of a node
T = TypeVar("T")
_next_sequence: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class AutogradOwners(Generic[T]):
    """The owner of each node: whatever the caller tells its operators apart by."""

    def __init__(self) -> None:
        self._by_number: dict[int, T] = {}
        self._thread = threading.get_ident()  # every thread counts its nodes for itself
        self._reached: int = _next_sequence()
        self._last: list[weakref.ref[Tensor]] = []  # results, whose nodes are not there yet
        self._marked: list[weakref.ref[Tensor]] = []

    def on_operator(self, inputs: Iterable[Tensor], owner: T) -> None:
        """An operator of the forward pass begins; `owner` gets the nodes that have none."""
        self.propagate_results()
        for tensor in inputs:
            propagate_owner(tensor)
        if threading.get_ident() == self._thread:
            following = _next_sequence()
            for number in range(min(self._reached, following - 1), following):
                self._by_number.setdefault(number, owner)
            self._reached = following

    def on_results(self, outs: Iterable[Tensor], owner: T) -> None:
        """The operator has ended with these results."""
        for tensor in outs:
            for one in with_base(tensor):
                setattr(one, PRODUCER, owner)
                self._last.append(weakref.ref(one))
        self._marked += self._last

    def remove_marks(self) -> None:
        """Leave no mark on tensors that live on, such as weights and their gradients."""
        for tensor in (one() for one in self._marked):
            if tensor is not None and hasattr(tensor, PRODUCER):
                delattr(tensor, PRODUCER)
        self._marked.clear()

    def propagate_results(self) -> None:
        """Another operator begins, so the nodes behind the last one's results are there."""
        results = [tensor for one in self._last if (tensor := one()) is not None]
        self._last = []
        for tensor in results:
            propagate_owner(tensor)

    def owner_of(self, node: Any) -> T | None:
        """The owner of a node; None where no operator was seen with it."""
        owner: T | None = node.metadata.get(OWNER)
        return self._by_number.get(node._sequence_nr()) if owner is None else owner


def propagate_owner(tensor: Tensor) -> None:
    """Give all nodes behind a tensor, up to those that have an owner, to its producer."""
    owner = getattr(tensor, PRODUCER, None)
    if owner is None or not tensor.requires_grad:
        return
    with suppress(RuntimeError):  # of views that autograd will not follow: whoever uses them hears
        for node in walk_graph([tensor.grad_fn], _has_owner):
            node.metadata[OWNER] = owner


def _has_owner(node: Any) -> bool:
    return hasattr(node, "variable") or OWNER in node.metadata


def walk_graph(roots: Iterable[Any], is_known: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes from the roots on; behind one that is known, none is visited.

    The caller must make a node known before it asks for the next one.
    """
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is not None and not is_known(node):
            yield node
            stack.extend(following for following, _ in node.next_functions)


def current_node() -> Any:
    """The node that autograd runs now on this thread, if any."""
    return torch._C._current_autograd_node()


def with_base(out: Tensor) -> list[Tensor]:
    """A result, and the whole tensor that it is a view of: that was written into."""
    return [out] if out._base is None else [out, out._base]


def tensors_among(arguments: Iterable[Any]) -> Iterable[Tensor]:
    """All tensors among an operator's arguments, also in lists."""
    for value in arguments:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_among(value)


# ---------------------------------------------------------------- recomputation
# Activation checkpointing: recomputation runs in the state in which the work first ran. A
# checkpoint keeps PyTorch's own state: random numbers, and the autocast of devices. Any other
# state, such as the module in which it began, has to be restored for it.

State = Callable[[], AbstractContextManager[Any]]
# PyTorch's own names: where one is missing, its checkpoints run without the restored state
_frame: Any = getattr(checkpoint, "_CheckpointFrame", object)
_function: Any = getattr(checkpoint, "CheckpointFunction", object)


@contextmanager
def restore_on_recompute(current_state: Callable[[], State]) -> Iterator[None]:
    """Ask for the state when a checkpoint begins, and enter it whenever its function runs."""

    def in_state(function: Any) -> Any:
        state = current_state()

        def run(*args: Any, **kwargs: Any) -> Any:
            with state():
                return function(*args, **kwargs)

        return run

    with (
        _wrap_function(_frame, "__init__", in_state),
        _wrap_function(_function, "forward", in_state),
    ):
        yield


@contextmanager
def _wrap_function(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Inside the block, the second argument of a method, a function, is wrapped."""
    if owner is object:
        yield
        return
    original = vars(owner)[name]
    call = getattr(owner, name)

    def method(first: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        return call(first, wrap(function), *args, **kwargs)

    setattr(owner, name, staticmethod(method) if isinstance(original, staticmethod) else method)
    try:
        yield
    finally:
        setattr(owner, name, original)
