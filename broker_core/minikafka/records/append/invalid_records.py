"""The records for which a produced batch is refused: all of them, as Produce 8 reports (KIP-467)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.text import counted
from minikafka.records import kernels
from minikafka.records.append.produced import Limits
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import read_only

INVALID_RECORDS_MAX = 1_000
"""The most records that the error of a batch has."""
_FAULTS_OF_RECORDS = {decode_status.NO_KEY, decode_status.TIMESTAMP_RANGE}
"""The faults of a record that is whole."""


class InvalidRecords(BrokerError):
    """Records for which their whole batch is refused (``RecordValidationException``)."""

    def __init__(self, code: ErrorCode, detail: str, records: tuple[tuple[int, str], ...]) -> None:
        """``records``: the index in the batch and the fault of each."""
        super().__init__(code, detail)
        self.records = records


def records_error(
    stop: int, content: memoryview, state: NDArray[np.int64], position: int, limits: Limits, now_ms: int
) -> BrokerError:
    """Return the error of a batch whose record at CHECK_AT has the fault ``stop``.

    For records that are whole, but not allowed, it has all of them, up to ``INVALID_RECORDS_MAX``.
    """
    kernel = kernels.batches
    codes: list[ErrorCode] = []
    records: list[tuple[int, str]] = []
    while stop in _FAULTS_OF_RECORDS and len(records) < INVALID_RECORDS_MAX:
        error = decode_status.batch_error(stop, int(state[kernel.CHECK_AT]), position)
        more = ""
        if stop == decode_status.TIMESTAMP_RANGE:
            more = times(int(state[kernel.CHECK_TIMESTAMP]), limits, now_ms)
        codes.append(error.code)
        records.append((int(state[kernel.CHECK_COUNT]), error.detail + more))
        state[kernel.CHECK_AT] = _after_record(content, int(state[kernel.CHECK_AT]))
        state[kernel.CHECK_COUNT] += 1
        stop = kernel.validate_records(read_only(content), state)
    if stop != decode_status.END and stop not in _FAULTS_OF_RECORDS:
        return decode_status.batch_error(stop, int(state[kernel.CHECK_AT]), position)
    # As in Kafka: one invalid timestamp decides.
    code = max(codes, key=lambda code: code is ErrorCode.INVALID_TIMESTAMP)
    others = f", and {counted(len(records) - 1, 'more record')}" if len(records) > 1 else ""
    return InvalidRecords(code, records[0][1] + others, tuple(records))


def _after_record(content: memoryview, at: int) -> int:
    """Return the end of the whole record at ``at``, from its length, a zigzag varint."""
    length = shift = 0
    while True:
        byte = content[at]
        at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return at + (length >> 1)


def times(timestamp_ms: int, limits: Limits, now_ms: int) -> str:
    """Return the end of a message about a timestamp that is not allowed."""
    difference = limits.max_timestamp_difference_ms
    return f": timestamp {timestamp_ms} ms, broker time {now_ms} ms, allowed difference {difference} ms"
