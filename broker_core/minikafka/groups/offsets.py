"""The committed offsets of one group: the cache that answers OffsetFetch, and its expiration.

A commit is pending from when it is sent to the log until every in-sync replica has it; only then is it seen.
Commits may finish in another order than they were appended in: the one that lies later in the log counts.

An offset expires when its group has been without members for the retention time, or, where there never were
any, when the commit is that old (Kafka 2.1; before, the age of the commit alone decided, also for a group
that was reading). A client that asked for a retention time of its own has it counted from the commit. What
has a commit pending stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue

Commits = Mapping[TopicPartition, OffsetCommitValue]


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, OffsetCommitValue]] = {}
        """With the offset of the log where the commit stands."""
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}
        """The newest commit that is on its way."""

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def has_any(self) -> bool:
        """Return whether anything is committed, or about to be."""
        return bool(self._committed or self._pending)

    def get(self, topic_partition: TopicPartition) -> OffsetCommitValue | None:
        """What is committed for a partition."""
        entry = self._committed.get(topic_partition)
        return None if entry is None else entry[1]

    def all(self) -> dict[TopicPartition, OffsetCommitValue]:
        """Everything that is committed."""
        return {topic_partition: value for topic_partition, (_, value) in self._committed.items()}

    def load(self, topic_partition: TopicPartition, log_offset: int, value: OffsetCommitValue) -> None:
        """Take in what the log holds."""
        known = self._committed.get(topic_partition)
        if known is None or known[0] < log_offset:
            self._committed[topic_partition] = log_offset, value

    def begin(self, commits: Commits) -> None:
        """These are on their way into the log."""
        self._pending.update(commits)

    def complete(self, commits: Commits, log_offset: int) -> None:
        """Every in-sync replica has these, which stand in the log from ``log_offset`` on."""
        for topic_partition, value in commits.items():
            # What is not pending any more was removed while it was written: its topic is gone.
            if topic_partition in self._pending:
                self.load(topic_partition, log_offset, value)
        self.abort(commits)

    def abort(self, commits: Commits) -> None:
        """These are not on their way any more."""
        for topic_partition, value in commits.items():
            if self._pending.get(topic_partition) is value:
                del self._pending[topic_partition]

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget partitions; returns those of which the log has a commit, be it pending."""
        removed = []
        for topic_partition in topic_partitions:
            pending = self._pending.pop(topic_partition, None)
            committed = self._committed.pop(topic_partition, None)
            if pending is not None or committed is not None:
                removed.append(topic_partition)
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """``remove`` all that there is."""
        return self.remove({**self._committed, **self._pending})

    def expire(
        self, now_ms: int, retention_ms: int, empty_since_ms: int | None, limit: int
    ) -> list[TopicPartition]:
        """Forget what is too old, up to ``limit`` of it, and return that. ``now_ms``: wall time.

        ``empty_since_ms``: when the last member left; None where that is not known, or where there never was
        one.
        """
        expired: list[TopicPartition] = []
        for topic_partition, (_, value) in self._committed.items():
            if len(expired) >= limit:
                break
            since_ms = value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
            expires_ms = since_ms + retention_ms
            if value.expire_timestamp_ms != NEVER_MS:
                expires_ms = value.expire_timestamp_ms
            if now_ms >= expires_ms and topic_partition not in self._pending:
                expired.append(topic_partition)
        return self.remove(expired)
