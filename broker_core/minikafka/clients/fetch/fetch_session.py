"""The fetch session of one client: what it fetches from which broker, and what a response means.

Pure: no clock, thread or socket. A driver passes in its positions and the leaders that it knows, sends the
requests of ``next_requests``, and passes in the responses, or the failures of connections. It owns the
positions that count for its user, and decides about resets and leaders:

    range reader         ``clients.fetch.range_fetcher``
    several ranges       ``clients.fetch.shared_fetch``, which begins them
    consumer in a group  ``clients.group.fetcher``
    the texts' consumer  ``clients.consumer.fetcher_thread``, a session for each broker
    simple consumer      ``clients.simple_consumer.fetch_response``, which needs only one partition's state

One request is in flight to each broker, for all partitions that it leads. Partitions that returned data move
to the end of the order, because a broker fills its response from the first partition on. A response counts
for a partition only if it was requested at the current position: a seek, a pause or a rebalance invalidates
it, and of the responses of an old and a new leader the first counts.

After a change of leaders the first request to the new one is an OffsetForLeaderEpoch, which validates the
positions that have an epoch (``fetch_state``). The next request fetches, also the other partitions.

With ``FetchSettings.in_session`` the brokers that can keep the partitions of the last request (KIP-227): a
request names those that have changed, and a response those with changes. A partition that has to be the first
of a request begins a new session.

Topics are fetched by their ids if all of them have one, by names otherwise. A topic that is made again gets
UNKNOWN_TOPIC_ID until the leaders are looked up again, then a new session by its new id, at the position that
it had.

A partition is fetched from its leader, or from the follower that the leader has named (KIP-392), until a
fetch fails there.

The rows of the next requests are kept until a position, a leader or a time changes them: a consumer of
thousands of partitions polls ten times a second, mostly without a change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.clock import NEVER_MS
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import (
    EMPTY_PAUSE_MS,
    NO_EPOCHS,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PartitionFetchState,
    PositionEpochs,
)
from minikafka.clients.network.metadata import LeaderAndEpoch
from minikafka.wire.api import Api, partitions_of
from minikafka.wire.apis.current_leader import NodeEndpoint
from minikafka.wire.apis.fetch import (
    FETCH,
    NAMES_UNTIL,
    NO_IDS,
    WHOLE_MESSAGE_SINCE,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    consumer_request,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    FOR_CONSUMERS_SINCE,
    OFFSET_FOR_LEADER_EPOCH,
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    epochs_request,
)
from minikafka.wire.fetch_session_handler import FetchSessionHandler
from minikafka.wire.fields import ZERO_UUID


@dataclass(frozen=True, slots=True)
class FetchRequestData:
    """A request to one broker, in flight since ``sent_ms``: a Fetch, or an OffsetForLeaderEpoch, which
    validates the positions of ``partitions``.
    """

    broker_id: int
    partitions: Mapping[TopicPartition, FetchPartition]
    request: FetchRequest | OffsetForLeaderEpochRequest
    sent_ms: int
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id -> topic, for a Fetch by ids."""

    @property
    def api(self) -> Api[Any, Any]:
        """The API of the request."""
        return FETCH if isinstance(self.request, FetchRequest) else OFFSET_FOR_LEADER_EPOCH

    @property
    def newest_version(self) -> int | None:
        """The newest version that can carry the request; None: any."""
        return NAMES_UNTIL if self.api is FETCH and not self.topic_names else None

    @property
    def max_wait_ms(self) -> int:
        """The longest time for which the broker waits for data."""
        return self.request.max_wait_ms if isinstance(self.request, FetchRequest) else 0


SESSION_ERRORS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
"""Errors of a whole response, after which a new session of the broker is begun."""


class _Source:
    """A broker that is read from: the session that it keeps, and a pause."""

    __slots__ = ("not_before_ms", "session")

    def __init__(self) -> None:
        self.session = FetchSessionHandler()
        self.not_before_ms = 0


