"""``server/control/controller_event_manager``: the lines that tell of brokers."""

from __future__ import annotations

import logging

import pytest

from tests.support.requests import place_topic
from tests.support.simulation import Simulation


def test_brokers_that_go_and_return_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = Simulation()
    world.start_brokers(3, {"auto.leader.rebalance.enable": "false"})
    world.settle()
    world.move_to_controller()
    world.call(place_topic("t", (1, 2), (2, 1)))
    world.pass_time(30_000)
    caplog.set_level(logging.INFO, "minikafka.server.control")
    caplog.clear()
    session = world.machine_of(1).store
    world.machine_of(1).kill()
    world.zookeeper.expire(session)
    world.pass_time(30_000)
    world.machine_of(1).start({"auto.leader.rebalance.enable": "false"})
    world.pass_time(30_000)
    assert [message for message in caplog.messages if message.startswith("broker 1 ")] == [
        "broker 1 is gone: it led 1 replicated partition, for which in-sync replicas take over",
        "broker 1 has joined",
    ]
