"""The layout of entries, with which every kernel starts: the end of an entry, and in magic 0 and 1 its
fields.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels import decode_status
from minikafka.records.kernels.jit import inner, load_u32
from minikafka.records.kernels.signatures import Bytes, Number

END = decode_status.END
PARTIAL = decode_status.PARTIAL
BAD_SIZE = decode_status.BAD_SIZE
OTHER_MAGIC = decode_status.OTHER_MAGIC
BAD_KEY_LENGTH = decode_status.BAD_KEY_LENGTH
BAD_VALUE_LENGTH = decode_status.BAD_VALUE_LENGTH
BATCH = decode_status.BATCH
WHOLE = -1
"""The code for a whole entry of magic 0 or 1."""


@inner
def load_i32(data: Bytes, position: Number) -> Number:
    """Return a signed big-endian integer as int64."""
    return np.int64(np.int32(load_u32(data, position)))


@inner
def entry_end(data: Bytes, position: Number) -> tuple[Number, Number]:
    """Return ``(code, end)`` of the entry at ``position``, which is not beyond the end of ``data``.

    For WHOLE or OTHER_MAGIC, ``position + 26 <= end <= len(data)``; for BATCH, a whole batch of magic 2,
    ``position + 61 <= end``. For PARTIAL, ``end`` is the end that the entry would have, or 0 if its size
    field is incomplete.
    """
    room = data.size - position
    if room < 12:
        return (END, 0) if room == 0 else (PARTIAL, 0)
    size = load_i32(data, position + 8)
    if size < 14:
        return BAD_SIZE, 0
    end = position + 12 + size
    if end > data.size:
        return PARTIAL, end
    magic = data[position + 16]
    if magic < 2:
        return WHOLE, end
    if magic > 2:
        return OTHER_MAGIC, end
    return (BATCH, end) if size >= 49 else (BAD_SIZE, 0)


@inner
def fields(data: Bytes, position: Number, end: Number) -> tuple[Number, Number, Number, Number, Number]:
    """Return ``(code, key_at, key_length, value_at, value_length)`` of a whole entry; a length is -1 for
    null.

    If the code is WHOLE, both fields are before ``end`` and the value ends there.
    """
    at = position + 18 + 8 * np.int64(data[position + 16])
    room = end - at - 8
    if room < 0:
        return BAD_KEY_LENGTH, 0, 0, 0, 0
    key_length = load_i32(data, at)
    if key_length < -1 or key_length > room:
        return BAD_KEY_LENGTH, 0, 0, 0, 0
    value_at = at + 8 + max(key_length, 0)
    value_length = load_i32(data, value_at - 4)
    if value_length < -1 or max(value_length, 0) != end - value_at:
        return BAD_VALUE_LENGTH, 0, 0, 0, 0
    return WHOLE, at + 4, key_length, value_at, value_length
