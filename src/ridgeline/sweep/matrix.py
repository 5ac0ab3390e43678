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
stage names takes the place of the same key above it. An error names the file and the line, or the
key in a dictionary, and what would be right.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.sensors.power_mode import POWER_KEYS
from ridgeline.serialize import FieldError, Index, Name, NotNegative, Whole, read_value
from ridgeline.settings import Settings, check_mode, check_setting

WHAT = ("run", "layers", "energy", "profile", "count")
OF_WHAT = ("layers", "energy")  # settings of a run that `what` decides on
SETTINGS = tuple(f.name for f in fields(Settings))
WORKLOAD = ("models", "batch_size", "input_size", "seq_len", "mode", "config")
DIMENSIONS = (
    *WORKLOAD, "gpu", *POWER_KEYS,
    *(name for name in SETTINGS if name not in (*OF_WHAT, "device")),
)  # fmt: skip
TOP_KEYS = ("name", "stages", "slurm")
ONE_STAGE = "full"  # the name of the only stage of a matrix that has none
HINT = "docs/sweep.md has a table of keys and values; for settings see `ridgeline run --help`"
LARGEST_MATRIX = 1_000_000  # cases: more is a slip
_RANGE = re.compile(r"(\d+):(\d+)(?::([1-9]\d*))?")
_WITH_COLONS = re.compile(r"\d+(:\d+)+")  # a range or a time: YAML 1.1 reads base 60
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
KeyPath = tuple[str, ...]  # of keys: ("stages", "quick", "batch_size")
Values = tuple[Any, ...]


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
    place: str = ""  # where it was read: file and line

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
    cpus: Index = 0
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    array_size: Index = 0  # shards of a stage; 0: one for each comparison
    parallel: Index = 0  # shards that may run at once; 0: no limit
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
    import yaml

    reader = _Reader(file or name, lines={(): 1})
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = reader.build(node, (), yaml.SafeLoader("")) if node else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reader.lines[()] = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or "this is not YAML"
        raise reader.error((), f"not valid YAML: {problem}", "check the line") from error
    except RecursionError as error:
        raise reader.error((), "lists within lists without end", "check the file") from error
    return reader.read(content, name, text)


def matrix_from_dict(content: Mapping[str, Any], *, name: str) -> Matrix:
    """The matrix in a dictionary, as from Python."""
    import yaml

    plain = _as_plain(content)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return _Reader("the matrix", lines={}).read(plain, name, text)


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_as_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


