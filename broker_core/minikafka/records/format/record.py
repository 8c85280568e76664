"""Records independent of their format, as builders accept and readers return them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from minikafka.records.format.compression import Codec

NO_TIMESTAMP = -1
NO_PRODUCER = -1
"""Producer id, epoch and sequence of records from a producer that is not idempotent."""

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record in a compacted log; no value is a tombstone."""
Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values in their order; a name may occur several times."""


class TimestampType(IntEnum):
    """The meaning of a timestamp. Magic 0 has none."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A record for the builders. ``timestamp_ms`` is ignored for magic 0; ``headers`` are for magic 2."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record from a log. ``codec`` is that of the wrapper or batch that contains it.

    The fields after ``codec`` are set in magic 2 only. ``control`` records are the markers that end a
    transaction (see ``batch.ControlType``); consumers skip them.
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
    leader_epoch: int = -1
