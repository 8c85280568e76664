"""Leaders whose disk fails, and a controller that does or does not hear of it."""

from __future__ import annotations

import errno

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.controller.controller import Controller
from tests.support import requests
from tests.support.simulation import Simulation

T0 = TopicPartition("t", 0)


@pytest.fixture
def reasons() -> list[str]:
    """The reasons for which the broker of machine 0 wants to stop."""
    return []


@pytest.fixture
def world(reasons: list[str]) -> Simulation:
    """Two brokers with a topic on both."""
    world = Simulation()
    for number in (0, 1):
        world.machine_of(number).start()
    running = world.machine.running
    assert running is not None
    running.housekeeper._failing._fatal = reasons.append
    world.call(requests.place_topic("t", (0, 1)))
    return world


def leader(world: Simulation) -> int:
    return world.machine.broker.metadata_cache.topics["t"][0].leader


def fill(world: Simulation) -> None:
    world.machine.files.capacity_bytes = world.machine.files.used_bytes()


def write_for(world: Simulation, seconds: int) -> None:
    """Write once a second."""
    for _ in range(seconds):
        world.produce("t", b"x")
        world.network.wait(lambda: False, world.clock.monotonic_ms() + 1_000)


def deaf(self: Controller, *_: object) -> None:
    """As a controller of 0.10.1."""


def test_another_replica_leads_after_one_failed_write(world: Simulation, reasons: list[str]) -> None:
    fill(world)
    write_for(world, 1)
    assert leader(world) == 1
    assert reasons == []


def test_broker_stops_after_30_s_of_failures_without_an_election(
    world: Simulation, reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controller, "_logs_failed", deaf)
    fill(world)
    write_for(world, 29)
    assert reasons == []
    write_for(world, 3)
    assert "failed to write to the log of t-0" in reasons[0]


def test_a_write_that_failed_once_is_no_reason_to_stop(
    world: Simulation, reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controller, "_logs_failed", deaf)
    world.machine.files.fail_next_write(errno.EIO, 0, match="t_0")
    write_for(world, 40)
    assert (leader(world), reasons) == (0, [])


def test_a_leader_without_another_replica_in_sync_leads_on(world: Simulation, reasons: list[str]) -> None:
    world.machine_of(1).kill()
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 16_000)
    fill(world)
    write_for(world, 40)
    assert (leader(world), reasons) == (0, [])


def test_failed_flush_moves_leadership_without_a_write(world: Simulation) -> None:
    log = world.machine.broker.logs.get(T0) if world.machine.running else None
    assert log is not None
    world.produce("t", b"x")
    world.machine.files.fail_next_sync(errno.EIO, match="t_0")
    with pytest.raises(Exception, match="cannot flush"):
        log.flush()
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 2_000)
    assert leader(world) == 1


def test_removed_log_moves_leadership_without_a_write(world: Simulation, reasons: list[str]) -> None:
    world.produce("t", b"x")
    world.machine.files.remove_tree("/data/t_0")
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 7_000)
    assert (leader(world), reasons) == (1, [])


def test_a_broker_whose_data_directory_was_removed_stops(world: Simulation, reasons: list[str]) -> None:
    world.produce("t", b"x")
    world.machine.files.remove_tree("/data")
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 20_000)
    assert len(reasons) == 1
    assert reasons[0].startswith(
        "data directory /data was removed or emptied while in use: stopping this broker"
    )
    assert leader(world) == 1


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("produce to t-0 failed")]


def test_repeated_write_failures_are_logged_once_a_minute(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    world.machine_of(1).kill()
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 16_000)
    fill(world)
    write_for(world, 50)
    assert len(refusals(caplog)) == 1
    write_for(world, 20)
    first, second = refusals(caplog)
    assert second == f"{first} (repeated 60 times)"


def test_new_write_failure_after_a_while_is_logged_again(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    world.machine_of(1).kill()
    world.network.wait(lambda: False, world.clock.monotonic_ms() + 16_000)
    for _ in range(2):
        fill(world)
        write_for(world, 3)
        world.machine.files.capacity_bytes = None
        write_for(world, 12)
    assert len(refusals(caplog)) == 2
