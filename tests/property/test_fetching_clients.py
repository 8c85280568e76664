"""A consumer's fetch session beside models of its brokers, in a random order of events.

Leaders move, with and without a name in the response; topics are deleted and made again, with other ids,
leaders and numbers of partitions; brokers lose their sessions, and are replaced by older and newer ones;
responses come late or never; the consumer seeks, pauses, and gives partitions up and takes them back.

What must hold: the session that a broker keeps has exactly the partitions and positions of the client's
request; the rows that are kept between requests are those that would be made anew; nothing is asked for again
and again without a pause; and in the end, with brokers that are all right, each partition is read to its end.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.fetch.fetch_session import FetchRequestData, FetchSession, _Plan
from minikafka.clients.fetch.fetch_state import FetchSettings, FetchStatus
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint
from minikafka.wire.apis.fetch import (
    NAMES_UNTIL,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartitionResponse,
    EpochTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from minikafka.wire.fields import ZERO_UUID
from tests.support.seeds import seeds

TOPICS, BROKERS, VERSIONS = ("a", "b"), (1, 2, 3), (12, 13, 15, 16, 17)
NEWEST = 17
STEPS = 400
MAX_WAIT_MS = 200
REPEATED_MAX = 40
"""The largest number of requests without a pause."""
Key: TypeAlias = tuple[str | bytes, int]
SETTINGS = FetchSettings(
    partition_max_bytes=1_000,
    max_bytes=10_000,
    message_max_bytes=10_000,
    max_wait_ms=MAX_WAIT_MS,
    retry_backoff=Backoff(50, 50),
    rack="r",
    follower_ms=1_000,
    in_session=True,
)


@dataclass
class Log:
    """A partition, with the leader epoch of each record."""

    leader: int
    epoch: int = 0
    epochs: list[int] = field(default_factory=list)
    preferred: int = -1
    is_ready: bool = True
    """False before its leader acts as such, though all brokers know it."""


@dataclass
class Broker:
    """A broker and the session that it keeps."""

    version: int = NEWEST
    session_id: int = 0
    session_epoch: int = 0
    by_id: bool = False
    rows: dict[Key, FetchPartition] = field(default_factory=dict)
    keeps_sessions: bool = True


def has_news(topic: FetchTopicResponse) -> bool:
    return any(p.error_code or p.records or p.preferred_read_replica >= 0 for p in topic.partitions)


class FetchingClient:
    """The client, its brokers, and the events that ``seed`` decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.cluster = ClusterClient("h:1", clock=self.clock)
        self.session = FetchSession(SETTINGS, lambda tp: self.cluster.topic_id(tp.topic))
        self.brokers = {number: Broker() for number in BROKERS}
        self.topics: dict[str, dict[int, Log]] = {}
        self.ids: dict[str, bytes] = {}
        self.made = self.sessions = 0
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.wanted: Mapping[TopicPartition, int] | None = None
        self.flying: dict[int, FetchRequestData] = {}
        self.sent_at_once = 0
        self.sent_ms = 0
        for topic in TOPICS:
            self.make(topic)
        self.look_up(None)
        for tp in self.partitions():
            self.positions[tp] = 0

    # --- the cluster

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, logs in self.topics.items() for number in logs]

    def log(self, tp: TopicPartition) -> Log | None:
        return self.topics.get(tp.topic, {}).get(tp.partition)

    def make(self, topic: str, count: int | None = None) -> None:
        """Make a topic, after it is deleted."""
        self.made += 1
        self.ids[topic] = self.made.to_bytes(16, "big")
        count = self.chance.randint(1, 3) if count is None else count
        self.topics[topic] = {number: Log(self.chance.choice(BROKERS)) for number in range(count)}

    def view(self, names: list[str], by: Broker) -> ClusterMetadata:
        has_ids = by.version > NAMES_UNTIL
        topics = {}
        for name in names:
            logs = self.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if logs is None else ErrorCode.NONE
            partitions = tuple(
                PartitionMetadata(
                    TopicPartition(name, number), log.leader, BROKERS, BROKERS, ErrorCode.NONE, log.epoch
                )
                for number, log in (logs or {}).items()
            )
            topic_id = self.ids[name] if has_ids and logs is not None else ZERO_UUID
            topics[name] = TopicMetadata(name, error, False, partitions, self.clock.monotonic_ms(), topic_id)
        return ClusterMetadata({n: BrokerAddress(n, f"b{n}", 9092) for n in BROKERS}, topics)

    def look_up(self, names: list[str] | None) -> None:
        names = list(TOPICS) if names is None else names
        by = self.brokers[self.chance.choice(BROKERS)]
        self.cluster._metadata.update(self.view(names, by), names)

    # --- a broker

    def answer(self, data: FetchRequestData) -> tuple[FetchResponse | OffsetForLeaderEpochResponse, int]:
        broker, request = self.brokers[data.broker_id], data.request
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self.validated(data), 4
        version = min(broker.version, NAMES_UNTIL if data.newest_version is not None else NEWEST)
        by_id = version > NAMES_UNTIL

        def key(topic: object, number: int) -> Key:
            return (topic.topic_id if by_id else topic.name), number  # type: ignore[attr-defined]

        named = {key(topic, part.index): part for topic in request.topics for part in topic.partitions}
        error = ErrorCode.NONE
        incremental = request.session_epoch > 0
        if not incremental:
            self.sessions += 1
            broker.session_id, broker.session_epoch = (self.sessions if broker.keeps_sessions else 0), 0
            broker.rows, broker.by_id = named, by_id
        elif request.session_id != broker.session_id or not broker.session_id:
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif request.session_epoch != broker.session_epoch:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        elif broker.by_id != by_id:
            error = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        else:
            for topic in request.forgotten_topics:
                for number in topic.partitions:
                    broker.rows.pop(key(topic, number), None)
            broker.rows.update(named)
        if error is not ErrorCode.NONE:
            return FetchResponse(0, error, 0, ()), version
        broker.session_epoch += 1
        ids = {name: topic_id for topic_id, name in data.topic_names.items()}
        expected = {
            ((ids[tp.topic] if by_id else tp.topic), tp.partition): part
            for tp, part in data.partitions.items()
        }
        assert broker.rows == expected
        topics, endpoints = [], set()
        for (topic, _), row in broker.rows.items():
            part = self.part(data.broker_id, topic, row, version)
            if part.current_leader.leader_id >= 0:
                endpoints.add(part.current_leader.leader_id)
            name, topic_id = ("", topic) if by_id else (topic, ZERO_UUID)
            found = FetchTopicResponse(name, (part,), topic_id=topic_id)  # type: ignore[arg-type]
            if has_news(found) or not incremental:
                topics.append(found)
        rows = tuple(NodeEndpoint(number, f"b{number}", 9092) for number in sorted(endpoints))
        return FetchResponse(0, 0, broker.session_id, tuple(topics), node_endpoints=rows), version

    def part(
        self, broker_id: int, topic: str | bytes, row: FetchPartition, version: int
    ) -> FetchPartitionResponse:
        def refused(code: ErrorCode, log: Log | None = None) -> FetchPartitionResponse:
            leader = LeaderIdAndEpoch()
            if log is not None and version >= 16:
                leader = LeaderIdAndEpoch(log.leader, log.epoch)
            return FetchPartitionResponse(row.index, code, -1, -1, -1, None, b"", current_leader=leader)

        if isinstance(topic, bytes):
            names = [name for name in self.topics if self.ids[name] == topic]
            if not names:
                return refused(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = names[0]
        log = self.log(TopicPartition(topic, row.index))
        if log is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if 0 <= row.current_leader_epoch < log.epoch:
            return refused(ErrorCode.FENCED_LEADER_EPOCH, log)
        if row.current_leader_epoch > log.epoch:
            return refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_id not in (log.leader, log.preferred) or not log.is_ready:
            return refused(ErrorCode.NOT_LEADER_FOR_PARTITION, log)
        end = len(log.epochs)
        if row.fetch_offset > end:
            return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if log.leader == broker_id and log.preferred >= 0:
            return FetchPartitionResponse(
                row.index, 0, end, end, 0, None, b"", preferred_read_replica=log.preferred
            )
        data = b""
        if row.fetch_offset < end:
            epoch = log.epochs[row.fetch_offset]
            data = build_batch([Record(None, b"v")], base_offset=row.fetch_offset, leader_epoch=epoch)
        return FetchPartitionResponse(row.index, 0, end, end, 0, None, memoryview(data))

    def validated(self, data: FetchRequestData) -> OffsetForLeaderEpochResponse:
        assert isinstance(data.request, OffsetForLeaderEpochRequest)
        topics = []
        for topic in data.request.topics:
            rows = []
            for part in topic.partitions:
                log = self.log(TopicPartition(topic.name, part.index))
                if log is None or log.leader != data.broker_id:
                    rows.append(
                        EpochPartitionResponse(ErrorCode.NOT_LEADER_FOR_PARTITION, part.index, -1, -1)
                    )
                    continue
                known = [epoch for epoch in log.epochs if epoch <= part.leader_epoch]
                end = len(known) if known else -1
                rows.append(EpochPartitionResponse(0, part.index, known[-1] if known else -1, end))
            topics.append(EpochTopicResponse(topic.name, tuple(rows)))
        return OffsetForLeaderEpochResponse(0, tuple(topics))

    # --- the client, as the consumer of a group

    def send(self) -> None:
        if self.wanted is None:
            self.wanted = {tp: at for tp, at in self.positions.items() if tp not in self.paused}
        session, cluster, now_ms = self.session, self.cluster, self.clock.monotonic_ms()
        session.update(self.wanted)
        sent = list(session.next_requests(cluster.known_leader_and_epoch, cluster.leaders_version, now_ms))
        self.plan_is_new(now_ms)
        for data in sent:
            self.flying[data.broker_id] = data
        self.sent_at_once = self.sent_at_once + len(sent) if now_ms == self.sent_ms else 0
        self.sent_ms = now_ms
        assert self.sent_at_once < REPEATED_MAX, "asked without a pause"

    def plan_is_new(self, now_ms: int) -> None:
        """The kept rows are those that would be made now."""
        session, kept, new = self.session, self.session._plan, _Plan()
        assert kept is not None
        assert self.wanted is not None
        for tp, state in session._states.items():
            assert state.paused == (tp not in self.wanted)
            if state.paused or state.offset < 0:
                continue
            assert state.offset == self.wanted[tp]
            leader = self.cluster.known_leader_and_epoch(tp)
            new.add(state, leader, now_ms)
            if leader is not None:
                assert session._topic_ids._ids[tp.topic] == self.cluster.topic_id(tp.topic)
                assert state._topic_id == self.cluster.topic_id(tp.topic) or not any(
                    self.cluster.topic_id(tp.topic)
                )
        assert session._states.keys() >= self.wanted.keys()
        assert (kept.fetches, kept.validations) == (new.fetches, new.validations)
        assert kept.without_leader == new.without_leader == session.without_leader
        assert kept.next_ready_ms <= new.next_ready_ms

    def poll(self) -> None:
        self.send()
        if self.session.without_leader:
            self.look_up(sorted(self.session.without_leader))
            self.send()

    def read(self) -> None:
        """Poll until nothing comes at once."""
        for _ in range(REPEATED_MAX):
            self.poll()
            if not self.flying:
                return
            for broker_id in sorted(self.flying):
                self.take(broker_id)

    def take(self, broker_id: int) -> None:
        """Take the response of a broker, in a poll."""
        self.send()
        data = self.flying.pop(broker_id)
        response, version = self.answer(data)
        if (
            isinstance(response, FetchResponse)
            and not response.error_code
            and not any(map(has_news, response.topics))
        ):
            self.clock.advance(MAX_WAIT_MS)
        session, now_ms = self.session, self.clock.monotonic_ms()
        found = session.handle_response(broker_id, response, version, now_ms)
        found = session.follow_new_leaders(broker_id, found, response, self.cluster.update_leaders)
        assert session.handle_disconnect(broker_id, now_ms) == ()
        for completed in found:
            tp, status = completed.topic_partition, completed.status
            if status is FetchStatus.RECORDS:
                assert self.positions[tp] == completed.offset
                self.move(tp, completed.next_offset)
                self.sent_at_once = 0
            elif status is FetchStatus.OUT_OF_RANGE:
                log = self.log(tp)
                self.move(tp, len(log.epochs) if log is not None and self.chance.random() < 0.5 else 0)
            elif status is FetchStatus.TRUNCATED:
                assert completed.next_offset < completed.offset
                self.move(tp, completed.next_offset)
            elif status is FetchStatus.LEADER_LOST:
                self.cluster.invalidate(tp.topic)
            else:
                assert status in {FetchStatus.EMPTY, FetchStatus.THROTTLED, FetchStatus.RETRY}, completed

    def move(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset
        self.wanted = None

    # --- events

    def step(self) -> None:
        chance = self.chance
        tp = TopicPartition(chance.choice(TOPICS), chance.randrange(3))
        log, event = self.log(tp), chance.randrange(100)
        broker_id = chance.choice(BROKERS)
        if event < 5:
            self.read()
        elif event < 30:
            self.poll()
        elif event < 55:
            if self.flying:
                self.take(chance.choice(sorted(self.flying)))
        elif event < 58:
            if self.flying:
                self.lose(chance.choice(sorted(self.flying)))
        elif event < 66:
            if log is not None:
                log.epochs.append(log.epoch)
        elif event < 71:
            if log is not None:
                log.leader, log.preferred = broker_id, -1
                log.epoch += 1
                log.is_ready = chance.random() < 0.9
                self.sent_at_once = 0
                if chance.random() < 0.3:  # an unclean election
                    del log.epochs[len(log.epochs) - chance.randint(0, min(2, len(log.epochs))) :]
        elif event < 73:
            self.topics.pop(tp.topic, None)
        elif event < 77:
            if tp.topic not in self.topics or chance.random() < 0.3:
                self.make(tp.topic)
                self.sent_at_once = 0
        elif event < 80:
            if log is not None:
                log.preferred = broker_id if broker_id != log.leader else -1
                self.sent_at_once = 0
        elif event < 84:
            if tp in self.positions:
                self.paused ^= {tp}
                self.wanted = None
        elif event < 87:
            if tp in self.positions:
                self.move(tp, chance.randint(0, 6))
        elif event < 90:
            self.give_up_or_take(tp)
        elif event < 92:
            self.look_up(None)
        elif event < 94:
            self.cluster.invalidate(tp.topic)
        elif event < 96:
            self.restart(broker_id, chance.choice(VERSIONS))
        else:
            self.clock.advance(chance.choice([1, 9, 30, 60, 250, 1_100, 310_000]))

    def give_up_or_take(self, tp: TopicPartition) -> None:
        if tp in self.positions:
            at = self.positions.pop(tp)
            self.paused.discard(tp)
            self.wanted = None
            self.session.retain(self.positions.keys())
            if self.chance.random() < 0.5:
                self.positions[tp] = at
        else:
            self.move(tp, self.chance.randint(0, 6))

    def lose(self, broker_id: int) -> None:
        data = self.flying.pop(broker_id)
        if self.chance.random() < 0.5:
            self.answer(data)
        for tp in self.session.handle_disconnect(broker_id, self.clock.monotonic_ms()):
            self.cluster.invalidate(tp.topic)

    def restart(self, broker_id: int, version: int) -> None:
        if broker_id in self.flying:
            self.lose(broker_id)
        self.brokers[broker_id] = Broker(version, keeps_sessions=self.chance.random() < 0.9)

    def settle(self) -> None:
        """With brokers that are all right the client reads all partitions to their ends."""
        for broker_id in BROKERS:
            self.restart(broker_id, NEWEST)
        for topic in TOPICS:
            if len(self.topics.get(topic, {})) < 3:
                self.make(topic, 3)
        self.paused.clear()
        for tp in self.partitions():
            self.positions.setdefault(tp, 0)
            log = self.log(tp)
            assert log is not None
            log.epochs.append(log.epoch)
            log.is_ready = True
        self.wanted = None
        requests = 0
        for _ in range(200):
            before = len(self.flying)
            self.poll()
            requests += len(self.flying) - before
            for broker_id in sorted(self.flying):
                self.take(broker_id)
            self.clock.advance(20)
        behind = {
            tp: at for tp in self.partitions() if (at := self.positions[tp]) != len(self.log(tp).epochs)
        }
        assert not behind


@pytest.mark.parametrize("seed", seeds(40))
def test_a_client_reads_on_whatever_happens_to_leaders_topics_and_sessions(seed: int) -> None:
    client = FetchingClient(seed)
    for _ in range(STEPS):
        client.step()
    client.settle()
