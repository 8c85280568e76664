"""The messages that fetches return: those of one fetch, of several fetches, and an iterator that reads to the
end of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import overload

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import (
    UNKNOWN_ENTRY_BYTES,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PartitionFetchState,
    complete_entries,
)
from minikafka.clients.simple_consumer.requests import FetchRequest
from minikafka.records.format.message_set import StoredRecord
from minikafka.records.scan.stream import MessageSet
from minikafka.wire.apis.fetch import AbortedTransaction, FetchPartitionResponse

UNKNOWN_HIGH_WATERMARK = -1
"""The high watermark if the broker returns none."""


class FetchedMessages:
    """The messages of one fetch, by iteration, any number of times (``ByteBufferMessageSet``).

    ``error`` is the broker's; iteration raises it as BrokerError, and CORRUPT_MESSAGE for damage. An
    incomplete message at the end, which the size of the fetch may cut off, is left out. ``high_watermark``:
    -1 with an error, and from a CLASSIC listener. With OFFSET_OUT_OF_RANGE no broker returns the range of the
    log: the error calls ``find_log_range``, which returns start and end, or None if unknown.

    With READ_COMMITTED messages of the ``aborted`` transactions, as the broker lists them, are left out;
    ``last_stable_offset`` is the start of the first open transaction, or else the high watermark. It is -1
    with READ_UNCOMMITTED, and if the broker has no transactions.
    """

    def __init__(
        self,
        request: FetchRequest,
        error: ErrorCode,
        data: Buffer,
        high_watermark: int = UNKNOWN_HIGH_WATERMARK,
        last_stable_offset: int = UNKNOWN_HIGH_WATERMARK,
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> None:
        self.request = request
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self._aborted = aborted
        self.find_log_range: Callable[[], tuple[int, int] | None] = lambda: None
        self._data = data
        self._set = MessageSet(data, max_entry_bytes=UNKNOWN_ENTRY_BYTES)

    @property
    def size_bytes(self) -> int:
        """The size of the response's data."""
        return self._set.size_bytes

    @property
    def valid_bytes(self) -> int:
        """The size without an incomplete last message. If it is 0 and ``size_bytes`` is not, fetch again with
        a larger ``max_size``.
        """
        return self._set.valid_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last whole message, from which the next fetch continues."""
        _, found = complete_entries(self.response)
        return max(self.request.offset, found.next_offset)

    @property
    def response(self) -> FetchPartitionResponse:
        """The broker's response, as that of Kafka's protocol."""
        return FetchPartitionResponse(
            self.request.partition,
            self.error,
            self.high_watermark,
            self.last_stable_offset,
            -1,
            self._aborted or None,
            memoryview(self._data),
        )

    def __iter__(self) -> Iterator[StoredRecord]:
        self.check()
        # A compressed batch also has the messages before the requested offset.
        messages = self._without_aborted() if self._aborted else self._set
        return (record for record in messages if record.offset >= self.request.offset and not record.control)

    def _without_aborted(self) -> Iterator[StoredRecord]:
        entries, found = complete_entries(self.response)
        yield from MessageSet(entries, max_entry_bytes=UNKNOWN_ENTRY_BYTES)
        if found.problem is not None and not found.incomplete:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, found.problem)

    def check(self) -> None:
        """Raise the broker's error, if there is one."""
        if self.error is not ErrorCode.NONE:
            request, found = self.request, None
            if self.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                found = self.find_log_range()
            log = "" if found is None else f": the log starts at {found[0]} and ends at {found[1]}"
            raise BrokerError(
                self.error, f"fetching {request.topic}-{request.partition} from {request.offset}{log}"
            )


