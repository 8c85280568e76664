"""The streams of the reference texts beside kafka-python's and confluent-kafka's consumers, on our broker.

    python benchmarks/consumer_bench.py [--records N] [--runs N] [--only CASE,…] [--json]

A topic of four partitions with values of 100 bytes, without keys, in batches of 16 kB. Counted is the time
from the first message to the last, of clients in Python that share the machine's cores with the broker; each
is a process of its own, and the cases take turns in going first. ``stream`` is one KafkaStream of all
partitions, whose messages' values are looked at one after the other, as those of ``kafka-python``, which
iterates, too; ``confluent`` takes lists of 10,000 messages (and stops for a second whenever it has queued
100,000, its default).

``memory``: four streams whose application takes 2,000 messages of each, twenty times a second, 200 times; how
much the process grows at most above what it had when it had read a thousand messages, in parts of streams ×
queued.max.message.chunks × fetch.message.max.bytes.

Goals: ``stream`` 3 × kafka-python; ``memory`` at most 1.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable

import psutil
from client_cases import arguments, in_turns, print_goals, records_of, run_alone
from kafka_fill import PARTITIONS, Shape, fill

from minikafka.embedded import Cluster

TOPIC = "filled"
GOALS = {("stream", "kafka-python"): 3.0}
"""The rate of the first, in those of the second."""
MEMORY_GOAL = 1.0
MEMORY_CHUNKS = 2
MEMORY_FETCH_BYTES = 1 << 20
MEMORY_TAKEN, MEMORY_LOOKS = 2_000, 200


class Streams:
    """``count`` streams of the topic, of a consumer in a group of its own."""

    def __init__(self, zookeeper: str, count: int, **config: int) -> None:
        from minikafka.clients.consumer import Consumer
        from minikafka.clients.consumer.config import ConsumerConfig

        settings = ConsumerConfig(
            f"g{time.monotonic_ns()}",
            zookeeper,
            auto_offset_reset="smallest",
            consumer_timeout_ms=30_000,
            **config,
        )
        self._connector = Consumer.create(settings)
        self.streams = self._connector.create_message_streams({TOPIC: count})[TOPIC]

    def close(self) -> None:
        """Leave the group."""
        self._connector.shutdown()


def stream(_: str, zookeeper: str, records: int) -> float:
    """Seconds of one stream."""
    streams = Streams(zookeeper, 1)
    iterator = iter(streams.streams[0])
    size = len(next(iterator).message or b"")
    began = time.monotonic()
    for _number, message in zip(range(records - 1), iterator, strict=False):
        size += len(message.message or b"")
    seconds = time.monotonic() - began
    assert size == records * Shape().value_bytes
    streams.close()
    return seconds


def kafka_python(servers: str, _: str, records: int) -> float:
    """Seconds of kafka-python."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest")
    iterator = iter(consumer)
    size = len(next(iterator).value)
    began = time.monotonic()
    for _number, message in zip(range(records - 1), iterator, strict=False):
        size += len(message.value)
    seconds = time.monotonic() - began
    assert size == records * Shape().value_bytes
    consumer.close()
    return seconds


def confluent(servers: str, _: str, records: int) -> float:
    """Seconds of confluent-kafka."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": servers, "group.id": f"g{time.monotonic_ns()}"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    left, began = records, 0.0
    while left > 0:
        found = consumer.consume(10_000, 30)
        began = began or time.monotonic()
        left -= len(found)
        assert found
        assert all(message.value() for message in found)
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def memory(_: str, zookeeper: str, __: int) -> float:
    """Bytes that a slow application's consumer grows by."""
    warm = Streams(zookeeper, 1)
    for _number, _message in zip(range(1_000), warm.streams[0], strict=False):
        pass
    warm.close()
    process = psutil.Process()
    before = largest = process.memory_info().rss
    streams = Streams(
        zookeeper,
        PARTITIONS,
        fetch_message_max_bytes=MEMORY_FETCH_BYTES,
        queued_max_message_chunks=MEMORY_CHUNKS,
    )
    iterators = [iter(stream) for stream in streams.streams]
    for _look in range(MEMORY_LOOKS):
        for iterator in iterators:
            for _number, _message in zip(range(MEMORY_TAKEN), iterator, strict=False):
                pass
        time.sleep(0.05)
        largest = max(largest, process.memory_info().rss)
    streams.close()
    return largest - before


CASES: dict[str, Callable[[str, str, int], float]] = {
    "stream": stream,
    "kafka-python": kafka_python,
    "confluent": confluent,
    "memory": memory,
}


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__, CASES, 2_000_000)
    if given.client:
        case, servers, zookeeper, records = given.client
        print(CASES[case](servers, zookeeper, int(records)))
        return
    cases = given.only.split(",")
    found: dict[str, list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as directory, Cluster(data_dir=directory) as cluster:
        fill(
            cluster.bootstrap_servers,
            TOPIC,
            max(given.records, 2 * PARTITIONS * MEMORY_TAKEN * MEMORY_LOOKS),
            Shape(),
        )
        where = cluster.bootstrap_servers, cluster.zookeeper_connect
        for _, case in in_turns(cases, given.runs):
            records = records_of(case, given.records)
            figure = run_alone(__file__, case, *where, records)
            found[case].append(figure if case == "memory" else records / figure)
    if given.json:
        print(json.dumps(found))
        return
    medians = {case: statistics.median(figures) for case, figures in found.items()}
    for case, figures in found.items():
        unit, of = ("MB", 1e6) if case == "memory" else ("k/s", 1e3)
        runs = ", ".join(f"{figure / of:,.1f}" for figure in figures)
        print(f"{case:13} {medians[case] / of:9,.1f} {unit}  ({runs})")
    print_goals(medians, GOALS)
    if "memory" in medians:
        bound = PARTITIONS * MEMORY_CHUNKS * MEMORY_FETCH_BYTES
        ratio = medians["memory"] / bound
        state = "met" if ratio <= MEMORY_GOAL else "missed"
        print(f"memory / the bound of {bound / 1e6:.1f} MB: {ratio:.2f} (goal {MEMORY_GOAL}): {state}")


if __name__ == "__main__":
    main()
