"""A number that only rises."""

from __future__ import annotations

import itertools
import threading

import pytest

from minikafka.log.highest import Highest
from tests.unit.log.support import Interrupted


@pytest.mark.parametrize("numbers", [*itertools.permutations([3, 7, 7, 12])])
def test_it_is_the_largest_in_whatever_order_they_come(numbers: tuple[int, ...]) -> None:
    highest = Highest(5)
    for number in numbers:
        before = highest.value
        highest.raise_to(number)
        assert highest.value >= max(before, number)
    assert highest.value == 12


@pytest.mark.parametrize("turn", range(1, 8))
@pytest.mark.parametrize("other", [4, 10, 20])
def test_another_thread_in_between_takes_nothing_back(turn: int, other: int) -> None:
    highest = Highest(0)
    number = Interrupted(10, turn, lambda: highest.raise_to(other))
    highest.raise_to(number)
    assert highest.value == (10 if not number.interrupted else max(10, other))


def test_it_never_goes_back_under_many_threads_and_keeps_few_numbers() -> None:
    highest = Highest(0)
    backwards = []

    def count(first: int) -> None:
        seen = 0
        for number in range(first, 20_000, 4):
            highest.raise_to(number)
            value = highest.value
            if value < max(seen, number):
                backwards.append((seen, number, value))
            seen = value

    threads = [threading.Thread(target=count, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert backwards == []
    assert highest.value == 19_999
    assert len(highest._given) < 10
