"""The streams of a consumer, and the iterator that an application reads.

A message counts as consumed when the next one is requested: until then the application may be processing it,
and no commit passes it. (The release counts it at delivery.) The lock of its queue guards the iterator's
state:

- ``_page`` has the messages of the chunk in use that are left; clearing the chunk replaces it with an empty
  iterator.
- ``_processing`` is the delivered message after which no other was requested; ``_info`` is its partition, and
  that of the chunk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, Protocol

from minikafka.base.errors import ConsumerTimeout, CorruptMessage, MinikafkaError
from minikafka.clients.consumer.chunks import (
    ChunkQueue,
    ChunkReader,
    Command,
    FetchedDataChunk,
    Page,
    PartitionPosition,
)
from minikafka.clients.consumer.message_and_metadata import K, MessageAndMetadata, V
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.serializer import Decoder

_LEASE_POLL_SECONDS = 0.02

logger = logging.getLogger("minikafka.clients.consumer")


class LeaseState(Protocol):
    """The validity of a consumer's ownership: a ``Lease``."""

    @property
    def is_valid(self) -> bool:
        """True if the partitions certainly still belong to this consumer; otherwise nothing is delivered."""


class _AlwaysValid:
    is_valid = True


ALWAYS_VALID = _AlwaysValid()
"""The lease of a stream without a group."""


class ConsumerIterator(Generic[K, V]):
    """Iterates over the messages of one stream (``ConsumerIterator`` of text 004). For one thread.

    ``next`` waits for a message. It raises ConsumerTimeout if none comes for ``consumer_timeout_ms`` (-1: it
    waits forever), and continues at the next call. The shutdown command in the queue ends the iteration. An
    error chunk is raised, and again at each call; a CorruptMessage can be skipped with ``skip_corrupt``.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        consumer_timeout_ms: int,
        key_decoder: Decoder[K],
        value_decoder: Decoder[V],
        client_id: str,
        lease: LeaseState = ALWAYS_VALID,
    ) -> None:
        self.client_id = client_id
        self._queue = queue
        self._lock = queue.lock
        self._timeout_ms = consumer_timeout_ms
        self._decoders = key_decoder, value_decoder
        self._lease = lease
        self._stats = ConsumerTopicStatsRegistry.get(client_id)
        self._page: Iterator[MessageAndMetadata[K, V]] = iter(())
        self._page_in_use: Page[K, V] | None = None
        """The page in use, for the count of messages taken."""
        self._reader: ChunkReader[K, V] | None = None
        self._info: PartitionPosition
        self._processing: MessageAndMetadata[K, V] | None = None
        self._error: MinikafkaError | None = None
        self._raised_error: MinikafkaError | None = None
        """The error that the last request raised; it may have been cleared since."""

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self

    def __next__(self) -> MessageAndMetadata[K, V]:
        with self._lock:
            if self._lease.is_valid:
                for message in self._page:
                    # The request for the next message shows that the previous one is processed.
                    self._info.consumed_offset = message.offset
                    self._processing = message
                    return message
            return self._make_next()

    def clear_current_chunk(self) -> None:
        """Drop messages that were fetched and not delivered, here and in the queue (``clearCurrentChunk``).

        After this returns none of them is delivered any more, even if another thread is in ``next``.
        """
        with self._lock:
            self._queue.clear_locked()
            self._drop_chunk()

    @property
    def processing_partition(self) -> PartitionPosition | None:
        """The partition of the message that the application is processing, or None."""
        with self._lock:
            return None if self._processing is None else self._info

    def forget_processing(self, kept: Collection[PartitionPosition] = ()) -> None:
        """Do not count the message in process as consumed, unless its partition is in ``kept``: the next
        owner delivers it again. Call this after ``clear_current_chunk``.
        """
        with self._lock:
            if self._processing is not None and self._info not in kept:
                self._processing = None

    def next_fetch_offset(self, info: PartitionPosition) -> int:
        """Return the next offset to fetch of a kept partition: the offset after all delivered messages."""
        with self._lock:
            held = self._processing if self._processing is not None and self._info is info else None
            return info.consumed_offset if held is None else held.offset + 1

    def mark_delivered_consumed(self) -> None:
        """Count all delivered messages as consumed, at a shutdown or an explicit commit. A message in process
        that could not be decoded does not count: it counts once the next one is requested.
        """
        with self._lock:
            if self._processing is None or not self._processing.undecodable:
                self._mark_processing_consumed()

    def skip_corrupt(self) -> int:
        """Skip the damaged message that was raised. Return the offset at which the stream continues.

        Does nothing if a rebalance has cleared the message meanwhile: then the partition's next owner raises
        the error again. Raises ValueError if no CorruptMessage was raised.
        """
        with self._lock:
            problem = self._raised_error
            if not isinstance(problem, CorruptMessage):
                raise ValueError("no damaged message to skip: none was raised")
            self._raised_error = None
            if self._error is not problem:
                return problem.after_offset
            if self._reader is not None:
                self._reader.skip(problem)
            self._info.consumed_offset = problem.after_offset
            self._error = None
            self._stats.record_skipped(problem.topic)
            logger.warning("skipped a damaged message: %s", problem)
            return problem.after_offset

    # --- with the lock held

    def _make_next(self) -> MessageAndMetadata[K, V]:
        """Return the next message when the page in use has none (``makeNext``)."""
        self._mark_processing_consumed()
        self._raised_error = None
        end = None if self._timeout_ms < 0 else time.monotonic() + self._timeout_ms / 1000
        while True:
            # A closed queue holds only the error that closed it, which needs no lease.
            if not (self._lease.is_valid or self._queue.is_closed):
                self._wait_for_lease(end)
                continue
            for message in self._page:
                self._info.consumed_offset = message.offset
                self._processing = message
                return message
            if self._error is not None:
                self._raised_error = self._error
                raise self._error.with_traceback(None)
            if self._load_page():
                continue
            chunk = self._queue.take_locked(end)
            if chunk is None:
                raise ConsumerTimeout(f"no message within {self._timeout_ms} ms (consumer.timeout.ms)")
            if isinstance(chunk, Command):
                raise StopIteration
            self._start_chunk(chunk)

    def _wait_for_lease(self, end: float | None) -> None:
        """Wait a short time for the lease. The caller loops, because a cleared chunk also ends this wait."""
        now = time.monotonic()
        if end is not None and now >= end:
            raise ConsumerTimeout(
                f"no message within {self._timeout_ms} ms (consumer.timeout.ms): ZooKeeper does not respond, "
                "other consumers may own the partitions"
            )
        self._queue.wait_locked(
            now + _LEASE_POLL_SECONDS if end is None else min(end, now + _LEASE_POLL_SECONDS)
        )

    def _load_page(self) -> bool:
        """Load the next page of the chunk in use; return False at its end. Sets ``_error`` at damage."""
        self._record_page()
        if self._reader is None:
            return False
        try:
            page = self._reader.next_page()
        except CorruptMessage as problem:
            self._error = problem
            return True
        if page is None:
            self._info.consumed_offset = self._reader.chunk.next_offset
            self._reader = None
            return False
        self._page, self._page_in_use = page.messages, page
        return True

    def _start_chunk(self, chunk: FetchedDataChunk) -> None:
        info = self._info = chunk.info
        if chunk.messages and 0 <= info.consumed_offset < chunk.fetch_offset:
            logger.error(
                "%s: consumed up to offset %d, but fetched messages begin at %d: messages may be lost",
                info.topic_partition,
                info.consumed_offset,
                chunk.fetch_offset,
            )
        info.consumed_offset = chunk.fetch_offset
        self._error = chunk.error
        self._reader = ChunkReader(chunk, *self._decoders) if chunk.messages else None

    def _drop_chunk(self) -> None:
        self._record_page()
        self._page = iter(())
        self._reader = self._error = None

    def _mark_processing_consumed(self) -> None:
        message, self._processing = self._processing, None
        if message is not None:
            self._info.consumed_offset = message.offset + 1

    def _record_page(self) -> None:
        page, self._page_in_use = self._page_in_use, None
        if page is not None:
            self._stats.record_messages(self._info.topic_partition.topic, page.taken_count)


class KafkaStream(Generic[K, V]):
    """A stream of messages (``KafkaStream`` of text 004): ``for message in stream``, or ``next(stream)``. One
    thread reads it.

    A stream is read once: if a loop ends early, the next loop continues after it. ``next`` waits for a
    message. It raises ConsumerTimeout if none comes for ``consumer.timeout.ms``, and continues at the next
    call. An error of a partition is raised at each call; a CorruptMessage can be skipped with
    ``skip_corrupt``.
    """

    def __init__(self, iterator: ConsumerIterator[K, V]) -> None:
        self.client_id = iterator.client_id
        self._iterator = iterator

    def iterator(self) -> ConsumerIterator[K, V]:
        """Return the stream's one iterator."""
        return self._iterator

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self._iterator  # not the stream, whose ``__next__`` would be one more call for each message

    def __next__(self) -> MessageAndMetadata[K, V]:
        return next(self._iterator)

    def skip_corrupt(self) -> int:
        """Skip the damaged message that was raised. Return the offset at which the stream continues. Raises
        ValueError if no CorruptMessage was raised.
        """
        return self._iterator.skip_corrupt()

    def clear(self) -> None:
        """Drop messages that were fetched and not delivered, for a rebalance (``clear``)."""
        self._iterator.clear_current_chunk()

    def __repr__(self) -> str:
        return f"<stream of {self.client_id}>"


