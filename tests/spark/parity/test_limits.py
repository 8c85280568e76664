"""The size of micro-batches, and the end of a query that reads the available records."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from minikafka.clients.produce import BatchingConfig, BatchingProducer
from tests.spark.parity.conftest import PATIENCE_S, Running, Source, texts
from tests.spark.parity.records import BESIDE_THE_PEER, each, numbers, only_beside_the_peer
from tests.spark.peer import has_limits

NOW = {"availableNow": True}
LONG_MAX = 2**63 - 1


@pytest.fixture
def limited(source: Source) -> Source:
    """A source whose batches can be limited."""
    if not (source.is_peer or has_limits()):
        pytest.skip("Spark before 4.2 has no read limits for Python sources without the shim")
    return source


def uneven(source: Source) -> str:
    """A topic with 101, 11 and 1 records."""
    topic = source.kafka.topic(3)
    for partition, values in enumerate((range(100, 201), range(10, 21), [1])):
        source.kafka.produce(topic, [str(n) for n in values], partition)
    return topic


def by_batch(running: Running) -> list[list[str]]:
    return [texts(running.batches[number]) for number in sorted(running.batches)]


def test_a_limit_is_shared_out_by_what_waits(limited: Source) -> None:
    options = {"subscribe": uneven(limited), "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    running = limited.stream(**options)
    assert len(running.read()) == 113
    first, second, third = by_batch(running)[:3]
    assert first == numbers([1, 10], range(100, 108))
    assert second == numbers([11], range(108, 117))
    assert third == numbers([12], range(117, 126))


@only_beside_the_peer
def test_a_restarted_query_keeps_its_limit(limited: Source) -> None:
    topic = uneven(limited)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}
    first = limited.stream(trigger=NOW, **options)
    assert len(first.ended()) == 113
    limited.kafka.produce(topic, [str(n) for n in range(200, 300)])
    second = limited.stream(checkpoint=first.checkpoint, trigger=NOW, **options)
    second.ended()
    assert by_batch(second) == [numbers(range(200, 260)), numbers(range(260, 300))]


@only_beside_the_peer
def test_the_highest_limit_is_no_limit(limited: Source) -> None:
    topic = limited.kafka.topic_with([str(n) for n in range(5)])
    running = limited.stream(subscribe=topic, startingOffsets=each(topic, 3), maxOffsetsPerTrigger=LONG_MAX)
    assert running.read() == ["3", "4"]
    limited.kafka.produce(topic, ["5", "6"])
    assert running.read() == ["3", "4", "5", "6"]


@only_beside_the_peer
def test_the_trigger_once_knows_no_limit(limited: Source) -> None:
    options = {"subscribe": uneven(limited), "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    running = limited.stream(trigger={"once": True}, **options)
    assert len(running.ended()) == 113
    assert len(running.batches) == 1


@only_beside_the_peer
def test_each_of_two_sources_has_its_limit(limited: Source) -> None:
    topics = [limited.kafka.topic(), limited.kafka.topic()]
    limited.kafka.produce(topics[0], [str(n) for n in range(10)])
    limited.kafka.produce(topics[1], [str(n) for n in range(100, 120)])
    one, two = (
        limited.reading(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
        for topic in topics
    )
    running = limited.stream(frame=one.union(two))
    running.read()
    assert by_batch(running) == [
        numbers(range(5), range(100, 105)),
        numbers(range(5, 10), range(105, 110)),
        numbers(range(110, 115)),
        numbers(range(115, 120)),
    ]


def test_a_batch_waits_until_there_is_enough(source: Source) -> None:
    topic = source.kafka.topic_with(["first"], partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    running = source.stream(**options)
    assert running.read() == ["first"]  # the first batch does not wait
    source.kafka.produce(topic, ["1", "2"])
    source.kafka.produce(topic, ["3", "4"], 1)
    assert running.read() == ["first"]
    source.kafka.produce(topic, ["5"], 1)
    assert running.read() == ["1", "2", "3", "4", "5", "first"]


@only_beside_the_peer
def test_a_batch_waits_no_longer_than_it_is_told(source: Source) -> None:
    topic = source.kafka.topic_with(["first"])
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    running = source.stream(**options, maxTriggerDelay="1ms")
    assert running.read() == ["first"]
    source.kafka.produce(topic, ["1"])
    assert running.read() == ["1", "first"]


def test_a_batch_may_have_a_least_and_a_most(limited: Source) -> None:
    topic = limited.kafka.topic_with([str(n) for n in range(100, 130)])
    running = limited.stream(
        subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=15, maxOffsetsPerTrigger=20
    )
    assert running.read() == numbers(range(100, 120))  # ten are left, which is not enough
    limited.kafka.produce(topic, [str(n) for n in range(130, 145)])
    assert running.read() == numbers(range(100, 140))


def test_what_comes_after_the_start_is_not_taken_now(source: Source) -> None:
    topic = source.kafka.topic_with(["a", "b"], partitions=2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}

    def add(number: int) -> None:
        source.kafka.produce(topic, [f"later {number}"], 1)

    first = source.stream(trigger=NOW, before=add, **options)
    assert first.ended() == ["a", "b"]
    second = source.stream(checkpoint=first.checkpoint, trigger=NOW, **options)
    assert second.ended() == ["later 0"]


@only_beside_the_peer
def test_what_is_there_is_taken_in_limited_batches(limited: Source) -> None:
    topic = limited.kafka.topic_with([str(n) for n in range(100, 115)], partitions=5)
    running = limited.stream(trigger=NOW, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    running.ended()
    assert by_batch(running) == [numbers(range(n, n + 5)) for n in (100, 105, 110)]


@pytest.mark.parametrize("left", ["fewer partitions", pytest.param("fewer records", marks=BESIDE_THE_PEER)])
@pytest.mark.parametrize("fail_on_data_loss", [pytest.param("true", marks=BESIDE_THE_PEER), "false"])
def test_what_was_there_and_is_gone_ends_a_query_that_takes_it_now(
    limited: Source, left: str, fail_on_data_loss: str
) -> None:
    topic = limited.kafka.topic_with([str(n) for n in range(15)], partitions=5)

    def make_anew(number: int) -> None:
        limited.kafka.make_anew(topic, 3 if left == "fewer partitions" else 5)
        limited.kafka.produce(topic, [str(n) for n in range(15 if left == "fewer partitions" else 10)])

    running = limited.stream(
        trigger=NOW,
        before=make_anew,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=5,
        failOnDataLoss=fail_on_data_loss,
    )
    assert topic in running.failure()


@only_beside_the_peer
def test_a_batch_that_failed_is_taken_again_though_partitions_came(source: Source) -> None:
    topic = source.kafka.topic_with([str(n) for n in range(7)])
    options = {"subscribe": topic, "startingOffsets": "earliest"}

    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    first = source.stream(trigger=NOW, before=fail, **options)
    assert "the sink is away" in first.failure()
    source.kafka.admin.create_partitions(topic, 2)
    source.kafka.produce(topic, ["new"], 1)
    second = source.stream(checkpoint=first.checkpoint, trigger=NOW, before=fail, **options)
    if source.is_peer:
        # Connector 4.0.0 can never go on from here; newer ones can.
        assert "topic-partitions for end offset" in second.failure()
        return
    assert "the sink is away" in second.failure()
    third = source.stream(checkpoint=first.checkpoint, trigger=NOW, **options)
    if has_limits():
        assert third.ended() == [*numbers(range(7)), "new"]
        return
    # Spark before 4.2 ends after one batch of a Python source: what failed. The rest is the next run's.
    assert third.ended() == numbers(range(7))
    fourth = source.stream(checkpoint=first.checkpoint, trigger=NOW, **options)
    assert fourth.ended() == ["new"]


KEPT = {"retention.ms": "-1"}
"""For records whose times are long ago."""
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def windows(source: Source, checkpoint: Path, topic: str) -> list[int]:
    """The sizes of the windows that one run of a query gives."""
    frame = source.reading(subscribe=topic, startingOffsets="earliest").withWatermark(
        "timestamp", "0 seconds"
    )
    counts = frame.groupBy(F.window("timestamp", "1 minute")).count()
    running = source.stream(frame=counts, checkpoint=checkpoint, trigger=NOW)
    assert running.query.awaitTermination(PATIENCE_S)
    return [row["count"] for row in running.rows]


def three_a_minute(source: Source, topic: str, first: int, last: int) -> None:
    """One record every 20 seconds, from minute ``first`` up to the beginning of ``last``."""
    with BatchingProducer(source.kafka.client, BatchingConfig(acks=-1)) as producer:
        for second in range(60 * first + (20 if first else 0), 60 * last + 1, 20):
            producer.send(topic, b"v", partition=0, timestamp_ms=1_700_000_040_000 + 1_000 * second)


def test_available_now_closes_the_windows_that_have_passed(source: Source) -> None:
    """Before Spark 4.2 with the shim, or with the conf for sources that know nothing of this trigger."""
    needs_wrapper = not (source.is_peer or has_limits())
    topic, checkpoint = source.kafka.topic(config=KEPT), source.checkpoint()
    if needs_wrapper:
        source.spark.conf.set(WRAPPER, "true")
    try:
        three_a_minute(source, topic, 0, 160)
        assert windows(source, checkpoint, topic) == [3] * 160
        assert windows(source, checkpoint, topic) == []
        three_a_minute(source, topic, 160, 170)
        assert windows(source, checkpoint, topic) == [3] * 10
    finally:
        source.spark.conf.unset(WRAPPER)


def test_without_a_closing_batch_windows_wait_for_the_next_records(source: Source) -> None:
    """Spark before 4.2 omits the closing batch of a Python source, which warns of that."""
    if source.is_peer or has_limits():
        pytest.skip("there is a closing batch")
    topic, checkpoint = source.kafka.topic(config=KEPT), source.checkpoint()
    three_a_minute(source, topic, 0, 160)
    assert windows(source, checkpoint, topic) == []
    assert windows(source, checkpoint, topic) == []
    three_a_minute(source, topic, 160, 170)
    assert windows(source, checkpoint, topic) == [3] * 160
