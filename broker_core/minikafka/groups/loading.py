"""How the groups of a partition come back from its log.

The newest record of each key counts. Records come as columns, a window of the log after the other, and are
only compared by their keys until the log is at its end; then what is left is read. So nearly all that a log
costs is for its keys, however often each was written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.base.errors import RemoteWireError
from minikafka.groups.messages import GroupKey, OffsetKey, read_group, read_key, read_offset
from minikafka.groups.shard import GroupSettings, Shard

_log = logging.getLogger(__name__)


class Loading:
    """Collects the records of one partition, in log order."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}

    def take(
        self, keys: Iterable[bytes | None], offsets: Iterable[int], values: Iterable[bytes | None]
    ) -> None:
        """Take in one window of records, given by column."""
        self._newest.update(zip(keys, zip(offsets, values, strict=True), strict=True))  # type: ignore[arg-type]

    def finish(self, now_ms: int, wall_ms: int) -> Shard:
        """The groups. What cannot be read is left out, and said once."""
        self._newest.pop(None, None)  # type: ignore[call-overload]
        shard = Shard(self._settings)
        offsets: dict[OffsetKey, tuple[int, bytes | None]] = {}
        strange: list[str] = []
        for raw, (log_offset, value) in self._newest.items():
            try:
                key = read_key(raw)
                if isinstance(key, OffsetKey):
                    # Key versions 0 and 1 mean the same.
                    if key not in offsets or offsets[key][0] < log_offset:
                        offsets[key] = log_offset, value
                elif isinstance(key, GroupKey):
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
