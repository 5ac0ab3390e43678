"""`--config hidden_size=8192,…`: text to values of the type that the default has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.workloads.checks import unknown_name

TRUE, FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def overridden(
    defaults: Mapping[str, Any], config: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """`defaults` with the values of `config` put in; an unknown key names its neighbours."""
    for key in config:
        if key not in defaults:
            hint = f"it has {_some(list(defaults))}"
            raise unknown_name(f"--config key of {model}", key, defaults, hint=hint)
    return {**defaults, **{key: typed(key, config[key], defaults[key]) for key in config}}


def typed(key: str, value: Any, default: Any) -> Any:
    """`value` as the type of `default`; what is not text is believed."""
    if not isinstance(value, str) or isinstance(default, str):
        return value
    try:
        return _parsed(value, default)
    except ValueError:
        raise RidgelineError(
            f"--config {key}={value} is not {_article(default)}",
            hint=f"the default is {key}={default}",
        ) from None


def _parsed(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in TRUE | FALSE:
            raise ValueError(text)
        return text.lower() in TRUE
    if isinstance(default, int):
        return int(text.replace("_", ""))
    if isinstance(default, float):
        return float(text)
    return _guessed(text)


def _guessed(text: str) -> Any:
    """Where the default is None or a list there is no type to follow: read it as JSON if it is."""
    if text in ("None", "none", "null"):
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _article(default: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number"}
    return names.get(type(default), f"a {type(default).__name__}")


def _some(keys: list[str], limit: int = 12) -> str:
    more = f" and {len(keys) - limit} more" if len(keys) > limit else ""
    return ", ".join(keys[:limit]) + more
