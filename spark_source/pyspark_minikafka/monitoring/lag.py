"""Looks up how far a streaming query is behind now: the ends of its logs, and the first record not read.

Runs in the user's program. Spark tells no program where a query's brokers are, so the reader's options are
passed in. The requests: one to each leader for the ends, and one to each for the first messages of all
partitions that are behind (one more for each partition whose batches of messages are large).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.utils import to_str

from minikafka.base.clock import SystemClock
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import FetchSettings
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import list_ends
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.fetch.shared_fetch import Beginning, FirstFetch, SharedFetch
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.records.columns import decode_pieces
from pyspark_minikafka import cache
from pyspark_minikafka.location import find_running
from pyspark_minikafka.monitoring.query_progress import (
    PartitionProgress,
    QueryProgress,
    SourceProgress,
    query_progress,
)
from pyspark_minikafka.options.kafka_options import name_options
from pyspark_minikafka.options.options import cluster_options
from pyspark_minikafka.planning.lookup import ClusterTransactions
from pyspark_minikafka.planning.transaction_waits import Waits

if TYPE_CHECKING:
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectQuery
    from pyspark.sql.streaming.query import StreamingQuery

Options = Mapping[str, Any]
"""The options of a reader, as they are passed to ``options(**…)``; only those about its cluster are used."""

TIMEOUT_MS = 10_000
_FETCH_BYTES = 64 << 10
"""A partition whose first batch of messages is larger has a request of its own."""
_RESPONSE_BYTES = 8 << 20


class Logs(Protocol):
    """The look-ups in the logs of one cluster."""

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends of the partitions that exist."""

    def first_timestamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the timestamp, in ms, of the first record from each position on, as far as it is known."""

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        """Return the first open transaction of each partition that has one, unless the query reads it."""


@dataclass(frozen=True, slots=True)
class ClusterLogs:
    """The ``Logs`` of a real cluster. All look-ups together take until ``deadline``."""

    cluster: ClusterClient
    isolation: IsolationLevel
    deadline: Deadline

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return list_ends(self.cluster, partitions, self.deadline, self.isolation)

    def first_timestamps(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        settings = FetchSettings(
            partition_max_bytes=_FETCH_BYTES,
            max_bytes=_RESPONSE_BYTES,
            message_max_bytes=_FETCH_BYTES,
            min_bytes=1,
            max_wait_ms=0,
            isolation=self.isolation,
            retry_backoff=self.cluster.backoff,
        )
        beginnings = {tp: Beginning(offset, _FETCH_BYTES) for tp, offset in positions.items()}
        timeout_ms = self.deadline.at_most(TIMEOUT_MS)
        found = {}
        for tp, first in SharedFetch(self.cluster, beginnings, settings, timeout_ms=timeout_ms):
            try:
                timestamp = self._first_timestamp(tp, positions[tp], first)
            except MinikafkaError:
                continue  # it was compacted or deleted meanwhile, or there is no time left
            if timestamp is not None and timestamp >= 0:
                found[tp] = timestamp
        return found

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        if self.isolation is not IsolationLevel.READ_COMMITTED:
            return {}
        transactions = ClusterTransactions(self.cluster)
        try:
            return transactions.open_transactions(partitions)
        except MinikafkaError:
            return {}  # brokers before 2.8, or a right is missing

    def _first_timestamp(self, tp: TopicPartition, position: int, first: FirstFetch | None) -> int | None:
        """Return the timestamp of the record at ``position``; None if compaction has removed it."""
        sets = RangeFetcher(
            self.cluster,
            tp,
            position,
            position + 1,
            max_bytes=1,  # a broker returns at least one batch of messages
            max_wait_ms=0,
            timeout_ms=self.deadline.at_most(TIMEOUT_MS),
            isolation=self.isolation,
            first=first,
        )
        for data in sets:
            for columns in decode_pieces(data, position, position + 1, check_crc=False):
                if columns.count:
                    return int(columns.timestamps[0])
        return None


def progress(query: StreamingQuery | ConnectQuery, *options: Options) -> QueryProgress:
    """Return the progress of a query; with the ``options`` of its readers, as it is now.

    Raise TypeError for what is no query, and for options that are no mapping; ValueError for another number
    of options than one, or one for each source; ConfigErrors for invalid ones; and MinikafkaError if the
    brokers do not answer.
    """
    if not hasattr(type(query), "lastProgress"):
        raise TypeError(f"expected a StreamingQuery, as start() returns it, not {type(query).__name__}")
    check_options(options)
    reported = query.lastProgress
    document = None if reported is None else json.loads(reported.json)
    found = query_progress(str(query.id), query.name, document)
    return with_present_ends(found, options) if options else found


def check_options(options: Iterable[object]) -> None:
    """Raise TypeError for options that are no mapping."""
    for one in options:
        if not isinstance(one, Mapping):
            example = "such as {'subscribe': 'orders'}"  # the value itself may be a secret
            raise TypeError(f"the options of a reader must be a mapping, {example}, not {type(one).__name__}")


def with_present_ends(
    found: QueryProgress, options: tuple[Options, ...], *, times: bool = True, timeout_ms: int = TIMEOUT_MS
) -> QueryProgress:
    """Return ``found`` with the present ends of the logs; with ``times`` also with the ages of the first
    records that were not read. Raise as ``progress``.
    """
    if len(options) not in (1, len(found.sources)) and found.sources:
        raise ValueError(
            f"expected the options of one reader, or of each of the {len(found.sources)} minikafka sources "
            f"in order, got {len(options)}"
        )
    if not found.sources:
        return found
    logs = [_logs(one, timeout_ms) for one in options]
    if len(logs) == 1:
        logs *= len(found.sources)
    now_ms = SystemClock().now_ms()
    sources = (
        present(source, of_source, now_ms if times else None)
        for source, of_source in zip(found.sources, logs, strict=True)
    )
    try:
        return replace(found, sources=tuple(sources))
    except MinikafkaError as problem:
        name_options(problem)
        raise


def present(source: SourceProgress, logs: Logs, now_ms: int | None) -> SourceProgress:
    """Return ``source`` as it is now. Without ``now_ms``, ages of records are not looked up."""
    ends = logs.ends(partition.topic_partition for partition in source.partitions)
    partitions = [replace(each, latest=ends.get(each.topic_partition)) for each in source.partitions]
    opened = logs.open_transactions(each.topic_partition for each in partitions if each.lag == 0)
    partitions = [replace(each, waits=opened.get(each.topic_partition)) for each in partitions]
    if now_ms is not None:
        behind = {each.topic_partition: each.end for each in partitions if each.lag}
        timestamps = logs.first_timestamps(behind)
        partitions = [_with_age(each, timestamps, now_ms) for each in partitions]
    return replace(source, partitions=tuple(partitions))


def _with_age(
    partition: PartitionProgress, timestamps: Mapping[TopicPartition, int], now_ms: int
) -> PartitionProgress:
    if not partition.lag:
        return replace(partition, behind_ms=None if partition.lag is None else 0)
    timestamp = timestamps.get(partition.topic_partition)
    return replace(partition, behind_ms=None if timestamp is None else max(0, now_ms - timestamp))


def _logs(options: Options, timeout_ms: int) -> ClusterLogs:
    given = {name: text for name, value in options.items() if (text := to_str(value)) is not None}
    location, kafka = cluster_options(given)
    target = find_running(location)
    if target is None:
        raise BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no cluster runs in {location.data_dir}: the query has ended, or it reads another cluster",
        )
    cluster = cache.reading(target.bootstrap_servers, target.connection(kafka.connection))
    return ClusterLogs(cluster, kafka.fetch.isolation, cluster.deadline(timeout_ms))