class _TopicIds:
    """The ids of topics, as far as they were looked up since leaders have changed: only more are added.

    A topic without id keeps all from being fetched by ids: brokers before 2.8 have none.
    """

    __slots__ = ("_ids", "_names")

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def add(self, topic: str, topic_id: bytes) -> None:
        """Add the id of a topic, zero if it has none."""
        if topic not in self._ids:
            self._ids[topic] = topic_id
            self._names[topic_id] = topic

    @property
    def by_topic(self) -> Mapping[str, bytes]:
        """Topic -> its id; empty if a topic has none."""
        return NO_IDS if ZERO_UUID in self._names else self._ids

    @property
    def names(self) -> Mapping[bytes, str]:
        """Topic id -> its topic; empty if a topic has none."""
        return {} if ZERO_UUID in self._names else self._names


def _no_topic_id(topic_partition: TopicPartition) -> bytes:
    return ZERO_UUID


class _Plan:
    """The rows of the next requests to each broker: fetches, and validations, which are sent first.

    next_ready_ms   the time at which the first back-off ends
    until_ms        the time until which partitions are read from followers
    without_leader  the topics of partitions without a leader
    """

    __slots__ = ("fetches", "next_ready_ms", "until_ms", "validations", "without_leader")

    def __init__(self) -> None:
        self.fetches: dict[int, dict[TopicPartition, FetchPartition]] = {}
        self.validations: dict[int, dict[TopicPartition, FetchPartition]] = {}
        self.without_leader: set[str] = set()
        self.next_ready_ms = self.until_ms = NEVER_MS

    def add(self, state: PartitionFetchState, leader: LeaderAndEpoch | None, now_ms: int) -> None:
        """Add the row of a wanted partition, unless it waits for the end of a back-off or for a leader."""
        tp = state.topic_partition
        if leader is None:
            self.without_leader.add(tp.topic)
        if state.not_before_ms > now_ms:
            self.next_ready_ms = min(self.next_ready_ms, state.not_before_ms)
        elif leader is None:
            return
        elif state.needs_validation(leader.epoch):
            self.validations.setdefault(leader.broker_id, {})[tp] = state.request(leader.epoch)
        else:
            broker_id = state.source(leader.broker_id, now_ms)
            self.fetches.setdefault(broker_id, {})[tp] = state.request(leader.epoch)
            self.until_ms = min(self.until_ms, state.follower_until_ms or NEVER_MS)


