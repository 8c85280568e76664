"""``kafka.producer.async.DefaultEventHandler``: serializes, partitions, batches and sends.

    events ─▶ columns of each topic (encoders) ─▶ partition of each row ─▶ batches of each partition
    ─▶ one request to each leader at a time ─▶ retry of failures after a pause and a metadata refresh

A batch is acknowledged before the next batch of its partition is sent, so that the order of a partition is
kept; while brokers work, the next batches are encoded. A permanent failure (a message that is too large, a
topic without write permission) is not retried, unlike in the release, and fails alone.

While a producer is being closed, it waits for an outage once: after a batch that found no broker, all
remaining messages have ``request.timeout.ms`` together for one to return, and then fail.
"""

from __future__ import annotations

import logging
import operator
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode, FailedToSendMessage, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import NO_LEADER, TopicMetadata
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.clients.producer.broker_partition_info import BrokerPartitionInfo
from minikafka.clients.producer.handlers import EventHandler
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns, Unsent, fields_of, serialize
from minikafka.clients.producer.partition_records import PartitionRecords, Rows, group_rows
from minikafka.clients.producer.partitioner import DefaultPartitioner, Partitioner
from minikafka.clients.producer.producer_config import ProducerConfig
from minikafka.clients.producer.producer_stats import ProducerStats
from minikafka.clients.producer.sync_producer import PendingProduce, SyncProducer
from minikafka.clients.serializer import Encoder
from minikafka.records.format.message_set import Codec

logger = logging.getLogger("minikafka.clients.producer")

REQUEST_BYTES = 16 << 20
"""Limit of the batches of one request, unless a single batch is larger."""
MAX_PLACES_IN_ERROR = 8
"""The number of topics and partitions that an error names."""
DESCRIBE_CONFIGS_TIMEOUT_MS = 5_000
"""Timeout of the look-up of a limit that a message has exceeded."""

_NO_PARTITION = -2
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class _TopicRows:
    """Rows of one topic that remain to be sent; timestamps are those of all its rows."""

    columns: MessageColumns
    timestamps: NDArray[np.int64]
    rows: Rows


@dataclass(frozen=True, slots=True)
class _FailedRows:
    """Rows that no broker has accepted, with their topic or partition, and the error."""

    part: _TopicRows
    place: str
    error: Exception
    error_text: str
    """The text for the error's message."""


class _InvalidPartition(ValueError):
    """Raised for a result of a partitioner that is not a partition."""


class _Failures:
    """The failures so far: those to retry, and permanent ones."""

    def __init__(self) -> None:
        self.retriable: list[_FailedRows] = []
        self.permanent: list[_FailedRows] = []
        self.limits: dict[tuple[str, str], str | None] = {}
        """Values of topic settings that messages have exceeded, by topic and name."""

    def add(self, part: _TopicRows, place: str, error: Exception, error_text: str = "") -> None:
        """Add rows that failed at a partition or topic. ``error_text`` replaces the error's own text."""
        retry = _is_retried(error)
        (self.retriable if retry else self.permanent).append(
            _FailedRows(part, place, error, error_text or _error_text(error))
        )

    def take_retriable(self) -> list[_TopicRows]:
        """Remove and return the rows to retry: one entry a topic, its rows in order."""
        taken, self.retriable = self.retriable, []
        parts = {failed.part.columns.topic: failed.part for failed in taken}
        return [
            _TopicRows(
                part.columns,
                part.timestamps,
                np.sort(np.concatenate([f.part.rows for f in taken if f.part.columns is part.columns])),
            )
            for part in parts.values()
        ]

    def give_up(self) -> None:
        """Make all failures permanent."""
        self.permanent.extend(self.retriable)
        self.retriable = []


