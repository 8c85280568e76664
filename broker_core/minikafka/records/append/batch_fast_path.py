"""Fast validation of plain batches of magic 2, the content of nearly every produce request.

A request may have one record for each of many partitions, and calling a kernel takes longer than the kernel's
work on such a batch. So one call checks all batches of a request: small ones are concatenated for it, large
ones are checked in place. For a batch that is whole, valid and plain (``kernels.batches``) the result is a
row of numbers, which ``validation`` compares with the limits of the topic. It validates all other batches one
by one, and reports their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.append.produced import Limits, ValidatedRecords
from minikafka.records.format.batch import MAGIC, BatchHeader
from minikafka.records.format.checksums import CRC_TABLES
from minikafka.records.format.message_set import Codec, TimestampType
from minikafka.records.kernels.arrays import read_only

COPIED_BYTES = 4096
"""Batches up to this size are copied rather than checked one by one."""


class PlainBatch(NamedTuple):
    """A batch that is whole and valid, uncompressed and not transactional, with the largest timestamp in its
    header and records numbered from 0 on. The fields are in the order of the kernel's row.

    ``first_timestamp_ms`` is the smallest of its records; ``keyless`` is the number of records without key.
    """

    size_bytes: int
    base_offset: int
    leader_epoch: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    first_timestamp_ms: int
    keyless: int


def survey(sets: Sequence[memoryview]) -> list[PlainBatch | None]:
    """Return for each message set the batch that fills it; None for anything but a single plain batch."""
    if len(sets) > 1 and max(map(len, sets)) <= COPIED_BYTES:
        return _plain_batches(b"".join(sets), [len(records) for records in sets])
    return [_plain_batches(records, [len(records)])[0] for records in sets]


def _plain_batches(data: Buffer, sizes: list[int]) -> list[PlainBatch | None]:
    batches = kernels.batches
    rows = np.empty((len(sizes), batches.SURVEY_COLUMNS), dtype=np.int64)
    found = batches.survey_batches(read_only(data), CRC_TABLES, rows.reshape(-1))
    plain: list[PlainBatch | None] = []
    for size, row in zip(sizes, rows[:found].tolist(), strict=False):
        if row[0] != size:
            break  # the rows from here on are those of other sets
        plain.append(PlainBatch._make(row))
    return plain + [None] * (len(sizes) - len(plain))


def allows(limits: Limits, batch: PlainBatch, now_ms: int) -> bool:
    """Return True if the topic accepts the batch unchanged. If not, full validation finds the error, or
    converts it.
    """
    if (
        batch.size_bytes > limits.max_message_bytes
        or limits.timestamp_type is TimestampType.LOG_APPEND_TIME
        or limits.max_magic < MAGIC
        or limits.magic in {0, 1}
        or limits.codec not in {None, Codec.NONE}
        or (limits.compacted and batch.keyless)
        or (batch.producer_id >= 0 and batch.base_sequence < 0)
    ):
        return False
    if limits.max_timestamp_difference_ms is None:
        return True
    earliest, latest = limits.allowed_times(now_ms)
    return earliest <= batch.first_timestamp_ms and batch.max_timestamp_ms <= latest


def as_sent(view: memoryview, batch: PlainBatch, limits: Limits) -> ValidatedRecords:
    """Return the ValidatedRecords of this batch, unchanged."""
    header = BatchHeader(
        batch.base_offset,
        batch.size_bytes,
        Codec.NONE,
        batch.last_offset_delta,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.last_offset_delta + 1,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return ValidatedRecords.of_batch(view, header, limits)
