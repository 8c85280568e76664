"""The planner's look-ups in a real cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch import list_offsets as listing
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.cluster import ClusterClient
from pyspark_minikafka import cache, report
from pyspark_minikafka.location import Target
from pyspark_minikafka.offsets import EARLIEST, LATEST
from pyspark_minikafka.options.group_options import Storage
from pyspark_minikafka.options.options import SourceOptions
from pyspark_minikafka.planning.cores import find_cores
from pyspark_minikafka.planning.planner import Planner
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.record_sizes import RecordSize
from pyspark_minikafka.planning.transaction_waits import TransactionWait, TransactionWatch, Waits

_Answer = TypeVar("_Answer")
_SPECIAL = {EARLIEST: listing.EARLIEST, LATEST: listing.LATEST}
_MAX_AGE_MS = 1_000
_SAMPLE_OFFSETS = 500
_TRANSACTIONS_MS = 2_000
"""The longest look-up of open transactions: a batch waits for it."""
_SAMPLE_MS = 1_000
"""The longest look at the size of records: a batch waits for it."""


class ClusterLookup:
    """The ``Lookup`` of a real cluster: retries retriable errors and caches the topics for
    ``metadata_max_age_ms``, by default one second.

    It requests the metadata of all topics, never by name: brokers create a topic that is requested by name,
    and a deleted topic would reappear empty instead of being reported.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        options: SourceOptions,
        clock: Clock | None = None,
        *,
        target: Target | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._target = target
        self._clock = clock or SystemClock()
        self._topics: Mapping[str, tuple[int, ...]] = {}
        self._ids: Mapping[str, bytes] = {}
        self._asked_ms: int | None = None

    def partitions(self, *, refresh: bool) -> Mapping[str, tuple[int, ...]]:
        now_ms = self._clock.monotonic_ms()
        age_ms = self._options.connection.metadata_max_age_ms
        age_ms = _MAX_AGE_MS if age_ms is None else age_ms
        if refresh or self._asked_ms is None or now_ms - self._asked_ms >= age_ms:
            self._topics = self._retried(self._all_topics)
            self._asked_ms = now_ms
        return self._topics

    def topic_ids(self) -> Mapping[str, bytes]:
        return self._ids

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        asked = {tp: _SPECIAL[special] for tp, special in wanted.items()}
        found = self._retried(lambda: self._existing(asked))
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def offsets_at(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        return self._retried(lambda: self._existing(wanted))

    def logs_reach(self, wanted: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        return {tp for tp, offset in wanted.items() if self._retried(partial(self._reaches, tp, offset))}

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the offsets from Kafka and ZooKeeper, the higher one where both have one, as consumers that
        commit to both do.
        """
        storage, places = self._options.groups.storage, []
        found: dict[TopicPartition, int] = {}
        if storage is not Storage.ZOOKEEPER:
            places.append("Kafka")
            found = self._retried(lambda: _in_kafka(self._cluster, group))
        target = self._target
        if storage is not Storage.KAFKA and target is not None and target.zookeeper_connect is not None:
            places.append(f"ZooKeeper at {target.zookeeper_connect}")
            for tp, offset in _in_zookeeper(target, group).items():
                found[tp] = max(offset, found.get(tp, offset))
        if not found:
            more = "" if len(places) > 1 or storage is not None else ", or set zookeeper.connect"
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"no group {group!r} with committed offsets in {' or in '.join(places)}; check the name in "
                f"startingOffsets{more}",
            )
        return found

    def leader(self, topic_partition: TopicPartition) -> int | None:
        return self._cluster.known_leader(topic_partition)

    def record_size(self, offsets: OffsetRange) -> RecordSize | None:
        from minikafka.clients.fetch.log_sample import sample_log

        first = max(offsets.start, offsets.end - _SAMPLE_OFFSETS)
        deadline = self._cluster.deadline(_SAMPLE_MS)
        try:
            found = sample_log(
                self._cluster,
                offsets.topic_partition,
                first,
                deadline,
                self._options.fetch.isolation,
                self._options.fetch.rack,
            )
        except MinikafkaError:
            return None  # the tasks report what is wrong
        if found is None:
            return None
        return RecordSize.of_sample(found.bytes_per_offset, is_compressed=found.is_compressed)

    def _all_topics(self) -> Mapping[str, tuple[int, ...]]:
        metadata = self._cluster.metadata(None, refresh=True)
        self._ids = {name: topic.topic_id for name, topic in metadata.topics.items() if any(topic.topic_id)}
        return {
            name: tuple(p.topic_partition.partition for p in topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.partitions
        }

    def _existing(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        isolation = self._options.fetch.isolation
        try:
            return listing.list_offsets(self._cluster, asked, self._cluster.deadline(), isolation)
        except BrokerError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            topics = self.partitions(refresh=True)
            left = {tp: when for tp, when in asked.items() if tp.partition in topics.get(tp.topic, ())}
            if len(left) == len(asked):
                raise
            return listing.list_offsets(self._cluster, left, self._cluster.deadline(), isolation)

    def _reaches(self, tp: TopicPartition, offset: int) -> bool:
        try:
            # Imported here: it imports the codec, which a process that only plans does not need.
            from minikafka.clients.fetch.range_fetcher import log_reaches

            return log_reaches(self._cluster, tp, offset)
        except BrokerError as problem:
            if problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False  # the next look-up of the topics shows the deletion
            raise

    def _retried(self, question: Callable[[], _Answer]) -> _Answer:
        for _ in range(self._options.offset_retries):
            try:
                return question()  # a NetworkError is final: the client has retried until its timeout
            except BrokerError as problem:
                if not problem.is_retriable:
                    raise
            pause(self._options.offset_retry_interval_ms)
        return question()


class ClusterTransactions:
    """The ``TransactionLookup`` of a real cluster."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, listing.LATEST)
        found = listing.list_offsets(self._cluster, wanted, self._cluster.deadline(_TRANSACTIONS_MS))
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        from minikafka.clients.admin.transactions import TransactionAdmin

        found = TransactionAdmin(self._cluster).first_open(partitions, timeout_ms=_TRANSACTIONS_MS)
        now_ms = self._cluster.clock.now_ms()
        return {
            tp: TransactionWait(
                opened.producer.start_offset or 0,
                opened.producer.producer_id,
                opened.transactional_id or "",
                max(0, now_ms - (opened.start_time_ms or opened.producer.last_timestamp_ms)),
            )
            for tp, opened in found.items()
        }


def _in_kafka(cluster: ClusterClient, group: str) -> dict[TopicPartition, int]:
    from minikafka.clients.admin.groups import GroupAdmin

    return {tp: committed.offset for tp, committed in GroupAdmin(cluster).offsets(group).items()}


def _in_zookeeper(target: Target, group: str) -> Mapping[TopicPartition, int]:
    from minikafka.registry.consumer_offsets import read_offsets

    store = target.zookeeper_store()
    try:
        return read_offsets(store, group)
    finally:
        store.close()


def pause(milliseconds: int) -> None:
    """Sleep before a retry."""
    time.sleep(milliseconds / 1000)


def make_planner(options: SourceOptions, target: Target) -> Planner:
    """Return a planner that looks up offsets at the brokers of ``target``."""
    cluster = cache.reading(target.bootstrap_servers, target.connection(options.connection))
    lookup = ClusterLookup(cluster, options, target=target)
    cores = options.cores or find_cores()
    return Planner(
        options, lookup, warn=report.warn_once, pause=pause, now_ms=SystemClock().now_ms, cores=cores
    )


def make_watch(options: SourceOptions, target: Target) -> TransactionWatch | None:
    """Return what follows the open transactions before which a stream waits; None if it reads them too."""
    if options.fetch.isolation is not IsolationLevel.READ_COMMITTED:
        return None
    cluster = cache.reading(target.bootstrap_servers, target.connection(options.connection))
    return TransactionWatch(ClusterTransactions(cluster), SystemClock(), lambda line: report.warn([line]))
