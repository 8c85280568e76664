"""``base.config.parsers``: settings are read as Kafka reads them."""

from __future__ import annotations

import pytest

from minikafka.base.config.parsers import Parser, boolean, integer, one_of, real_number, whole_number
from minikafka.base.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        (" -5 ", -5),
        ("+5", 5),
        ("1_000", None),
        ("\u0665", None),
        ("1e3", None),
        ("", None),
        ("9" * 20, None),
    ],
)
def test_whole_number_is_read_as_java_reads_it(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_parsers_return_the_value_of_a_valid_text() -> None:
    assert integer(0, 5)("a", " 5 ") == 5
    assert integer(0)("a", "9223372036854775808") == 1 << 63
    assert boolean("a", " TRUE ") is True
    assert one_of("x", "y")("a", " y ") == "y"
    assert real_number("a", "0.5", "any", lambda value: value > 0) == 0.5


@pytest.mark.parametrize(
    ("parse", "text", "allowed"),
    [
        (integer(0, 5), "6", "must be a whole number from 0 to 5"),
        (integer(1), "0", "must be a whole number of at least 1"),
        (boolean, "yes", "must be true or false"),
        (one_of("x", "y"), "z", "must be one of x, y"),
        (lambda name, text: real_number(name, text, "above 0", lambda value: value > 0), "nan", "above 0"),
        (lambda name, text: real_number(name, text, "above 0", lambda value: value > 0), "", "above 0"),
    ],
)
def test_parsers_refuse_other_texts(parse: Parser, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a", text)
    assert (caught.value.name, caught.value.value, caught.value.allowed) == ("a", text, allowed)
