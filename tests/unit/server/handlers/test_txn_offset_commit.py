"""TxnOffsetCommit: what is verified before offsets are kept aside, and the errors of each version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.base.acls import Operation, Resource, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.net.request_times import RequestTimes
from minikafka.server import assembly
from minikafka.server.context import RequestContext
from minikafka.server.groups import checked_commits
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.handlers import txn_offset_commit
from minikafka.server.security.authorization import Requester
from minikafka.server.security.transaction_authorizers import TRANSACTION_AUTHORIZERS
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from minikafka.wire.framing import RequestHeader
from tests.support import requests
from tests.support.held_verifier import HeldVerifier
from tests.support.simulation import Simulation

E = ErrorCode
P = ProducerIdAndEpoch(7, 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
T0 = TopicPartition("t", 0)
SETTINGS = {"offsets.topic.num.partitions": "1", "offset.metadata.max.bytes": "10"}


class Reply(RequestContext):
    """The context of a request that no network brings."""

    def __init__(self, version: int) -> None:
        exchange: Any = Exchange()
        header = RequestHeader(int(ApiKey.TXN_OFFSET_COMMIT), version, 1, "test")
        super().__init__(header, TXN_OFFSET_COMMIT, exchange)

    @property
    def response(self) -> TxnOffsetCommitResponse | None:
        found: TxnOffsetCommitResponse | None = self.exchange.memory.get("response")
        return found

    def reply(self, response: Any) -> None:
        self.exchange.memory["response"] = response


class Exchange:
    """An exchange that only remembers."""

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.meter = None
        self.times = RequestTimes()


class World(Simulation):
    """The coordinator of group g, with a verifier that answers at once, or when the test says so."""

    def __init__(self, found: list[GroupCoordinator], *, held: bool = False, **settings: str) -> None:
        super().__init__()
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.machine.start({**SETTINGS, **more})
        while self.call(requests.find_coordinator()).error_code:
            self.settle()
        assert self.create_topic("t") == 0
        (self.groups,) = found
        self.broker = self.machine.broker
        self.broker.verify_transaction = self.verifier = HeldVerifier(held=held)

    def begin_commit(self, *parts: TxnOffsetCommitRequestPartition, version: int = 4, **more: Any) -> Reply:
        context = Reply(version)
        topics = (TxnOffsetCommitRequestTopic("t", parts or (offset(5),)),)
        request = TxnOffsetCommitRequest("tx", more.pop("group", "g"), *P, topics=topics, **more)
        for _ in txn_offset_commit.handle(self.groups, context, request):
            pass
        return context

    def commit(self, *parts: TxnOffsetCommitRequestPartition, **more: Any) -> dict[int, ErrorCode]:
        return codes(self.begin_commit(*parts, **more))

    def end(self, *, commit: bool = True) -> None:
        """End the transaction."""
        partition = self.broker.partition(OFFSETS)
        at = partition.append_end_marker(*P, 0, commit=commit).append_info.first_offset
        self.broker.run(lambda: self.groups.transaction_completed(OFFSETS, P.producer_id, at, commit=commit))

    def offsets(self) -> dict[TopicPartition, int]:
        return {key: value.offset for key, value in self.groups.offsets("g").items()}


def offset(value: int, partition: int = 0, metadata: str | None = None) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(partition, value, committed_metadata=metadata)


def codes(context: Reply) -> dict[int, ErrorCode]:
    assert context.response is not None
    (topic,) = context.response.topics
    return {part.partition_index: ErrorCode.of(part.error_code) for part in topic.partitions}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GroupCoordinator]]:
    """The coordinators of the brokers that are started."""
    found: list[GroupCoordinator] = []

    class Noted(GroupCoordinator):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

    monkeypatch.setattr(assembly, "GroupCoordinator", Noted)
    yield found
    found.clear()


@pytest.fixture
def world(found: list[GroupCoordinator]) -> World:
    return World(found)


def test_offsets_are_visible_with_the_commit_of_the_transaction(world: World) -> None:
    assert world.commit() == {0: E.NONE}
    assert world.offsets() == {}
    world.end()
    assert world.offsets() == {T0: 5}


def test_first_commit_of_a_transaction_is_verified(world: World) -> None:
    world.commit()
    world.commit(offset(6))
    assert world.verifier.asked == [("tx", P, [OFFSETS])]
    world.end()
    world.commit(offset(7))
    assert len(world.verifier.asked) == 2


def test_commit_whose_transaction_ended_meanwhile_is_refused(found: list[GroupCoordinator]) -> None:
    world = World(found, held=True)
    context = world.begin_commit()
    world.end()
    assert context.response is None
    world.verifier.answer()
    assert codes(context) == {0: E.INVALID_TXN_STATE}
    assert world.broker.partition(OFFSETS).log.producers.first_undecided_offset is None


@pytest.mark.parametrize(
    ("result", "version", "error"),
    [
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.PRODUCER_FENCED, 4, E.INVALID_PRODUCER_EPOCH),
        (E.CONCURRENT_TRANSACTIONS, 4, E.CONCURRENT_TRANSACTIONS),
        (E.INVALID_PRODUCER_ID_MAPPING, 4, E.INVALID_PRODUCER_ID_MAPPING),
        (E.NETWORK_EXCEPTION, 2, E.GROUP_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.GROUP_COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_verification_is_an_error_that_clients_know(
    world: World, result: ErrorCode, version: int, error: ErrorCode
) -> None:
    world.verifier.result = result
    assert world.commit(version=version) == {0: error}
    world.end()
    assert world.offsets() == {}


def test_wrong_partitions_fail_on_their_own(world: World) -> None:
    parts = offset(5), offset(1, 9), offset(1, 0, "x" * 11)
    assert world.commit(*parts[:2]) == {0: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.commit(parts[2]) == {0: E.OFFSET_METADATA_TOO_LARGE}
    assert len(world.verifier.asked) == 1


@pytest.mark.parametrize(
    ("more", "error"),
    [({"group": ""}, E.INVALID_GROUP_ID), ({"generation_id": 3, "member_id": "m"}, E.UNKNOWN_MEMBER_ID)],
)
def test_commit_outside_of_its_group_is_refused(world: World, more: Any, error: ErrorCode) -> None:
    assert world.commit(**more) == {0: error}


def test_stopping_broker_refuses_the_commit(world: World) -> None:
    world.groups.stop()
    assert world.commit() == {0: E.GROUP_COORDINATOR_NOT_AVAILABLE}


def test_broker_that_does_not_lead_the_offsets_is_no_coordinator(world: World) -> None:
    world.broker.partition(OFFSETS).drop_replica()
    assert world.commit() == {0: E.NOT_COORDINATOR_FOR_GROUP}
    assert world.verifier.asked == []


def test_commit_without_verification_is_not_asked_about(found: list[GroupCoordinator]) -> None:
    world = World(found, transaction_partition_verification_enable="false")
    assert world.commit() == {0: E.NONE}
    assert world.verifier.asked == []


def test_broker_without_transactions_refuses_commits(world: World) -> None:
    world.broker.verify_transaction = None
    assert world.commit() == {0: E.UNSUPPORTED_VERSION}


def test_commit_of_many_partitions_is_served_in_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_commits, "STEP_PARTITIONS", 2)
    answer = world.commit(*(offset(1, number) for number in range(5)))
    assert answer[0] is E.NONE
    assert set(answer.values()) == {E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION}


# --- rights -------------------------------------------------------------------------------------------------

ID = Resource(ResourceType.TRANSACTIONAL_ID, "tx")
GROUP, TOPIC = Resource(ResourceType.GROUP, "g"), Resource(ResourceType.TOPIC, "t")
NEEDED = {(Operation.WRITE, ID), (Operation.READ, GROUP), (Operation.READ, TOPIC)}


@pytest.mark.parametrize(
    ("missing", "error"),
    [
        (ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (GROUP, E.GROUP_AUTHORIZATION_FAILED),
        (TOPIC, E.TOPIC_AUTHORIZATION_FAILED),
        (None, None),
    ],
)
def test_commit_needs_id_group_and_topics(missing: Resource | None, error: ErrorCode | None) -> None:
    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return Resource(kind, name) != missing and (operation, Resource(kind, name)) in NEEDED

    requester = Requester(may, lambda operation, kind: False, lambda topic_id: None)
    topics = (TxnOffsetCommitRequestTopic("t", (offset(5),)),)
    authorize = TRANSACTION_AUTHORIZERS[ApiKey.TXN_OFFSET_COMMIT]
    result = authorize(requester, 4, TxnOffsetCommitRequest("tx", "g", *P, topics=topics))
    if error is None:
        assert result is None
    else:
        assert result is not None
        assert result.request is None
        assert result.answer(None).topics[0].partitions[0].error_code == error
