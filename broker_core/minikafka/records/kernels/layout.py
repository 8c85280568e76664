"""The layout of entries: the one table of their fields, for the kernels and for everything else.

``format.message_set`` and ``format.batch`` say what the fields mean. Offset, size and magic are at the same
positions in every format. The positions are plain integers, because numba treats them as constants.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fields:
    """Big-endian numbers one after another: name -> code of ``struct``."""

    codes: Mapping[str, str]

    @property
    def size(self) -> int:
        """The bytes of all fields."""
        return struct.calcsize(">" + "".join(self.codes.values()))

    def at(self, name: str) -> int:
        """Return the position of a field."""
        names = list(self.codes)
        return Fields({before: self.codes[before] for before in names[: names.index(name)]}).size

    def struct(self, *names: str) -> struct.Struct:
        """Return what reads these fields, in their order, from the start of an entry; without names all."""
        wanted = names or tuple(self.codes)
        last = max(wanted, key=self.at)
        parts = [
            code if name in wanted else f"{struct.calcsize('>' + code)}x"
            for name, code in self.codes.items()
            if self.at(name) <= self.at(last)
        ]
        return struct.Struct(">" + "".join(parts))


MESSAGE_FIELDS = Fields(
    {"offset": "q", "size": "i", "crc": "I", "magic": "B", "attributes": "B", "timestamp": "q"}
)
"""A message of magic 1 up to its key; in magic 0 the key replaces the timestamp."""
BATCH_FIELDS = Fields(
    {
        "base_offset": "q",
        "size": "i",
        "leader_epoch": "i",
        "magic": "B",
        "crc": "I",
        "attributes": "h",
        "last_offset_delta": "i",
        "base_timestamp": "q",
        "max_timestamp": "q",
        "producer_id": "q",
        "producer_epoch": "h",
        "base_sequence": "i",
        "count": "i",
    }
)
"""A batch of magic 2 up to its records."""

LENGTH_BYTES = 4
"""The bytes of the length of a message's key, and of its value."""
TIMESTAMP_BYTES = 8

# Of every entry.
SIZE_AT = MESSAGE_FIELDS.at("size")
ENTRY_HEADER_BYTES = MESSAGE_FIELDS.at("crc")
"""The bytes of offset and size, which the size does not count."""
MAGIC_AT = MESSAGE_FIELDS.at("magic")

# Of a message of magic 0 or 1.
MESSAGE_CRC_AT = MESSAGE_FIELDS.at("crc")
MESSAGE_COVERED_AT = MESSAGE_FIELDS.at("magic")
"""The start of the bytes that the checksum covers."""
MESSAGE_ATTRIBUTES_AT = MESSAGE_FIELDS.at("attributes")
MESSAGE_TIMESTAMP_AT = MESSAGE_FIELDS.at("timestamp")
MESSAGE_HEADER_BYTES = MESSAGE_FIELDS.at("timestamp")
"""The bytes before the key in magic 0; magic 1 has TIMESTAMP_BYTES more."""
MIN_MESSAGE_BYTES = MESSAGE_HEADER_BYTES + 2 * LENGTH_BYTES
"""The smallest message, of magic 0 without key and value; magic 1 has TIMESTAMP_BYTES more."""
MESSAGE_OVERHEAD_BYTES = MIN_MESSAGE_BYTES + TIMESTAMP_BYTES
"""The bytes of a message of magic 1 beside its key and value."""
MIN_SIZE = MIN_MESSAGE_BYTES - ENTRY_HEADER_BYTES
"""The smallest value of the size field: checksum, magic, attributes and two lengths."""

# Of a batch of magic 2.
LEADER_EPOCH_AT = BATCH_FIELDS.at("leader_epoch")
BATCH_CRC_AT = BATCH_FIELDS.at("crc")
BATCH_COVERED_AT = BATCH_FIELDS.at("attributes")
"""The start of the bytes that the checksum covers."""
BATCH_ATTRIBUTES_AT = BATCH_FIELDS.at("attributes")
BATCH_FLAGS_AT = BATCH_ATTRIBUTES_AT + 1
"""The low byte of the attributes, which has all bits that are in use."""
LAST_DELTA_AT = BATCH_FIELDS.at("last_offset_delta")
BASE_TIMESTAMP_AT = BATCH_FIELDS.at("base_timestamp")
MAX_TIMESTAMP_AT = BATCH_FIELDS.at("max_timestamp")
PRODUCER_ID_AT = BATCH_FIELDS.at("producer_id")
PRODUCER_EPOCH_AT = BATCH_FIELDS.at("producer_epoch")
BASE_SEQUENCE_AT = BATCH_FIELDS.at("base_sequence")
COUNT_AT = BATCH_FIELDS.at("count")
BATCH_HEADER_BYTES = BATCH_FIELDS.size
MIN_BATCH_SIZE = BATCH_HEADER_BYTES - ENTRY_HEADER_BYTES
"""The smallest value of the size field: a batch without records."""
MIN_RECORD_BYTES = 7
"""Length, attributes, two deltas, two lengths and the number of headers."""

# Bits of the attributes.
CODEC_MASK = 7
APPEND_TIME_BIT = 8
TRANSACTIONAL_BIT = 16
CONTROL_BIT = 32
TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT
DELETE_HORIZON_BIT = 64
MAX_MESSAGE_CODEC = 3
"""lz4, the last codec that a wrapper can have."""
MAX_BATCH_CODEC = 4
"""zstd."""

# Of a record.
MAX_VARINT32_BYTES = 5
MAX_VARINT_BYTES = 10

CONTROL_KEY = struct.Struct(">hh")
"""The key of a control record: version and type."""
CONTROL_VALUE = struct.Struct(">hi")
"""Its value: version and coordinator epoch."""
CONTROL_KEY_BYTES = CONTROL_KEY.size
CONTROL_TYPE_MASK = 0xFFFF
"""The type in a key that is read as one number."""

_SIZE = struct.Struct(">i")


def entry_size(data: bytes | bytearray | memoryview, position: int = 0) -> int:
    """Return the size of the whole entry at ``position`` by its size field, of which nothing is validated."""
    size: int = _SIZE.unpack_from(data, position + SIZE_AT)[0]
    return ENTRY_HEADER_BYTES + size
