"""Who waits until the other brokers have heard what the controller says."""

from __future__ import annotations

from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.server.control.controller_channel import ControllerChannel, QueuedRequest
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
