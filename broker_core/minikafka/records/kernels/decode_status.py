"""The codes that kernels return when a loop over messages stops, and the errors for them.

Codes below ``FIRST_PROBLEM`` are ordinary ends; the others mean damage. They are plain integers, because
numba treats them as constants.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode

END = 0  # nothing is left
PARTIAL = 1  # the rest is less than one whole entry
REACHED_END_OFFSET = 2  # the next message is at or after the end offset
WRAPPER = 3  # the next message is compressed: its content has to be decompressed first
ROWS_FULL = 4  # no room for another row
KEYS_FULL = 5  # no room for the next key
VALUES_FULL = 6  # no room for the next value
FOUND = 7  # the message that was searched for
BATCH = 8  # the next entry is a record batch of magic 2
CLASSIC = 9  # the next entry is a message of magic 0 or 1
HEADERS_FULL = 10  # no room for the next record's headers

FIRST_PROBLEM = 16
BAD_SIZE = 16
BAD_CRC = 17
OTHER_MAGIC = 18
BAD_KEY_LENGTH = 19
BAD_VALUE_LENGTH = 20
BAD_CODEC = 21
NESTED = 22
INNER_MAGIC = 23
TOO_LARGE = 24
NO_KEY = 25
TIMESTAMP_RANGE = 26
TIMESTAMP_TYPE = 27
OFFSET_ORDER = 28
BAD_ROW = 29
BAD_RECORD_LENGTH = 30
BAD_VARINT = 31
BAD_HEADERS = 32
BAD_COUNT = 33
BAD_DELTA = 34
CONTROL_BATCH = 35
NO_RECORDS = 36
NOT_CONSECUTIVE = 37
NO_SEQUENCE = 38

_TEXTS = {
    PARTIAL: "the message is not complete",
    BAD_SIZE: "the size field holds less than the smallest message, which has 14 bytes (49 in magic 2)",
    BAD_CRC: "the checksum does not match the message",
    OTHER_MAGIC: "the magic byte is unknown, or not supported here",
    BAD_KEY_LENGTH: "the key's length does not fit the message",
    BAD_VALUE_LENGTH: "the value's length does not fit the message",
    BAD_CODEC: "unknown codec in the attributes (0 none, 1 gzip, 2 snappy, 3 lz4, in magic 2 also 4 zstd)",
    NESTED: "a message inside a compressed message is compressed itself",
    INNER_MAGIC: "a message inside a compressed message has a different magic byte",
    TOO_LARGE: "the message with its 12 bytes of offset and size is larger than max.message.bytes",
    NO_KEY: "the topic is compacted, so every message must have a key",
    TIMESTAMP_RANGE: "the timestamp is too far from the broker's time (message.timestamp.difference.max.ms)",
    TIMESTAMP_TYPE: "a producer must not send the timestamp type LogAppendTime",
    BAD_RECORD_LENGTH: "the record's length does not fit its content or the batch",
    BAD_VARINT: "a varint of the record is too long, or exceeds the record",
    BAD_HEADERS: "the record's headers do not fit the record",
    BAD_COUNT: "the number of records in the batch is not that of its header",
    BAD_DELTA: "an offset delta does not rise, or is not between 0 and the batch's last offset delta",
    CONTROL_BATCH: "a producer must not send control records",
    NO_RECORDS: "the batch has no records",
    NOT_CONSECUTIVE: "a producer must number the records of a batch 0, 1, 2 … up to its last offset delta",
    NO_SEQUENCE: "the batch has a producer id but no sequence",
    OFFSET_ORDER: "the offset is not larger than the previous one, or is too far from the segment's first",
}

_CODES = {
    NO_KEY: ErrorCode.INVALID_RECORD,
    CONTROL_BATCH: ErrorCode.INVALID_RECORD,
    NO_RECORDS: ErrorCode.INVALID_RECORD,
    NOT_CONSECUTIVE: ErrorCode.INVALID_RECORD,
    NO_SEQUENCE: ErrorCode.INVALID_RECORD,
    TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    TIMESTAMP_RANGE: ErrorCode.INVALID_TIMESTAMP,
    TIMESTAMP_TYPE: ErrorCode.INVALID_TIMESTAMP,
}


def describe(stop: int, position: int, inside: int | None = None) -> str:
    """Return the fault and its position. ``inside`` is the position of the compressed message around it."""
    where = f"at position {position}"
    if inside is not None:
        where += f" of the content of the compressed message at position {inside}"
    return f"{_TEXTS[stop]}, {where}"


def error(stop: int, position: int, inside: int | None = None) -> BrokerError:
    """Return the protocol's error for ``stop``: CORRUPT_MESSAGE for damage, else INVALID_RECORD,
    MESSAGE_TOO_LARGE or INVALID_TIMESTAMP.
    """
    return BrokerError(_CODES.get(stop, ErrorCode.CORRUPT_MESSAGE), describe(stop, position, inside))


def batch_error(stop: int, record_at: int, position: int) -> BrokerError:
    """Return the error for a record at byte ``record_at`` of the records of the batch at ``position``."""
    where = f"at position {record_at} of the records of the batch at position {position}"
    return BrokerError(_CODES.get(stop, ErrorCode.CORRUPT_MESSAGE), f"{_TEXTS[stop]}, {where}")


def corrupt(text: str, position: int) -> BrokerError:
    """Return CORRUPT_MESSAGE for damage that no kernel detects, such as invalid compressed data."""
    return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{text}, at position {position}")
