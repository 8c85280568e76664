"""Who waits until the other brokers have heard what the controller says."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.server.control.controller_channel import (
    ControllerChannel,
    ControllerChannelManager,
    QueuedRequest,
)
from minikafka.server.inter_broker_connection import InterBrokerConnection
from minikafka.wire.apis.update_metadata import UPDATE_METADATA, UpdateMetadataResponse


def channel_with(said: list[str]) -> ControllerChannel:
    """One message, and a mark behind it."""
    connector: Any = None
    channel = ControllerChannel(1, BrokerAddress(2, "host", 9092), connector, ManualClock(0), 1_000)
    channel.send(QueuedRequest(UPDATE_METADATA, 2, None, lambda _: said.append("answered")))
    channel.mark(lambda: said.append("reached"))
    return channel


def test_a_mark_is_reached_behind_the_answers_to_all_before_it() -> None:
    said: list[str] = []
    channel = channel_with(said)
    channel.take(UpdateMetadataResponse(ErrorCode.NONE))
    assert said == ["answered"]
    assert channel.ask()
    assert said == ["answered", "reached"]


def test_broker_that_denies_the_controller_is_not_waited_for() -> None:
    said: list[str] = []
    channel = channel_with(said)
    channel.take(UpdateMetadataResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert said == ["reached"]
    channel.take(UpdateMetadataResponse(ErrorCode.NONE))
    assert said == ["reached", "answered"]


def test_nobody_waits_for_a_broker_that_is_gone() -> None:
    said: list[str] = []
    channel_with(said).stop()
    assert said == ["reached"]


def broker(number: int, *listeners: str) -> LiveBroker:
    return LiveBroker(
        number,
        tuple(
            BrokerEndpoint(name, SecurityProtocol.PLAINTEXT, name.lower(), 9000 + number)
            for name in listeners
        ),
    )


class ManagerHarness:
    """The channels of broker 1, whose inter-broker listener is INSIDE."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        connector: Any = None

        def spawn(connection: InterBrokerConnection, name: str) -> None:
            self.opened.append(f"{name}: {connection.peer.address}")

        self.manager = ControllerChannelManager(1, "INSIDE", connector, ManualClock(0), 1_000, spawn)

    def keep(self, *brokers: LiveBroker) -> list[str]:
        self.opened.clear()
        self.manager.keep({broker.broker_id: broker for broker in brokers}, {})
        return list(self.opened)


def test_channels_connect_on_the_inter_broker_listener() -> None:
    opened = ManagerHarness().keep(broker(1, "INSIDE"), broker(2, "OUTSIDE", "INSIDE"))
    assert opened == ["controller-to-2: broker 2 at inside:9002"]


def test_channel_is_kept_while_only_other_endpoints_change() -> None:
    harness = ManagerHarness()
    harness.keep(broker(2, "INSIDE"))
    assert harness.keep(broker(2, "INSIDE", "OUTSIDE")) == []


def test_broker_without_the_listener_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    harness = ManagerHarness()
    unreachable = broker(2, "OUTSIDE")
    assert harness.keep(broker(1, "INSIDE"), unreachable) == []
    assert harness.keep(unreachable, broker(3, "INSIDE")) == ["controller-to-3: broker 3 at inside:9003"]
    assert harness.manager.mark(lambda _: None) == {3}
    (message,) = caplog.messages
    assert "broker 2 at OUTSIDE://outside:9002 has no listener INSIDE" in message
    assert "inter.broker.listener.name" in message


def test_broker_that_gets_the_listener_gets_a_channel() -> None:
    harness = ManagerHarness()
    harness.keep(broker(2, "OUTSIDE"))
    assert harness.keep(broker(2, "OUTSIDE", "INSIDE")) == ["controller-to-2: broker 2 at inside:9002"]
