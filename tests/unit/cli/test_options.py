from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.config import Kind
from minikafka.cli.options import Format, key_values


def test_pairs_are_split_at_the_first_equals_sign_and_the_later_one_wins() -> None:
    assert key_values("--set", ["a=1", "b = x=y ", "a=2"]) == {"a": "2", "b": "x=y"}


def test_nothing_given_is_nothing() -> None:
    assert key_values("--set", None) == {}


@pytest.mark.parametrize("text", ["novalue", "=1", " =1"])
def test_a_pair_without_a_key_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=VALUE"):
        key_values("--config", [text])


@pytest.mark.parametrize("choice", [Format.JSON, Kind.TOPIC])
def test_parsed_choices_have_their_value_as_text(choice: Format | Kind) -> None:
    # Typer 0.12 converts the result of a parser again, by its text.
    assert str(choice) == choice.value
