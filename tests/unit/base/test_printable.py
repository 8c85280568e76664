"""Untrusted names and texts in logs and on terminals."""

from __future__ import annotations

import pytest

from minikafka.base.printable import printable, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("flights", "flights"),
        ("žluťoučký 漢字 🐟\tcolumn", "žluťoučký 漢字 🐟\tcolumn"),
        ("C:\\new", "C:\\new"),
        ("a\nb\r\nc", "a\\nb\\r\\nc"),
        ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
        ("\x9b31mred\x85", "\\x9b31mred\\x85"),
        ("a\u2028b\u2029c\x0b\x0c\x1c", "a\\u2028b\\u2029c\\x0b\\x0c\\x1c"),
        ("user\u202egnp.exe\u2066\u200f", "user\\u202egnp.exe\\u2066\\u200f"),
        ("\udcff\x00\x7f", "\\udcff\\x00\\x7f"),
    ],
)
def test_a_text_is_one_line_that_no_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("C:\\new", "'C:\\new'"),
        ("it's", '"it\'s"'),
        ("'\"", "''\"'"),
        ("é\t\x1b\n\udcff", "'é\\t\\x1b\\n\\xff'"),
        ("", "''"),
        (7, "7"),
        (b"\\", "b'\\\\'"),
    ],
)
def test_a_quoted_text_stands_as_it_was_written(value: object, shown: str) -> None:
    assert quoted(value) == shown
