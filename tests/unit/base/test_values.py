"""Value classes that are fast to create."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.values import fast_value


@fast_value
class Point:
    """Two numbers."""

    x: int
    y: int = 0


def test_equal_fields_make_equal_values_with_equal_hashes() -> None:
    assert Point(1) == Point(1, 0) != Point(1, 1)
    assert {Point(1): "found"}[Point(1, 0)] == "found"


def test_a_change_makes_another_value() -> None:
    first = Point(1)
    assert (replace(first, y=2), first) == (Point(1, 2), Point(1))


def test_a_name_that_is_no_field_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 1  # type: ignore[attr-defined]
