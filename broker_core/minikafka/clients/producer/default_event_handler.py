"""``kafka.producer.async.DefaultEventHandler``: serializes, partitions and encodes messages, hands them to
the engine (``clients.produce``), and collects their failures.

    events ─▶ columns of each topic (encoders) ─▶ partition of each row ─▶ batches of each partition ─▶ engine

The engine keeps the order of a partition, retries, looks for leaders, and splits what is too large for a
broker; while brokers work, the next batches are encoded, up to UNSENT_BYTES. A permanent failure (a message
that is too large, a topic without write permission) is not retried, unlike in the release, and fails alone.

Messages without a key move to another partition after a failed attempt. So they have batches of their own,
unless the topic has one partition, where their order among the others is kept.

While a producer is being closed, it waits for an outage once: after messages that found no broker, all
remaining ones have ``request.timeout.ms`` together for one to return, and then fail.
"""

from __future__ import annotations

import logging
import operator
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minikafka.base.config.types import INT_MAX
from minikafka.base.errors import BrokerError, ErrorCode, FailedToSendMessage, MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import NO_LEADER, TopicMetadata
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.network.retry import Deadline
from minikafka.clients.produce.batch import RetryGroup
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.produce.requests import TOO_LARGE_SETTINGS
from minikafka.clients.produce.send_future import SendFuture
from minikafka.clients.producer.broker_partition_info import BrokerPartitionInfo
from minikafka.clients.producer.handlers import EventHandler
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns, Unsent, fields_of, serialize
from minikafka.clients.producer.partitioner import DefaultPartitioner, Partitioner
from minikafka.clients.producer.producer_config import KEEP, ProducerConfig
from minikafka.clients.producer.producer_stats import ProducerStats
from minikafka.clients.serializer import Encoder
from minikafka.records.arrow.encoding import binary_column
from minikafka.records.columns import EncodedRecords, encode, group_rows

logger = logging.getLogger("minikafka.clients.producer")

MAX_BATCH_BYTES = 900_000
"""Limit of one batch, which a broker with default settings accepts."""
REQUEST_BYTES = 16 << 20
"""Limit of the batches of one request, unless a single batch is larger."""
UNSENT_BYTES = 8 << 20
"""Limit of encoded batches that are not acknowledged."""
MAX_PLACES_IN_ERROR = 8
"""The number of topics and partitions that an error names."""
DESCRIBE_CONFIGS_TIMEOUT_MS = 5_000
"""Timeout of the look-up of a limit that a message has exceeded."""

_NO_KEY, _NO_PARTITION = -1, -2

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _FailedRows:
    """Rows that no broker has accepted, with their topic or partition, and the error."""

    columns: MessageColumns
    rows: Rows
    place: str
    error: Exception
    error_text: str
    """The text for the error's message."""


class _SentRows(NamedTuple):
    """Rows that the engine has as one batch."""

    columns: MessageColumns
    rows: Rows
    group: RetryGroup
    future: SendFuture


@dataclass(slots=True)
class _PartitionRows:
    """The rows of one partition, which are encoded batch by batch. ``at`` of them are encoded."""

    rows: Rows
    group: RetryGroup
    at: int = 0
    batches: Iterator[EncodedRecords] | None = None


@dataclass(slots=True)
class Dispatch:
    """Messages that were begun together: those with the engine, and failures so far."""

    refused: Sequence[tuple[KeyedMessage, Exception]] = ()
    total: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    """The number of messages before each piece, by the id of its columns."""
    sent: deque[_SentRows] = field(default_factory=deque)
    failed: list[_FailedRows] = field(default_factory=list)
    limits: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Values of topic settings that messages have exceeded, by topic and name."""
    unreachable: NetworkError | None = None
    """The error of a look-up that reached no broker: others are not tried."""

    def fail(self, columns: MessageColumns, rows: Rows, place: str, error: Exception, text: str = "") -> None:
        """Add rows that failed at a partition or topic. ``text`` replaces the error's own."""
        if len(rows):
            self.failed.append(_FailedRows(columns, rows, place, error, text or _error_text(error)))


