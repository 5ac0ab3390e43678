"""Nothing is downloaded: while a model is built or run, the network is shut.

The refusal is not an `Exception`, so that code which tries again, or goes on without the
weights, does not swallow it. Local files, a local cache and Unix sockets work as ever.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from ridgeline.errors import RidgelineError

OFFLINE = {  # what the libraries themselves listen to; a cached file is then used without asking
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "YOLO_OFFLINE": "true",
}
LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "create_connection")
OFFLINE_ERRORS = {"OfflineModeIsEnabled", "LocalEntryNotFoundError"}
HINT = (
    "pass local weights instead: from_pretrained('path/to/folder'), torch.load('weights.pt'), "
    "or none at all (weights=None, pretrained=False): counting needs only the shapes"
)


class DownloadRefusedError(BaseException):
    """The network was asked for. Derived from BaseException so that retry loops let it pass."""


@contextmanager
def refuse_downloads(name: str = "the model") -> Iterator[None]:
    """Shut the network for the block; whoever tries gets a RidgelineError that says so."""
    with ExitStack() as stack:
        for guard in _guards():
            stack.enter_context(guard)
        try:
            yield
        except DownloadRefusedError as refusal:
            raise _refusal(name, str(refusal)) from refusal
        except RidgelineError:
            raise
        except Exception as error:
            if not _is_offline_complaint(error):
                raise
            raise _refusal(name, "the Hugging Face hub") from error


def _refusal(name: str, address: str) -> RidgelineError:
    return RidgelineError(
        f"{name} wants to download from {address}; ridgeline does not download", hint=HINT
    )


def _guards() -> Iterator[AbstractContextManager[None]]:
    import urllib.request  # 30 ms that only a build has to pay

    yield _hub_offline()
    yield _environment(OFFLINE)
    opener = urllib.request.OpenerDirector
    yield _replace_attribute(opener, "open", _guarded_open(opener.open))
    for lookup in LOOKUPS:
        yield _replace_attribute(socket, lookup, _guarded_lookup)
    for method in ("connect", "connect_ex"):
        yield _replace_attribute(
            socket.socket, method, _guarded_connect(getattr(socket.socket, method))
        )


def _guarded_lookup(host: object, *_: object, **__: object) -> None:
    raise DownloadRefusedError(str(host[0] if isinstance(host, tuple) else host))


def _guarded_connect(original: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: socket.socket, address: Any) -> Any:
        if self.family == getattr(socket, "AF_UNIX", None):
            return original(self, address)
        raise DownloadRefusedError(str(address[0]))

    return connect


def _guarded_open(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse by address, so that the message has all of it, also behind a proxy."""

    def open_url(self: Any, fullurl: Any, *args: Any, **kwargs: Any) -> Any:
        url = fullurl if isinstance(fullurl, str) else fullurl.full_url
        if url.startswith(("file:", "data:")):
            return original(self, fullurl, *args, **kwargs)
        raise DownloadRefusedError(url)

    return open_url


@contextmanager
def _replace_attribute(owner: Any, name: str, value: object) -> Iterator[None]:
    """Set an attribute for the block; an inherited one is uncovered again afterwards."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _hub_offline() -> Iterator[None]:
    """huggingface_hub reads its environment once, when imported: tell it, and untell it after."""
    was = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "on", "yes", "true"}
    if constants := _hub_constants():
        was, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        if constants := _hub_constants():
            constants.HF_HUB_OFFLINE = was


def _hub_constants() -> Any:
    return sys.modules.get("huggingface_hub.constants")


def _is_offline_complaint(error: BaseException | None) -> bool:
    """Whether a library was asked for a remote file and found itself offline."""
    while error is not None:
        if type(error).__name__ in OFFLINE_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
