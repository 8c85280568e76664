"""``base/config/types``: settings are read as Kafka reads them."""

from __future__ import annotations

import pickle
import re
from enum import Enum
from typing import Any

import pytest

from minikafka.base.config.types import (
    ANY_TEXT,
    BOOLEAN,
    INT_MAX,
    PASSWORD,
    TEXT,
    WORDS,
    Release,
    Type,
    as_text,
    capped_int64,
    checked,
    choice,
    digit_list,
    int32,
    int64,
    integer,
    matching,
    one_of,
    real_number,
    release_type,
    whole_number,
)
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password, redact


class Colour(Enum):
    RED = 1
    BLUE = 2


COLOUR = choice({"red": Colour.RED, "blue": Colour.BLUE})
ABOVE_0 = real_number("above 0", lambda value: value > 0)


def refuse_b(text: str) -> None:
    if text == "b":
        raise ConfigError("other.name", text, "must not be b")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        (" -5 ", -5),
        ("+5", 5),
        ("1_000", None),
        ("1 000", None),
        ("\u0665", None),
        ("1e3", None),
        ("", None),
        ("9" * 20, None),
    ],
)
def test_whole_number_is_read_as_java_reads_it(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", [7]),
        ("1, 2 ,03", [1, 2, 3]),
        ("2147483647", [INT_MAX]),
        ("2147483648", None),
        ("9" * 5_000, None),
        ("1,", None),
        ("", None),
        ("-1", None),
        ("1_0", None),
        ("\u0665", None),
    ],
)
def test_a_list_of_digits_has_nothing_else(text: str, found: list[int] | None) -> None:
    assert digit_list(text) == found


@pytest.mark.parametrize(
    ("of", "given", "value"),
    [
        (integer(0, 5), " 5 ", 5),
        (integer(0), "9223372036854775808", 1 << 63),
        (int32(-1), -1, -1),
        (int64(0), str((1 << 63) - 1), (1 << 63) - 1),
        (capped_int64(0), str((1 << 63) - 1), INT_MAX),
        (capped_int64(0), 7, 7),
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, False, False),
        (one_of("x", "y"), " Y ", "y"),
        (one_of("x", "y", exact=True), " y ", "y"),
        (COLOUR, "Blue", Colour.BLUE),
        (COLOUR, Colour.RED, Colour.RED),
        (ABOVE_0, " 0.5 ", 0.5),
        (ABOVE_0, 2, 2.0),
        (TEXT, " a b ", "a b"),
        (ANY_TEXT, "  ", ""),
        (WORDS, "a, b,,a", ("a", "b")),
        (WORDS, ["a", " b "], ("a", "b")),
        (matching(re.compile("[a-z]*"), "small letters"), " ab ", "ab"),
        (checked("not b", refuse_b), "a", "a"),
        (PASSWORD, " tiger ", Password("tiger")),
        (PASSWORD, Password(" tiger "), Password(" tiger ")),
    ],
)
def test_type_returns_the_value_of_text_or_object(of: Type, given: object, value: object) -> None:
    found = of.parse("a", given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("of", "given", "allowed"),
    [
        (integer(0, 5), "6", "must be a whole number from 0 to 5"),
        (integer(1), "0", "must be a whole number of at least 1"),
        (int32(1), "2147483648", "must be a whole number from 1 to 2147483647"),
        (int32(1), True, "must be a whole number from 1 to 2147483647"),
        (capped_int64(0), "-1", "must be a whole number from 0 to 9223372036854775807"),
        (BOOLEAN, "yes", "must be true or false"),
        (BOOLEAN, 1, "must be true or false"),
        (one_of("x", "y"), "z", "must be one of x, y"),
        (one_of("x", "y", exact=True), "Y", "must be one of x, y"),
        (COLOUR, "green", "must be one of red, blue"),
        (ABOVE_0, "nan", "must be above 0"),
        (ABOVE_0, "", "must be above 0"),
        (ABOVE_0, "1_0", "must be above 0"),
        (ABOVE_0, "\u0665", "must be above 0"),
        (TEXT, " ", "must not be empty"),
        (matching(re.compile("[a-z]*"), "small letters"), "A", "must be small letters"),
        (checked("not b", refuse_b), "b", "must not be b"),
    ],
)
def test_type_refuses_other_values(of: Type, given: object, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of.parse("a", given)
    assert (caught.value.name, caught.value.value, caught.value.allowed) == ("a", given, allowed)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (("b", "a"), "b,a"),
        (frozenset({"b", "a"}), "a,b"),
        (" x ", "x"),
        (Colour.RED, "red"),
        (Password("tiger"), "***"),
    ],
)
def test_value_is_written_as_kafka_writes_it(value: Any, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("of", [TEXT, ANY_TEXT, WORDS])
def test_password_is_no_text_as_its_stars_would_be_the_value(of: Type) -> None:
    with pytest.raises(ConfigError, match=r"^a='\*\*\*': must be text, not a Password$"):
        of.parse("a", Password("tiger"))


def test_password_shows_its_value_to_nobody_who_prints_it() -> None:
    secret = PASSWORD.parse("any.name", "tiger")
    assert (str(secret), repr(secret), f"{secret}", f"{[secret]}") == ("***", "***", "***", "[***]")
    assert redact("any.name", secret) == "***"
    assert "tiger" not in str(ConfigError("any.name", secret, "must be longer"))
    assert pickle.loads(pickle.dumps(secret)).value == secret.value == "tiger"
    assert {secret: 1}[Password("tiger")] == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [("0.10.1", Release((0, 10, 1))), ("2.1-IV2", Release((2, 1), 2)), (" 0.8.2.1 ", Release((0, 8, 2, 1)))],
)
def test_a_release_is_read_and_written_as_its_numbers_and_step(text: str, found: Release) -> None:
    assert release_type("a release", lambda _: True).parse("x", text) == found
    assert str(found) == text.strip()


@pytest.mark.parametrize("text", ["", "2", "two", "0.10.1-IVx", "2.1-IV", "2.1-", "2.", "02.1", "2.\u0661"])
def test_text_that_is_not_a_release_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        release_type("a release of 2", lambda found: found.numbers[0] == 2).parse("x", text)
    assert refused.value.allowed == "must be a release of 2"


def test_a_setting_names_the_releases_that_it_allows() -> None:
    with pytest.raises(ConfigError) as refused:
        release_type("a release of 2", lambda found: found.numbers[0] == 2).parse("x", "3.0")
    assert refused.value.allowed == "must be a release of 2"
