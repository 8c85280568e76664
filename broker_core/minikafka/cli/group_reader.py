"""Reads topics as a member of a group, and commits the offsets of printed messages and its start offsets."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.connect import existing_topic
from minikafka.cli.output import note
from minikafka.clients.admin.admin import Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.offsets import Committed
from minikafka.clients.network.cluster import ClusterClient

if TYPE_CHECKING:
    import re

    from minikafka.clients.consumer.topic_filter import TopicFilter
    from minikafka.records.format.message_set import StoredRecord

POLL_MS = 500
COMMIT_MS = 5_000
TOPIC_CHECK_MS = 5_000
"""The interval of checks that the topic still exists."""


def filter_pattern(wanted: TopicFilter) -> re.Pattern[str]:
    """Return a Python pattern that matches the names of the topics that a filter selects."""
    import re

    from minikafka.clients.consumer.topic_filter import Blacklist
    from minikafka.clients.java_regex.translator import compile_pattern

    named = compile_pattern(wanted.regex)
    return re.compile(rf"(?!(?:{named.pattern})\Z).*") if isinstance(wanted, Blacklist) else named


class GroupReader:
    """One member that reads one topic, or those that a filter selects. Use it as a context manager: it leaves
    the group at the end.

    Call ``shown`` for each printed message. The offsets after the printed messages are committed after each
    poll, before partitions are revoked, and at the end. For a partition without a printed message the start
    offset is committed: the next member then starts there, and misses no message that arrived since.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: str | TopicFilter,
        group: str,
        reset: Reset,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        threads: bool = True,
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        config = GroupConsumerConfig(
            group,
            auto_commit=False,
            auto_offset_reset=reset,
            isolation=isolation,
            metadata_max_age_ms=TOPIC_CHECK_MS,
        )
        self._consumer = GroupConsumer(cluster, config, listener=self, threads=threads)
        self._shown: dict[TopicPartition, Committed] = {}
        self._start_offsets: dict[TopicPartition, Committed] = {}
        """The start offsets that are not committed yet."""
        self._unstarted: set[TopicPartition] = set()
        """Assigned partitions whose start offset is not known yet."""
        self._check_at_ms = cluster.clock.monotonic_ms() + TOPIC_CHECK_MS

    def __enter__(self) -> GroupReader:
        if isinstance(self._wanted, str):
            existing_topic(Admin(self._cluster), self._wanted)
            self._consumer.subscribe([self._wanted])
            return self
        pattern = filter_pattern(self._wanted)
        self._consumer.subscribe(pattern=pattern)
        if not any(pattern.fullmatch(name) for name in Admin(self._cluster).list_topics()):
            note(f"minikafka: no topic matches {self._wanted} yet; waiting for one")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, OSError):
            # After an error of the output, buffered messages are lost, and a flush would not report that.
            self._shown = {}
        self._consumer.close()

    def messages(self) -> Generator[tuple[TopicPartition, StoredRecord], None, None]:
        """Yield messages of this member's partitions as they arrive, without end."""
        while True:
            batches = self._consumer.poll(POLL_MS)
            self._record_starts({fetched.topic_partition: fetched.start_offset for fetched in batches})
            for fetched in batches:
                for record in fetched.records():
                    yield fetched.topic_partition, record
            self._commit()
            self._check_topic()

    def shown(self, partition: TopicPartition, record: StoredRecord) -> None:
        """Record that this message was printed."""
        self._shown[partition] = Committed(record.offset + 1)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """See ``RebalanceListener``."""
        self._commit()
        self._unstarted = set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """See ``RebalanceListener``."""
        self._unstarted = set(partitions)
        self._start_offsets = {}

    def _record_starts(self, given: Mapping[TopicPartition, int]) -> None:
        """Record the start offsets of this member; ``given``: the first offsets of the fetched messages."""
        for partition in tuple(self._unstarted):
            offset = given.get(partition, self._consumer.position(partition))
            if offset is not None:
                self._start_offsets[partition] = Committed(offset)
                self._unstarted.discard(partition)

    def _commit(self) -> None:
        offsets = self._start_offsets | self._shown
        if not offsets:
            return
        # The output must be written before its offsets are committed.
        sys.stdout.flush()
        try:
            self._consumer.commit_sync(offsets, timeout_ms=COMMIT_MS)
            self._start_offsets = {}
        except MinikafkaError as error:
            if self._shown:
                note(f"minikafka: failed to commit offsets; printed messages will be read again: {error}")
        self._shown = {}

    def _check_topic(self) -> None:
        """Raise MinikafkaError if the one topic was deleted."""
        if not isinstance(self._wanted, str):
            return
        now_ms = self._cluster.clock.monotonic_ms()
        if now_ms < self._check_at_ms:
            return
        self._check_at_ms = now_ms + TOPIC_CHECK_MS
        try:
            existing_topic(Admin(self._cluster), self._wanted)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise MinikafkaError(f"topic {self._wanted!r} was deleted while it was read") from None
            raise
