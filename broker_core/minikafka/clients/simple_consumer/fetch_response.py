"""What one fetch brought of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.files import Buffer
from minikafka.clients.simple_consumer.requests import FetchRequest
from minikafka.records.format.message_set import StoredRecord
from minikafka.records.scan.scan import scan
from minikafka.records.scan.stream import MessageSet

_NO_INDEX = 1 << 30
_LARGEST_ENTRY = (1 << 31) + 11
"""All that a size can say: brokers that convert down say 2^31 - 1 of a message that does not fit."""
NOT_TOLD = -1
"""The high watermark where the broker tells none."""


class FetchedMessages:
    """What came of one fetch: its messages by iterating, any number of times (``ByteBufferMessageSet``).

    ``error`` is the broker's; iterating raises it as BrokerError, as it does CORRUPT_MESSAGE for damage. A
    message that is cut off at the end, as the size of the fetch may do, is left out. ``high_watermark``: -1
    with an error, and from a CLASSIC listener. With OFFSET_OUT_OF_RANGE no broker says where the log begins
    and ends: the error asks ``ends`` for it, a function that gives None where it cannot tell.
    """

    def __init__(
        self, request: FetchRequest, error: ErrorCode, data: Buffer, high_watermark: int = NOT_TOLD
    ) -> None:
        self.request = request
        self.error = error
        self.high_watermark = high_watermark
        self.ends: Callable[[], tuple[int, int] | None] = lambda: None
        self._data = data
        self._set = MessageSet(data, max_entry_bytes=_LARGEST_ENTRY)

    @property
    def size_bytes(self) -> int:
        """All that came."""
        return self._set.size_bytes

    @property
    def valid_bytes(self) -> int:
        """Without the cut-off last message. None of some: ask again with a larger ``max_size``."""
        return self._set.valid_bytes

    @property
    def next_offset(self) -> int:
        """The offset behind the last whole message: where the next fetch goes on."""
        found = scan(self._data, base_offset=None, index_interval_bytes=_NO_INDEX, check_crc=False)
        return max(self.request.offset, found.next_offset)

    def __iter__(self) -> Iterator[StoredRecord]:
        self.check()
        # A compressed set also has the messages before the one that was asked for.
        return (record for record in self._set if record.offset >= self.request.offset and not record.control)

    def check(self) -> None:
        """Raise the broker's error, if there is one."""
        if self.error is not ErrorCode.NONE:
            asked, found = self.request, None
            if self.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                found = self.ends()
            log = "" if found is None else f": its log begins at {found[0]} and ends at {found[1]}"
            raise BrokerError(
                self.error, f"fetching {asked.topic}-{asked.partition} from {asked.offset}{log}"
            )