class MultiFetchResponse(Sequence[FetchedMessages]):
    """The messages of each fetch, in the order of the requests (``MultiFetchResponse``; in text 004 and the
    release ``FetchResponse``, whose accessors by topic and partition it has).

    An error concerns only its partition. The accessors return the first fetch of a partition, and raise
    KeyError for a partition that was not requested.
    """

    def __init__(self, fetched: Iterable[FetchedMessages]) -> None:
        self._fetched = tuple(fetched)

    def __len__(self) -> int:
        return len(self._fetched)

    @overload
    def __getitem__(self, index: int) -> FetchedMessages: ...

    @overload
    def __getitem__(self, index: slice) -> MultiFetchResponse: ...

    def __getitem__(self, index: int | slice) -> FetchedMessages | MultiFetchResponse:
        if isinstance(index, slice):
            return MultiFetchResponse(self._fetched[index])
        return self._fetched[index]

    @property
    def has_error(self) -> bool:
        """True if any fetch has failed."""
        return any(messages.error is not ErrorCode.NONE for messages in self._fetched)

    def message_set(self, topic: str, partition: int) -> FetchedMessages:
        """Return the messages of a partition."""
        for messages in self._fetched:
            if (messages.request.topic, messages.request.partition) == (topic, partition):
                return messages
        raise KeyError(f"{topic}-{partition} was not requested")

    def error_code(self, topic: str, partition: int) -> ErrorCode:
        """Return the error of a partition."""
        return self.message_set(topic, partition).error

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the high watermark of a partition; -1 if the broker returned none."""
        return self.message_set(topic, partition).high_watermark


class MessageIterator:
    """The messages of one partition from ``request.offset`` to the end of its log (the iterator of a read, in
    the texts' "Reads").

    A read requests ``max_size`` bytes. If not even the first message of the response is whole, the size is
    doubled until it is, up to ``max_buffer_size``: at once if the message's header has its size. The next
    read has the usual size again. Only the classic protocol and Fetch 0 to 2 cut the first message off: from
    Fetch 3 on brokers send it whole. Unreadable data is requested once more.

    A second iteration continues at ``next_offset``, after the last message returned. Raises BrokerError: the
    broker's error, CORRUPT_MESSAGE for damage, and MESSAGE_TOO_LARGE for a message that does not fit
    ``max_buffer_size`` bytes.
    """

    def __init__(
        self, fetch: Callable[[FetchRequest], FetchedMessages], request: FetchRequest, max_buffer_size: int
    ) -> None:
        if not 0 < request.max_size <= max_buffer_size:
            raise ValueError(
                f"expected max_size from 1 to max_buffer_size={max_buffer_size}, got {request.max_size}"
            )
        self.next_offset = request.offset
        self.buffer_size = request.max_size
        """The size of the last read."""
        self._fetch = fetch
        self._request = request
        settings = FetchSettings(request.max_size, request.max_size, max_buffer_size)
        self._state = PartitionFetchState(
            TopicPartition(request.topic, request.partition), settings, request.offset
        )

    def __iter__(self) -> Iterator[StoredRecord]:
        while (found := self._read()) is not None:
            fetched, completed = found
            for message in fetched:
                self.next_offset = message.offset + 1
                yield message
            # Transaction markers and compacted records have offsets and no message.
            self.next_offset = completed.next_offset

    def _read(self) -> tuple[FetchedMessages, CompletedFetch] | None:
        """Return the next whole messages; None at the end of the log."""
        self._state.seek(self.next_offset)
        while True:
            self.buffer_size = self._state.fetch_bytes
            fetched = self._fetch(replace(self._request, offset=self.next_offset, max_size=self.buffer_size))
            fetched.check()
            completed = self._state.complete(fetched.response, 0, had_room=True)
            if completed.status is FetchStatus.EMPTY:
                return None
            if completed.status is FetchStatus.RECORDS:
                return fetched, completed
            if completed.status is FetchStatus.TOO_LARGE:
                assert completed.error is not None
                hint = f"{completed.error.detail}: set a larger max_buffer_size"
                raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, hint)
            if completed.error is not None:
                raise completed.error
