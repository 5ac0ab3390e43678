"""What the tests of isolation have done in another process."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Send


def add(task: tuple[int, int], send: Send) -> dict[str, Any]:
    """The sum, where it was made, and news on the way."""
    send("adding")
    send({"done": 1})
    return {"sum": sum(task), "pid": os.getpid()}


def refuse(task: str, _send: Send) -> None:
    raise RidgelineError(f"{task} is not possible", hint="ask for something else")


def fail(task: str, send: Send) -> None:
    send("about to fail")
    raise ValueError(f"{task}\n  in two lines")


def crash(task: str, _send: Send) -> None:
    os.kill(os.getpid(), signal.Signals[task])
    time.sleep(60)


def leave(task: int, _send: Send) -> None:
    """As a program does, and as a library that gives up does."""
    if task:
        sys.exit(task)
    os._exit(4)


def chatter(_task: object, send: Send) -> str:
    print("a model prints this")  # noqa: T201
    os.write(1, b"a library prints this\n")
    return "answer"


def sleep(_task: object, send: Send) -> None:
    send(os.getpid())
    time.sleep(60)


def tidies(path: Path, send: Send) -> None:
    """Has something half written, which it takes away on its way out."""
    path.touch()
    try:
        send("half written")
        time.sleep(60)
    finally:
        path.unlink()


class Thing:
    """Something that can be watched."""


def end_in_callback(_task: None, _send: Send) -> None:
    """Asked to end in a callback, as those of imports: Python throws away what it raises."""
    thing = Thing()
    watched = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    time.sleep(60)
    del watched
