"""A stored batch as its producer has sent it, to be written to another partition.

A log changes the offset and the leader epoch of a batch and, with LogAppendTime, timestamps and checksum. The
sender keeps the header from the checksum up to the records. By it the batch is known again, as the producer's
id, epoch and sequence number are never given twice, and set back to what was sent.
"""

from __future__ import annotations

from minikafka.base.errors import MinikafkaError
from minikafka.base.files import Buffer
from minikafka.records.format.checksums import crc32c
from minikafka.records.kernels import layout

SENT_HEADER_AT, SENT_HEADER_END = layout.BATCH_CRC_AT, layout.BATCH_HEADER_BYTES
SENT_HEADER_BYTES = SENT_HEADER_END - SENT_HEADER_AT
_KEPT = tuple(
    slice(start - SENT_HEADER_AT, end - SENT_HEADER_AT)
    for start, end in (
        (layout.LAST_DELTA_AT, layout.MAX_TIMESTAMP_AT),
        (layout.PRODUCER_ID_AT, layout.BATCH_HEADER_BYTES),
    )
)
"""The fields of a header that a log does not change."""


class OtherBatch(MinikafkaError):
    """A stored batch is not the one that was sent."""


def sent_header(data: Buffer) -> bytes:
    """Return the header of an encoded batch from the checksum up to the records."""
    return bytes(data[SENT_HEADER_AT:SENT_HEADER_END])


def as_sent(stored: Buffer, header: bytes) -> bytearray:
    """Return a copy of a stored batch as it was sent with ``header``. Raises OtherBatch."""
    offset = int.from_bytes(stored[: layout.SIZE_AT], "big")
    found = stored[SENT_HEADER_AT:SENT_HEADER_END]
    if len(found) < SENT_HEADER_BYTES or any(found[part] != header[part] for part in _KEPT):
        raise OtherBatch(f"another batch is at offset {offset}")
    sent = bytearray(stored)
    sent[: layout.SIZE_AT] = bytes(layout.SIZE_AT)
    sent[SENT_HEADER_AT:SENT_HEADER_END] = header
    with memoryview(sent) as view:
        if crc32c(view[layout.BATCH_COVERED_AT :]) != int.from_bytes(header[:4], "big"):
            raise OtherBatch(f"the batch at offset {offset} is corrupt")
    return sent
