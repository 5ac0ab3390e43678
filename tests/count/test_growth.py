"""Growth formulas: polynomials by hand, and what real networks give."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline
from ridgeline.count.growth import Polynomial, fit


def test_a_line_by_hand() -> None:
    assert fit("N", (2, 3, 4), (13, 18, 23)) == Polynomial("N", (Fraction(3), Fraction(5)))


def test_text_as_people_write_it() -> None:
    formula = Polynomial("S", (Fraction(-7), Fraction(0), Fraction(8_178_368_512)))
    assert str(formula) == "8.178e9·S² − 7"
    assert str(Polynomial("N", (Fraction(0),))) == "0"


def test_no_polynomial_is_invented() -> None:
    # 2^x at five places needs a degree of four, and nothing is left to check it with
    assert fit("N", (1, 2, 3, 4, 5), (2, 4, 8, 16, 32)) is None


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5))
def test_any_polynomial_is_found_again(coefficients: list[int]) -> None:
    original = Polynomial("S", tuple(Fraction(c) for c in coefficients))
    xs = (224, 256, 288, 320, 352, 384)
    found = fit("S", xs, [int(original(x)) for x in xs])
    assert found is not None
    assert [found(x) for x in (1, 1000)] == [original(x) for x in (1, 1000)]


def test_resnet50_grows_as_published() -> None:
    # 4.089 GMACs per image at 224 (torchvision's own figure: 4.089)
    growth = ridgeline.growth("resnet50")
    assert str(growth.by_batch["macs"]) == "4.089e9·N"
    assert (growth.size_name, growth.size) == ("input size", 224)
    macs = growth.by_size["macs"]
    assert macs is not None
    assert macs(224) == 4_089_184_256


@pytest.mark.parametrize("tokens", [7, 64])
def test_attention_is_quadratic_in_tokens(tokens: int) -> None:
    # one layer of width 8: four projections 4·8·8, a feed-forward of 2·8·16, scores 2·S·8
    config = {
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
        "vocab_size": 32,
    }  # fmt: skip
    macs = ridgeline.growth("transformers:bert:BertModel", seq_len=60, config=config).by_size[
        "macs"
    ]
    per_token = 4 * 8 * 8 + 2 * 8 * 16
    pooled = 8 * 8  # the pooler looks at one token
    assert macs is not None
    assert macs(tokens) == tokens * per_token + 2 * tokens**2 * 8 + pooled
