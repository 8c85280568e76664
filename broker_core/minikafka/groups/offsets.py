"""The committed offsets of one group: the cache that answers OffsetFetch, and its expiration.

A commit is pending from when it is sent to the log until every in-sync replica has it; only then is it
visible. Commits may complete in another order than they were appended: the later one in the log counts.

Offsets that a transactional producer commits are kept aside, by its producer id, from when they are in the
log. The marker that ends the transaction on this partition of the offsets topic decides: with a commit they
become visible, unless a later record of the log has committed or removed the offset meanwhile; with an abort
they are dropped. So they are those of the log at every time, also when a commit was answered with an error
after it had been appended.

An offset expires when its group has been without members for the retention time, or, if it never had any,
when the commit is that old (Kafka 2.1; before, the age of the commit alone decided, also for a group with
active members). While consumers are in the group, offsets of topics to which none of them subscribes expire
by the age of the commit (Kafka 2.5). A retention time that a client requested counts from the commit. An
offset with a pending commit, or with one in an open transaction, does not expire.

Source: ``GroupMetadata.scala`` of 3.9. Different from there, as in Kafka 4: offsets of open transactions keep
those of the partition from expiring, and are removed with them, with a tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue

Commits = Mapping[TopicPartition, OffsetCommitValue]

_Entry = tuple[int, OffsetCommitValue]
"""(log offset of the commit, value)."""


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, _Entry] = {}
        self._pending: dict[TopicPartition, list[OffsetCommitValue]] = {}
        """Partition -> its pending commits."""
        self._transactions: dict[int, dict[TopicPartition, _Entry]] = {}
        """Producer id -> the newest commits in its open transaction."""
        self._open: dict[TopicPartition, set[int]] = {}
        """Partition -> the producers with a commit in an open transaction."""

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def has_any(self) -> bool:
        """Return whether there is a committed or pending offset, or one in an open transaction."""
        return bool(self._committed or self._pending or self._open)

    def get(self, topic_partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the committed offset of a partition; None if there is none."""
        entry = self._committed.get(topic_partition)
        return None if entry is None else entry[1]

    def all(self) -> dict[TopicPartition, OffsetCommitValue]:
        """Return all committed offsets."""
        return {topic_partition: value for topic_partition, (_, value) in self._committed.items()}

    def snapshot(self) -> dict[TopicPartition, int]:
        """Return all committed offsets, without their metadata. Any thread may call this."""
        committed = list(self._committed.items())
        return {topic_partition: value.offset for topic_partition, (_, value) in committed}

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition has a pending commit, or one in an open transaction."""
        return topic_partition in self._pending or topic_partition in self._open

    def load(self, topic_partition: TopicPartition, log_offset: int, value: OffsetCommitValue) -> None:
        """Add a committed offset from the log."""
        known = self._committed.get(topic_partition)
        if known is None or known[0] < log_offset:
            self._committed[topic_partition] = log_offset, value

    def begin(self, commits: Commits) -> None:
        """Add pending commits, which are being written to the log."""
        for topic_partition, value in commits.items():
            self._pending.setdefault(topic_partition, []).append(value)

    def complete(self, commits: Commits, log_offset: int) -> None:
        """Commit offsets that every in-sync replica has; they are in the log from ``log_offset`` on."""
        for topic_partition, value in commits.items():
            # A commit that is not pending was removed while it was written: its topic was deleted.
            if self._end(topic_partition, value):
                self.load(topic_partition, log_offset, value)

    def abort(self, commits: Commits) -> None:
        """Remove pending commits that failed."""
        for topic_partition, value in commits.items():
            self._end(topic_partition, value)

    def _end(self, topic_partition: TopicPartition, value: OffsetCommitValue) -> bool:
        """Remove a pending commit, this very one of equal ones; return False if it was not pending."""
        pending = self._pending.get(topic_partition, [])
        for number, other in enumerate(pending):
            if other is value:
                del pending[number]
                if not pending:
                    del self._pending[topic_partition]
                return True
        return False

    # --- transactions ---------------------------------------------------------------------------------------

    def add_transactional(self, producer_id: int, commits: Commits, log_offset: int) -> None:
        """Keep commits of a producer's transaction aside; they are in the log from ``log_offset`` on."""
        kept = self._transactions.setdefault(producer_id, {})
        for topic_partition, value in commits.items():
            known = kept.get(topic_partition)
            if known is None or known[0] < log_offset:
                kept[topic_partition] = log_offset, value
                self._open.setdefault(topic_partition, set()).add(producer_id)

    def end_transaction(self, producer_id: int, marker_offset: int, *, commit: bool) -> None:
        """Commit or drop what a producer has committed before the marker at ``marker_offset`` of the log."""
        kept = self._transactions.get(producer_id, {})
        for topic_partition, (log_offset, value) in list(kept.items()):
            if log_offset < marker_offset:
                self._drop(producer_id, topic_partition)
                if commit:
                    self.load(topic_partition, log_offset, value)

    def is_in_transaction(self, producer_id: int) -> bool:
        """Return whether a producer has a commit in an open transaction."""
        return producer_id in self._transactions

    def _drop(self, producer_id: int, topic_partition: TopicPartition) -> None:
        kept, producers = self._transactions[producer_id], self._open[topic_partition]
        del kept[topic_partition]
        if not kept:
            del self._transactions[producer_id]
        producers.remove(producer_id)
        if not producers:
            del self._open[topic_partition]

    # --- removal --------------------------------------------------------------------------------------------

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove partitions; return those with a commit in the log, also a pending or transactional one."""
        removed = []
        for topic_partition in topic_partitions:
            pending = self._pending.pop(topic_partition, None)
            committed = self._committed.pop(topic_partition, None)
            producers = tuple(self._open.get(topic_partition, ()))
            for producer_id in producers:
                self._drop(producer_id, topic_partition)
            if pending is not None or committed is not None or producers:
                removed.append(topic_partition)
        return removed

    def remove_all(self) -> list[TopicPartition]:
        """Remove all partitions, as ``remove``."""
        return self.remove(dict.fromkeys([*self._committed, *self._pending, *self._open]))

    def expire(
        self,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        limit: int,
        consumed: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Remove up to ``limit`` expired offsets, and return their partitions. ``now_ms``: wall-clock time.

        ``empty_since_ms``: when the last member left; None if that is not known, or there never was a member,
        or there are members. ``consumed``: the topics that they subscribe to, whose offsets do not expire.
        """
        expired: list[TopicPartition] = []
        for topic_partition, (_, value) in self._committed.items():
            if len(expired) >= limit:
                break
            since_ms = value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
            expires_ms = since_ms + retention_ms
            if value.expire_timestamp_ms != NEVER_MS:
                expires_ms = value.expire_timestamp_ms
            if topic_partition.topic in consumed or self.is_unstable(topic_partition):
                continue
            if now_ms >= expires_ms:
                expired.append(topic_partition)
        return self.remove(expired)
