"""The brokers' endpoints in the controller's requests, in each version."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.control import controller_requests as messages
from minikafka.wire.apis.leader_and_isr import LEADER_AND_ISR, LiveLeader
from minikafka.wire.apis.update_metadata import (
    UPDATE_METADATA,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from minikafka.wire.frame_parts import join

PLAINTEXT = BrokerEndpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "a", 9092)
SASL_SSL = BrokerEndpoint("SASL_SSL", SecurityProtocol.SASL_SSL, "a", 9093)
OUTSIDE = BrokerEndpoint("OUTSIDE", SecurityProtocol.SSL, "gate", 9094)
BROKERS = {1: LiveBroker(1, (PLAINTEXT, SASL_SSL, OUTSIDE), "r1"), 2: LiveBroker(2, (OUTSIDE,))}
T0 = TopicPartition("t", 0)


def sent(version: int, brokers: dict[int, LiveBroker] = BROKERS) -> dict[int, LiveBroker]:
    """The brokers as another broker gets them."""
    request = messages.update_metadata(0, 1, brokers, {}, {}, version)
    frame = join(UPDATE_METADATA.encode_request(version, request))
    return messages.parse_update_metadata(UPDATE_METADATA.decode_request(version, memoryview(frame)))[0]


def received(*brokers: UpdateMetadataBroker) -> dict[int, LiveBroker]:
    return messages.parse_update_metadata(UpdateMetadataRequest(0, 1, (), brokers))[0]


@pytest.mark.parametrize("version", [3, 4, 7])
def test_update_metadata_has_all_endpoints_by_listener(version: int) -> None:
    assert sent(version) == BROKERS


def test_update_metadata_of_0_10_1_has_endpoints_by_protocol() -> None:
    assert sent(2) == {1: LiveBroker(1, (PLAINTEXT, SASL_SSL), "r1"), 2: LiveBroker(2, ())}


def test_endpoint_of_an_early_version_is_named_as_its_protocol() -> None:
    endpoints = (UpdateMetadataEndpoint(9093, "a", "", 3), UpdateMetadataEndpoint(9092, "a", "", 0))
    found = received(UpdateMetadataBroker(1, endpoints=endpoints, rack="r1"))
    assert found == {1: LiveBroker(1, (SASL_SSL, PLAINTEXT), "r1")}


def test_broker_of_version_0_has_a_plaintext_endpoint() -> None:
    assert received(UpdateMetadataBroker(1, "a", 9092)) == {1: LiveBroker.plaintext(1, "a", 9092)}


def test_endpoint_with_an_unknown_protocol_is_left_out() -> None:
    endpoints = (UpdateMetadataEndpoint(1, "a", "NEW", 7), UpdateMetadataEndpoint(9094, "gate", "OUTSIDE", 1))
    assert received(UpdateMetadataBroker(2, endpoints=endpoints)) == {2: BROKERS[2]}


def test_leader_and_isr_has_the_addresses_that_it_is_given() -> None:
    led = {T0: LeaderAndIsr(1, 0, (1,), (1, 2), 1), TopicPartition("t", 1): LeaderAndIsr(2, 0, (2,), (2,), 1)}
    request = messages.leader_and_isr(0, 1, led, {1: BrokerAddress(1, "a", 9093)}, {})
    assert request.live_leaders == (LiveLeader(1, "a", 9093),)


@pytest.mark.parametrize(("version", "ids"), [(3, {}), (7, {"t": b"1" * 16})])
def test_update_metadata_has_ids_of_topics_since_version_7(version: int, ids: dict[str, bytes]) -> None:
    named = T0, TopicPartition("u", 3), TopicPartition("t", 1)
    states = dict.fromkeys(named, LeaderAndIsr(1, 0, (1,), (1,), 1))
    request = messages.update_metadata(0, 1, {}, states, {"t": b"1" * 16}, version)
    frame = join(UPDATE_METADATA.encode_request(version, request))
    parsed = messages.parse_update_metadata(UPDATE_METADATA.decode_request(version, memoryview(frame)))
    assert parsed == ({}, states, ids)


@pytest.mark.parametrize(
    ("version", "ids"), [*((version, {}) for version in range(5)), (5, {"t": b"1" * 16})]
)
def test_leader_and_isr_has_ids_of_topics_since_version_5(version: int, ids: dict[str, bytes]) -> None:
    named = T0, TopicPartition("u", 3), TopicPartition("t", 1)
    states = dict.fromkeys(named, LeaderAndIsr(1, 0, (1,), (1,), 1))
    leaders = {1: BrokerAddress(1, "a", 9093)}
    request = messages.leader_and_isr(0, 1, states, leaders, {"t": b"1" * 16}, version)
    frame = join(LEADER_AND_ISR.encode_request(version, request))
    parsed = messages.parse_leader_and_isr(LEADER_AND_ISR.decode_request(version, memoryview(frame)))
    assert parsed == messages.ParsedLeaderAndIsr(states, leaders, ids, {})


@pytest.mark.parametrize("version", range(6))
def test_results_of_leader_and_isr_are_by_name_or_by_id(version: int) -> None:
    ids = {"t": b"1" * 16, "u": b"2" * 16}
    codes = {T0: ErrorCode.NONE, TopicPartition("u", 3): ErrorCode.INCONSISTENT_TOPIC_ID}
    response = messages.leader_and_isr_response(codes, ids, version)
    frame = join(LEADER_AND_ISR.encode_response(version, response))
    answered = LEADER_AND_ISR.decode_response(version, memoryview(frame))
    assert messages.parse_leader_and_isr_response(answered, ids) == codes


def test_result_for_an_unknown_topic_id_is_left_out() -> None:
    response = messages.leader_and_isr_response({T0: ErrorCode.NONE}, {"t": b"1" * 16}, 5)
    assert messages.parse_leader_and_isr_response(response, {"t": b"2" * 16}) == {}


def test_invalid_partition_of_a_topic_state_is_refused() -> None:
    states = {
        TopicPartition("a/b", 0): LeaderAndIsr(1, 0, (1,), (1,), 1),
        T0: LeaderAndIsr(1, 0, (1,), (1,), 1),
    }
    request = messages.leader_and_isr(0, 1, states, {}, {}, 5)
    parsed = messages.parse_leader_and_isr(request)
    assert parsed.invalid == {TopicPartition("a/b", 0): ErrorCode.INVALID_TOPIC}
    assert parsed.leaderships.keys() == {T0}
