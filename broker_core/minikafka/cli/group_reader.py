"""Reading topics as a member of a group: what was printed is committed, and where it began to read."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.connect import existing_topic
from minikafka.cli.output import note
from minikafka.clients.admin.admin import Admin
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
"""How often is looked whether the topic is still there."""


def filter_pattern(wanted: TopicFilter) -> re.Pattern[str]:
    """What matches the names of the topics that a filter chooses, for Python."""
    import re

    from minikafka.clients.consumer.topic_filter import Blacklist
    from minikafka.clients.java_regex.translator import compile_pattern

    named = compile_pattern(wanted.regex)
    return re.compile(rf"(?!(?:{named.pattern})\Z).*") if isinstance(wanted, Blacklist) else named


class GroupReader:
    """One member that reads one topic, or those that a filter chooses. Use it as a context manager: it leaves
    the group at the end.

    Call ``shown`` for each message that was printed; that is what is committed, after each round of messages,
    before partitions are given up, and at the end. Of a partition of which nothing was printed it is where
    this member began: the next one does not begin at another end, and misses nothing that came meanwhile.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: str | TopicFilter,
        group: str,
        reset: Reset,
        *,
        threads: bool = True,
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        config = GroupConsumerConfig(
            group, auto_commit=False, auto_offset_reset=reset, metadata_max_age_ms=TOPIC_CHECK_MS
        )
        self._consumer = GroupConsumer(cluster, config, listener=self, threads=threads)
        self._shown: dict[TopicPartition, Committed] = {}
        self._begun: dict[TopicPartition, Committed] = {}
        """Where this member began, as far as that is not committed yet."""
        self._fresh: set[TopicPartition] = set()
        """Assigned, and not known yet where it begins."""
        self._look_at_ms = cluster.clock.monotonic_ms() + TOPIC_CHECK_MS

    def __enter__(self) -> GroupReader:
        if isinstance(self._wanted, str):
            existing_topic(Admin(self._cluster), self._wanted)
            self._consumer.subscribe([self._wanted])
            return self
        pattern = filter_pattern(self._wanted)
        self._consumer.subscribe(pattern=pattern)
        if not any(pattern.fullmatch(name) for name in Admin(self._cluster).list_topics()):
            note(f"minikafka: there is no topic yet that {self._wanted} chooses; waiting for one")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, OSError):
            # The output has ended: what of it was still in memory is gone, and a flush would not say so.
            self._shown = {}
        self._consumer.close()

    def messages(self) -> Iterator[tuple[TopicPartition, StoredRecord]]:
        """Messages of this member's partitions as they come, for ever."""
        while True:
            sets = self._consumer.poll(POLL_MS)
            self._begin({fetched.topic_partition: fetched.start_offset for fetched in sets})
            for fetched in sets:
                for record in fetched.records():
                    yield fetched.topic_partition, record
            self._commit()
            self._look()

    def shown(self, partition: TopicPartition, record: StoredRecord) -> None:
        """This message was printed."""
        self._shown[partition] = Committed(record.offset + 1)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """See ``RebalanceListener``."""
        self._commit()
        self._fresh = set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """See ``RebalanceListener``."""
        self._fresh = set(partitions)
        self._begun = {}

    def _begin(self, given: Mapping[TopicPartition, int]) -> None:
        """Note where this member begins; ``given``: the first offsets of what it is about to print."""
        for partition in tuple(self._fresh):
            offset = given.get(partition, self._consumer.position(partition))
            if offset is not None:
                self._begun[partition] = Committed(offset)
                self._fresh.discard(partition)

    def _commit(self) -> None:
        offsets = self._begun | self._shown
        if not offsets:
            return
        # Whoever reads our output has it before the group goes on behind it.
        sys.stdout.flush()
        try:
            self._consumer.commit_sync(offsets, timeout_ms=COMMIT_MS)
            self._begun = {}
        except MinikafkaError as error:
            if self._shown:
                note(f"minikafka: messages that were printed will come again: {error}")
        self._shown = {}

    def _look(self) -> None:
        """Raise MinikafkaError when the one topic was deleted."""
        if not isinstance(self._wanted, str):
            return
        now_ms = self._cluster.clock.monotonic_ms()
        if now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + TOPIC_CHECK_MS
        try:
            existing_topic(Admin(self._cluster), self._wanted)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise MinikafkaError(f"topic {self._wanted!r} was deleted while it was read") from None
            raise
