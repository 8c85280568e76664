"""The periodic work on all logs of a broker: flushes and retention."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial

from minikafka.base.errors import StorageError
from minikafka.base.ids import TopicPartition
from minikafka.log.cleanup.file_deletion import FileDeletion
from minikafka.log.config import LogConfig
from minikafka.log.log import Log
from minikafka.log.retention import SegmentFacts

_logger = logging.getLogger(__name__)


def flush_dirty_logs(
    logs: Mapping[TopicPartition, Log], flushed_ms: MutableMapping[TopicPartition, int], now_ms: int
) -> list[TopicPartition]:
    """Flush logs with messages that may be ``flush.ms`` old, and all full segments; return the flushed.

    ``flushed_ms`` has the times (monotonic) of the last flushes. A log that cannot be flushed is reported and
    accepts no more appends; the others are flushed all the same.
    """
    flushed = []
    for partition, log in logs.items():
        limit = log.config.flush_ms
        since = flushed_ms.get(partition, now_ms)
        everything = limit is not None and now_ms - since >= limit
        if (
            log.failure is not None
            or log.closed
            or not (everything or log.segments[-1].base_offset > log.recovery_point)
        ):
            continue
        dirty = log.unflushed_messages
        try:
            log.flush(None if everything else log.segments[-1].base_offset)
        except StorageError:
            _logger.exception("failed to flush log %s; it is offline until the next start", log.directory)
            continue
        if everything:
            flushed_ms[partition] = now_ms
        if dirty:
            flushed.append(partition)
    return flushed


def delete_old_segments(
    logs: Mapping[TopicPartition, Log],
    readable: Callable[[TopicPartition, Log], int],
    now_ms: int,
    file_deletion: FileDeletion,
) -> int:
    """Delete the segments that the policies of each log choose; return the number of files to remove.

    ``readable`` returns the offset that consumers may read up to (high watermark): no segment above it is
    deleted. ``now_ms`` is wall-clock time. A failure of one log is reported and does not stop the others.
    """
    count = 0
    for partition, log in logs.items():
        try:
            before, size = log.start_offset, log.size_bytes
            deleted = log.delete_old_segments(
                partial(_expired, log.config, now_ms), readable(partition, log), now_ms
            )
        except Exception as error:  # noqa: BLE001 - a policy of the operator's own can raise anything
            _logger.error("failed to delete old segments of %s: %s", partition, error)
            continue
        if deleted:
            _logger.info(
                "%s: deleted offsets %d to %d, %d bytes",
                partition,
                before,
                log.start_offset - 1,
                size - log.size_bytes,
            )
            file_deletion.add(log, deleted)
            count += len(deleted)
    return count


def _expired(config: LogConfig, now_ms: int, segments: Sequence[SegmentFacts]) -> int:
    return max((policy.expired(segments, config.limits, now_ms) for policy in config.policies), default=0)
