"""Loading of the groups of a partition from its log.

The newest record of each key counts. Records arrive as columns, one window of the log after the other. Only
their keys are compared until the end of the log; then the remaining values are decoded. So nearly all of the
cost is for keys, however often each was written.

Records of transactions are kept by producer id until the marker that ends the transaction: with a commit they
count, with an abort they are dropped. Those without a marker at the end of the log stay aside in the group,
until one is written, except those that a later tombstone has removed.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from minikafka.base.errors import RemoteWireError
from minikafka.groups.messages import GroupMetadataKey, OffsetKey, read_group, read_key, read_offset
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.records.format.batch import ControlType
from minikafka.records.scan.isolation import TransactionPart

_log = logging.getLogger(__name__)


_Row = tuple[bytes | None, tuple[int, bytes | None]]
"""(key, (offset, value))."""


class GroupMetadataLoader:
    """Collects the records of one partition, in log order."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._latest: dict[bytes | None, tuple[int, bytes | None]] = {}
        self._open: dict[int, dict[bytes | None, tuple[int, bytes]]] = {}
        """Producer id -> the newest records of its transaction whose end was not seen yet."""
        self._removed: dict[bytes | None, int] = {}
        """Key -> offset of its newest tombstone since the oldest open transaction began."""

    def add(
        self,
        keys: Sequence[bytes | None],
        offsets: Sequence[int],
        values: Sequence[bytes | None],
        parts: Sequence[TransactionPart] = (),
    ) -> None:
        """Add one window of records, given by column, with the parts of transactions in it."""
        rows: list[_Row] = list(zip(keys, zip(offsets, values, strict=True), strict=True))
        done = 0
        for part in parts:
            begin, end = bisect_left(offsets, part.first_offset), bisect_right(offsets, part.last_offset)
            self._add(rows[done:begin])
            done = end
            if part.mark is None:
                self._add_transactional(part.producer_id, rows[begin:end])
            else:
                self._end_transaction(part.producer_id, commit=part.mark is ControlType.COMMIT)
        self._add(rows[done:])

    def _add(self, rows: Sequence[_Row]) -> None:
        self._latest.update(rows)
        if self._open:
            self._removed.update((key, offset) for key, (offset, value) in rows if value is None)

    def _add_transactional(self, producer_id: int, rows: Sequence[_Row]) -> None:
        kept = self._open.setdefault(producer_id, {})
        for key, (offset, value) in rows:
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = offset, value

    def _end_transaction(self, producer_id: int, *, commit: bool) -> None:
        ended = self._open.pop(producer_id, {})
        if commit:
            # A record written meanwhile counts if it is later in the log than that of the transaction.
            newest = self._latest
            newest.update(
                (key, row) for key, row in ended.items() if key not in newest or newest[key][0] < row[0]
            )
        if not self._open:
            self._removed.clear()

    def finish(self, now_ms: int, wall_ms: int) -> GroupCoordinatorShard:
        """Return the groups. Records that cannot be read are skipped, with one warning."""
        shard = GroupCoordinatorShard(self._settings)
        offsets: dict[OffsetKey, tuple[int, bytes | None]] = {}
        skipped: list[str] = []
        for raw, (log_offset, value) in self._latest.items():
            if raw is None:
                continue
            try:
                key = read_key(raw)
                if isinstance(key, OffsetKey):
                    # Key versions 0 and 1 mean the same.
                    if key not in offsets or offsets[key][0] < log_offset:
                        offsets[key] = log_offset, value
                elif isinstance(key, GroupMetadataKey):
                    if value is not None:
                        shard.restore_group(key.group, read_group(value), now_ms)
                else:
                    skipped.append(f"offset {log_offset}: a key of a later release")
            except RemoteWireError as error:
                skipped.append(f"offset {log_offset}: {error}")
        for key, (log_offset, value) in offsets.items():
            if value is None:
                continue
            try:
                committed = read_offset(value, self._settings.retention_ms)
            except RemoteWireError as error:
                skipped.append(f"offset {log_offset}: {error}")
                continue
            shard.restore_offset(key.group, key.topic_partition, log_offset, committed, wall_ms)
        for producer_id, kept in self._open.items():
            skipped += self._restore_transaction(shard, producer_id, kept, wall_ms)
        if skipped:
            _log.warning("skipped %d group records, the first at %s", len(skipped), skipped[0])
        return shard

    def _restore_transaction(
        self,
        shard: GroupCoordinatorShard,
        producer_id: int,
        rows: Mapping[bytes | None, tuple[int, bytes]],
        wall_ms: int,
    ) -> list[str]:
        """Keep the offsets in an open transaction aside; return the problems of unreadable records."""
        skipped: list[str] = []
        for raw, (log_offset, value) in rows.items():
            if raw is None or log_offset < self._removed.get(raw, -1):
                continue
            try:
                key = read_key(raw)
                if isinstance(key, OffsetKey):
                    commits = {key.topic_partition: read_offset(value, self._settings.retention_ms)}
                    shard.add_txn_commit(key.group, producer_id, commits, log_offset, wall_ms)
            except RemoteWireError as error:
                skipped.append(f"offset {log_offset}: {error}")
        return skipped
