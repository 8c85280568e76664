"""Selection, by headers alone, of the batches in a part of a log that determine the state of producers.

A producer's state follows from its last few batches and from its transactions. So for a producer without
transactions only those few are read one by one, however many batches there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.records.format.batch import (
    MAGIC,
    BatchHeader,
    ControlType,
    control_type,
    iterate_batch,
    read_header,
)
from minikafka.records.kernels import layout
from minikafka.records.kernels.arrays import read_only

EVERY_ENTRY = layout.MIN_MESSAGE_BYTES - 1
"""An index interval at which a scan notes every entry but the first: the smallest entry is larger."""

_HEADER = np.dtype([(name, f">{code}") for name, code in layout.BATCH_FIELDS.codes.items()])


def producer_state_batches(
    data: Buffer, positions: NDArray[np.int64], first_offset: int, last_ones: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the batches at ``positions`` that determine the state of producers, in
    order.

    These have a producer, begin at or after ``first_offset``, and are transactional, or a marker, or among
    the ``last_ones`` of their producer here.
    """
    array = read_only(data)
    positions = positions[array[positions + layout.MAGIC_AT] == MAGIC]
    rows = array[positions[:, None] + np.arange(layout.BATCH_HEADER_BYTES)].view(_HEADER).reshape(-1)
    wanted = (rows["producer_id"] >= 0) & (rows["base_offset"] >= first_offset)
    rows, positions = rows[wanted], positions[wanted]
    special = rows["attributes"] & layout.TRANSACTION_BITS != 0
    plain = np.flatnonzero(rows["attributes"] & layout.CONTROL_BIT == 0)
    order = plain[np.argsort(rows["producer_id"][plain], kind="stable")]
    producers = rows["producer_id"][order].astype(np.int64)
    from_end = np.searchsorted(producers, producers, side="right") - np.arange(producers.size)
    special[order[from_end <= last_ones]] = True
    view = memoryview(data)
    for position in positions[special].tolist():
        yield position, read_header(view, position, check_crc=False)


@fast_value
class EndMarker:
    """The content of a transaction marker."""

    kind: ControlType
    coordinator_epoch: int


def end_marker_of(data: Buffer, position: int) -> EndMarker | None:
    """Return the content of the transaction marker at ``position``; None if it is not a marker, or compaction
    has emptied it.
    """
    try:
        for record in iterate_batch(memoryview(data), position):
            kind, value = control_type(record), record.value or b""
            if kind is not None and len(value) >= layout.CONTROL_VALUE.size:
                return EndMarker(kind, int(layout.CONTROL_VALUE.unpack_from(value)[1]))
    except BrokerError:
        pass  # the verification of the log reports it
    return None
