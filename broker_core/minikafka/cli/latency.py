"""``minikafka perf latency``: measures the time of a message to a consumer, as Kafka's EndToEndLatency."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    Topic,
    number_option,
)
from minikafka.cli.output import print_rows
from minikafka.cli.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.produce.producer import BatchingProducer

ACKS = {"1": 1, "all": -1, "-1": -1}
WARM_UP_RECORDS = 100
END = 1 << 62


def latency(
    topic: Topic,
    records: Annotated[int, number_option("--records", "N", "Number of messages.", 1)] = 10_000,
    size: Annotated[int, number_option("--size", "BYTES", "Size of each value, at least 8.", 8)] = 100,
    acks: Annotated[str, typer.Option("--acks", metavar="A", help="1 or all.")] = "1",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Send one message at a time to partition 0, and wait until it is read. 100 messages before them are not
    measured.
    """
    if acks not in ACKS:
        raise ConfigError("--acks", acks, "must be 1 or all")

    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.produce.config import BatchingConfig
    from minikafka.clients.produce.producer import BatchingProducer

    with (
        connect.cluster_client(bootstrap, data_dir, command_config, writes=True) as cluster,
        Progress(f"through {topic}", records, lines=True) as progress,
    ):
        partition = connect.existing_topic(Admin(cluster), topic).partitions[0].topic_partition
        times_ms = []
        with BatchingProducer(cluster, BatchingConfig(acks=ACKS[acks])) as producer:
            passes = round_trips(cluster, producer, partition, size)
            # The first round trips open connections and load code.
            for _ in itertools.islice(passes, WARM_UP_RECORDS):
                pass
            for time_ms in itertools.islice(passes, records):
                times_ms.append(time_ms)
                progress.advance(1)
    row = summary(times_ms)
    print_rows([row], list(row), style)


def round_trips(
    cluster: ClusterClient, producer: BatchingProducer, partition: TopicPartition, size: int
) -> Iterator[float]:
    """Yield the ms from ``send`` to the read of each message, without end."""
    from minikafka.clients.admin.admin import LATEST, Admin
    from minikafka.clients.fetch.range_fetcher import RangeFetcher
    from minikafka.records.format.message_set import iterate

    start = Admin(cluster).offsets({partition: LATEST})[partition] or 0
    sets = RangeFetcher(cluster, partition, start, END)
    for number in itertools.count():
        value = number.to_bytes(8, "big") + bytes(size - 8)
        began_s = time.perf_counter()
        sent = producer.send(partition.topic, value, partition=partition.partition)
        producer.flush()
        sent.result()
        found = [record.value for record in iterate(next(sets))]
        elapsed_s = time.perf_counter() - began_s
        if found != [value]:
            raise MinikafkaError(
                f"another client writes to {partition}; use a topic that no other client writes to"
            )
        yield elapsed_s * 1000


def summary(times_ms: list[float]) -> dict[str, object]:
    """Return mean, median, 99th and 99.9th percentile and maximum of ``times_ms``, which is not empty."""
    times = sorted(times_ms)

    def percentile(per_mille: int) -> float:
        return round(times[len(times) * per_mille // 1000], 3)

    return {
        "records": len(times),
        "mean_ms": round(sum(times) / len(times), 3),
        "p50_ms": percentile(500),
        "p99_ms": percentile(990),
        "p999_ms": percentile(999),
        "max_ms": round(times[-1], 3),
    }
