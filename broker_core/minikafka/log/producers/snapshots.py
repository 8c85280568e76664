"""The snapshot file of the producer state below an offset of a log: ``OFFSET.snapshot``.

    version      int16   1
    crc          uint32  CRC-32C of all that follows
    count        int32   producers, and for each:
      id               int64
      epoch            int16
      last sequence    int32   -1 for none
      last offset      int64   -1 for none
      offset delta     int32   of the last batch: its last offset less its first
      timestamp        int64   ms: the time of its last append
      coordinator epoch int32  of the last transaction marker, -1 for none
      open from        int64   first offset of the open transaction, -1 for none

Big-endian. Only a producer's last batch is kept. (``ProducerStateManager.java`` of 3.9, the same since 0.11.)
"""

from __future__ import annotations

import struct

from minikafka.base.errors import StorageError
from minikafka.log.producers.producer_state import (
    BatchMetadata,
    Producers,
    ProducerStateEntry,
    sequence_after,
)
from minikafka.records.format.checksums import crc32c

VERSION = 1
COVERED_AT = 6
"""The position where the part covered by the checksum begins."""
_HEADER = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")


def encode_producers(producers: Producers) -> bytes:
    """Encode the file, with the producers in the order of their ids."""
    rows = [struct.pack(">i", len(producers))]
    for producer_id, producer in sorted(producers.items()):
        last = producer.batches[-1] if producer.batches else BatchMetadata(-1, -1, -1, -1, -1)
        rows.append(
            _PRODUCER.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.first_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
        )
    body = b"".join(rows)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def parse_producers(path: str, data: bytes) -> tuple[dict[int, ProducerStateEntry], str | None]:
    """Decode the file: the producers, and the problem with the checksum if there is one.

    Raises StorageError when the size or version is not valid: then nothing can be read.
    """
    if len(data) < _HEADER.size:
        raise StorageError(
            f"{path} is not a producer snapshot: {len(data)} bytes, expected a header of {_HEADER.size}"
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise StorageError(
            f"{path} is not a producer snapshot that can be read: version {version}, expected {VERSION}"
        )
    if len(data) != _HEADER.size + count * _PRODUCER.size:
        raise StorageError(
            f"{path} is not a complete producer snapshot: {len(data)} bytes, expected "
            f"{_HEADER.size + count * _PRODUCER.size} for {count} producers"
        )
    producers = {}
    for row in _PRODUCER.iter_unpack(data[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, open_from = row
        last = BatchMetadata(sequence_after(sequence, -delta), sequence, offset - delta, offset, timestamp_ms)
        batches = (last,) if offset >= 0 else ()
        producers[producer_id] = ProducerStateEntry(
            epoch, batches, timestamp_ms, coordinator_epoch, open_from
        )
    computed = crc32c(data[COVERED_AT:])
    wrong = f"checksum mismatch: computed {computed:#010x}, the file has {crc:#010x}"
    return producers, None if computed == crc else wrong