class WildcardStreamsHandler:
    """Tracks the topics that a filter allows: a TopicEventHandler (``WildcardStreamsHandler`` of text 004).

    ``topics_changed`` is called with the allowed topics whenever they change. Called on the store's own
    thread.
    """

    def __init__(
        self,
        topic_filter: TopicFilter,
        exclude_internal_topics: bool,
        topics: Iterable[str],
        topics_changed: Callable[[list[str]], None],
    ) -> None:
        self._filter = topic_filter
        self._exclude_internal_topics = exclude_internal_topics
        self._changed = topics_changed
        self.wildcard_topics = self._allowed(topics)
        """The topics that are read now."""

    def handle_topic_event(self, all_topics: Iterable[str]) -> None:
        """Handle the list of all topics of the cluster."""
        topics = self._allowed(all_topics)
        added = [topic for topic in topics if topic not in self.wildcard_topics]
        deleted = [topic for topic in self.wildcard_topics if topic not in topics]
        self.wildcard_topics = topics
        if added or deleted:
            logger.info("filter %s: new topics %s, deleted ones %s", self._filter, added, deleted)
            self._changed(topics)

    def _allowed(self, topics: Iterable[str]) -> list[str]:
        return sorted(
            topic for topic in topics if self._filter.is_topic_allowed(topic, self._exclude_internal_topics)
        )
