"""Text from --config becomes the type of its default."""

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.workloads.config_values import typed


@pytest.mark.parametrize(
    ("value", "default", "got"),
    [
        ("8192", 1, 8192),
        ("8_192", 1, 8192),
        ("1e-5", 0.1, 1e-5),
        ("true", False, True),
        ("0", True, False),
        ("gelu", "silu", "gelu"),
        ("128", "silu", "128"),
        ("64", None, 64),
        ("None", None, None),
        ("[1, 2]", [3], [1, 2]),
        ("swish", None, "swish"),
        (7, 1, 7),
    ],
)
def test_types(value: object, default: object, got: object) -> None:
    assert typed("key", value, default) == got
    assert type(typed("key", value, default)) is type(got)


@pytest.mark.parametrize(
    ("value", "default", "what"),
    [("x", 1, "a whole number"), ("1.5", 1, "a whole number"), ("x", 0.5, "a number")],
)
def test_what_does_not_fit(value: str, default: object, what: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        typed("size", value, default)
    text = f"--config size={value} is not {what}\n  hint: the default is size={default}"
    assert str(caught.value) == text


def test_neither_true_nor_false() -> None:
    with pytest.raises(RidgelineError, match="--config bias=maybe is not true or false"):
        typed("bias", "maybe", True)
