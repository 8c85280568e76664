"""``base/text``: counts and ranges for people."""

from __future__ import annotations

import pytest

from minikafka.base.text import first_of, ranges


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0-2"), ([0, 1, 5, 7, 8], "0-1, 5, 7-8")]
)
def test_numbers_that_follow_each_other_are_a_range(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("noun", "text"),
    [
        ((), ["a", "a, b", "a, b and 1 more", "a, b and 2 more"]),
        (("topic",), ["a", "a, b", "a, b and 1 more topic", "a, b and 2 more topics"]),
    ],
)
def test_of_many_names_the_first_ones_are_shown(noun: tuple[str, ...], text: list[str]) -> None:
    assert [first_of("abcd"[:count], 2, *noun) for count in range(1, 5)] == text