@dataclass(slots=True)
class _Reader:
    """Checks plain values. `lines` are those of keys in a file; a dictionary has none."""

    source: str
    lines: dict[KeyPath, int]

    def error(self, path: KeyPath, problem: str, hint: str) -> RidgelineError:
        return RidgelineError(f"{self.describe_place(path)}: {problem}", hint=hint)

    def describe_place(self, path: KeyPath) -> str:
        """`study.yaml, line 7`, or `the matrix, stages.quick` for a key of that."""
        known = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        keys = ".".join(path[:-1])
        place = f", line {self.lines[known]}" if known is not None else f", {keys}" if keys else ""
        return f"{self.source}{place}"

    def build(self, node: Any, path: KeyPath, loader: Any) -> Any:
        """Plain values of YAML; lines are remembered, and duplicate keys refused."""
        import yaml

        if isinstance(node, yaml.SequenceNode):
            return [self.build(one, path, loader) for one in node.value]
        if not isinstance(node, yaml.MappingNode):
            is_plain = node.style is None and _WITH_COLONS.fullmatch(node.value)
            return node.value if is_plain else loader.construct_object(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            if key in mapping:
                raise self.error((*path, key), f"the key {key!r} stands twice", "join them")
            mapping[key] = self.build(value_node, (*path, key), loader)
        return mapping

    def read(self, top: Any, name: str, text: str) -> Matrix:
        if not isinstance(top, dict) or not top:
            problem = "this is no mapping of keys to values" if top else "the matrix is empty"
            raise self.error((), problem, "start with `models: …`")
        self._check_keys(top, (), (*TOP_KEYS, *STAGE_KEYS))
        name = str(top.get("name", name))
        self._check_name(name, ("name",), "a sweep's")
        named = top.get("stages", {ONE_STAGE: {}})
        if not isinstance(named, dict) or not named:
            raise self.error(("stages",), "stages is no mapping of names to values",
                             "for example: stages: {quick: {batch_size: 8}, full: {}}")  # fmt: skip
        stages = tuple(self._read_stage(one, top, own or {}) for one, own in named.items())
        return Matrix(name=name, stages=stages, slurm=self._read_slurm(top), text=text)

    def _read_stage(self, name: str, top: dict[str, Any], own: Any) -> Stage:
        place: KeyPath = ("stages", name)
        self._check_name(name, place, "a stage's")
        if not isinstance(own, dict):
            raise self.error(place, f"the stage {name} is no mapping", f"{name}: {{}}")
        self._check_keys(own, place, STAGE_KEYS)
        values: dict[str, Values] = {}
        more: dict[str, Any] = {}
        for key, raw in {**top, **own}.items():
            path = (*place, key) if key in own else (key,)
            if key in DIMENSIONS:
                values[key] = self._read_values(path, raw)
            elif key in RULES:
                more[key] = self._read_rules(path, raw)
            elif key in READERS:
                more[FIELDS.get(key, key)] = self._convert(path, raw, READERS[key])
        stage = Stage(name=name, values=values, place=self.describe_place(place), **more)
        self._check_stage(stage, place)
        return stage

    def _check_stage(self, stage: Stage, place: KeyPath) -> None:
        if "models" not in stage.values:
            raise self.error(place, f"the stage {stage.name} has no models",
                             "add models: [resnet50]")  # fmt: skip
        count = stage.repeats * prod(len(several) for several in stage.values.values())
        if count > LARGEST_MATRIX:
            hint = f"at most {LARGEST_MATRIX:,} are possible: shorten its lists"
            raise self.error(place, f"the stage {stage.name} has {count:,} cases", hint)
        if next(stage.combinations(), None) is None:
            raise self.error(place, f"the stage {stage.name} has no case left",
                             "exclude leaves nothing: loosen it, or add values")  # fmt: skip

    def _read_rules(self, path: KeyPath, raw: Any) -> tuple[dict[str, Values], ...]:
        """Entries of include or exclude: dimensions with one value or several."""
        rules = [raw] if isinstance(raw, dict) else raw or []
        if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
            hint = f"for example: {path[-1]}: [{{models: resnet50, precision: amp}}]"
            raise self.error(path, f"{path[-1]} is no list of combinations", hint)
        for rule in rules:
            self._check_keys(rule, path, DIMENSIONS)
        return tuple({name: self._read_values((*path, name), several)
                      for name, several in rule.items()} for rule in rules)  # fmt: skip

    def _read_values(self, path: KeyPath, raw: Any) -> Values:
        """One value or several of a dimension, each once."""
        several = raw if isinstance(raw, list) else [raw]
        if not several:
            raise self.error(path, f"{path[-1]} has no value", "name at least one, or none at all")
        values = [value for one in several
                  for value in self._convert(path, one, partial(_expand, path[-1]))]  # fmt: skip
        return tuple({repr(value): value for value in values}.values())

    def _read_slurm(self, top: dict[str, Any]) -> SlurmOptions:
        raw, kinds = top.get("slurm") or {}, typing.get_type_hints(SlurmOptions, None, None, True)
        if not isinstance(raw, dict):
            hint = "for example: slurm: {partition: gpu, gpus: 1, time: 02:00:00}"
            raise self.error(("slurm",), "slurm is no mapping", hint)
        self._check_keys(raw, ("slurm",), tuple(kinds))
        return SlurmOptions(**{
            key: self._convert(("slurm", key), value, partial(_read_slurm_value, key, kinds[key]))
            for key, value in raw.items()
        })  # fmt: skip

    def _convert(self, path: KeyPath, raw: Any, read: Callable[[Any], Any]) -> Any:
        try:
            return read(raw)
        except FieldError as error:
            raise self.error(path, str(error), HINT) from error
        except RidgelineError as error:
            raise self.error(path, error.problem, error.hint) from error

    def _check_keys(self, content: dict[str, Any], path: KeyPath, known: Sequence[str]) -> None:
        for key in content:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                guess = f"did you mean {close[0]}? " if close else ""
                raise self.error((*path, key), f"unknown key {key!r}",
                                 f"{guess}the keys here are {', '.join(known)}")  # fmt: skip

    def _check_name(self, name: str, path: KeyPath, whose: str) -> None:
        if not _NAME.fullmatch(name):
            hint = "letters, digits, dots, dashes and underlines, at most 60, no dash or dot first"
            raise self.error(path, f"{name!r} cannot be {whose} name", hint)


# ---------------------------------------------------------------- values (else a FieldError)

KINDS: Mapping[str, Any] = {  # of one value of a dimension
    **typing.get_type_hints(Settings),
    "models": Name, "batch_size": Whole, "input_size": tuple[Whole, ...], "seq_len": Whole,
    "mode": str, "config": Mapping[str, Any], "gpu": Name,
    **dict.fromkeys(POWER_KEYS, NotNegative),
}  # fmt: skip
RULES = ("include", "exclude")
FIELDS = {"timeout": "timeout_s"}  # of a stage, where the key has another name


def _expand(key: str, raw: Any) -> list[Any]:
    """One entry of a list: a value, or a range of whole numbers with both ends."""
    found = _RANGE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if found is None:
        return [_read_value(key, raw)]
    numbers = range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))
    if not 0 < len(numbers) <= LARGEST_MATRIX:
        raise FieldError(f"the range {raw!r} of {key} has {len(numbers):,} numbers")
    return [_read_value(key, one) for one in numbers]


