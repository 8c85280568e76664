"""The shortened waits of a consumer with unfinished partitions."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.ids import TopicPartition
from minikafka.partition.purgatory import MIN_WAIT_MS, PartialReads

FINISHED, UNFINISHED, OTHER = (TopicPartition("t", number) for number in range(3))
MAX_WAIT_MS = 500


class Consumer:
    """Fetches again as soon as it gets a response."""

    def __init__(self) -> None:
        self.partial_reads = PartialReads()
        self.clock = ManualClock()

    def waits(self, *named: TopicPartition) -> int:
        """Return the duration of a wait without data."""
        now_ms = self.clock.monotonic_ms()
        patience_ms = self.partial_reads.max_wait_ms(set(named), MAX_WAIT_MS, now_ms)
        self.clock.advance(patience_ms)
        for partition in named:
            self.partial_reads.record_response(partition, has_more=False)
        return patience_ms


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_consumer_without_unfinished_partitions_waits_in_full(consumer: Consumer) -> None:
    assert consumer.waits(FINISHED) == MAX_WAIT_MS
    consumer.partial_reads.record_response(FINISHED, has_more=False)
    assert consumer.waits(FINISHED) == MAX_WAIT_MS


def test_consumer_with_an_unfinished_partition_waits_briefly(consumer: Consumer) -> None:
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    assert consumer.waits(FINISHED) == MIN_WAIT_MS


def test_fetch_naming_all_unfinished_partitions_waits_in_full(consumer: Consumer) -> None:
    # Messages are there, but not as many as it wants.
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    assert consumer.waits(FINISHED, UNFINISHED) == MAX_WAIT_MS


def test_the_waits_double_up_to_what_was_asked_for(consumer: Consumer) -> None:
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    waits = [consumer.waits(FINISHED) for _ in range(10)]
    assert waits == [5, 5, 10, 20, 40, 80, 160, 320, MAX_WAIT_MS, MAX_WAIT_MS]


def test_the_time_until_it_asks_again_does_not_count(consumer: Consumer) -> None:
    # A large answer takes its time on a slow line.
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    consumer.clock.advance(10 * MAX_WAIT_MS)
    assert consumer.waits(FINISHED) == MIN_WAIT_MS


def test_the_waits_begin_anew_when_more_was_given_and_more_is_left(consumer: Consumer) -> None:
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    assert [consumer.waits(FINISHED) for _ in range(4)][-1] > MIN_WAIT_MS
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    assert consumer.waits(FINISHED) == MIN_WAIT_MS


def test_news_at_the_end_of_a_partition_do_not_shorten_the_waits(consumer: Consumer) -> None:
    # Else whoever has paused one partition would ask again and again after each message of another.
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    waits = [consumer.waits(FINISHED) for _ in range(4)]
    consumer.partial_reads.record_response(FINISHED, has_more=False)
    assert consumer.waits(FINISHED) == 2 * waits[-1]


def test_a_partition_that_is_read_to_its_end_is_forgotten(consumer: Consumer) -> None:
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    consumer.partial_reads.record_response(UNFINISHED, has_more=False)
    assert consumer.waits(FINISHED) == MAX_WAIT_MS


def test_partition_never_fetched_again_shortens_no_later_wait(consumer: Consumer) -> None:
    consumer.partial_reads.record_response(UNFINISHED, has_more=True)
    while consumer.waits(FINISHED) < MAX_WAIT_MS:
        pass
    consumer.partial_reads.record_response(OTHER, has_more=True)
    consumer.partial_reads.record_response(OTHER, has_more=False)
    assert consumer.waits(FINISHED) == MAX_WAIT_MS
