"""Reads topics as a consumer of a group in ZooKeeper, and commits the offsets of printed messages."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from minikafka.base.errors import CommitFailed, ConfigError, ConsumerTimeout, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.records.output import MessageLine
from minikafka.cli.terminal.output import note
from minikafka.clients.consumer.assignment import ConsumerThreadId
from minikafka.clients.consumer.config import LARGEST, SMALLEST, ConsumerConfig
from minikafka.clients.consumer.connector import ConsumerConnector
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.consumer.zookeeper_connector import Consumer

IDLE_MS = 100
"""The idle time after which the output is flushed."""
COMMIT_MS = 5_000
RESERVED_PROPERTIES = frozenset(
    {"group.id", "zookeeper.connect", "auto.commit.enable", "consumer.timeout.ms"}
)
"""The properties that the command itself sets."""


def consumer_config(
    group: str, zookeeper: str, client_id: str, properties: Mapping[str, str], *, at_end: bool
) -> ConsumerConfig:
    """Return the settings of the consumer. Raise ConfigError for a reserved or invalid property.

    at_end: partitions without a committed offset are read from their end.
    """
    for name in sorted(RESERVED_PROPERTIES & properties.keys()):
        allowed = "cannot be set: `consume` sets this property itself"
        raise ConfigError("--property", f"{name}={properties[name]}", allowed)
    return ConsumerConfig.from_properties(
        {
            "client.id": client_id,
            "auto.commit.interval.ms": COMMIT_MS,
            "auto.offset.reset": LARGEST if at_end else SMALLEST,
            **properties,
            "group.id": group,
            "zookeeper.connect": zookeeper,
            "auto.commit.enable": False,
            "consumer.timeout.ms": IDLE_MS,
        }
    )


class ZooKeeperGroupReader:
    """One consumer with one stream. Use it as a context manager: it leaves the group at the end.

    Print each message inside ``printing``. The offsets after the printed messages are committed every
    ``auto.commit.interval.ms``, before partitions are released, and at the end. For a partition without a
    printed message the start position is committed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        wanted: TopicFilter | str,
        connect: Callable[[ConsumerConfig], ConsumerConnector] = Consumer.create,
    ) -> None:
        self._connector = connect(config)
        self._wanted = wanted
        self._stream: KafkaStream[bytes, bytes] | None = None
        self._lock = threading.Lock()
        """Held while a message is printed and recorded: rebalances run on another thread."""
        self._printed: dict[TopicPartition, int] = {}
        self._commit_every_s = config.auto_commit_interval_ms / 1000
        self._commit_at_s = 0.0

    def __enter__(self) -> ZooKeeperGroupReader:
        try:
            self._connector.set_consumer_rebalance_listener(self)
            if isinstance(self._wanted, str):
                (self._stream,) = self._connector.create_message_streams({self._wanted: 1})[self._wanted]
            else:
                (self._stream,) = self._connector.create_message_streams_by_filter(self._wanted, 1)
        except BaseException:
            self._connector.shutdown()
            raise
        self._commit_at_s = time.monotonic() + self._commit_every_s
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # After an error of the output, buffered messages are lost, and a flush would not report that.
            if kind is None or not issubclass(kind, OSError):
                self._commit()
        finally:
            self._connector.shutdown()

    def messages(self) -> Iterator[tuple[TopicPartition, MessageLine]]:
        """Yield messages as they arrive, without end. Raise ConsumerRebalanceFailed, CorruptMessage and other
        errors of streams.
        """
        assert self._stream is not None
        while True:
            try:
                for message in self._stream:
                    line = MessageLine(
                        message.offset,
                        message.timestamp_ms,
                        message.raw_key,
                        message.raw_message,
                        message.headers,
                    )
                    yield TopicPartition(message.topic, message.partition), line
                    if time.monotonic() >= self._commit_at_s:
                        self._commit()
            except ConsumerTimeout:
                sys.stdout.flush()
                if time.monotonic() >= self._commit_at_s:
                    self._commit()
            else:
                return

    @contextlib.contextmanager
    def printing(self, partition: TopicPartition, line: MessageLine) -> Iterator[None]:
        """Wrap the printing of a message, and record it as printed at the end of the block."""
        with self._lock:
            yield
            self._printed[partition] = line.offset + 1

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        """See ``ConsumerRebalanceListener``."""
        with contextlib.suppress(OSError):  # the output is closed; the main thread will see that
            self._commit()
        with self._lock:
            self._printed = {}

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[str, Mapping[int, ConsumerThreadId]]
    ) -> None:
        """See ``ConsumerRebalanceListener``."""

    def _commit(self) -> None:
        self._commit_at_s = time.monotonic() + self._commit_every_s
        owned = self._connector.positions
        with self._lock:
            # The output must be written before its offsets are committed.
            sys.stdout.flush()
            printed = dict(self._printed)
        # A message that is not printed yet is after these offsets.
        offsets = {tp: offset for tp, offset in owned.items() if offset >= 0}
        offsets |= {tp: offset for tp, offset in printed.items() if tp in offsets}
        if not offsets:
            return
        try:
            self._connector.commit_offsets(offsets)
        except CommitFailed:
            pass  # released in the meantime, and committed before that
        except MinikafkaError as error:
            if printed:
                note(f"minikafka: failed to commit offsets; printed messages will be read again: {error}")
