"""The results folder: where things are, how they get there whole, how they are read.

    results/
      runs/RUN_ID/
        run.json         asked · found · provenance · schema_version
        ops.parquet      a row per op, when there are any
        layers.parquet   a row per layer, when there are any
        kernels.parquet  a row per kernel, when the step was profiled
        copies.parquet   a row per operator and kind of copy by the driver, then
        power.parquet    a row per reading of a meter, when there are any
        log.txt          what was said on the way, when anything was

A run is written under a temporary name beside its final one, flushed to disk and renamed, so a
run folder is whole or absent, also when its writer is killed. No two writers share a file, so
many jobs can write to one folder on a network file system without locks.

History of the schema (raise SCHEMA_VERSION when an older reader would misread a run):
    1  2026-11-15  run.json with asked, found and provenance; tables ops and layers; log.txt
                   (an older reader takes no notice of the tables power and copies, which therefore
                   did not raise this; of counts with fused_bytes instead of ideal_bytes it shows
                   none of these; runs of `conv` it passes over, with a note)
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from ridgeline.errors import RidgelineError
from ridgeline.records import (
    CaptureRequest,
    ConvNetwork,
    ConvNetworkRequest,
    ConvRequest,
    ConvResult,
    CountRequest,
    CountSummary,
    Failure,
    ProfileRequest,
    ProfileSummary,
    Provenance,
    RunRequest,
    RunResult,
    TrainRequest,
    TrainSummary,
)
from ridgeline.serialize import FieldError, from_dict, show_value, to_dict

if TYPE_CHECKING:  # pandas takes half a second to import; only those who read tables pay it
    import pandas as pd

SCHEMA_VERSION = 1
PARTS = ("asked", "found", "provenance")  # of run.json: request, result, where it was made
DEFAULT_RESULTS = Path("results")
IN_RESULTS = "--results DIR"  # the option that names the folder

COMMANDS = ("run", "count", "profile", "import", "train", "conv")  # that store runs

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")

_TEMPORARY = ".tmp-"
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # and no way out of the folder
_NAME_KEPT = 60  # characters of a file's name in its temporary one; file systems take 255 bytes
_LABEL_LENGTH = 64
_USER_LABEL_LENGTH = 24  # in the name of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun(Generic[RequestT, ResultT]):
    """One stored run, without its tables."""

    run_id: str
    path: Path
    schema_version: int
    request: RequestT
    result: ResultT
    made: Provenance  # where, when and with what


Run = StoredRun[Any, Any]  # of any command
MeasuredRun = StoredRun[RunRequest, RunResult]
FailedRun = StoredRun[RunRequest, Failure]
StoredCount = StoredRun[CountRequest, CountSummary]
StoredProfile = StoredRun[ProfileRequest, ProfileSummary]
StoredCapture = StoredRun[CaptureRequest, ProfileSummary]
StoredTraining = StoredRun[TrainRequest, TrainSummary]
StoredConv = StoredRun[ConvRequest, ConvResult]
StoredConvNetwork = StoredRun[ConvNetworkRequest, ConvNetwork]

_KINDS: Mapping[str, tuple[str, type, type]] = {  # place in the index, request, result
    "run": ("runs", RunRequest, RunResult),
    "failed run": ("failed", RunRequest, Failure),
    "count": ("counts", CountRequest, CountSummary),
    "profile": ("profiles", ProfileRequest, ProfileSummary),
    "import": ("captures", CaptureRequest, ProfileSummary),
    "profile of a program": ("captures", CaptureRequest, ProfileSummary),
    "train": ("trainings", TrainRequest, TrainSummary),
    "conv": ("convolutions", ConvRequest, ConvResult),
    "conv of a network": ("conv_networks", ConvNetworkRequest, ConvNetwork),
}
_INDEX_NAMES = {(request, result): name for name, request, result in _KINDS.values()}


class InvalidRunError(RidgelineError):
    """A run whose fields are not those of its command; `reason` names the field."""

    def __init__(self, path: Path, command: str, reason: str) -> None:
        super().__init__(
            f"cannot read {path}: {reason}",
            hint=f"the run was changed after it was written; remove {path.parent} or restore it",
        )
        self.command, self.reason = command, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsIndex:
    """The runs of a folder by kind, oldest first."""

    runs: tuple[MeasuredRun, ...] = ()  # completed
    failed: tuple[FailedRun, ...] = ()
    counts: tuple[StoredCount, ...] = ()
    profiles: tuple[StoredProfile, ...] = ()  # of a run
    captures: tuple[StoredCapture, ...] = ()  # imported, or of a program
    trainings: tuple[StoredTraining, ...] = ()
    convolutions: tuple[StoredConv, ...] = ()  # one pass of one shape each
    conv_networks: tuple[StoredConvNetwork, ...] = ()  # which layers have which shape
    problems: tuple[str, ...] = ()  # why others are passed over


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """A results folder. It need not exist until something is written to it."""

    path: Path = DEFAULT_RESULTS

    @property
    def runs_path(self) -> Path:
        return self.path / "runs"

    def check_writable(self) -> None:
        """Refuse a place where no run can be stored; nothing is made there yet."""
        with writing(self.path):
            there = next(p for p in (self.runs_path, *self.runs_path.parents) if p.exists())
            if not there.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            # Tried, not asked for: to root every place seems writable, also /proc.
            with tempfile.TemporaryFile(dir=there) as probe:
                probe.write(b"?")

    def save_run(
        self,
        label: str,
        request: object,
        result: object,
        provenance: object,
        *,
        tables: Mapping[str, pd.DataFrame] = MappingProxyType({}),
        log: str = "",
    ) -> str:
        """Store a run, whole or not at all, and return its id.

        `request`, `result` and `provenance` are records or mappings. `label` names the run to
        people, usually by its model. `tables` are by their names above.
        """
        run_id = new_run_id(label)
        content = {"schema_version": SCHEMA_VERSION, "run_id": run_id}
        content |= {"asked": request, "found": result, "provenance": provenance}
        with writing(self.path), _whole_folder(self.runs_path / run_id) as folder:
            for name, table in tables.items():
                write_parquet(table, folder / f"{name}.parquet")
            if log:
                _write_text(folder / "log.txt", log)
            _write_text(folder / "run.json", to_json(content))
        return run_id

    def run_ids(self) -> list[str]:
        """The stored runs, oldest first. What a killed writer left behind is not a run."""
        found = self.runs_path.glob("*/run.json")
        return sorted(p.parent.name for p in found if not p.parent.name.startswith("."))

    def read_run(self, run_id: str) -> Run:
        """Read one run, without its tables."""
        path = self._run_path(run_id)
        state = (path / "run.json").stat()
        return _read_once(path, state.st_mtime_ns, state.st_size)

    def read_runs(self) -> list[Run]:
        """Every stored run, oldest first."""
        return [self.read_run(run_id) for run_id in self.run_ids()]

    def index(self) -> ResultsIndex:
        """Every run, by kind. A run.json that was read before is not read again."""
        runs: dict[str, list[Run]] = {name: [] for name in _INDEX_NAMES.values()}
        problems: list[str] = []
        for run_id in self.run_ids():
            try:
                run = self.read_run(run_id)
            except InvalidRunError as error:
                problems.append(f"{error.command} {run_id} is passed over: {error.reason}")
            except RidgelineError as error:
                problems.append(str(error))
            else:
                runs[_INDEX_NAMES[type(run.request), type(run.result)]].append(run)
        named: dict[str, Any] = {name: tuple(stored) for name, stored in runs.items()}
        return ResultsIndex(**named, problems=tuple(problems))

    def read_table(
        self, run_id: str, name: str, *, columns: list[str] | None = None
    ) -> pd.DataFrame:
        """Read one table of a run; only `columns` of it when they are named."""
        path = self._run_path(run_id) / f"{name}.parquet"
        if not path.is_file():
            there = ", ".join(sorted(p.stem for p in path.parent.glob("*.parquet"))) or "none"
            raise RidgelineError(f"run {run_id} has no table {name!r}", hint=f"its tables: {there}")
        import pandas as pd

        try:
            return pd.read_parquet(path, columns=columns)
        except (OSError, ValueError) as error:  # pyarrow's errors are kinds of these
            raise _damaged(path, _first_line(error)) from error

    def read_log(self, run_id: str) -> str:
        """What was said while the run was made; empty when nothing was."""
        path = self._run_path(run_id) / "log.txt"
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def _run_path(self, run_id: str) -> Path:
        path = self.runs_path / run_id
        if _RUN_ID.fullmatch(run_id) and (path / "run.json").is_file():
            return path
        newest = self.run_ids()[-3:]
        raise RidgelineError(
            f"there is no run {run_id!r} in {self.path}",
            hint=f"the newest runs there: {', '.join(reversed(newest))}"
            if newest
            else "there are no runs in this folder; name another one with --results DIR",
        )


@cache
def _read_once(path: Path, _mtime_ns: int, _size: int) -> Run:
    """A run; its file is read again only if it was changed."""
    return to_run(path, _read_json(path / "run.json"))


def to_run(path: Path, content: dict[str, Any]) -> Run:
    """The run that the content of `run.json` stands for."""
    file = path / "run.json"
    version = _schema_version(content, path)
    parts: dict[str, dict[str, Any]] = {n: content.get(n) for n in PARTS}  # type: ignore[misc]
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise _damaged(file, f"it has no {name!r}")
    request, result = parts["asked"], _rename_fused(parts["found"])
    command = str(request.get("command"))
    kind = _KINDS.get(_kind_of(command, request, result))
    if kind is None:
        raise InvalidRunError(
            file,
            "run",
            f"asked.command is {show_value(request.get('command'))}, "
            f"not one of {', '.join(COMMANDS)}",
        )
    try:
        return StoredRun(
            run_id=path.name,
            path=path,
            schema_version=version,
            request=from_dict(kind[1], request, "asked"),
            result=from_dict(kind[2], result, "found"),
            made=from_dict(Provenance, parts["provenance"], "provenance"),
        )
    except FieldError as error:
        raise InvalidRunError(file, command, str(error)) from error


def _kind_of(command: str, request: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if command == "run" and result.get("status") == "failed":
        return "failed run"
    if command == "profile" and "program" in request:
        return "profile of a program"
    if command == "conv" and "model" in request:
        return "conv of a network"
    return command


def _rename_fused(found: dict[str, Any]) -> dict[str, Any]:
    """Counts of earlier versions call their fused bytes ideal."""
    return {("fused_bytes" if name == "ideal_bytes" else name): v for name, v in found.items()}


def run_label(command: str, name: str, batch_size: int | None = None, *, label: str = "") -> str:
    """`run-resnet50-bs32`, or `LABEL-resnet50-bs32`; of a file, without the folders before it."""
    size = f"-bs{batch_size}" if batch_size is not None else ""
    return f"{label[:_USER_LABEL_LENGTH] or command}-{name.rpartition('/')[2]}{size}"


def new_run_id(label: str, *, now: datetime | None = None) -> str:
    """A name for a run: sorts by time, can be read, is new, and is safe in any file system."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    time = f"{moment:%Y-%m-%dT%H%M%S}.{moment.microsecond // 1000:03}Z"
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", label)[:_LABEL_LENGTH].strip("-.") or "run"
    return f"{time}-{words}-{secrets.token_hex(3)}"


def atomic_write_text(path: Path, text: str, *, elsewhere: str = "-o FILE, --results DIR") -> None:
    """Write a file so that readers see the old text or the new one, never a part.

    A link is followed, and what is no plain file (a pipe, a device) is written to as it is.
    `elsewhere` are the options that would have named another place.
    """
    path = path.resolve()
    with writing(path.parent, elsewhere=elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            _write_text(path, text)
            return
        with whole_file(path) as file:
            file.write(text.encode("utf-8", errors="backslashreplace"))
        _flush(path.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; it takes the name `path` when the block ends without an error.

    Until then an older file of that name stays as it is. Raises OSError.
    """
    temporary = path.with_name(f"{_TEMPORARY}{path.name[:_NAME_KEPT]}-{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(table: pd.DataFrame, path: Path) -> None:
    """Write a table. A column with whole numbers beyond 64 bits, which Parquet does not have,
    is written as floating-point numbers; CSV and JSON keep every digit."""
    try:
        table.to_parquet(path, index=False)
    except OverflowError:
        from pandas.api.types import infer_dtype

        large = [
            n for n in table if table[n].dtype == object and infer_dtype(table[n]) == "integer"
        ]
        table.astype(dict.fromkeys(large, float)).to_parquet(path, index=False)


def _write_text(path: Path, text: str) -> None:
    """In UTF-8. What it has no form for, as in an undecodable file name, becomes JSON's escape."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def to_json(content: object) -> str:
    """JSON text of records, mappings and sequences."""
    return json.dumps(to_dict(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@contextmanager
def _whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the name `path` when the block ends without an error."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            _flush(file)
        _flush(temporary)
        # Refused by the system when `path` holds a run already: a run is never overwritten.
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    with suppress(OSError):  # the run is there; its name may be lost with the power, and no sooner
        _flush(path.parent)


@contextmanager
def writing(folder: Path, *, elsewhere: str = IN_RESULTS) -> Iterator[None]:
    """Turn the refusal of a file system (full, read-only, not ours) into advice.

    `elsewhere` are the options of the caller's command that name another place.
    """
    try:
        yield
    except OSError as error:
        raise RidgelineError(
            f"cannot write to {folder}: {error.strerror or error}",
            hint=f"make room or get permission there, or name another place: {elsewhere}",
        ) from error


def _flush(path: Path) -> None:
    """Have the system put a file or a folder's entries on disk before we go on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; they write its entries at once.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last: lists of lists of lists…
        raise _damaged(path, _first_line(error)) from error
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    return content


def _schema_version(content: dict[str, Any], run_path: Path) -> int:
    version = content.get("schema_version")
    if not isinstance(version, int):
        raise _damaged(run_path / "run.json", "it has no schema_version")
    if version > SCHEMA_VERSION:
        raise RidgelineError(
            f"run {run_path.name} was written by a later ridgeline: "
            f"its schema is {version}, this one reads up to {SCHEMA_VERSION}",
            hint="update ridgeline and try again",
        )
    return version


def _damaged(path: Path, reason: str) -> RidgelineError:
    return RidgelineError(
        f"cannot read {path}: {reason}",
        hint=f"the run was changed after it was written; remove {path.parent} or restore it",
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
