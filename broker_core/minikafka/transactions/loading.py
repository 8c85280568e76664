"""Loading of the transactions of a partition from its log.

The newest record of each key counts. Records arrive as columns, one window of the log after the other. Only
their keys are compared until the end of the log; then the remaining values are decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minikafka.base.errors import RemoteWireError
from minikafka.transactions.messages import read_key, read_value
from minikafka.transactions.shard import TransactionCoordinatorShard, TransactionSettings

_log = logging.getLogger(__name__)


class TransactionMetadataLoader:
    """Collects the records of one partition, in log order."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self._latest: dict[bytes | None, tuple[int, bytes | None]] = {}
        """Key -> (offset, value)."""

    def add(
        self, keys: Sequence[bytes | None], offsets: Sequence[int], values: Sequence[bytes | None]
    ) -> None:
        """Add one window of records, given by column."""
        self._latest.update(zip(keys, zip(offsets, values, strict=True), strict=True))

    def finish(self, coordinator_epoch: int) -> TransactionCoordinatorShard:
        """Return the transactions. Records that cannot be read are skipped, with one warning.

        The ends that are left begin with ``TransactionCoordinatorShard.resume``.
        """
        shard = TransactionCoordinatorShard(self._settings, coordinator_epoch)
        skipped: list[str] = []
        for raw, (log_offset, value) in self._latest.items():
            if raw is None or value is None:
                continue
            try:
                key = read_key(raw)
                if key is None:
                    skipped.append(f"offset {log_offset}: a key of a later release")
                else:
                    shard.restore(key.transactional_id, read_value(value))
            except RemoteWireError as error:
                skipped.append(f"offset {log_offset}: {error}")
        if skipped:
            _log.warning("skipped %d transaction records, the first at %s", len(skipped), skipped[0])
        return shard
