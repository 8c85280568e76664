"""Message sets of magic 1 as magic 0, for fetchers that know no other (Fetch versions 0 and 1).

Timestamps are dropped; offsets stay. A wrapper is opened, converted and compressed again with the same codec.
"""

from __future__ import annotations

import numpy as np

from minikafka.base.files import Buffer
from minikafka.records import kernels, stops
from minikafka.records.arrays import read_only
from minikafka.records.checksums import CRC32_TABLES
from minikafka.records.message_set import NO_TIMESTAMP, open_wrapper, wrap


def down_convert(data: Buffer) -> bytes:
    """The set in magic 0; a cut-off last message is left out. CORRUPT_MESSAGE on damage."""
    view = memoryview(data)
    parts: list[bytes] = []
    position = 0
    while True:
        stop, converted, position = _convert(view, position, 0, None)
        parts.append(converted)
        if stop in {stops.END, stops.PARTIAL}:
            return b"".join(parts)
        content = open_wrapper(view, position)
        end = position + content.size_bytes
        if content.magic == 0:
            parts.append(bytes(view[position:end]))
        else:
            measured = np.zeros(3, dtype=np.int64)
            kernels.read.measure(read_only(content.data), measured)
            if not measured[0]:
                raise stops.corrupt("the compressed message holds no message", position)
            _, inner, _ = _convert(content.data, 0, content.offset - int(measured[1]), position)
            parts.append(
                wrap(inner, offset=content.offset, magic=0, codec=content.codec, timestamp_ms=NO_TIMESTAMP)
            )
        position = end


def _convert(view: memoryview, position: int, shift: int, inside: int | None) -> tuple[int, bytes, int]:
    """One run of messages that are not compressed: why it ended, its bytes, and where."""
    write = kernels.write
    state = np.zeros(write.CONVERT_STATE_SIZE, dtype=np.int64)
    state[write.CONVERT_POSITION] = position
    state[write.CONVERT_SHIFT] = shift
    out = np.empty(len(view) - position, dtype=np.uint8)
    stop = write.convert_down(read_only(view), CRC32_TABLES, out, state)
    at = int(state[write.CONVERT_POSITION])
    if inside is not None and stop == stops.WRAPPER:
        stop = stops.NESTED
    if stop >= stops.FIRST_PROBLEM or (inside is not None and stop != stops.END):
        raise stops.error(stop, at, inside)
    return stop, out[: int(state[write.CONVERT_BYTES])].tobytes(), at
