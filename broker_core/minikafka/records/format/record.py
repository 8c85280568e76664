"""A record as callers see it, whatever its format: what builders take and what readers give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from minikafka.records.format.compression import Codec

NO_TIMESTAMP = -1
NO_PRODUCER = -1
"""Producer id, epoch and sequence of records that no idempotent producer sent."""

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values in their order; a name may come several times."""


class TimestampType(IntEnum):
    """What a timestamp means. Magic 0 has none."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What a small builder takes. ``timestamp_ms`` is ignored for magic 0; ``headers`` are for magic 2."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as a log holds it. ``codec`` is that of the wrapper or batch it lay in.

    What stands behind ``codec`` is known in magic 2 only. ``control`` records are the marks that end a
    transaction (see ``batch.ControlType``): no consumer shows them.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    magic: int
    codec: Codec
    headers: Headers = ()
    control: bool = False
    transactional: bool = False
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    sequence: int = NO_PRODUCER
