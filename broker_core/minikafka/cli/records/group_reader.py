"""Reads topics as a member of a group, and commits the offsets of printed messages and its start offsets."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.connection.connect import existing_topic
from minikafka.cli.records.output import Message
from minikafka.cli.records.partition_reader import lines_of, note_open_transactions
from minikafka.cli.terminal.output import note
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.config import GroupConsumerConfig, Reset
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.offsets import Committed
from minikafka.clients.network.cluster import ClusterClient

if TYPE_CHECKING:
    import re

    from minikafka.clients.consumer.topic_filter import TopicFilter

POLL_MS = 500
COMMIT_MS = 5_000
TOPIC_CHECK_MS = 5_000
"""The interval of checks that the topics still exist."""


def filter_pattern(wanted: TopicFilter) -> re.Pattern[str]:
    """Return a Python pattern that matches the names of the topics that a filter selects."""
    import re

    from minikafka.clients.consumer.topic_filter import Blacklist
    from minikafka.clients.java_regex.translator import compile_pattern

    named = compile_pattern(wanted.regex)
    return re.compile(rf"(?!(?:{named.pattern})\Z).*") if isinstance(wanted, Blacklist) else named


class GroupReader:
    """One member that reads some topics, or those that a filter selects. Use it as a context manager: it
    leaves the group at the end.

    Call ``shown`` for each printed message. The offsets after the printed messages are committed after each
    poll, before partitions are revoked, and at the end. For a partition without a printed message the start
    offset is committed: the next member then starts there, and misses no message that arrived since.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: tuple[str, ...] | TopicFilter,
        group: str,
        reset: Reset,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        rack: str = "",
        to_end: bool = False,
        threads: bool = True,
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._to_end = to_end
        self._isolation = isolation
        self._holds_back = isolation is IsolationLevel.READ_COMMITTED
        """Open transactions may hold back messages, and no note has said so."""
        config = GroupConsumerConfig(
            group,
            auto_commit=False,
            auto_offset_reset=reset,
            isolation=isolation,
            rack=rack,
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
        if isinstance(self._wanted, tuple):
            for topic in self._wanted:
                existing_topic(Admin(self._cluster), topic)
            self._consumer.subscribe(self._wanted)
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

    def messages(self) -> Generator[tuple[TopicPartition, Message], None, None]:
        """Yield messages of this member's partitions as they arrive, without end, or to the end of all its
        partitions.
        """
        while True:
            batches = self._consumer.poll(POLL_MS)
            self._record_starts({fetched.topic_partition: fetched.start_offset for fetched in batches})
            for fetched in batches:
                for columns in fetched.columns(headers=True):
                    for line in lines_of(columns):
                        yield fetched.topic_partition, line
            self._commit()
            is_due = self._cluster.clock.monotonic_ms() >= self._check_at_ms
            looks = self._to_end or (is_due and self._holds_back)
            if looks and not batches and self._is_at_end() and self._to_end:
                return
            if is_due:
                self._check_topics()

    def _is_at_end(self) -> bool:
        """Return True if this member has partitions and is at the end of all. Print a note, once, if open
        transactions hold back messages of them.
        """
        positions = {}
        for tp in self._consumer.assignment:
            offset = self._consumer.position(tp)
            if offset is None:
                return False
            positions[tp] = offset
        if not positions:
            return False
        admin = Admin(self._cluster)
        ends = admin.offsets(dict.fromkeys(positions, LATEST), isolation=self._isolation)
        at_end = all((ends[tp] or 0) <= offset for tp, offset in positions.items())
        if at_end and self._holds_back and note_open_transactions(admin, positions, waits=not self._to_end):
            self._holds_back = False
        return at_end

    def shown(self, partition: TopicPartition, record: Message) -> None:
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

    def _check_topics(self) -> None:
        """Raise MinikafkaError if one of the named topics was deleted."""
        self._check_at_ms = self._cluster.clock.monotonic_ms() + TOPIC_CHECK_MS
        for topic in self._wanted if isinstance(self._wanted, tuple) else ():
            try:
                existing_topic(Admin(self._cluster), topic)
            except BrokerError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise MinikafkaError(f"topic {topic!r} was deleted while it was read") from None
                raise
