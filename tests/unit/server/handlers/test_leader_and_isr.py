"""The addresses at which a broker follows the leaders of a LeaderAndIsr request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.config.inter_broker_security import InterBrokerSecurity
from minikafka.server.context import RequestContext
from minikafka.server.control.controller_requests import leader_and_isr
from minikafka.server.core.broker import Broker
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.handlers.leader_and_isr import handle
from minikafka.server.replication.replica_manager import ReplicaManager

PLAINTEXT, SASL_SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_SSL
NAMED = {2: BrokerAddress(2, "named", 9092)}
LED_BY_TWO = {TopicPartition("t", 0): LeaderAndIsr(2, 0, (2,), (1, 2), 1)}


class Replicas:
    """Takes a request at once, and keeps the addresses of its leaders."""

    def __init__(self) -> None:
        self.leaders: Mapping[int, BrokerAddress] = {}

    def answer_controller(
        self, epoch: int, context: object, respond: Callable[[], Any], refuse: Callable[[], Any]
    ) -> None:
        respond()

    def become_leader_or_follower(
        self,
        leaderships: Mapping[TopicPartition, LeaderAndIsr],
        leaders: Mapping[int, BrokerAddress],
        topic_ids: Mapping[str, bytes],
    ) -> dict[TopicPartition, ErrorCode]:
        self.leaders = leaders
        return dict.fromkeys(leaderships, ErrorCode.NONE)


def leaders_of(protocol: SecurityProtocol, *known: SecurityProtocol) -> Mapping[int, BrokerAddress]:
    """The addresses for broker 1, which knows broker 2 with these listeners, or not at all."""
    endpoints = tuple(BrokerEndpoint(each.name, each, each.name.lower(), 9092) for each in known)
    brokers = {2: LiveBroker(2, endpoints)} if known else {}
    broker = SimpleNamespace(
        broker_id=1,
        metadata_cache=MetadataCache("c", 0, brokers),
        config=SimpleNamespace(inter_broker=InterBrokerSecurity(protocol.name, protocol)),
    )
    replicas, request = Replicas(), leader_and_isr(0, 1, LED_BY_TWO, NAMED, {})
    handle(
        cast(Broker, broker),
        cast(ReplicaManager, replicas),
        cast(RequestContext, SimpleNamespace(version=5)),
        request,
    )
    return replicas.leaders


def test_own_inter_broker_listener_wins_over_the_named_address() -> None:
    assert leaders_of(PLAINTEXT, SASL_SSL, PLAINTEXT) == {2: BrokerAddress(2, "plaintext", 9092)}
    assert leaders_of(SASL_SSL, SASL_SSL, PLAINTEXT) == {2: BrokerAddress(2, "sasl_ssl", 9092)}


def test_named_address_of_an_unknown_leader_counts_without_security(caplog: pytest.LogCaptureFixture) -> None:
    assert leaders_of(PLAINTEXT) == NAMED
    assert leaders_of(SASL_SSL) == {}
    assert caplog.messages == ["cannot follow partitions of broker 2: it is not in the metadata cache"]


def test_leader_without_the_listener_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert leaders_of(SASL_SSL, PLAINTEXT) == {}
    (message,) = caplog.messages
    assert message.startswith("cannot follow partitions of broker 2 at PLAINTEXT://plaintext:9092")
    assert "no listener SASL_SSL" in message
