"""``minikafka perf``: measures the throughput and latency of a cluster, on the bulk paths that Spark uses.

``perf latency`` measures the time of a message to a consumer, as Kafka's EndToEndLatency.
A rate is measured from the first message to the last acknowledgement, or to the last decoded message, with
checksums computed and checked. MB are 10**6 bytes of keys and values.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CodecName,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    Topic,
    number_option,
)
from minikafka.cli.produce import INTERRUPTED_TIMEOUT_MS
from minikafka.cli.terminal.output import print_rows
from minikafka.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.clients.produce.send_future import SendFuture
    from minikafka.records.columns import EncodedRecords
    from minikafka.records.format.message_set import Codec

app = typer.Typer(help="Measure the throughput and latency of a cluster.", no_args_is_help=True)

CHUNK_RECORDS = 10_000
FETCH_BYTES = 4 << 20
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
WARM_UP_ROUND_TRIPS = 100
MAX_OFFSET = 1 << 62


class Latencies:
    """The times from the sending of a batch to its acknowledgement, measured on the producer's threads."""

    def __init__(self) -> None:
        self.failure: MinikafkaError | None = None
        self.records = 0
        """The number of acknowledged records."""
        self._lock = threading.Lock()
        self._times_ms: list[float] = []

    def watch(self, delivery: SendFuture, records: int) -> None:
        """Start the clock for one batch of that many records."""
        started_s = time.perf_counter()

        def done(delivery: SendFuture) -> None:
            with self._lock:
                self.failure = self.failure or delivery.error
                if delivery.error is None:
                    self.records += records
                    self._times_ms.append((time.perf_counter() - started_s) * 1000)

        delivery.on_done(done)

    def summary(self) -> dict[str, object]:
        """Return median, 99th percentile and maximum, in ms, of the acknowledged batches."""
        times = sorted(self._times_ms) or [0.0]
        return {
            "batches": len(self._times_ms),
            "latency_p50_ms": round(times[len(times) // 2], 2),
            "latency_p99_ms": round(times[len(times) * 99 // 100], 2),
            "latency_max_ms": round(times[-1], 2),
        }


@app.command(short_help="Send random messages, as fast as possible.")
def produce(
    topic: Topic,
    records: Annotated[int, number_option("--records", "N", "Number of messages.", 1)] = 1_000_000,
    size: Annotated[int, number_option("--size", "BYTES", "Size of each value.", 0)] = 100,
    acks: Annotated[str, typer.Option("--acks", metavar="A", help="0, 1 or all.")] = "1",
    codec: CodecName = "none",
    batch_bytes: Annotated[
        int, number_option("--batch-bytes", "BYTES", "Largest size of a batch.", 1)
    ] = 262_144,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Send random messages to all partitions of a topic, as fast as possible. Ctrl-C prints the totals so
    far.
    """
    if acks not in ACKS:
        raise ConfigError("--acks", acks, "must be 0, 1 or all")

    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.produce.config import BatchingConfig
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.records.format.message_set import Codec

    compression = Codec.parse(codec, "--codec")
    config = BatchingConfig(
        acks=ACKS[acks], batch_bytes=batch_bytes, max_request_bytes=max(1 << 20, 2 * batch_bytes)
    )
    latencies, interrupted = Latencies(), False
    with (
        connect.cluster_client(bootstrap, data_dir, command_config, writes=True) as cluster,
        Progress(f"producing to {topic}", records, lines=True) as progress,
    ):
        partitions = [
            partition.topic_partition
            for partition in connect.existing_topic(Admin(cluster), topic).partitions
        ]
        producer = BatchingProducer(cluster, config)
        magic = producer.magic(partitions[0])
        warm_up(compression, magic)
        started_s = time.perf_counter()
        try:
            # Few messages are sent to all partitions, too.
            rows = min(CHUNK_RECORDS, -(-records // len(partitions)))
            sets = random_batches(records, size, compression, batch_bytes, magic, rows)
            for number, batch in enumerate(sets):
                partition = partitions[number % len(partitions)]
                latencies.watch(producer.send_encoded(partition, batch.data, batch.count), batch.count)
                progress.advance(batch.count)
                if latencies.failure is not None:
                    break
        except KeyboardInterrupt:
            interrupted = True
        finally:
            producer.close(INTERRUPTED_TIMEOUT_MS if interrupted else None)
        elapsed_s = time.perf_counter() - started_s
    if latencies.failure is not None and not interrupted:
        raise latencies.failure
    row = rates(latencies.records, latencies.records * size, elapsed_s) | latencies.summary()
    print_rows([row], list(row), style)
    if interrupted:
        raise KeyboardInterrupt


@app.command(short_help="Read a topic, as fast as possible.")
def consume(
    topic: Topic,
    records: Annotated[
        int | None, number_option("--records", "N", "Most messages to read. [all]", 1, show_default=False)
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Read a topic from the beginning to its current end and decode it into columns."""
    from minikafka.records.format.message_set import Codec

    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        ranges = list(ranges_of(cluster, topic, records))
        total = sum(end - start for _, start, end in ranges)
        warm_up(Codec.NONE, 2)
        count = size_bytes = 0
        started_s = time.perf_counter()
        with Progress(f"consuming {topic}", total, lines=True) as progress:
            for topic_partition, start, end in ranges:
                for rows, row_bytes in decoded(cluster, topic_partition, start, end):
                    count += rows
                    size_bytes += row_bytes
                    progress.advance(rows)
        elapsed_s = time.perf_counter() - started_s
    row = rates(count, size_bytes, elapsed_s)
    print_rows([row], list(row), style)


@app.command(short_help="Measure the time until a message is read.")
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
    if not ACKS.get(acks):
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
            for _ in itertools.islice(passes, WARM_UP_ROUND_TRIPS):
                pass
            for time_ms in itertools.islice(passes, records):
                times_ms.append(time_ms)
                progress.advance(1)
    row = latency_summary(times_ms)
    print_rows([row], list(row), style)


def rates(records: int, size_bytes: int, elapsed_s: float) -> dict[str, object]:
    """Return the row that both measurements print."""
    elapsed_s = max(elapsed_s, 1e-9)
    return {
        "records": records,
        "seconds": round(elapsed_s, 3),
        "records_per_s": round(records / elapsed_s),
        "mb_per_s": round(size_bytes / elapsed_s / 1e6, 1),
    }


def random_batches(
    records: int, size: int, codec: Codec, batch_bytes: int, magic: int, rows: int
) -> Iterator[EncodedRecords]:
    """Yield encoded batches with a total of ``records`` values of ``size`` random letters; every chunk of
    ``rows`` has the same letters.
    """
    import numpy as np
    import pyarrow as pa

    from minikafka.records.columns import encode

    letters = np.random.default_rng(0).integers(ord("A"), ord("Z") + 1, rows * size, dtype=np.uint8)
    ends = np.arange(rows + 1, dtype=np.int32) * size
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
    while records > 0:
        now_ms = time.time_ns() // 1_000_000
        chosen = np.arange(min(rows, records), dtype=np.int64)
        yield from encode(
            None,
            values,
            np.full(rows, now_ms, dtype=np.int64),
            chosen,
            magic=magic,
            codec=codec,
            max_bytes=batch_bytes,
        )
        records -= rows


def ranges_of(
    cluster: ClusterClient, topic: str, limit: int | None
) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield partition, first offset and end offset of the messages, at most ``limit`` in total."""
    from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin

    admin = Admin(cluster)
    partitions = [partition.topic_partition for partition in connect.existing_topic(admin, topic).partitions]
    first = admin.offsets(dict.fromkeys(partitions, EARLIEST))
    last = admin.offsets(dict.fromkeys(partitions, LATEST))
    left = limit
    for tp in partitions:
        start, end = first[tp] or 0, last[tp] or 0
        if left is not None:
            end = min(end, start + left)
            left -= end - start
        if start < end:
            yield tp, start, end


def decoded(
    cluster: ClusterClient, topic_partition: TopicPartition, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """Yield rows and bytes of each piece of a partition, which a second thread fetches."""
    from minikafka.clients.fetch.prefetch import prefetched
    from minikafka.clients.fetch.range_fetcher import RangeFetcher
    from minikafka.records.columns import decode

    position = start
    for data in prefetched(RangeFetcher(cluster, topic_partition, start, end, max_bytes=FETCH_BYTES), 2):
        columns = decode(data, position, end)
        position = columns.next_offset
        yield columns.count, int(columns.key_ends[-1]) + int(columns.value_ends[-1])


def warm_up(codec: Codec, magic: int) -> None:
    """Compile and load the code that the first message would otherwise wait for."""
    from minikafka.records.columns import decode

    for batch in random_batches(1, 1, codec, 1024, magic, 1):
        decode(batch.data, 0, 1)


def round_trips(
    cluster: ClusterClient, producer: BatchingProducer, partition: TopicPartition, size: int
) -> Iterator[float]:
    """Yield the ms from ``send`` to the read of each message, without end."""
    from minikafka.clients.admin.admin import LATEST, Admin
    from minikafka.clients.fetch.range_fetcher import RangeFetcher
    from minikafka.records.format.message_set import iterate

    start = Admin(cluster).offsets({partition: LATEST})[partition] or 0
    sets = RangeFetcher(cluster, partition, start, MAX_OFFSET)
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


def latency_summary(times_ms: list[float]) -> dict[str, object]:
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
