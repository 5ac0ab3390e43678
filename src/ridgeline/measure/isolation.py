"""A configuration in a process of its own.

So its memory, its faults and its processor time are its own, an earlier model has left nothing in
the device's allocator, and one that crashes takes nobody with it. On Linux the process is a copy of
a server that has imported torch once and touched no device; elsewhere it is started from nothing.

The process sends messages while it works and ends with one answer. It ends by itself when the one
that asked is gone, however that one ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, Generic, TypeVar

from ridgeline.errors import RidgelineError
from ridgeline.signals import interrupts_later

Answer = TypeVar("Answer")
Send = Callable[[Any], None]
Work = Callable[[Any, Send], Answer]  # the task, and how to tell of progress

PRELOADED = ["ridgeline.measure.preload"]
LONGEST_FOLDER = 70  # of temporary files: a server's address is in there, and has 107 bytes at most
LOADED = "RIDGELINE_LOADED"  # names a file that says that the server has imported everything
LOOK_S = 0.01  # how often to look for it
LONGEST_LOAD_S = 60.0  # then the first process waits, which cannot be interrupted
TIDYING_S = 0.5  # for a process that is to end, in the middle of writing perhaps
AGAIN_S = 0.01  # until it is asked to end once more
ENDING_S = 5.0  # for a process that has answered to end its own children
LONGEST_REASON = 300
OUT_OF_MEMORY = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory",
    "status_alloc_failed",  # of cuBLAS and cuDNN, which allocate for themselves
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no answer. An input that is wrong can be put right; other failures are found."""

    reason: str
    hint: str
    is_input: bool = False
    is_out_of_memory: bool = False
    is_timeout: bool = False
    log: str = ""

    def error(self) -> RidgelineError:
        return RidgelineError(self.reason, hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Answer]):
    """Either an answer or a failure."""

    answer: Answer | None = None
    failure: Failure | None = None

    def value(self) -> Answer:
        """The answer; the failure as an error if there is none."""
        if self.failure is not None:
            raise self.failure.error()
        assert self.answer is not None
        return self.answer


def run_isolated(
    work: Work[Answer],
    task: Any,
    on_message: Callable[[Any], None] = lambda message: None,
    *,
    timeout_s: float | None = None,
) -> Outcome[Answer]:
    """Do `work(task, send)` in a process of its own; `on_message` gets what it sends on the way.

    A process that takes longer than `timeout_s` is ended.
    """
    process: Any = None
    ours: Any = None
    context: Any = multiprocessing.get_context(start_method())
    try:
        try:
            resource_tracker.ensure_running()  # lets interrupts through again, if it has to start
            if start_method() == "forkserver":
                _ensure_server()
            with interrupts_later(), _main_module_unseen():  # the process never hears of Ctrl-C
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_main, args=(theirs, work, task))
                process.start()
                theirs.close()
        except (OSError, EOFError) as error:  # EOFError: of a server that was killed
            raise RidgelineError(
                f"cannot start a process: {error}",
                hint="check the limits of processes, memory and open files; where a command has"
                " --in-process, that needs none",
            ) from error
        return _listen(ours, process, on_message, timeout_s)
    finally:
        if process is not None and process.pid is not None:
            process.terminate()  # it may tidy up what it was writing, for a moment
            process.join(TIDYING_S)
            process.kill()
            process.join()
            ours.close()


def start_method() -> str:
    """A server where that is possible; macOS forks badly, and an address has to be short."""
    has_server = sys.platform == "linux" and len(tempfile.gettempdir()) <= LONGEST_FOLDER
    return "forkserver" if has_server else "spawn"


def _ensure_server() -> None:
    """Have the server run. Until it has imported everything, Ctrl-C ends it; later it is ours."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    before = _server_id()
    with tempfile.TemporaryDirectory(prefix="ridgeline-", ignore_cleanup_errors=True) as folder:
        sign = Path(folder) / "loaded"
        os.environ[LOADED] = str(sign)
        try:
            with interrupts_later():  # which the server never hears of
                forkserver.ensure_running()
        finally:
            del os.environ[LOADED]
        server = _server_id()
        if PRELOADED and server is not None and server != before:
            _wait_loaded(server, sign)


def _server_id() -> int | None:
    running: Any = forkserver
    return getattr(running._forkserver, "_forkserver_pid", None)


def _wait_loaded(server: int, sign: Path) -> None:
    end_s = time.monotonic() + LONGEST_LOAD_S
    try:
        while not sign.exists() and _is_running(server) and time.monotonic() < end_s:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        os.kill(server, signal.SIGKILL)
        raise


def _is_running(process: int) -> bool:
    """Also False of one that has ended and that nobody has asked yet how."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@contextmanager
