"""Members of groups that bring more than a broker keeps of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.groups import events
from minikafka.server.coordination import partition_writer
from minikafka.server.groups import group_coordinator
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.join_group import JoinGroupRequest
from minikafka.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import Simulation

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def started(**more: str) -> Simulation:
    """A broker that coordinates."""
    world = Simulation()
    world.machine.start({**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}})
    while world.call(requests.find_coordinator()).error_code:
        world.settle()
    return world


@pytest.fixture
def world() -> Simulation:
    return started()


def join(world: Simulation, group: str, metadata: bytes = b"", member_id: str = "") -> Any:
    return join_with(world, group, {"p": metadata}, member_id)


def join_with(world: Simulation, group: str, protocols: dict[str, bytes], member_id: str = "") -> Any:
    return world.call(requests.join_group(group, protocols, member_id=member_id, rebalance_ms=60_000))


def sync(world: Simulation, group: str, member: Any) -> Any:
    shares = {member.member_id: b"share"}
    return world.call(requests.sync_group(group, member.generation_id, member.member_id, shares))


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def test_a_member_that_no_message_can_hold_is_refused(world: Simulation) -> None:
    assert error_of(join(world, "g", bytes(2_000_000))) is ErrorCode.MESSAGE_TOO_LARGE
    assert error_of(join(world, "g", bytes(900_000))) is ErrorCode.NONE


@pytest.mark.parametrize("second", [520_000, 1_200_000])
def test_only_the_protocol_that_is_chosen_must_fit_a_message(world: Simulation, second: int) -> None:
    member = join_with(world, "g", {"range": bytes(520_000), "cooperative-sticky": bytes(second)})
    assert error_of(member) is ErrorCode.NONE
    assert error_of(sync(world, "g", member)) is ErrorCode.NONE


def test_a_member_fits_a_message_where_compression_makes_it_fit() -> None:
    world = started(offsets_topic_compression_codec="1")
    member = join(world, "g", bytes(1_200_000))
    assert error_of(member) is ErrorCode.NONE
    assert error_of(sync(world, "g", member)) is ErrorCode.NONE


def test_new_groups_are_refused_before_those_that_are_there(
    world: Simulation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = join(world, "g", bytes(50_000))
    monkeypatch.setattr(group_coordinator, "MAX_NEW_GROUPS_BYTES", 100_000)
    assert error_of(join(world, "made-up", bytes(50_000))) is ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    assert error_of(join(world, "g", bytes(50_000), first.member_id)) is ErrorCode.NONE
    assert "rejecting new members" in caplog.text


def test_a_known_group_is_refused_at_the_limit_of_all(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = join(world, "g", bytes(50_000))
    monkeypatch.setattr(group_coordinator, "MAX_MEMBERS_BYTES", 70_000)
    larger = join(world, "g", bytes(100_000), first.member_id)
    assert error_of(larger) is ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    assert error_of(join(world, "g", bytes(50_000), first.member_id)) is ErrorCode.NONE


def test_assignments_that_no_message_can_hold_are_not_even_made(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join(world, "g", b"m")
    made: list[int] = []
    real = partition_writer.build_message_set

    def counted(records: Any, **settings: Any) -> bytes:
        made.append(len(records))
        return real(records, **settings)

    monkeypatch.setattr(partition_writer, "build_message_set", counted)
    share = (SyncGroupRequestAssignment(member.member_id, bytes(3_000_000)),)
    body = SyncGroupRequest("g", member.generation_id, member.member_id, share)
    answer = world.call(Request(ApiKey.SYNC_GROUP, 0, body))
    assert error_of(answer) is ErrorCode.UNKNOWN
    assert not made


def test_a_member_that_is_refused_leaves_nothing_for_a_collection(world: Simulation) -> None:
    def alive() -> list[object]:
        return [item for item in gc.get_objects() if isinstance(item, (JoinGroupRequest, events.Join))]

    gc.collect()
    gc.disable()
    try:
        of_others = alive()
        assert error_of(join(world, "g", bytes(2_000_000))) is ErrorCode.MESSAGE_TOO_LARGE
        assert not [item for item in alive() if all(item is not other for other in of_others)]
    finally:
        gc.enable()
