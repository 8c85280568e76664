"""Streaming reads with real Spark from a real broker: checkpoints, restarts, lost data."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_minikafka.reading import stream
from tests.spark.conftest import Kafka
from tests.spark.streams import PATIENCE_S, Streams, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

needs_limits = pytest.mark.skipif(not stream.HAS_LIMITS, reason="Spark before 4.2 has no read limits")


@pytest.mark.smoke
def test_a_stream_reads_what_is_there_and_what_comes(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"], partitions=2, partition=0)
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    assert running.wait_for(2) == ["a", "b"]
    kafka.produce(topic, ["c"], partition=1)
    assert running.wait_for(3) == ["a", "b", "c"]


@pytest.mark.smoke
def test_a_stream_has_the_columns_that_the_option_selects(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"])
    running = streams.start(subscribe=topic, startingOffsets="earliest", minikafka__columns="value")
    assert running.wait_for(2) == ["a", "b"]
    running.stop()
    kafka.produce(topic, ["c"])
    # The selection is not part of the query's state.
    again = streams.start(subscribe=topic, minikafka__columns="offset,value")
    assert again.wait_for(1) == ["c"]


def test_a_stream_starts_at_latest_unless_told_otherwise(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["before"])
    running = streams.start(subscribe=topic)
    wait_until(lambda: 0 in running.batches)
    kafka.produce(topic, ["after"])
    assert running.wait_for(1) == ["after"]


def test_a_stopped_query_goes_on_where_it_was(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"], partitions=2, partition=0)
    first = streams.start(subscribe=topic, startingOffsets="earliest")
    first.wait_for(2)
    first.stop()
    kafka.produce(topic, ["c"], partition=0)
    kafka.produce(topic, ["d"], partition=1)
    # What it says about the start of a new query has no effect on this one.
    second = streams.start(subscribe=topic, startingOffsets="latest")
    assert second.wait_for(2) == ["c", "d"]


def growing_source(servers: str, topic: str) -> type:
    """The source with records appended just after it has found where a new query starts."""
    from pyspark_minikafka.source import MinikafkaSource

    class GrowingSource(MinikafkaSource):
        @classmethod
        def name(cls) -> str:
            return "minikafka-growing"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            from minikafka.clients.network.cluster import ClusterClient
            from minikafka.clients.produce import BatchingConfig, BatchingProducer

            reader: Any = super().streamReader(schema)
            find_start = reader._initial

            def then_append() -> Any:
                known = reader._start
                start = find_start()
                if known is None:
                    with (
                        ClusterClient(servers) as cluster,
                        BatchingProducer(cluster, BatchingConfig(acks=-1)) as producer,
                    ):
                        for number in range(10):
                            producer.send(
                                topic, f"after {sorted(start.positions.values())} {number}".encode()
                            )
                return start

            reader._initial = then_append
            return reader

    return GrowingSource


def test_a_failed_first_batch_is_replayed_exactly(
    streams: Streams, kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.topic_with(["before"] * 100)
    spark.dataSource.register(growing_source(kafka.servers, topic))
    seen: list[list[str]] = []

    def fail(number: int, values: list[str]) -> None:
        seen.append(values)
        raise RuntimeError("the sink is away")

    failing = streams.start(
        subscribe=topic, startingOffsets="latest", source="minikafka-growing", before=fail
    )
    assert "the sink is away" in failing.failure()
    assert sorted(seen[0]) == [f"after [100] {number}" for number in range(10)]
    kafka.produce(topic, ["while it was down"] * 5)
    again = streams.start(subscribe=topic, startingOffsets="latest", source="minikafka-growing")
    again.wait_for(15)
    assert again.batches[0] == seen[0]
    assert again.values[10:15] == ["while it was down"] * 5


def test_while_nothing_comes_no_batch_runs(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a"], partitions=3)
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    running.wait_for(1)
    time.sleep(2)
    assert len(streams.offsets()) == 1
    kafka.produce(topic, ["b"])
    running.wait_for(2)
    time.sleep(1)
    assert len(streams.offsets()) == 2


def test_only_first_offset_in_checkpoint_differs_from_peer(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a"])
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    running.wait_for(1)
    kafka.produce(topic, ["b"])
    running.wait_for(2)
    running.stop()
    assert streams.offsets() == [{topic: {"0": 1}, f"minikafka:start={topic}:0:0": {}}, {topic: {"0": 2}}]


def test_a_checkpoint_of_the_peer_goes_on(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"], partitions=2, partition=0)
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    running.wait_for(2)
    running.stop()
    # As Spark's own connector writes it: no blanks, and nothing but offsets.
    log = streams.checkpoint / "offsets" / "0"
    lines = log.read_text().splitlines()
    lines[2] = f'{{"{topic}":{{"1":0,"0":2}}}}'
    log.write_text("\n".join(lines))
    (streams.checkpoint / "offsets" / ".0.crc").unlink(missing_ok=True)
    kafka.produce(topic, ["c"], partition=1)
    assert streams.start(subscribe=topic).wait_for(1) == ["c"]


def test_a_topic_that_appears_under_a_pattern_is_read_from_its_start(streams: Streams, kafka: Kafka) -> None:
    first = kafka.topic(prefix="pattern-one")
    kafka.produce(first, ["a"])
    running = streams.start(subscribePattern="pattern-one.*", startingOffsets="earliest")
    running.wait_for(1)
    second = kafka.topic(2, prefix="pattern-one")
    kafka.produce(second, ["b"], partition=1)
    assert running.wait_for(2) == ["a", "b"]


def recreate_with_less(streams: Streams, kafka: Kafka) -> str:
    """A topic of which a query has read three records, that was made anew and has one."""
    topic = kafka.topic_with(["a", "b", "c"])
    running = streams.start(subscribe=topic, startingOffsets="earliest")
    running.wait_for(3)
    running.stop()
    kafka.delete(topic)
    from minikafka.clients.admin.admin import NewTopic

    kafka.admin.create_topic(NewTopic(topic, 1))
    kafka.produce(topic, ["new"])
    return topic


def test_a_topic_that_was_made_anew_is_lost_data(streams: Streams, kafka: Kafka) -> None:
    topic = recreate_with_less(streams, kafka)
    said = streams.start(subscribe=topic).failure()
    assert f"the end of {topic}-0 moved back from offset 3 to 1" in said
    assert "failOnDataLoss" in said


def test_a_query_that_may_lose_data_goes_on(streams: Streams, kafka: Kafka) -> None:
    topic = recreate_with_less(streams, kafka)
    running = streams.start(subscribe=topic, failOnDataLoss="false")
    assert running.wait_for(1) == ["new"]
    kafka.produce(topic, ["newer"])
    assert running.wait_for(2) == ["new", "newer"]


def test_topic_made_anew_with_more_records_is_lost_data_to_a_running_query(
    streams: Streams, kafka: Kafka
) -> None:
    topic = kafka.topic_with(["a"])
    waits = {"fetchOffset__numRetries": "100", "fetchOffset__retryIntervalMs": "100"}  # while it is gone
    running = streams.start(subscribe=topic, startingOffsets="earliest", **waits)
    running.wait_for(1)
    kafka.make_anew(topic)
    kafka.produce(topic, ["new", "newer"])
    assert f"topic '{topic}' was deleted and created again after the query had read" in running.failure()


def test_running_query_that_may_lose_data_reads_all_of_a_topic_made_anew(
    streams: Streams, kafka: Kafka
) -> None:
    topic = kafka.topic_with(["a"])
    running = streams.start(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    running.wait_for(1)
    kafka.make_anew(topic)
    kafka.produce(topic, ["new", "newer"])
    while "new" not in running.wait_for(2):  # a batch may have begun in the new topic where the old one ended
        running.wait_for(len(running.values) + 1)
    assert {"new", "newer"} <= set(running.wait_for(3))


def test_a_changed_subscribe_is_refused_until_it_is_accepted(streams: Streams, kafka: Kafka) -> None:
    before, now = kafka.topic(), kafka.topic()
    kafka.produce(before, ["a", "b", "c"])
    kafka.produce(now, ["x", "y"])
    running = streams.start(subscribe=before, startingOffsets="earliest")
    running.wait_for(3)
    running.stop()
    for loss in ("true", "false"):
        said = streams.start(subscribe=now, failOnDataLoss=loss).failure()
        assert f"subscribe was changed from {before} to {now} after {before}-0 at offset 3: " in said
        assert "minikafka.changed.topics=accept" in said
    changed = streams.start(subscribe=now, minikafka__changed__topics="accept")
    assert changed.wait_for(2) == ["x", "y"]
    changed.stop()
    kafka.produce(now, ["z"])
    assert streams.start(subscribe=now).wait_for(1) == ["z"]


def test_a_deleted_topic_is_lost_data_and_stays_deleted(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a"])
    running = streams.start(
        subscribe=topic,
        startingOffsets="earliest",
        fetchOffset__numRetries="1",
        fetchOffset__retryIntervalMs="100",
    )
    running.wait_for(1)
    kafka.delete(topic)
    assert f"partitions {topic}-0 are gone" in running.failure()
    assert topic not in kafka.admin.list_topics()


@pytest.mark.smoke
@needs_limits
def test_available_now_ends_after_batches_of_the_limits_size(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with([f"a{n}" for n in range(30)], partitions=2, partition=0)
    kafka.produce(topic, [f"b{n}" for n in range(10)], partition=1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "16"}
    first = streams.start(trigger={"availableNow": True}, **options)
    assert len(first.ended()) == 40
    assert [len(first.batches[n]) for n in sorted(first.batches)] == [16, 16, 8]
    again = streams.start(trigger={"availableNow": True}, **options)
    assert again.ended() == []
    kafka.produce(topic, ["c"])
    assert streams.start(trigger={"availableNow": True}, **options).ended() == ["c"]


@pytest.mark.smoke
@pytest.mark.skipif(stream.HAS_LIMITS, reason="Spark from 4.2 on has read limits")
def test_without_limits_available_now_takes_all_in_one_batch(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic_with([f"a{n}" for n in range(30)])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "16"}
    running = streams.start(trigger={"availableNow": True}, **options)
    assert len(running.ended()) == 30
    assert [len(values) for values in running.batches.values()] == [30]


@needs_limits
def test_a_limited_stream_keeps_up_with_a_writer(streams: Streams, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    running = streams.start(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    writer = threading.Thread(
        target=lambda: [
            kafka.produce(topic, [f"{p}-{n}-{i}" for i in range(10)], partition=p)
            for n in range(10)
            for p in range(2)
        ]
    )
    writer.start()
    writer.join()
    wanted = sorted(f"{p}-{n}-{i}" for n in range(10) for p in range(2) for i in range(10))
    assert running.wait_for(200) == wanted
    assert max(map(len, running.batches.values())) <= 41


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets='latest': is for batch queries only"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger='0': must be a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0'"),
    ],
)
def test_a_wrong_stream_fails_with_the_reason(
    streams: Streams, kafka: Kafka, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="minikafka") as failure:
        streams.start(subscribe=kafka.topic(), **options).query.awaitTermination(PATIENCE_S)
    assert said in str(failure.value)
