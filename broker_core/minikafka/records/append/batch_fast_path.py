"""What nearly every produce request brings, looked at in one go: plain batches of magic 2.

A request may bring one record for each of many partitions, and calling a kernel takes longer than it works on
such a batch. So one call looks at all batches of a request: small ones are put behind each other for it,
large ones are looked at where they are. Of a batch that is whole, good and plain (``kernels.batches``) a row
of numbers is left, which ``validation`` compares with what the topic allows. All others it looks at one by
one, to tell what is wrong with them.
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
"""Batches up to this size are copied rather than looked at alone."""


class PlainBatch(NamedTuple):
    """A batch that is whole and good, not compressed and of no transaction, with the largest timestamp in its
    header and records numbered from 0 on. Fields in the order of the kernel's row.

    ``first_timestamp_ms`` is the smallest of its records; ``keyless`` how many have no key.
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
    """For each message set the batch that fills it; None where it is anything else but one plain batch."""
    if len(sets) > 1 and max(map(len, sets)) <= COPIED_BYTES:
        return _look(b"".join(sets), [len(one) for one in sets])
    return [_look(one, [len(one)])[0] for one in sets]


def _look(data: Buffer, sizes: list[int]) -> list[PlainBatch | None]:
    batches = kernels.batches
    rows = np.empty((len(sizes), batches.SURVEY_COLUMNS), dtype=np.int64)
    found = batches.survey_batches(read_only(data), CRC_TABLES, rows.reshape(-1))
    plain: list[PlainBatch | None] = []
    for size, row in zip(sizes, rows[:found].tolist(), strict=False):
        if row[0] != size:
            break  # from here on the rows tell of other sets
        plain.append(PlainBatch._make(row))
    return plain + [None] * (len(sizes) - len(plain))


def allows(limits: Limits, batch: PlainBatch, now_ms: int) -> bool:
    """Whether the topic takes the batch as it is. If not, a closer look tells why, or changes it."""
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
    """The set of this batch alone, in which nothing is changed."""
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
