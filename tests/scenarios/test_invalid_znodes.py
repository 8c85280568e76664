"""Invalid znodes written by hand: they are logged and ignored, and the cluster still works."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from minikafka.base.errors import ErrorCode
from tests.scenarios.script_simulation import ScriptSimulation
from tests.support import requests

INVALID_DATA = {
    "nothing": b"",
    "no text": b"\xff\x00\xfe",
    "no JSON": b"{",
    "another thing": b"[]",
    "an empty object": b"{}",
    "wrong values": (
        b'{"version":"x","partitions":7,"partition":[1],"leader":"a","isr":{},"leader_epoch":null,'
        b'"controller_epoch":[],"config":9,"brokerid":"x","entity_path":[],"endpoints":3,"host":5,"port":"p"}'
    ),
    "a broker twice": (
        b'{"version":1,"partitions":{"0":[0,0]},"leader":0,"leader_epoch":0,"isr":[0,0],"controller_epoch":1}'
    ),
    "no broker": (
        b'{"version":1,"partitions":{"0":[]},"leader":-7,"leader_epoch":-1,"isr":[],"controller_epoch":-1}'
    ),
    "what cannot be": (
        b'{"version":1,"partitions":[{"topic":"gone","partition":9,"replicas":[77]},'
        b'{"topic":"t","partition":99,"replicas":[0]},{"topic":"t","partition":0,"replicas":[88]}]}'
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place for invalid data."""

    path: str
    named: str | None = None
    """The text that must be logged (default: the path); "" if nothing is logged."""
    sequential: bool = False


PLACES = (
    Place("/brokers/topics/t"),
    Place("/brokers/topics/made-by-hand"),
    Place("/brokers/topics/no name"),
    Place(f"/brokers/topics/{'l' * 250}"),
    Place("/brokers/topics/t/partitions/0/state"),
    Place("/brokers/topics/t/partitions/nonsense", named=""),
    Place("/brokers/ids/7"),
    Place("/brokers/ids/nonsense"),
    Place("/brokers/ids/1"),
    Place("/admin/reassign_partitions"),
    Place("/admin/preferred_replica_election"),
    Place("/admin/delete_topics/gone", named="gone"),
    Place("/admin/nonsense", named=""),
    Place("/controller"),
    Place("/controller_epoch"),
    Place("/config/topics/t"),
    Place("/config/topics/gone", named=""),
    Place("/config/clients/c"),
    Place("/config/users/u"),
    Place("/config/users/u/clients/c"),
    Place("/config/changes/config_change_", sequential=True),
    Place("/config/changes/nonsense"),
    Place("/isr_change_notification/isr_change_", sequential=True),
    Place("/isr_change_notification/nonsense"),
    Place("/log_dir_event_notification/log_dir_event_", sequential=True),
    Place("/brokers/seqid", named=""),
    Place("/latest_producer_id_block", named=""),
)


def place(simulation: ScriptSimulation, topic: str) -> ErrorCode:
    """Create a topic with one partition on both brokers."""
    answer = simulation.call(requests.place_topic(topic, (0, 1)))
    return ErrorCode.of(answer.topics[0].error_code)


def write(simulation: ScriptSimulation, at: Place, data: bytes) -> None:
    observer = simulation.zookeeper.connect()
    if at.sequential or observer.exists(at.path) is None:
        observer.create(at.path, data, sequential=at.sequential, make_parents=True)
    else:
        observer.write(at.path, data)
    observer.close()


def pass_time(simulation: ScriptSimulation, seconds: int) -> None:
    simulation.network.wait(lambda: False, simulation.clock.monotonic_ms() + seconds * 1_000)


@pytest.mark.parametrize("last", ["no JSON", "what cannot be"])
@pytest.mark.parametrize("at", PLACES, ids=lambda at: at.path)
def test_invalid_znode_is_logged_and_the_controller_survives(at: Place, last: str) -> None:
    with ScriptSimulation() as simulation:
        for number in (0, 1):
            simulation.machine_of(number).start()
        for topic in ("t", "good"):
            assert place(simulation, topic) is ErrorCode.NONE
        simulation.log.take()
        logged = ""
        for kind in (*(INVALID_DATA.keys() - {last}), last):
            write(simulation, at, INVALID_DATA[kind])
            pass_time(simulation, 3)
            logged += "\n".join(simulation.log.take())
        assert place(simulation, "after") is ErrorCode.NONE
        assert simulation.produce("good", b"x").error_code == 0

        # The next controller, which reads everything, also ignores it.
        simulation.machine_of(0).kill()
        simulation.zookeeper.expire(simulation.machine_of(0).store)
        simulation.move_to("machine-1")
        pass_time(simulation, 5)
        assert simulation.machine_of(1).broker.controller.active
        assert simulation.produce("good", b"y").error_code == 0
        simulation.machine_of(0).start()
        pass_time(simulation, 5)
        assert place(simulation, "later") is ErrorCode.NONE
        logged += "\n".join(simulation.log.take())
        assert "rror(" not in logged, "an unexpected exception"
        assert at.named == "" or (at.named or at.path) in logged