class _InvalidPartition(ValueError):
    """Raised for a result of a partitioner that is not a partition."""


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
        self._engine = BatchingProducer(
            cluster,
            engine_config(config),
            threads=False,
            counts_lookups=True,
            other_partition=self._topics.other_partition,
        )
        self._resends = 0
        """The retries that are in ``stats``."""
        self._closing = False
        self._given_up = False
        self._outage = False
        """True if the last messages failed because no broker was reachable."""
        self._end: Deadline | None = None
        """The deadline of an outage while the producer is being closed."""

    def metrics(self) -> Metrics:
        """Return the metrics of what was sent, and of the connections."""
        return self._engine.metrics()

    def begin_close(self) -> None:
        """Record that the producer is being closed: later messages together wait only once for an outage."""
        self._closing = True

    def give_up(self) -> None:
        """Fail new events at once, and those under way. Any thread may call this."""
        self._given_up = True
        self._engine.abort(_not_sent("the producer was closed without waiting"))

    def close(self) -> None:
        self._engine.close(0)

    def handle(self, events: Sequence[KeyedMessage]) -> None:
        """Send events. Raises FailedToSendMessage for those that failed permanently or after the last retry;
        all others are then acknowledged. An encoder's error is raised before anything is sent if the producer
        is synchronous; otherwise the other events are sent.
        """
        if events:
            self.finish(self.begin_fields(fields_of(events)))

    def handle_columns(self, columns: Iterable[MessageColumns]) -> None:
        """Send serialized messages. Raises as ``handle``."""
        self.finish(self.begin(columns))

    def begin_fields(self, fields: Sequence[list[Any]]) -> Dispatch:
        """Begin to send messages given as fields (``messages.fields_of``), as ``begin``."""
        refused: list[tuple[KeyedMessage, Exception]] = []
        try:
            columns = serialize(fields, self._encoder, self._key_encoder)
        except Exception:
            if self._config.is_sync:
                self.stats.record_serialization_errors(1)
                raise
            columns, refused = self._serialized_singly(list(map(KeyedMessage, *fields)))
        return self.begin(columns, refused)

    def begin(
        self, columns: Iterable[MessageColumns], refused: Sequence[tuple[KeyedMessage, Exception]] = ()
    ) -> Dispatch:
        """Begin to send serialized messages, besides those that an encoder ``refused``. ``finish`` must
        follow. Several may be begun before the first is finished; finish them in their order.
        """
        dispatch = Dispatch(refused, len(refused))
        try:
            for piece in columns:
                if len(piece):
                    dispatch.positions[id(piece)] = dispatch.total
                    dispatch.total += len(piece)
                    try:
                        self._begin_piece(piece, dispatch)
                    except Exception:
                        self.stats.record_failed(piece.topic, len(piece))
                        raise
                    self._collect(dispatch)
        except Exception:
            self._engine.wait(sent.future for sent in dispatch.sent)
            raise
        except BaseException:
            self._engine.abort(_not_sent("the call was interrupted"))
            raise
        return dispatch

    def poll(self) -> None:
        """Send what can be sent now, without waiting for responses."""
        self._engine.poll()

    def finish(self, dispatch: Dispatch) -> None:
        """Wait until messages are sent. Raises as ``handle``."""
        try:
            if not self._engine.wait((sent.future for sent in dispatch.sent), self._outage_deadline()):
                self._engine.abort(_not_sent("the producer is being closed: no broker could be reached"))
            self._collect(dispatch)
        except BaseException:
            self._engine.abort(_not_sent("the call was interrupted"))
            raise
        self.stats.record_resends(self._engine.resends - self._resends)
        self._resends = self._engine.resends
        for lost in dispatch.failed:
            self.stats.record_failed(lost.columns.topic, len(lost.rows))
        self._outage = any(isinstance(lost.error, NetworkError) for lost in dispatch.failed)
        if not self._outage:
            self._end = None
        if dispatch.failed or dispatch.refused:
            error = self._failure(dispatch)
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

    # --- partitions -----------------------------------------------------------------------------------------

    def _begin_piece(self, columns: MessageColumns, dispatch: Dispatch) -> None:
        name = columns.topic
        self.stats.record_sent(name, len(columns), columns.value_bytes)
        every = np.arange(len(columns), dtype=np.int64)
        try:
            self._check_hope(name, dispatch)
            self._topics.refresh_if_due(name)
            topic = self._topics.topic(name)
        except MinikafkaError as error:
            if isinstance(error, NetworkError):
                dispatch.unreachable = error
            dispatch.fail(columns, every, name, error)
            return
        left = list(self._partition_rows(columns, every, topic, dispatch))
        self._send(columns, left, topic, dispatch)

    def _partition_rows(
        self, columns: MessageColumns, every: Rows, topic: TopicMetadata, dispatch: Dispatch
    ) -> Iterator[_PartitionRows]:
        """Yield the rows of each partition; those without a key apart, as they may move, if they can."""
        name = topic.name
        if columns.part_keys is None and self._config.null_key_partition == KEEP:
            # The common case, without more arrays of this length.
            tp = TopicPartition(name, self._topics.partition_without_key(topic))
            yield _PartitionRows(every, RetryGroup(tp, movable=True))
            return
        ids = self._partitions_of_keys(columns, topic, dispatch)
        keyed = every
        if ids.min() < 0:
            keyless = np.flatnonzero(ids == _NO_KEY)
            free = self._topics.partitions_without_key(topic, len(keyless))
            if len(topic.partitions) == 1:
                ids[keyless] = free
            else:
                for partition, chosen in group_rows(free):
                    group = RetryGroup(TopicPartition(name, partition), movable=True)
                    yield _PartitionRows(keyless[chosen], group)
            keyed = np.flatnonzero(ids >= 0)
            ids = ids[keyed]
        for partition, chosen in group_rows(ids):
            rows = chosen if keyed is every else keyed[chosen]
            yield _PartitionRows(rows, RetryGroup(TopicPartition(name, partition)))

    def _check_hope(self, name: str, dispatch: Dispatch) -> None:
        """Raise the NetworkError with which messages fail without an attempt, if there is a reason."""
        if dispatch.unreachable is not None:
            raise dispatch.unreachable
        if self._given_up:
            raise _not_sent("the producer was closed without waiting")
        end = self._outage_deadline()
        if end is None:
            return
        unreachable = self._topics.refresh([name], end.remaining_ms()) if not end.expired else None
        if unreachable is not None or end.expired:
            raise _not_sent(f"the producer is being closed: {unreachable or 'no broker could be reached'}")

    def _outage_deadline(self) -> Deadline | None:
        if self._closing and self._outage and self._end is None:
            self._end = self._cluster.deadline(self._config.request_timeout_ms)
        return self._end

    def _partitions_of_keys(
        self, columns: MessageColumns, topic: TopicMetadata, dispatch: Dispatch
    ) -> NDArray[np.int32]:
        """Return the partition of each row, _NO_KEY, or _NO_PARTITION where the partitioner failed."""
        keys = columns.part_keys
        count = len(topic.partitions)
        if keys is None:
            return np.full(len(columns), _NO_KEY, dtype=np.int32)
        if isinstance(self._partitioner, DefaultPartitioner):
            try:
                return self._partitioner.partition_all(keys, count)
            except (TypeError, OverflowError):
                pass  # one by one, so that only the bad keys fail
        ids = np.full(len(keys), _NO_KEY, dtype=np.int32)
        for row, cell in enumerate(keys):
            key = cell.as_py() if hasattr(cell, "as_py") else cell
            if key is None:
                continue
            try:
                ids[row] = self._partition_of(key, count)
            except Exception as error:  # noqa: BLE001 - so can a partitioner
                ids[row] = _NO_PARTITION
                text = str(error)
                if not isinstance(error, _InvalidPartition):
                    text = f"{self._partitioner_name} failed on key {key!r:.100}: {_error_text(error)}"
                dispatch.fail(columns, np.array([row], dtype=np.int64), topic.name, error, text)
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

    # --- the engine -----------------------------------------------------------------------------------------

    def _send(
        self, columns: MessageColumns, left: list[_PartitionRows], topic: TopicMetadata, dispatch: Dispatch
    ) -> None:
        """Encode the rows of partitions and hand them to the engine, one batch of each at a time."""
        timestamps = np.full(len(columns), self._cluster.clock.now_ms(), dtype=np.int64)
        keys, values = binary_column(columns.keys), binary_column(columns.values)
        magics: dict[int, int] = {}
        for part in left:
            described = topic.partition(part.group.topic_partition.partition)
            leader = NO_LEADER if described is None else described.leader_id
            if leader not in magics:
                magics[leader] = self._engine.known_magic(leader)
            part.batches = encode(
                keys,
                values,
                timestamps,
                part.rows,
                magic=magics[leader],
                codec=self._config.codec_of(columns.topic),
                max_bytes=MAX_BATCH_BYTES,
            )
        while left:
            left = [part for part in left if self._send_next(columns, part, dispatch)]
            if left:
                self._engine.poll()

    def _send_next(self, columns: MessageColumns, part: _PartitionRows, dispatch: Dispatch) -> bool:
        """Hand the next batch of a partition to the engine. Return whether there are more."""
        rows, group, error = part.rows[part.at :], part.group, part.group.error
        if self._given_up:
            error = _not_sent("the producer was closed without waiting")
        if error is not None:  # as for the batches before
            dispatch.fail(columns, rows, str(group.topic_partition), error)
            return False
        assert part.batches is not None
        encoded = next(part.batches)
        end = part.at + encoded.count
        future = self._engine.send_encoded(group.topic_partition, encoded.data, encoded.count, group=group)
        dispatch.sent.append(_SentRows(columns, rows[: encoded.count], group, future))
        part.at = end
        return end < len(part.rows)

    def _collect(self, dispatch: Dispatch) -> None:
        """Take the batches that are done, from the first on, with their failures."""
        while dispatch.sent and dispatch.sent[0].future.done:
            sent = dispatch.sent.popleft()
            if sent.future.error is None:
                continue
            start = 0
            for count, error in sent.future.outcomes():
                if error is not None:
                    self._fail(dispatch, sent, sent.rows[start : start + count], error)
                start += count

    def _fail(self, dispatch: Dispatch, sent: _SentRows, rows: Rows, error: MinikafkaError) -> None:
        tp, place = sent.future.topic_partition, str(sent.future.topic_partition)
        if isinstance(error, BrokerError):
            if error.code in TOO_LARGE_SETTINGS:
                error = self._with_limit(error, tp.topic, TOO_LARGE_SETTINGS[error.code], dispatch)
            elif error.code is ErrorCode.LEADER_NOT_AVAILABLE and sent.group.movable:
                place = tp.topic
        dispatch.fail(sent.columns, rows, place, error)

    # --- errors ---------------------------------------------------------------------------------------------

    def _with_limit(self, error: BrokerError, topic: str, name: str, dispatch: Dispatch) -> BrokerError:
        """Return the error of a message that is too large, with the value of the setting that limits it."""
        if (topic, name) not in dispatch.limits:
            dispatch.limits[topic, name] = self._topic_config(topic, name)
        limit = dispatch.limits[topic, name]
        return error if limit is None else BrokerError(error.code, f"{error.detail} ({limit} now)")

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

    def _failure(self, dispatch: Dispatch) -> FailedToSendMessage:
        refused = dispatch.refused
        # Batches of several partitions end in any order, and what was never sent is known first.
        failed = sorted(dispatch.failed, key=lambda f: dispatch.positions[id(f.columns)] + int(f.rows[0]))
        causes: dict[str, Exception] = {failure.place: failure.error for failure in failed}
        texts = {failure.place: failure.error_text for failure in failed}
        counts = Counter(dict.fromkeys(causes, 0))
        for failure in failed:
            counts[failure.place] += len(failure.rows)
        for event, error in refused:
            place = f"{event.topic} (not serialized)"
            causes[place], texts[place] = error, _error_text(error)
            counts[place] += 1
        unsent = Unsent(
            [(failure.columns, failure.rows) for failure in failed], [event for event, _ in refused]
        )
        named = list(causes)[:MAX_PLACES_IN_ERROR]
        by_text: dict[str, list[str]] = defaultdict(list)
        for place in named:
            by_text[texts[place]].append(f"{place}: {counts[place]}")
        places = [f"{', '.join(same)} ({text})" for text, same in by_text.items()]
        if len(causes) > MAX_PLACES_IN_ERROR:
            places.append(f"and {len(causes) - MAX_PLACES_IN_ERROR} others")
        tried = any(isinstance(cause, MinikafkaError) and is_retriable(cause) for cause in causes.values())
        retries = f", with up to {self._config.message_send_max_retries} retries" if tried else ""
        return FailedToSendMessage(
            f"{len(unsent)} of {dispatch.total} messages were not sent{retries}: {'; '.join(places)}",
            unsent,
            causes,
        )


def engine_config(config: ProducerConfig) -> BatchingConfig:
    """Return the engine's settings: the retries are the limit, not a time."""
    return BatchingConfig(
        acks=config.request_required_acks,
        retries=config.message_send_max_retries,
        retry_backoff_ms=config.retry_backoff_ms,
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout_ms=INT_MAX,
        max_request_bytes=REQUEST_BYTES,
        buffer_bytes=UNSENT_BYTES,
        max_block_ms=INT_MAX,
        idempotence=False,
    )


def _not_sent(reason: str) -> NetworkError:
    return NetworkError(f"not sent, as {reason}")


def _error_text(error: Exception) -> str:
    """Return the text of an error, with the type if the error is not this project's."""
    return str(error) if isinstance(error, MinikafkaError) else f"{type(error).__name__}: {error}"
