"""``base/text``: counts and ranges for people."""

from __future__ import annotations

import pytest

from minikafka.base.text import ranges


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0-2"), ([0, 1, 5, 7, 8], "0-1, 5, 7-8")]
)
def test_numbers_that_follow_each_other_are_a_range(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
