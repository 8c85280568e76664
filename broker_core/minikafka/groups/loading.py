"""Loading of the groups of a partition from its log.

The newest record of each key counts. Records arrive as columns, one window of the log after the other. Only
their keys are compared until the end of the log; then the remaining values are decoded. So nearly all of the
cost is for keys, however often each was written. Records of transactions, which other brokers may have
written, count if they were committed.
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
"""(key, (offset, value))."""


class GroupMetadataLoader:
    """Collects the records of one partition, in log order."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._latest: dict[bytes | None, tuple[int, bytes | None]] = {}
        self._open: dict[int, list[_Row]] = {}
        """Producer id -> records of its transaction whose end was not seen yet."""

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
            self._latest.update(rows[done:begin])
            done = end
            if part.mark is None:
                self._open.setdefault(part.producer_id, []).extend(rows[begin:end])
                continue
            ended = self._open.pop(part.producer_id, [])
            if part.mark is ControlType.COMMIT:
                # A record written meanwhile counts if it is later in the log than that of the transaction.
                newest = self._latest
                newest.update(row for row in ended if row[0] not in newest or newest[row[0]][0] < row[1][0])
        self._latest.update(rows[done:])

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
        if skipped:
            _log.warning("skipped %d group records, the first at %s", len(skipped), skipped[0])
        return shard