class DefaultEventHandler(EventHandler):
    """The default event handler of a producer."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        *,
        partitioner: Partitioner,
        encoder: Encoder[Any],
        key_encoder: Encoder[Any],
        stats: ProducerStats | None = None,
        source: random.Random | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._partitioner = partitioner
        self._encoder = encoder
        self._key_encoder = key_encoder
        self.stats = stats or ProducerStats()
        self._topics = BrokerPartitionInfo(config, cluster, source)
        self._sync = SyncProducer(
            cluster, acks=config.request_required_acks, timeout_ms=config.request_timeout_ms
        )
        self._closing = False
        self._given_up = False
        self._outage = False
        """True if the last batch failed because no broker was reachable."""
        self._end: Deadline | None = None
        """The deadline of an outage while the producer is being closed."""

    def begin_close(self) -> None:
        """Record that the producer is being closed: later batches together wait only once for an outage."""
        self._closing = True

    def give_up(self) -> None:
        """Fail new events at once, and do not retry those under way. Any thread may call this."""
        self._given_up = True

    def handle(self, events: Sequence[KeyedMessage]) -> None:
        """Send events. Raises FailedToSendMessage for those that failed permanently or after the last retry;
        all others are then acknowledged. An encoder's error is raised before anything is sent if the producer
        is synchronous; otherwise the other events are sent.
        """
        if events:
            self.handle_fields(fields_of(events))

    def handle_fields(self, fields: Sequence[list[Any]]) -> None:
        """Send messages given as fields (``messages.fields_of``). Raises as ``handle``."""
        refused: list[tuple[KeyedMessage, Exception]] = []
        try:
            columns = serialize(fields, self._encoder, self._key_encoder)
        except Exception:
            if self._config.is_sync:
                self.stats.record_serialization_errors(1)
                raise
            columns, refused = self._serialized_singly(list(map(KeyedMessage, *fields)))
        self.handle_columns(columns, refused)

    def handle_columns(
        self, columns: Iterable[MessageColumns], refused: Sequence[tuple[KeyedMessage, Exception]] = ()
    ) -> None:
        """Send serialized messages. Raises as ``handle``, also for those that an encoder ``refused``."""
        failures = _Failures()
        total = len(refused)
        for group in _group_distinct_topics(columns):
            total += sum(map(len, group))
            self._send(group, failures)
        if failures.permanent or refused:
            error = self._failure(failures.permanent, refused, total)
            self.stats.record_failed_batch(len(error.failed))
            raise error from next(iter(error.causes.values()))

    def _serialized_singly(
        self, events: Sequence[KeyedMessage]
    ) -> tuple[list[MessageColumns], list[tuple[KeyedMessage, Exception]]]:
        good: list[KeyedMessage] = []
        refused: list[tuple[KeyedMessage, Exception]] = []
        for event in events:
            try:
                serialize(fields_of([event]), self._encoder, self._key_encoder)
            except Exception as error:  # noqa: BLE001 - an encoder can raise anything
                refused.append((event, error))
                logger.error("minikafka: a message for topic %s cannot be serialized: %r", event.topic, error)
            else:
                good.append(event)
        self.stats.record_serialization_errors(len(refused))
        if not good:
            return [], refused
        return serialize(fields_of(good), self._encoder, self._key_encoder), refused

    def _send(self, columns: Sequence[MessageColumns], failures: _Failures) -> None:
        """Send columns of different topics, with all attempts."""
        before = len(failures.permanent)
        try:
            self._attempts(columns, failures)
        except Exception:
            for piece in columns:
                self.stats.record_failed(piece.topic, len(piece))
            raise
        failed = failures.permanent[before:]
        for lost in failed:
            self.stats.record_failed(lost.part.columns.topic, len(lost.part.rows))
        self._outage = any(isinstance(lost.error, NetworkError) for lost in failed)
        if not self._outage:
            self._end = None

    def _attempts(self, columns: Sequence[MessageColumns], failures: _Failures) -> None:
        now_ms = self._cluster.clock.now_ms()
        left = []
        for piece in columns:
            self.stats.record_sent(piece.topic, len(piece), piece.value_bytes)
            stamps = np.full(len(piece), now_ms, dtype=np.int64)
            left.append(_TopicRows(piece, stamps, np.arange(len(piece), dtype=np.int64)))
        reason = self._reason_to_fail(left)
        if reason is not None:
            for part in left:
                failures.add(part, part.columns.topic, reason)
            failures.give_up()
            return
        self._topics.refresh_if_due(part.columns.topic for part in left)
        for attempt in range(self._config.message_send_max_retries + 1):
            if attempt:
                self._cluster.waiter.wait(self._config.retry_backoff_ms)
                self._topics.refresh({part.columns.topic for part in left})
                self.stats.record_resend()
            self._dispatch(left, failures, wait=attempt == 0)
            if attempt == self._config.message_send_max_retries or self._given_up:
                failures.give_up()
            left = failures.take_retriable()
            if not left:
                return

    def _reason_to_fail(self, left: Sequence[_TopicRows]) -> NetworkError | None:
        """Return the error with which messages fail without an attempt, or None."""
        if self._given_up:
            return NetworkError("not sent, as the producer was closed without waiting")
        if not (self._closing and self._outage):
            return None
        if self._end is None:
            self._end = self._cluster.deadline(self._config.request_timeout_ms)
        if not self._end.expired:
            self._topics.refresh((part.columns.topic for part in left), self._end.remaining_ms())
        if self._topics.unreachable is None:
            return None
        return NetworkError(f"not sent, as the producer is being closed: {self._topics.unreachable}")

    def _dispatch(self, left: Sequence[_TopicRows], failures: _Failures, *, wait: bool) -> None:
        """Make one attempt to send all rows that are left."""
        partitions: list[PartitionRecords] = []
        formats: dict[tuple[int, Codec], int | MinikafkaError] = {}
        for part in left:
            name = part.columns.topic
            try:
                topic = self._topics.topic(name, wait=wait)
            except MinikafkaError as error:
                failures.add(part, name, error)
                continue
            ids = self._partitions(part, topic, failures)
            for partition, places in group_rows(ids):
                if partition >= 0:
                    chosen = _TopicRows(part.columns, part.timestamps, part.rows[places])
                    pending = self._make_partition_records(
                        chosen, TopicPartition(name, partition), topic, failures, formats
                    )
                    partitions.extend([pending] if pending is not None else [])
        while partitions:
            partitions = self._send_round(partitions, failures)

    def _partitions(self, part: _TopicRows, topic: TopicMetadata, failures: _Failures) -> NDArray[np.int32]:
        """Return the partition of each row; negative where that failed."""
        keys = part.columns.part_keys_of(part.rows)
        ids: NDArray[np.int32]
        if keys is None:
            ids = np.full(len(part.rows), -1, dtype=np.int32)
        else:
            ids = self._by_key(keys, part, topic, failures)
        keyless = np.flatnonzero(ids == -1)
        if len(keyless):
            try:
                ids[keyless] = self._topics.partitions_without_key(topic, len(keyless))
            except BrokerError as error:
                failures.add(_TopicRows(part.columns, part.timestamps, part.rows[keyless]), topic.name, error)
        return ids

    def _by_key(
        self, keys: Any, part: _TopicRows, topic: TopicMetadata, failures: _Failures
    ) -> NDArray[np.int32]:
        count = len(topic.partitions)
        if isinstance(self._partitioner, DefaultPartitioner):
            try:
                return self._partitioner.partition_all(keys, count)
            except (TypeError, OverflowError):
                pass  # one by one, so that only the bad keys fail
        ids = np.full(len(keys), -1, dtype=np.int32)
        for place, cell in enumerate(keys):
            key = cell.as_py() if hasattr(cell, "as_py") else cell
            if key is None:
                continue
            try:
                ids[place] = self._partition_of(key, count)
            except Exception as error:  # noqa: BLE001 - so can a partitioner
                ids[place] = _NO_PARTITION
                error_text = str(error)
                if not isinstance(error, _InvalidPartition):
                    error_text = f"{self._partitioner_name} failed on key {key!r:.100}: {_error_text(error)}"
                row = part.rows[place : place + 1]
                failures.add(_TopicRows(part.columns, part.timestamps, row), topic.name, error, error_text)
        return ids

    def _partition_of(self, key: Any, count: int) -> int:
        """Return the partition that the partitioner chooses.

        Raises its error, or _InvalidPartition for a result that is not a partition.
        """
        given = self._partitioner.partition(key, count)
        try:
            chosen = operator.index(given)
        except TypeError:
            text = f"{self._partitioner_name} returned {given!r:.100} for key {key!r:.100}, expected a number"
            raise _InvalidPartition(text) from None
        if not 0 <= chosen < count:
            raise _InvalidPartition(
                f"{self._partitioner_name} returned partition {chosen} of {count} for key {key!r:.100}"
            )
        return chosen

    @property
    def _partitioner_name(self) -> str:
        kind = type(self._partitioner)
        return f"partitioner {kind.__module__}.{kind.__qualname__}"

    def _make_partition_records(
        self,
        part: _TopicRows,
        tp: TopicPartition,
        topic: TopicMetadata,
        failures: _Failures,
        formats: dict[tuple[int, Codec], int | MinikafkaError],
    ) -> PartitionRecords | None:
        described = topic.partition(tp.partition)
        leader_id = NO_LEADER if described is None else described.leader_id
        codec = self._config.codec_of(tp.topic)
        try:
            if leader_id == NO_LEADER:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
            magic = self._leader_magic(leader_id, codec, formats)
            return PartitionRecords(
                tp, leader_id, part.columns, part.rows, part.timestamps, magic=magic, codec=codec
            )
        except MinikafkaError as error:
            failures.add(part, str(tp), error)
            return None

    def _leader_magic(
        self, leader_id: int, codec: Codec, formats: dict[tuple[int, Codec], int | MinikafkaError]
    ) -> int:
        """Return the record format that a leader accepts. An attempt waits for an unreachable leader once."""
        if (leader_id, codec) not in formats:
            try:
                formats[leader_id, codec] = self._sync.magic(leader_id, codec)
            except MinikafkaError as error:
                formats[leader_id, codec] = error
        found = formats[leader_id, codec]
        if isinstance(found, MinikafkaError):
            raise found
        return found

    def _send_round(
        self, partitions: Sequence[PartitionRecords], failures: _Failures
    ) -> list[PartitionRecords]:
        """Send the current batch of each partition. Return the partitions that have more."""
        under_way: list[PendingProduce] = []
        results: dict[TopicPartition, MinikafkaError | None] = {}
        for group in _group_into_requests(partitions):
            records = {pending.topic_partition: pending.current.data for pending in group}
            try:
                under_way.append(self._sync.send(group[0].leader_id, records, group[0].magic))
            except MinikafkaError as error:
                results.update(dict.fromkeys(records, error))
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        for pending in partitions:
            pending.prepare()
        for sent in under_way:
            results.update(sent.result(max(1, deadline.remaining_ms())))
        return [
            pending
            for pending in partitions
            if self._handle_result(pending, results[pending.topic_partition], failures)
        ]

    def _handle_result(
        self, pending: PartitionRecords, error: MinikafkaError | None, failures: _Failures
    ) -> bool:
        """Handle the result of a partition's batch. Return whether the partition has another batch."""
        if error is None:
            return pending.acknowledge()
        part = _TopicRows(pending.columns, pending.timestamps, pending.remaining)
        place = str(pending.topic_partition)
        if not (isinstance(error, BrokerError) and error.code in _TOO_LARGE):
            failures.add(part, place, error)
            return False
        if pending.split():
            return True
        error_text = self._too_large(error.code, pending, failures)
        rows, more = pending.skip()
        failures.add(_TopicRows(pending.columns, pending.timestamps, rows), place, error_text)
        return more

    def _too_large(self, code: ErrorCode, pending: PartitionRecords, failures: _Failures) -> BrokerError:
        """Return the error of a message (the current batch) that its broker refuses for its size."""
        topic = pending.topic_partition.topic
        name = "max.message.bytes" if code is ErrorCode.MESSAGE_TOO_LARGE else "segment.bytes"
        if (topic, name) not in failures.limits:
            failures.limits[topic, name] = self._topic_config(topic, name)
        limit = failures.limits[topic, name]
        limit_text = "" if limit is None else f" ({limit})"
        return BrokerError(
            code,
            f"message of {len(pending.current.data)} bytes, with key and header, is too large for {name} of "
            f"topic {topic!r}{limit_text} on broker {pending.leader_id}: make it smaller, or raise {name}",
        )

    def _topic_config(self, topic: str, name: str) -> str | None:
        """Return the value of a topic's setting, if the brokers return it (since 0.11)."""
        from minikafka.clients.admin.configs import describe_configs
        from minikafka.wire.apis.describe_configs import ConfigResourceType

        try:
            settings = describe_configs(
                self._cluster,
                ConfigResourceType.TOPIC,
                topic,
                self._cluster.deadline(DESCRIBE_CONFIGS_TIMEOUT_MS),
            )
        except MinikafkaError:
            return None
        return next((setting.value for setting in settings if setting.name == name), None)

    def _failure(
        self, failed: Sequence[_FailedRows], refused: Sequence[tuple[KeyedMessage, Exception]], total: int
    ) -> FailedToSendMessage:
        causes: dict[str, Exception] = {failure.place: failure.error for failure in failed}
        texts = {failure.place: failure.error_text for failure in failed}
        counts = Counter(dict.fromkeys(causes, 0))
        for failure in failed:
            counts[failure.place] += len(failure.part.rows)
        for event, error in refused:
            place = f"{event.topic} (not serialized)"
            causes[place], texts[place] = error, _error_text(error)
            counts[place] += 1
        unsent = Unsent(
            [(failure.part.columns, failure.part.rows) for failure in failed], [event for event, _ in refused]
        )
        named = list(causes)[:MAX_PLACES_IN_ERROR]
        places = [f"{place}: {counts[place]} ({texts[place]})" for place in named]
        if len(causes) > MAX_PLACES_IN_ERROR:
            places.append(f"and {len(causes) - MAX_PLACES_IN_ERROR} others")
        tried = any(map(_is_retried, causes.values()))
        retries = f", with up to {self._config.message_send_max_retries} retries" if tried else ""
        return FailedToSendMessage(
            f"{len(unsent)} of {total} messages were not sent{retries}: {'; '.join(places)}",
            unsent,
            causes,
        )


