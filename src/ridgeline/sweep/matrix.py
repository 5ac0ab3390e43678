"""The experiment matrix of a sweep: a YAML file, checked whole before anything runs.

    models: [resnet50, vgg16]
    batch_size: [1, 8, 32]
    precision: [fp32, amp]
    exclude: [{models: vgg16, precision: amp}]
    what: [run, layers]
    stages:
      quick: {batch_size: 8}
      full: {promote: 90%}

A dimension is a setting with one value or several; every combination of them is a case. What a
stage names takes the place of the same key above it. An error names the file, the line and what
would be right.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.settings import MODES, Settings

WHAT = ("run", "layers", "energy", "profile", "count")
OF_WHAT = ("layers", "energy")  # settings of a run that `what` decides on
WORKLOAD = ("models", "batch_size", "input_size", "seq_len", "mode", "config")
SIMPLE = (str, int, float, bool)
DIMENSIONS = (
    *WORKLOAD, "gpu", *(f.name for f in fields(Settings) if f.name not in (*OF_WHAT, "device")),
)  # fmt: skip
STAGE_KEYS = ("repeats", "what", "timeout", "promote", "include", "exclude")
TOP_KEYS = ("name", "stages", "slurm")
ONE_STAGE = "full"  # the name of the only stage of a matrix that has none
LARGEST_MATRIX = 1_000_000  # cases: more is a slip
_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+))?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage: the combinations of its values, and when the next one may start."""

    name: str
    values: Mapping[str, tuple[Any, ...]]
    include: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    exclude: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    what: tuple[str, ...] = ("run",)
    repeats: int = 1
    timeout_s: float | None = None  # of one case
    promote: float = 1.0  # the share of cases that must have succeeded before the next stage
    line: int | None = None

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Every combination once, in the order of the file."""
        seen = set()
        for values in (self.values, *({**self.values, **extra} for extra in self.include)):
            for chosen in product(*values.values()):
                case = dict(zip(values, chosen, strict=True))
                key = repr(case)
                if key not in seen and not any(_has_all(case, rule) for rule in self.exclude):
                    seen.add(key)
                    yield case


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """What a sweep asks Slurm for. Empty: what the cluster gives by default."""

    partition: str = ""
    gpus: str = ""  # "1", "h100:1"
    gres: str = ""
    constraint: str = ""
    time: str = ""  # as sbatch takes it: "30", "02:00:00", "1-00:00:00"
    mem: str = ""
    cpus: int = 0
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    array_size: int = 0  # shards of a stage; 0: one for each comparison
    parallel: int = 0  # shards that may run at once; 0: no limit
    setup: tuple[str, ...] = ()  # lines of the job script before ridgeline starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A sweep as its author wrote it."""

    name: str
    stages: tuple[Stage, ...]
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    text: str = ""  # the file

    def stage(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = ", ".join(stage.name for stage in self.stages)
        raise RidgelineError(f"the sweep {self.name} has no stage {name!r}", hint=f"it has {names}")


def _has_all(case: Mapping[str, Any], rule: Mapping[str, tuple[Any, ...]]) -> bool:
    return all(case.get(name) in values for name, values in rule.items())


# ---------------------------------------------------------------- reading


def read_matrix(path: Path) -> Matrix:
    """The matrix in a YAML file; its name is the file's unless the file has one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RidgelineError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            hint="name a YAML file; `ridgeline sweep --list` shows ready matrices",
        ) from error
    return parse_matrix(text, name=path.stem, file=str(path))


def parse_matrix(text: str, *, name: str, file: str = "") -> Matrix:
    """The matrix in a text of YAML."""
    return _Reader(file or name).read(text, name)


def matrix_from_dict(content: Mapping[str, Any], *, name: str) -> Matrix:
    """The matrix in a dictionary, as from Python."""
    import yaml

    text = yaml.safe_dump(_as_plain(content), sort_keys=False, allow_unicode=True)
    return parse_matrix(text, name=str(content.get("name", name)), file="the matrix")


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_as_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


@dataclass(slots=True)
class _Reader:
    """Reads one file and knows the line of every value."""

    file: str
    lines: dict[int, int] = field(default_factory=dict)  # of a mapping or list, by identity
    key_lines: dict[tuple[int, str], int] = field(default_factory=dict)

    def read(self, text: str, name: str) -> Matrix:
        top = self._load(text)
        if not isinstance(top, dict):
            raise self._error(1, "this is no mapping of keys to values", "start with `models: …`")
        self._check_keys(top, (*TOP_KEYS, *STAGE_KEYS, *DIMENSIONS))
        name = str(top.get("name", name))
        if not _NAME.fullmatch(name):
            hint = (
                "letters, digits, dots, dashes and underlines, at most 60, a letter or digit first"
            )
            raise self._error(self._line(top, "name"), f"{name!r} cannot be a sweep's name", hint)
        stages = self._read_stages(top)
        slurm = self._read_slurm(top)
        return Matrix(name=name, stages=stages, slurm=slurm, text=text)

    def _load(self, text: str) -> Any:
        """Plain values; duplicate keys are refused, and lines remembered."""
        import yaml

        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            if node is None:
                raise self._error(1, "the file is empty", "start with `models: …`")
            return self._build(node, yaml.SafeLoader(""))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or "this is not YAML"
            line = mark.line + 1 if mark else 1
            raise self._error(line, f"not valid YAML: {problem}", "check the line") from error
        except RecursionError as error:
            raise self._error(1, "lists within lists without end", "check the file") from error

    def _build(self, node: Any, loader: Any) -> Any:
        import yaml

        line = node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            values = [self._build(one, loader) for one in node.value]
            self.lines[id(values)] = line
            return values
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            self.lines[id(mapping)] = line
            for key_node, value_node in node.value:
                key, key_line = str(loader.construct_object(key_node)), key_node.start_mark.line + 1
                if key in mapping:
                    raise self._error(key_line, f"the key {key!r} stands twice", "join them")
                mapping[key] = self._build(value_node, loader)
                self.key_lines[id(mapping), key] = key_line
            return mapping
        return loader.construct_object(node)

    # ---------------------------------------------------------------- stages

    def _read_stages(self, top: dict[str, Any]) -> tuple[Stage, ...]:
        common = {key: value for key, value in top.items() if key not in TOP_KEYS}
        line = self._line(top, "stages")
        named = top.get("stages", {ONE_STAGE: {}})
        if not isinstance(named, dict) or not named:
            raise self._error(
                line,
                "stages is no mapping of names to values",
                "for example: stages: {quick: {batch_size: 8}, full: {}}",
            )
        stages = []
        for name, own in named.items():
            where = self._line(named, name) if "stages" in top else None
            if not _NAME.fullmatch(name):
                raise self._error(where, f"{name!r} cannot be a stage's name", "use letters")
            own = own if own is not None else {}
            if not isinstance(own, dict):
                raise self._error(where, f"the stage {name} is no mapping", f"{name}: {{}}")
            self._check_keys(own, (*STAGE_KEYS, *DIMENSIONS))
            stages.append(self._read_stage(name, top, common, own, where))
        return tuple(stages)

    def _read_stage(
        self,
        name: str,
        top: dict[str, Any],
        common: dict[str, Any],
        own: dict[str, Any],
        where: int | None,
    ) -> Stage:
        def source(key: str) -> dict[str, Any]:
            return own if key in own else top

        merged = {**common, **own}
        if "models" not in merged:
            raise self._error(
                where or 1, f"the stage {name} has no models", "add models: [resnet50]"
            )
        values = {key: self._read_values(source(key), key) for key in DIMENSIONS if key in merged}
        stage = Stage(
            name=name,
            values=values,
            include=self._read_rules(source("include"), "include"),
            exclude=self._read_rules(source("exclude"), "exclude"),
            what=self._read_what(source("what")),
            repeats=self._read_repeats(source("repeats")),
            timeout_s=self._read_timeout(source("timeout")),
            promote=self._read_promote(source("promote")),
            line=where,
        )
        count = stage.repeats
        for several in values.values():
            count *= len(several)
        if count > LARGEST_MATRIX:
            raise self._error(
                where or 1,
                f"the stage {name} has {count:,} cases",
                f"at most {LARGEST_MATRIX:,} are possible: shorten its lists",
            )
        if next(stage.combinations(), None) is None:
            raise self._error(where or 1, f"the stage {name} has no case left",
                              "exclude leaves nothing: loosen it, or add values")  # fmt: skip
        return stage

    def _read_rules(
        self, content: dict[str, Any], key: str
    ) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
        """Entries of include or exclude: dimensions with one value or several."""
        rules = content.get(key)
        if rules is None:
            return ()
        line = self._line(content, key)
        rules = [rules] if isinstance(rules, dict) else rules
        if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
            raise self._error(
                line,
                f"{key} is no list of combinations",
                f"for example: {key}: [{{models: resnet50, precision: amp}}]",
            )
        for rule in rules:
            self._check_keys(rule, DIMENSIONS)
        return tuple({name: self._read_values(rule, name) for name in rule} for rule in rules)

    # ---------------------------------------------------------------- values

    def _read_values(self, content: dict[str, Any], key: str) -> tuple[Any, ...]:
        """One value or several of a dimension, each checked for its type."""
        line, raw = self._line(content, key), content[key]
        several = raw if isinstance(raw, list) else [raw]
        if not several:
            raise self._error(line, f"{key} has no value", "name at least one, or leave it out")
        values: list[Any] = []
        for one in several:
            try:
                values += _expand(key, one)
            except ValueError as error:
                raise self._error(line, f"{key}: {error}", _describe_values(key)) from error
        if len(values) > LARGEST_MATRIX:
            raise self._error(line, f"{key} has {len(values):,} values", "shorten the range")
        return tuple(dict.fromkeys(values) if _are_hashable(values) else values)

    def _read_what(self, content: dict[str, Any]) -> tuple[str, ...]:
        if "what" not in content:
            return ("run",)
        line, raw = self._line(content, "what"), content["what"]
        what = raw if isinstance(raw, list) else [raw]
        wrong = [one for one in what if one not in WHAT]
        if wrong or not what:
            problem = f"what: {wrong[0]!r} is not known" if wrong else "what has no value"
            raise self._error(line, problem, f"choose among {', '.join(WHAT)}")
        return tuple(one for one in WHAT if one in what)

    def _read_repeats(self, content: dict[str, Any]) -> int:
        repeats = content.get("repeats", 1)
        if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
            line = self._line(content, "repeats")
            raise self._error(line, f"repeats: {repeats!r} is not possible", "1 or more")
        return repeats

    def _read_timeout(self, content: dict[str, Any]) -> float | None:
        if content.get("timeout") is None:
            return None
        found = _DURATION.fullmatch(str(content["timeout"]).strip())
        if found is None or float(found[1]) <= 0:
            line = self._line(content, "timeout")
            raise self._error(line, f"timeout: {content['timeout']!r} is no duration",
                              "seconds, or 90s, 15min, 2h")  # fmt: skip
        return float(found[1]) * _SECONDS[found[2]]

    def _read_promote(self, content: dict[str, Any]) -> float:
        raw = content.get("promote", "no failures")
        words = {"no failures": 1.0, "no_failures": 1.0, "always": 0.0}
        if raw in words:
            return words[raw]
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", str(raw))
        if found and float(found[1]) <= 100:
            return float(found[1]) / 100
        raise self._error(self._line(content, "promote"), f"promote: {raw!r} is not known",
                          "choose no failures, always, or a share such as 90%")  # fmt: skip

    def _read_slurm(self, top: dict[str, Any]) -> SlurmOptions:
        raw = top.get("slurm") or {}
        if not isinstance(raw, dict):
            raise self._error(
                self._line(top, "slurm"),
                "slurm is no mapping",
                "for example: slurm: {partition: gpu, gpus: 1, time: 02:00:00}",
            )
        kinds = typing.get_type_hints(SlurmOptions)
        self._check_keys(raw, tuple(kinds))
        values: dict[str, Any] = {}
        for key, value in raw.items():
            line = self._line(raw, key)
            if key == "setup":
                lines = value if isinstance(value, list) else str(value).splitlines()
                values[key] = tuple(str(one) for one in lines)
            elif kinds[key] is str:
                # YAML 1.1 reads 02:00:00 as a number in base 60
                is_clock = key == "time" and isinstance(value, int) and not isinstance(value, bool)
                values[key] = self._read_clock(line, value) if is_clock else str(value)
            elif type(value) is not kinds[key] or (kinds[key] is int and value < 0):
                word = {int: "a whole number", bool: "true or false"}[kinds[key]]
                raise self._error(line, f"slurm.{key}: {value!r} is not possible", f"it is {word}")
            else:
                values[key] = value
        return SlurmOptions(**values)

    def _read_clock(self, line: int | None, value: int) -> str:
        if value < 600:  # minutes, as sbatch takes them; 02:00:00 is at least 3600
            return str(value)
        hours, rest = divmod(value, 3600)
        return f"{hours:02}:{rest // 60:02}:{rest % 60:02}"

    # ---------------------------------------------------------------- errors

    def _check_keys(self, content: dict[str, Any], known: Sequence[str]) -> None:
        for key in content:
            if key in known:
                continue
            close = difflib.get_close_matches(key, known, n=1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise self._error(self._line(content, key), f"unknown key {key!r}",
                              f"{guess}the keys here are {', '.join(known)}")  # fmt: skip

    def _line(self, content: Mapping[str, Any], key: str) -> int | None:
        return self.key_lines.get((id(content), key), self.lines.get(id(content)))

    def _error(self, line: int | None, problem: str, hint: str) -> RidgelineError:
        place = f"{self.file}, line {line}" if line else self.file
        return RidgelineError(f"{place}: {problem}", hint=hint)


# ---------------------------------------------------------------- values of a dimension


def _are_hashable(values: Sequence[Any]) -> bool:
    return not any(isinstance(value, dict) for value in values)


def _expand(key: str, raw: Any) -> list[Any]:
    """One entry of a list: a value, or a range of whole numbers with both ends."""
    read = _READERS.get(key)
    if read is None:
        read = _settings_reader(key)
    if isinstance(raw, str) and key in RANGED:
        found = _RANGE.fullmatch(raw.strip())
        if found:
            first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
            if step < 1 or last < first:
                raise ValueError(f"the range {raw!r} has no number in it")
            if (last - first) // step >= LARGEST_MATRIX:
                raise ValueError(f"the range {raw!r} is too long")
            return [read(one) for one in range(first, last + 1, step)]
    return [read(raw)]


def _read_text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(f"{raw!r} is no name")
    return raw.strip()


def _read_count(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
        raise ValueError(f"{raw!r} is no whole number of at least 1")
    return raw


def _read_size(raw: Any) -> tuple[int, ...]:
    """224, or 224x320 as height and width."""
    if isinstance(raw, str) and re.fullmatch(r"\d+x\d+", raw):
        return tuple(_read_count(int(one)) for one in raw.split("x"))
    return (_read_count(raw),)


def _read_mode(raw: Any) -> str:
    if raw not in MODES:
        raise ValueError(f"{raw!r} is not {' or '.join(MODES)}")
    return str(raw)


def _read_config(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{raw!r} is no mapping")
    return raw


RANGED = ("batch_size", "input_size", "seq_len", "workers", "grad_accum_steps", "seed")
_READERS: dict[str, Callable[[Any], Any]] = {
    "models": _read_text, "batch_size": _read_count, "input_size": _read_size,
    "seq_len": _read_count, "mode": _read_mode, "config": _read_config, "gpu": _read_text,
}  # fmt: skip


def _settings_reader(key: str) -> Callable[[Any], Any]:
    """Reads a field of `Settings` by its type; its range is checked when the case is made."""
    kind = typing.get_type_hints(Settings)[key]
    kinds = typing.get_args(kind) or (kind,)

    def read(raw: Any) -> Any:
        if raw is None and type(None) in kinds:
            return None
        if isinstance(raw, bool):
            if bool not in kinds:
                if key == "compile":  # `compile: [false, true]`, as the option --compile
                    return "default" if raw else None
                raise ValueError(f"{raw!r} is not {_describe_kind(kinds)}")
            return raw
        if isinstance(raw, int) and float in kinds:
            return float(raw)
        if not isinstance(raw, SIMPLE) or type(raw) not in kinds:
            raise ValueError(f"{raw!r} is not {_describe_kind(kinds)}")
        return raw

    return read


def _describe_kind(kinds: Sequence[Any]) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return " or ".join(words[kind] for kind in kinds if kind in words)


def _describe_values(key: str) -> str:
    examples = {
        "models": "[resnet50, timm:vit_tiny_patch16_224]", "batch_size": "[1, 8, 32]",
        "input_size": "[224, 320], 224:512:32 (from, to, step) or 224x320 (height, width)",
        "seq_len": "[128, 512]", "mode": "[infer, train]", "precision": "[fp32, amp]",
        "config": "{hidden_size: 256}", "gpu": "[l40s, h100]", "compile": "[false, default]",
    }  # fmt: skip
    return (
        f"for example: {key}: {examples[key]}"
        if key in examples
        else f"see `ridgeline run --help` for --{key.replace('_', '-')}"
    )