def _main_module_unseen() -> Iterator[None]:
    """Keep a process from running the user's script again: no work of ours is defined in it."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {
        name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)
    }
    vars(main).update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        vars(main).update(hidden)


def _listen(
    ours: Any, process: Any, on_message: Callable[[Any], None], timeout_s: float | None
) -> Outcome[Any]:
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        if not connection.wait([ours, process.sentinel], left_s):
            return Outcome(
                failure=Failure(
                    reason=f"took longer than its timeout of {timeout_s:g} s",
                    hint="allow more time, or do less: fewer --iters, a smaller --batch-size",
                    is_timeout=True,
                )
            )
        try:
            has_message = ours.poll()
            message = ours.recv() if has_message else None
        except (EOFError, OSError):  # it died; OSError: in the middle of a message
            has_message = False
        if not has_message:
            process.join()
            return Outcome(failure=died(process.exitcode))
        if isinstance(message, Outcome):
            process.join(ENDING_S)
            return message
        on_message(message)


def died(exit_code: int | None) -> Failure:
    """Of a process that ended without an answer."""
    if exit_code is not None and exit_code < 0:
        names = {one.value: one.name for one in signal.Signals}
        name = names.get(-exit_code, f"signal {-exit_code}")
        killed = exit_code == -signal.SIGKILL
        return Failure(
            reason=f"the process was ended by {name}",
            hint="most often the system ran out of memory: try a smaller --batch-size or input"
            if killed
            else "the model or a library under it crashed; PYTHONFAULTHANDLER=1 shows where",
            is_out_of_memory=killed,
        )
    return Failure(
        reason=f"the process ended with code {exit_code} and without an answer",
        hint="--in-process, where a command has it, shows where",
    )


def attempt(work: Work[Answer], task: Any, send: Send) -> Outcome[Answer]:
    """Do the work here, and turn whatever it raises into a failure."""
    try:
        return Outcome(answer=work(task, send))
    except RidgelineError as error:
        return Outcome(failure=Failure(reason=error.problem, hint=error.hint, is_input=True))
    except (Exception, SystemExit) as error:  # a model may call sys.exit
        return Outcome(failure=_failure(error))


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What a model prints must not end up between our results, whoever it is that prints."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)  # for libraries that do not print by way of Python
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _failure(error: BaseException) -> Failure:
    text, log = _words(error), "".join(traceback.format_exception(error))
    if is_out_of_memory(error):
        return Failure(
            reason=f"out of memory: {text}" if text else "out of memory",
            hint="try a smaller --batch-size or input, --precision amp, or "
            "`ridgeline run … --find-max-batch`",
            is_out_of_memory=True,
            log=log,
        )
    return Failure(
        reason=f"{type(error).__name__}: {text}" if text else type(error).__name__,
        hint="the run's log.txt has the whole traceback; --debug shows it here",
        log=log,
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the system, had no more to give; each says it in its own way."""
    text = _words(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in OUT_OF_MEMORY)


def _words(error: BaseException) -> str:
    """What an error says, in one line; some cannot say it."""
    try:
        return " ".join(str(error).split())[:LONGEST_REASON]
    except Exception:
        return ""


def _main(theirs: Any, work: Work[Any], task: Any) -> None:
    """The life of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that asked
    signal.signal(signal.SIGTERM, _tidy_up)
    os.dup2(2, 1)  # what a model prints must not end up between our results
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        outcome = attempt(work, task, theirs.send)
    except KeyboardInterrupt as error:  # no Ctrl-C comes here: the model raised it
        outcome = Outcome(failure=_failure(error))
    with suppress(OSError):  # nobody listens any more
        theirs.send(outcome)
    theirs.close()


def _tidy_up(number: int, frame: object) -> None:
    """The one that asked wants no more: files that are half written go away on the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.unraisablehook = _exit_again
    sys.exit(128 + number)


def _exit_again(unraisable: Any) -> None:
    """Python throws away what a callback raises, as those of imports: ask once more, soon."""
    if isinstance(unraisable.exc_value, SystemExit):
        signal.signal(signal.SIGTERM, _tidy_up)
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
