from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.produce import messages


def test_a_line_loses_its_newline_and_nothing_else() -> None:
    lines = [b" a \r\n", b"\n", b"\xff\x00\n", b"last"]
    assert list(messages(lines, None)) == [
        (None, b" a \r"),
        (None, b""),
        (None, b"\xff\x00"),
        (None, b"last"),
    ]


def test_what_comes_before_the_first_separator_is_the_key() -> None:
    assert list(messages([b"k:v:w\n", b":v\n", b"k:\n"], ":")) == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]


def test_a_separator_may_be_any_text() -> None:
    assert list(messages(["k→v\n".encode()], "→")) == [(b"k", b"v")]


def test_a_line_without_the_separator_is_named_after_those_before_it_were_given() -> None:
    given = messages([b"a:1\n", b"b:2\n", b"c\n"], ":")
    assert [next(given), next(given)] == [(b"a", b"1"), (b"b", b"2")]
    with pytest.raises(ConfigError, match="line 3"):
        next(given)
