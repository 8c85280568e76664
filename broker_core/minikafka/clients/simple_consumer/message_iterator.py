"""Reading on through a partition, with a buffer that grows for a message that does not fit.

A read asks for ``max_size`` bytes. An answer in which not even the first message is whole is asked for again
with twice the size, up to ``max_buffer_size``; the read behind it has the usual size again. Only the classic
protocol and Fetch 0 to 2 cut the first message off: from Fetch 3 on brokers send it whole, whatever was asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.simple_consumer.fetch_response import FetchedMessages
from minikafka.clients.simple_consumer.requests import FetchRequest
from minikafka.records.format.message_set import StoredRecord


class MessageIterator:
    """The messages of one partition from ``request.offset`` to where its log ends (the iterator that a read
    gives, in the texts' "Reads").

    Iterating again goes on at ``next_offset``, behind the message that was given out last. Raises
    BrokerError: the broker's, CORRUPT_MESSAGE for damage, and MESSAGE_TOO_LARGE for a message that does not
    fit ``max_buffer_size`` bytes.
    """

    def __init__(
        self,
        fetch: Callable[[FetchRequest], FetchedMessages],
        request: FetchRequest,
        max_buffer_size: int,
    ) -> None:
        if not 0 < request.max_size <= max_buffer_size:
            raise ValueError(f"a read of {request.max_size} bytes is not from 1 to {max_buffer_size}")
        self.next_offset = request.offset
        self.buffer_size = request.max_size
        """What the last read has asked for."""
        self._fetch = fetch
        self._request = request
        self._max_buffer_size = max_buffer_size

    def __iter__(self) -> Iterator[StoredRecord]:
        while (found := self._read()).size_bytes:
            for message in found:
                self.next_offset = message.offset + 1
                yield message
            # Marks of transactions, and what compaction has removed, have offsets and no message.
            self.next_offset = found.next_offset

    def _read(self) -> FetchedMessages:
        """What comes next: whole messages, or nothing at all."""
        self.buffer_size = self._request.max_size
        while True:
            request = replace(self._request, offset=self.next_offset, max_size=self.buffer_size)
            found = self._fetch(request)
            found.check()
            if found.valid_bytes or not found.size_bytes:
                return found
            if self.buffer_size >= self._max_buffer_size:
                raise BrokerError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the message of {request.topic}-{request.partition} at {request.offset} does not fit "
                    f"{self._max_buffer_size} bytes: give a larger max_buffer_size",
                )
            self.buffer_size = min(2 * self.buffer_size, self._max_buffer_size)