def _read_value(key: str, raw: Any) -> Any:
    """One value; what two settings exclude is checked when the case is made."""
    if key == "input_size":  # 224, or 224x320 as height and width
        is_pair = isinstance(raw, str) and re.fullmatch(r"\d+x\d+", raw)
        if isinstance(raw, str) and not is_pair:
            raise FieldError(f"input_size: {raw!r} is no size such as 224, 224x320 or 224:512:32")
        raw = [int(side) for side in raw.split("x")] if is_pair else [raw]
    if key == "compile" and isinstance(raw, bool):  # `compile: [false, true]`, as --compile
        raw = "default" if raw else None
    value = read_value(KINDS[key], raw, key)
    if key == "mode":
        check_mode(value)
    check_setting(key, value)
    is_float = float in (KINDS[key], *typing.get_args(KINDS[key])) and key in SETTINGS
    return float(value) if is_float and value is not None else value


def _read_what(raw: Any) -> tuple[str, ...]:
    what = raw if isinstance(raw, list) else [raw]
    unknown = [one for one in what if one not in WHAT]
    if unknown or not what:
        raise FieldError(f"what: {(unknown or what)!r} is not any of {', '.join(WHAT)}")
    return tuple(one for one in WHAT if one in what)


def _read_duration(raw: Any) -> float | None:
    found = _DURATION.fullmatch("" if raw is None else str(raw).strip())
    if raw is not None and (found is None or float(found[1]) <= 0):
        raise FieldError(f"timeout: {raw!r} is no duration such as 90s, 15min or 2h")
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _read_share(raw: Any) -> float:
    words = {"no failures": "100%", "no_failures": "100%", "always": "0%"}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", words.get(str(raw), str(raw)))
    if found is None or float(found[1]) > 100:
        raise FieldError(f"promote: {raw!r} is not `no failures`, `always` or a share: 90%")
    return float(found[1]) / 100


SLURM_FORMS = {  # of values that sbatch would refuse, and examples
    "time": (re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d+(:\d{1,2}){0,2}"), "30, 02:00:00 or 1-00"),
    "mem": (re.compile(r"\d+[KMGT]?B?", re.IGNORECASE), "16G, 0 for all of a node"),
    "gpus": (re.compile(r"([\w.-]+:)?\d+"), "1 or h100:2"),
}


def _read_slurm_value(key: str, kind: Any, raw: Any) -> Any:
    if kind is str and type(raw) is int:  # `gpus: 1`, `time: 30`
        raw = str(raw)
    if key == "setup" and isinstance(raw, str):
        raw = raw.splitlines()
    form, example = SLURM_FORMS.get(key, (None, ""))
    value = read_value(kind, raw, key)
    if form is not None and not form.fullmatch(value):
        raise FieldError(f"{key}: {value!r} is not valid: {example}")
    return value


READERS: Mapping[str, Callable[[Any], Any]] = {
    "repeats": partial(read_value, Whole, where="repeats"), "what": _read_what,
    "timeout": _read_duration, "promote": _read_share,
}  # fmt: skip
STAGE_KEYS = (*READERS, *RULES, *DIMENSIONS)
