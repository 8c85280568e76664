"""The fetch session of one client: what it fetches from which broker, and what a response means.

Pure: no clock, thread or socket. A driver passes in its positions and the leaders that it knows, sends the
requests of ``next_requests``, and passes in the responses, or the failures of connections. It owns the
positions that count for its user, and decides about resets and leaders:

    range reader         ``clients.fetch.range_fetcher``
    consumer in a group  ``clients.group.fetcher``
    the texts' consumer  ``clients.consumer.fetcher_thread``, a session for each broker
    simple consumer      ``clients.simple_consumer.fetch_response``, which needs only one partition's state

One request is in flight to each broker, for all partitions that it leads. Partitions that returned data move
to the end of the order, because a broker fills its response from the first partition on. A response counts
for a partition only if it was requested at the current position: a seek, a pause or a rebalance invalidates
it, and of the responses of an old and a new leader the first counts.

Every request names all of its partitions (KIP-227: no session of a broker). The session of a broker would be
kept beside the request in flight to it: its id and epoch, and the partitions that it knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import (
    EMPTY_PAUSE_MS,
    NO_POSITION,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PartitionFetchState,
)
from minikafka.wire.apis.fetch import (
    WHOLE_MESSAGE_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    consumer_request,
    partitions_of,
)


@dataclass(frozen=True, slots=True)
class FetchRequestData:
    """A request to one broker, in flight since ``sent_ms``."""

    broker_id: int
    partitions: Mapping[TopicPartition, FetchPartition]
    request: FetchRequest
    sent_ms: int


class FetchSession:
    """The fetch state of all partitions of one client. Not thread-safe."""

    def __init__(self, settings: FetchSettings) -> None:
        self.settings = settings
        self._states: OrderedDict[TopicPartition, PartitionFetchState] = OrderedDict()
        """In the order of the next requests."""
        self._in_flight: dict[int, FetchRequestData] = {}

    def retain(self, partitions: Set[TopicPartition]) -> None:
        """Forget the state of all other partitions."""
        for tp in [tp for tp in self._states if tp not in partitions]:
            del self._states[tp]

    def update(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions from these offsets on, and for the time being no others. The session moves
        its positions behind what it has fetched.
        """
        for tp, offset in positions.items():
            if tp not in self._states:
                self._states[tp] = PartitionFetchState(tp, self.settings, offset)
        for tp, state in self._states.items():
            state.seek(positions.get(tp, NO_POSITION))

    def next_requests(
        self,
        leader: Callable[[TopicPartition], int | None],
        now_ms: int,
        max_wait_ms: int | None = None,
    ) -> Iterator[FetchRequestData]:
        """Yield the requests to send now: one to each ``leader`` that has none in flight. Each is in flight
        from then on, until ``handle_response`` or ``handle_disconnect``.
        """
        wanted: dict[int, dict[TopicPartition, FetchPartition]] = {}
        for tp, state in self._states.items():
            if state.offset < 0 or state.not_before_ms > now_ms:
                continue
            broker_id = leader(tp)
            if broker_id is not None and broker_id not in self._in_flight:
                wanted.setdefault(broker_id, {})[tp] = state.request()
        for broker_id, partitions in wanted.items():
            request = self._request(partitions, max_wait_ms)
            data = self._in_flight[broker_id] = FetchRequestData(broker_id, partitions, request, now_ms)
            yield data

    def next_ready_ms(self, now_ms: int) -> int | None:
        """Return the time at which the next partition's back-off ends; None if no partition has one."""
        later = [state.not_before_ms for state in self._states.values() if state.offset >= 0]
        return min((time_ms for time_ms in later if time_ms > now_ms), default=None)

    def back_off(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Fetch these partitions after a pause, as there is no leader to ask."""
        for tp in partitions:
            if tp in self._states:
                self._states[tp].back_off(now_ms)

    def handle_disconnect(self, broker_id: int, now_ms: int) -> Collection[TopicPartition]:
        """Return the partitions of the request in flight to a broker: it could not be sent, or gets no
        response. They are fetched after a back-off, perhaps from another leader. Without a request in
        flight, do nothing.
        """
        lost = self._in_flight.pop(broker_id, None)
        if lost is None:
            return ()
        self.back_off(lost.partitions.keys(), now_ms)
        return lost.partitions.keys()

    def handle_response(
        self, broker_id: int, response: FetchResponse, version: int, now_ms: int
    ) -> list[CompletedFetch]:
        """Return the results of the request in flight to a broker. ``version`` is that of the response."""
        data = self._in_flight.pop(broker_id, None)
        if data is None:
            return []
        found: list[CompletedFetch] = []
        parts = dict(partitions_of(response))
        cut_all, code = version < WHOLE_MESSAGE_SINCE, ErrorCode.of(response.error_code)
        first = next(iter(data.partitions), None)
        for tp, asked in data.partitions.items():
            state = self._states.get(tp)
            if state is None or state.offset != asked.fetch_offset:
                continue
            part = parts.get(tp)
            if code is not ErrorCode.NONE:
                found.append(state.fail(code, now_ms))
            elif part is None:
                found.append(state.throttle(now_ms, response.throttle_time_ms))
            else:
                found.append(state.complete(part, now_ms, had_room=cut_all or tp == first))
        self._reorder(found)
        if found and all(completed.status is FetchStatus.EMPTY for completed in found):
            self._pause(data, found, now_ms)
        return found

    def _reorder(self, found: list[CompletedFetch]) -> None:
        for completed in found:
            if completed.status is FetchStatus.RECORDS:
                self._states.move_to_end(completed.topic_partition)
            elif completed.status is FetchStatus.RETRY:
                self._states.move_to_end(completed.topic_partition, last=False)

    def _pause(self, data: FetchRequestData, found: list[CompletedFetch], now_ms: int) -> None:
        """Avoid a busy loop with a broker that returns an empty response at once."""
        if now_ms - data.sent_ms < data.request.max_wait_ms // 2:
            for completed in found:
                self._states[completed.topic_partition].not_before_ms = now_ms + EMPTY_PAUSE_MS

    def _request(
        self, partitions: Mapping[TopicPartition, FetchPartition], max_wait_ms: int | None
    ) -> FetchRequest:
        settings = self.settings
        usual, largest = settings.partition_max_bytes, max(p.partition_max_bytes for p in partitions.values())
        return consumer_request(
            partitions,
            max_bytes=max(settings.max_bytes, largest if largest > usual else 0),
            min_bytes=settings.min_bytes,
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            isolation_level=settings.isolation,
        )
