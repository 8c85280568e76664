"""What several fetches brought."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from minikafka.base.errors import ErrorCode
from minikafka.clients.simple_consumer.fetch_response import FetchedMessages


class MultiFetchResponse(Sequence[FetchedMessages]):
    """The messages of each fetch, in the order in which they were asked for (``MultiFetchResponse``; in text
    004 and the release ``FetchResponse``, whose accessors by topic and partition it has).

    An error is that of its partition alone. The accessors take the first fetch of a partition, and raise
    KeyError for one that was not asked for.
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
        """Whether a broker has refused any of them."""
        return any(one.error is not ErrorCode.NONE for one in self._fetched)

    def message_set(self, topic: str, partition: int) -> FetchedMessages:
        """What came of a partition."""
        for one in self._fetched:
            if (one.request.topic, one.request.partition) == (topic, partition):
                return one
        raise KeyError(f"{topic}-{partition} was not asked for")

    def error_code(self, topic: str, partition: int) -> ErrorCode:
        """What the broker says of a partition."""
        return self.message_set(topic, partition).error

    def high_watermark(self, topic: str, partition: int) -> int:
        """Up to where consumers see a partition; -1 where that was not told."""
        return self.message_set(topic, partition).high_watermark
