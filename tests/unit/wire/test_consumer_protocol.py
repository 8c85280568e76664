"""Subscriptions and assignments of consumer groups."""

from __future__ import annotations

import pytest

from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.join_group import JOIN_GROUP
from minikafka.wire.apis.sync_group import SYNC_GROUP
from minikafka.wire.consumer_protocol import (
    Assignment,
    ConsumerPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from minikafka.wire.framing import RequestHeader
from tests.unit.wire.test_recorded import SUPPORTED, frame_of


def test_recorded_subscription_decodes_and_encodes_unchanged() -> None:
    found = 0
    for exchange in SUPPORTED:
        if exchange.key == ApiKey.JOIN_GROUP:
            request = JOIN_GROUP.decode_request(
                exchange.version, RequestHeader.decode(frame_of(exchange.request))[1]
            )
            for protocol in request.protocols:
                if request.protocol_type == "consumer" and protocol.metadata[:2] in (b"\0\0", b"\0\1"):
                    version = protocol.metadata[1]
                    subscription = decode_subscription(protocol.metadata)
                    assert encode_subscription(subscription, version) == protocol.metadata
                    assert subscription.topics
                    found += 1
    assert found > 5


def test_every_recorded_assignment_is_read_and_written_as_it_was() -> None:
    found = 0
    for exchange in SUPPORTED:
        if exchange.key == ApiKey.SYNC_GROUP:
            request = SYNC_GROUP.decode_request(
                exchange.version, RequestHeader.decode(frame_of(exchange.request))[1]
            )
            for member in request.assignments:
                if member.assignment[:2] in (b"\0\0", b"\0\1"):
                    version = member.assignment[1]
                    assignment = decode_assignment(member.assignment)
                    assert encode_assignment(assignment, version) == member.assignment
                    found += 1
    assert found > 3


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    known = Subscription(("t",), b"x", (ConsumerPartitions("t", (0, 1)),), 7, "rack")
    newer = b"\0\4" + encode_subscription(known, 3)[2:] + b"\0\0\0\7and more"
    assert decode_subscription(newer) == known


def test_a_member_that_got_nothing_has_no_partitions() -> None:
    assert decode_assignment(b"") == Assignment(())


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\0\x7f\xff\xff\xff"])
def test_bytes_that_are_no_subscription_are_the_peers_fault(data: bytes) -> None:
    with pytest.raises(RemoteWireError):
        decode_subscription(data)


def test_a_version_that_is_not_known_is_not_written() -> None:
    with pytest.raises(LocalWireError, match="Subscription 4 is not supported"):
        encode_subscription(Subscription(("t",)), 4)
