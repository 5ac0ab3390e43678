"""Nothing is downloaded: while a model is built or run, the network is shut.

The refusal is not an `Exception`, so that code which tries again, or goes on without the
weights, does not swallow it. Local files, a local cache and Unix sockets work as ever.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from ridgeline.errors import RidgelineError

OFFLINE = {  # what the libraries themselves listen to; a cached file is then used without asking
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "YOLO_OFFLINE": "true",
}
LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")
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
            if not _is_offline_error(error):
                raise
            raise _refusal(name, "the Hugging Face hub") from error


def _is_offline_error(error: BaseException | None) -> bool:
    """Whether a library was asked for a remote file and found itself offline."""
    while error is not None and type(error).__name__ not in OFFLINE_ERRORS:
        error = error.__cause__ or error.__context__
    return error is not None


def _refusal(name: str, address: str) -> RidgelineError:
    return RidgelineError(
        f"{name} wants to download from {address}; ridgeline does not download", hint=HINT
    )


def _guards() -> Iterator[AbstractContextManager[Any]]:
    """Each puts back what was there before, an inherited attribute too."""
    from unittest.mock import patch  # 30 ms that only a build has to pay

    yield patch.dict(os.environ, OFFLINE)
    with suppress(ImportError):  # the hub reads its environment once, when imported
        from huggingface_hub import constants

        yield patch.object(constants, "HF_HUB_OFFLINE", True)
    for lookup in LOOKUPS:
        yield patch.object(socket, lookup, _guarded_lookup)
    for method in ("connect", "connect_ex"):
        guarded = _guarded_connect(getattr(socket.socket, method))
        yield patch.object(socket.socket, method, guarded)


def _guarded_lookup(host: object, *_: object, **__: object) -> None:
    raise DownloadRefusedError(str(host))


def _guarded_connect(original: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: socket.socket, address: Any) -> Any:
        if self.family == getattr(socket, "AF_UNIX", None):
            return original(self, address)
        raise DownloadRefusedError(str(address[0]))

    return connect