class FetchSession:
    """The fetch state of all partitions of one client. Not thread-safe."""

    def __init__(
        self, settings: FetchSettings, topic_id: Callable[[TopicPartition], bytes] = _no_topic_id
    ) -> None:
        """``topic_id`` returns the id of a partition's topic, zero if it has none; it is called with a
        partition whose leader is looked up.
        """
        self.settings = settings
        self._topic_id = topic_id
        self._topic_ids = _TopicIds()
        self._states: OrderedDict[TopicPartition, PartitionFetchState] = OrderedDict()
        """In the order of the next requests."""
        self._in_flight: dict[int, FetchRequestData] = {}
        self._sources: dict[int, _Source] = {}
        self._positions: Mapping[TopicPartition, int] | None = None
        """Those of the last ``update``, until a response changes one."""
        self._leaders: dict[TopicPartition, LeaderAndEpoch | None] = {}
        self._leaders_version: object = None
        self._plan: _Plan | None = None
        self.without_leader: Set[str] = frozenset()
        """The topics of wanted partitions without a leader, at the last ``next_requests``."""

    def retain(self, partitions: Set[TopicPartition]) -> None:
        """Forget the state of all other partitions."""
        for tp in [tp for tp in self._states if tp not in partitions]:
            del self._states[tp]
            self._leaders.pop(tp, None)  # for a new state, which needs the topic's id
            self._positions = self._plan = None

    def remove(self, topic_partition: TopicPartition) -> PartitionFetchState:
        """Forget a partition; return its state, for another session to ``adopt``."""
        self._leaders.pop(topic_partition, None)
        self._positions = self._plan = None
        return self._states.pop(topic_partition)

    def adopt(self, state: PartitionFetchState) -> None:
        """Fetch a partition on from the position of its state, such as that of another session."""
        self._states[state.topic_partition] = state
        self._positions = self._plan = None

    def update(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Callable[[TopicPartition], PositionEpochs] = lambda _: NO_EPOCHS,
    ) -> None:
        """Fetch these partitions from these offsets on, and for the time being no others. The session moves
        its positions behind what it has fetched. ``positions`` must not be changed afterwards. ``epochs``: of
        positions that are new to this session.
        """
        if positions is self._positions or positions == self._positions:
            return
        for tp, offset in positions.items():
            state = self._states.get(tp)
            if state is None:
                self._states[tp] = PartitionFetchState(tp, self.settings, offset, epochs(tp))
            else:
                state.seek(offset)
        for tp, state in self._states.items():
            state.paused = tp not in positions
        self._positions, self._plan = positions, None

    def next_requests(
        self,
        leader: Callable[[TopicPartition], LeaderAndEpoch | None],
        leaders_version: object,
        now_ms: int,
        max_wait_ms: int | None = None,
    ) -> Iterator[FetchRequestData]:
        """Yield the requests to send now: one to each ``leader`` that has none in flight. Each is in flight
        from then on, until ``handle_response`` or ``handle_disconnect``. While ``leaders_version`` stays
        equal, a leader is asked for only once.
        """
        plan = self._next_plan(leader, leaders_version, now_ms)
        for broker_id, partitions in (plan.fetches | plan.validations).items():
            source = self._sources.get(broker_id)
            if broker_id in self._in_flight or (source is not None and source.not_before_ms > now_ms):
                continue
            request: FetchRequest | OffsetForLeaderEpochRequest
            if broker_id in plan.validations:
                request = self._validation(partitions)
            else:
                request = self._request(broker_id, partitions, max_wait_ms)
            names = self._topic_ids.names
            data = FetchRequestData(broker_id, partitions, request, now_ms, names)
            self._in_flight[broker_id] = data
            yield data

    def _next_plan(
        self, leader: Callable[[TopicPartition], LeaderAndEpoch | None], leaders_version: object, now_ms: int
    ) -> _Plan:
        if leaders_version != self._leaders_version:
            self._leaders, self._leaders_version, self._plan = {}, leaders_version, None
            self._topic_ids = _TopicIds()
        plan = self._plan
        if plan is not None and now_ms < min(plan.until_ms, plan.next_ready_ms):
            return plan
        plan, leaders = _Plan(), self._leaders
        for tp, state in self._states.items():
            if state.paused or state.offset < 0:
                continue
            if tp not in leaders:
                leaders[tp] = leader(tp)
                if leaders[tp] is not None:
                    topic_id = self._topic_id(tp)
                    self._topic_ids.add(tp.topic, topic_id)
                    state.use_topic(topic_id)
            plan.add(state, leaders[tp], now_ms)
        self._plan, self.without_leader = plan, plan.without_leader
        return plan

    def next_ready_ms(self, now_ms: int) -> int | None:
        """Return the time at which the next partition's back-off ends; None if no partition has one."""
        later = [source.not_before_ms for source in self._sources.values()]
        if self._plan is not None and now_ms < self._plan.next_ready_ms:
            later.append(self._plan.next_ready_ms)
        else:
            states = self._states.values()
            later += [state.not_before_ms for state in states if state.offset >= 0 and not state.paused]
        return min((time_ms for time_ms in later if now_ms < time_ms < NEVER_MS), default=None)

    def back_off(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Fetch these partitions after a pause, as there is no leader to ask."""
        for tp in partitions:
            if tp in self._states:
                self._states[tp].back_off(now_ms)
        self._plan = None

    def follow_new_leaders(
        self,
        broker_id: int,
        found: list[CompletedFetch],
        response: object,
        update_leaders: Callable[
            [Mapping[TopicPartition, LeaderAndEpoch], Iterable[NodeEndpoint]], frozenset[TopicPartition]
        ],
    ) -> list[CompletedFetch]:
        """Pass the leaders that the response of a broker names to ``update_leaders``, which returns the
        partitions whose leader is one of them now. These are fetched without a back-off; return the results
        of the others.

        A broker that names itself again is not yet, or no longer, the leader: that says nothing new.
        """
        if not isinstance(response, FetchResponse) or not response.node_endpoints:
            return found
        leaders = {
            completed.topic_partition: leader
            for completed in found
            if (leader := completed.new_leader) is not None
            and (leader.broker_id != broker_id or leader != self._leaders.get(completed.topic_partition))
        }
        if not leaders:
            return found
        moved = update_leaders(leaders, response.node_endpoints)
        for tp in moved:
            self._states[tp].not_before_ms = 0
        self._plan = None
        return [completed for completed in found if completed.topic_partition not in moved]

    def handle_disconnect(self, broker_id: int, now_ms: int) -> Collection[TopicPartition]:
        """Return the partitions of the request in flight to a broker: it could not be sent, or gets no
        response. They are fetched after a back-off, perhaps from another leader. Without a request in
        flight, do nothing.
        """
        lost = self._in_flight.pop(broker_id, None)
        if lost is None:
            return ()
        if broker_id in self._sources:
            self._sources[broker_id].session.begin_anew()
        for tp in lost.partitions:
            if tp in self._states:
                self._states[tp].leave_follower()
        self.back_off(lost.partitions.keys(), now_ms)
        return lost.partitions.keys()

    def skip_validation(self, broker_id: int, error: BaseException) -> bool:
        """Return True if ``error`` says that a broker does not have the API that validates positions: the
        next request fetches.
        """
        data = self._in_flight.get(broker_id)
        if (
            data is None
            or data.api is FETCH
            or not isinstance(error, BrokerError)
            or error.code is not ErrorCode.UNSUPPORTED_VERSION
        ):
            return False
        del self._in_flight[broker_id]
        for state, asked in self._asked(data):
            state.confirm(asked.current_leader_epoch)
        self._plan = None
        return True

    def handle_response(
        self,
        broker_id: int,
        response: FetchResponse | OffsetForLeaderEpochResponse,
        version: int,
        now_ms: int,
    ) -> list[CompletedFetch]:
        """Return the results of the request in flight to a broker; none for a valid position. ``version`` is
        that of the response.
        """
        data = self._in_flight.pop(broker_id, None)
        if data is None:
            return []
        if isinstance(response, OffsetForLeaderEpochResponse):
            return self._handle_validation(data, response, version, now_ms)
        source, parts = self._sources.get(broker_id), _parts_of(response, version, data.topic_names)
        is_incremental = False
        if source is not None:
            is_incremental = isinstance(data.request, FetchRequest) and data.request.session_epoch > 0
            if not source.session.answered(response) and response.error_code in SESSION_ERRORS:
                source.not_before_ms = now_ms + EMPTY_PAUSE_MS
                return []
        if is_incremental and response.error_code == ErrorCode.NONE:
            found = self._handle_changes(data, parts, now_ms)
        else:
            found = self._handle_all(data, response, parts, version, now_ms)
        if any(completed.status is not FetchStatus.EMPTY for completed in found):
            self._positions = self._plan = None
        self._reorder(found)
        if source is not None and any(completed.status is FetchStatus.RETRY for completed in found):
            source.session.begin_anew()
        if all(completed.status is FetchStatus.EMPTY for completed in found):
            # Avoid a busy loop with a broker that returns an empty response at once.
            pause_ms = EMPTY_PAUSE_MS if now_ms - data.sent_ms < data.max_wait_ms // 2 else 0
            if is_incremental and source is not None:
                source.not_before_ms = now_ms + max(response.throttle_time_ms, pause_ms)
            elif pause_ms:
                for completed in found:
                    self._states[completed.topic_partition].not_before_ms = now_ms + pause_ms
                self._plan = None
        return found

    def _handle_all(
        self,
        data: FetchRequestData,
        response: FetchResponse,
        parts: Mapping[TopicPartition, FetchPartitionResponse],
        version: int,
        now_ms: int,
    ) -> list[CompletedFetch]:
        """Return the results of a request that named all of its partitions."""
        found: list[CompletedFetch] = []
        cut_all, code = version < WHOLE_MESSAGE_SINCE, ErrorCode.of(response.error_code)
        first = next(iter(data.partitions), None)
        for state, asked in self._asked(data):
            tp = state.topic_partition
            part = parts.get(tp)
            if code is not ErrorCode.NONE:
                found.append(state.fail(code, now_ms))
            elif part is None:
                found.append(state.throttle(now_ms, response.throttle_time_ms))
            else:
                had_room, epoch = cut_all or tp == first, asked.current_leader_epoch
                found.append(state.complete(part, now_ms, had_room=had_room, leader_epoch=epoch))
        return found

    def _handle_changes(
        self, data: FetchRequestData, parts: Mapping[TopicPartition, FetchPartitionResponse], now_ms: int
    ) -> list[CompletedFetch]:
        """Return the results of a request that named only changes: the others have not changed."""
        found = []
        for state, asked in self._asked(data, parts):
            part, epoch = parts[state.topic_partition], asked.current_leader_epoch
            found.append(state.complete(part, now_ms, had_room=False, leader_epoch=epoch))
        return found

    def _asked(
        self, data: FetchRequestData, among: Iterable[TopicPartition] | None = None
    ) -> Iterator[tuple[PartitionFetchState, FetchPartition]]:
        """Yield the states of the partitions for which the response to a request counts: of all, or of those
        ``among``.
        """
        for tp in data.partitions if among is None else among:
            state, asked = self._states.get(tp), data.partitions.get(tp)
            if state is not None and asked is not None and state.is_at(asked.fetch_offset):
                yield state, asked

    def _handle_validation(
        self, data: FetchRequestData, response: OffsetForLeaderEpochResponse, version: int, now_ms: int
    ) -> list[CompletedFetch]:
        found: list[CompletedFetch] = []
        parts = dict(partitions_of(response.topics))
        self._positions = self._plan = None
        for state, asked in self._asked(data):
            part, epoch = parts.get(state.topic_partition), asked.current_leader_epoch
            if version < FOR_CONSUMERS_SINCE:
                state.confirm(epoch)
            elif part is None:
                state.back_off(now_ms)
            elif (completed := state.validate(part, now_ms, epoch)) is not None:
                found.append(completed)
        return found

    def _reorder(self, found: list[CompletedFetch]) -> None:
        for completed in found:
            if completed.status is FetchStatus.RECORDS:
                self._states.move_to_end(completed.topic_partition)
            elif completed.status is FetchStatus.RETRY:
                self._states.move_to_end(completed.topic_partition, last=False)

    def _validation(self, partitions: Mapping[TopicPartition, FetchPartition]) -> OffsetForLeaderEpochRequest:
        return epochs_request(
            {
                tp: EpochPartition(
                    tp.partition, part.current_leader_epoch, self._states[tp].epochs.offset_epoch
                )
                for tp, part in partitions.items()
            }
        )

    def _request(
        self, broker_id: int, partitions: dict[TopicPartition, FetchPartition], max_wait_ms: int | None
    ) -> FetchRequest:
        settings = self.settings
        usual, largest = settings.partition_max_bytes, max(p.partition_max_bytes for p in partitions.values())
        create: Callable[..., FetchRequest] = consumer_request
        if settings.in_session:
            create = self._sources.setdefault(broker_id, _Source()).session.request
        return create(
            partitions,
            max_bytes=max(settings.max_bytes, largest if largest > usual else 0),
            min_bytes=settings.min_bytes,
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            isolation_level=settings.isolation,
            rack_id=settings.rack,
            topic_ids=self._topic_ids.by_topic,
        )


def _parts_of(
    response: FetchResponse, version: int, names: Mapping[bytes, str]
) -> dict[TopicPartition, FetchPartitionResponse]:
    if version <= NAMES_UNTIL:
        return dict(partitions_of(response.topics))
    return {
        TopicPartition(name, part.index): part
        for topic in response.topics
        if (name := names.get(topic.topic_id)) is not None
        for part in topic.partitions
    }
