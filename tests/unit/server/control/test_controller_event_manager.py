"""``server/control/controller_event_manager``: the lines that tell of brokers."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.control.controller_event_manager import _log_shrunk_isrs
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
    assert [message for message in caplog.messages if " shrank " in message] == [
        "1 ISR shrank by replica 1: t-0",  # it led this one
        "1 ISR shrank by replica 1: t-1",
    ]


def test_shrunk_isrs_of_the_brokers_own_topics_come_last(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "minikafka.server.control")
    known = LeaderAndIsr(1, 0, (1, 2), (1, 2), 1, 0)
    partitions = [TopicPartition(OFFSETS_TOPIC, 0), TopicPartition("a", 0)]
    _log_shrunk_isrs(dict.fromkeys(partitions, known), dict.fromkeys(partitions, replace(known, isr=(1,))))
    assert caplog.messages == ["2 ISRs shrank by replica 2: a-0, __consumer_offsets-0"]


def test_shrunk_isrs_are_one_line_for_each_group_of_replicas(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "minikafka.server.control")
    known = LeaderAndIsr(1, 0, (1, 2, 3), (1, 2, 3), 1, 0)
    t = [TopicPartition("t", number) for number in range(30)]
    before: dict[TopicPartition, LeaderAndIsr | None] = {**dict.fromkeys(t, known), t[0]: None}
    after = {**dict.fromkeys(t, replace(known, isr=(1,))), t[7]: replace(known, isr=(1, 3)), t[9]: known}
    _log_shrunk_isrs(before, after)
    named = ", ".join(f"t-{number}" for number in (1, 2, 3, 4, 5, 6, 8, 10, 11, 12))
    assert caplog.messages == [
        "1 ISR shrank by replica 2: t-7",
        f"27 ISRs shrank by replicas 2, 3: {named} and 17 more",
    ]