def _is_retried(error: Exception) -> bool:
    return isinstance(error, MinikafkaError) and is_retriable(error)


def _error_text(error: Exception) -> str:
    """Return the text of an error, with the type if the error is not this project's."""
    return str(error) if isinstance(error, MinikafkaError) else f"{type(error).__name__}: {error}"


def _group_distinct_topics(columns: Iterable[MessageColumns]) -> Iterable[list[MessageColumns]]:
    """Yield the columns in groups that have each topic once; later columns of a topic are in later groups."""
    group: dict[str, MessageColumns] = {}
    for piece in columns:
        if piece.topic in group:
            yield list(group.values())
            group = {}
        if len(piece):
            group[piece.topic] = piece
    if group:
        yield list(group.values())


def _group_into_requests(partitions: Iterable[PartitionRecords]) -> Iterable[list[PartitionRecords]]:
    """Yield the partitions whose batches go into one request."""
    of_leader: dict[tuple[int, int], list[PartitionRecords]] = {}
    for pending in partitions:
        of_leader.setdefault((pending.leader_id, pending.magic), []).append(pending)
    for of_one_leader in of_leader.values():
        request: list[PartitionRecords] = []
        size = 0
        for pending in of_one_leader:
            if request and size + len(pending.current.data) > REQUEST_BYTES:
                yield request
                request, size = [], 0
            request.append(pending)
            size += len(pending.current.data)
        yield request
