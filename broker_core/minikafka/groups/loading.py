"""Load the groups of a partition from its log.

The newest record of each key counts. Records come as columns, a window of the log after the other, and are
only compared by their keys until the log is at its end; then what is left is read. So nearly all that a log
costs is for its keys, however often each was written. What other brokers have written in transactions counts
as far as these were committed.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from minikafka.base.errors import RemoteWireError
from minikafka.groups.messages import GroupMetadataKey, OffsetKey, read_group, read_key, read_offset
from minikafka.groups.shard import GroupCoordinatorShard, GroupSettings
from minikafka.records.format.batch import ControlType
from minikafka.records.scan.isolation import TransactionPart

_log = logging.getLogger(__name__)


_Row = tuple[bytes | None, tuple[int, bytes | None]]
"""Key, and offset and value."""


class GroupMetadataLoader:
    """Collects the records of one partition, in log order."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._latest: dict[bytes | None, tuple[int, bytes | None]] = {}
        self._open: dict[int, list[_Row]] = {}
        """By producer, what belongs to a transaction whose end was not seen yet."""

    def add(
        self,
        keys: Sequence[bytes | None],
        offsets: Sequence[int],
        values: Sequence[bytes | None],
        parts: Sequence[TransactionPart] = (),
    ) -> None:
        """Take in one window of records, given by column, with the parts of transactions in it."""
        rows: list[_Row] = list(zip(keys, zip(offsets, values, strict=True), strict=True))
        done = 0
        for part in parts:
            begin, end = bisect_left(offsets, part.first_offset), bisect_right(offsets, part.last_offset)
            self._latest.update(rows[done:begin])
            done = end
            if part.mark is None:
                self._open.setdefault(part.producer_id, []).extend(rows[begin:end])
                continue
            ended = self._open.pop(part.producer_id, [])
            if part.mark is ControlType.COMMIT:
                # Of what was written meanwhile the later one in the log counts, not the one that ends later.
                newest = self._latest
                newest.update(row for row in ended if row[0] not in newest or newest[row[0]][0] < row[1][0])
        self._latest.update(rows[done:])

    def finish(self, now_ms: int, wall_ms: int) -> GroupCoordinatorShard:
        """The groups. What cannot be read is left out, and said once."""
        shard = GroupCoordinatorShard(self._settings)
        offsets: dict[OffsetKey, tuple[int, bytes | None]] = {}
        strange: list[str] = []
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
                    strange.append(f"offset {log_offset}: a key of a later release")
            except RemoteWireError as error:
                strange.append(f"offset {log_offset}: {error}")
        for key, (log_offset, value) in offsets.items():
            if value is None:
                continue
            try:
                committed = read_offset(value, self._settings.retention_ms)
            except RemoteWireError as error:
                strange.append(f"offset {log_offset}: {error}")
                continue
            shard.restore_offset(key.group, key.topic_partition, log_offset, committed, wall_ms)
        if strange:
            _log.warning("%d records are left out, the first at %s", len(strange), strange[0])
        return shard
