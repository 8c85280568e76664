"""The shares of ``maxOffsetsPerTrigger`` are those of Spark's connector."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.planning.rate import LONG_MAX, limited

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_the_limit_is_shared_by_backlog() -> None:
    assert limited(100, {A: 0, B: 0}, {A: 300, B: 100}) == {A: 75, B: 25}


def test_a_share_above_one_is_rounded_down() -> None:
    assert limited(10, {A: 0, B: 0, C: 0}, {A: 100, B: 100, C: 100}) == {A: 3, B: 3, C: 3}


def test_a_share_below_one_is_rounded_up_so_that_no_partition_starves() -> None:
    assert limited(10, {A: 0, B: 0}, {A: 1_000_000, B: 1}) == {A: 9, B: 1}


def test_no_share_goes_beyond_the_end() -> None:
    assert limited(1_000, {A: 5, B: 0}, {A: 7, B: 3}) == {A: 7, B: 3}


def test_nothing_new_leaves_the_ends_as_they_are() -> None:
    assert limited(5, {A: 7}, {A: 7}) == {A: 7}


def test_a_partition_behind_its_start_keeps_its_end_and_takes_no_share() -> None:
    assert limited(10, {A: 50, B: 0}, {A: 20, B: 100}) == {A: 20, B: 10}


def test_a_partition_without_a_start_keeps_its_end() -> None:
    assert limited(10, {A: 0}, {A: 100, B: 40}) == {A: 10, B: 40}


def test_a_limit_of_the_largest_long_takes_all() -> None:
    assert limited(LONG_MAX, {A: LONG_MAX - 10, B: 0}, {A: LONG_MAX, B: 5}) == {A: LONG_MAX, B: 5}


@given(
    st.integers(1, LONG_MAX),
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=8),
)
def test_a_batch_moves_forward_and_stays_near_its_limit(limit: int, logs: list[tuple[int, int]]) -> None:
    partitions = [TopicPartition("t", number) for number in range(len(logs))]
    start = {tp: log[0] for tp, log in zip(partitions, logs, strict=True)}
    end = {tp: log[0] + log[1] for tp, log in zip(partitions, logs, strict=True)}
    ends = limited(limit, start, end)
    assert all(start[tp] <= ends[tp] <= end[tp] for tp in partitions)
    taken = sum(ends[tp] - start[tp] for tp in partitions)
    # Each share below one is rounded up, so each partition may add one; beyond 2**53 doubles lose digits too.
    assert taken <= limit + len(partitions) or limit > 1 << 50
    if end != start:
        assert taken > 0
