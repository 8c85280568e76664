"""Topic ids in the logs of brokers, and in the controller's requests to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.files import read_file, replace_file
from minikafka.base.ids import BrokerAddress, TopicPartition, uuid_text
from minikafka.log.checkpoints.partition_metadata import read_topic_id, write_topic_id
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry import paths
from minikafka.registry.topics import PartitionState, TopicAssignment
from minikafka.server.control import controller_requests as messages
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import FetchRequest, FetchTopic, consumer_partition
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartitionError, LeaderAndIsrTopicError
from tests.support.requests import Request, place_topic
from tests.support.simulation import DATA_DIR, PORT, Machine, Simulation

T0 = TopicPartition("t", 0)
CREATIONS = f"{DATA_DIR}/topic-creations.json"
SECOND_MS = 1_000
FOREIGN = bytes(range(16))


def id_in_zookeeper(simulation: Simulation) -> bytes | None:
    store = simulation.zookeeper.connect()
    return TopicAssignment.from_json(store.read(paths.topic_path("t"))[0], "").topic_id


def id_of_log(machine: Machine) -> bytes | None:
    return read_topic_id(machine.files, f"{DATA_DIR}/t_0")


def make_again(simulation: Simulation, topic_id: bytes | None = None) -> None:
    """Remove the topic's znodes by hand and create it again with the same replicas."""
    store = simulation.zookeeper.connect()
    held = TopicAssignment.from_json(store.read(paths.topic_path("t"))[0], "")
    store.delete(paths.topic_path("t"), recursive=True)
    store.create(paths.topic_path("t"), replace(held, topic_id=topic_id).to_json())


def write_id(simulation: Simulation, topic_id: bytes | None) -> bytes | None:
    """Give the topic another id in its znode by hand; return the one before."""
    store, path = simulation.zookeeper.connect(), paths.topic_path("t")
    held = TopicAssignment.from_json(store.read(path)[0], "")
    store.write(path, replace(held, topic_id=topic_id).to_json())
    return held.topic_id


def values(simulation: Simulation) -> list[bytes | None]:
    return [record.value for record in simulation.records("t")]


def with_a_record(count: int = 1) -> Simulation:
    """A topic on each broker, of which broker 0 leads, with a record."""
    simulation = Simulation()
    simulation.start_brokers(count, {})
    simulation.move_to_controller()
    simulation.call(place_topic("t", tuple(range(count))))
    simulation.move_to("machine-0")
    assert simulation.produce("t", b"old").error_code == ErrorCode.NONE
    simulation.pass_time(SECOND_MS)
    return simulation


def strays(machine: Machine) -> list[str]:
    return [name for name in machine.files.list_dir(DATA_DIR) if name.endswith("-stray")]


def test_logs_of_all_replicas_have_the_topics_id_within_a_second() -> None:
    simulation = with_a_record(2)
    wanted = id_in_zookeeper(simulation)
    assert wanted is not None
    assert [id_of_log(machine) for machine in simulation.machines.values()] == [wanted, wanted]


def test_logs_have_no_ids_beside_brokers_that_know_none() -> None:
    simulation = Simulation.serving("t", properties={"inter.broker.protocol.version": "2.7"})
    simulation.pass_time(SECOND_MS)
    assert id_in_zookeeper(simulation) is None
    assert id_of_log(simulation.machine) is None


def test_log_of_an_earlier_version_gets_the_id_at_the_next_start() -> None:
    simulation = with_a_record()
    simulation.machine.stop()
    simulation.machine.files.remove(f"{DATA_DIR}/t_0/partition.metadata")
    simulation.machine.start()
    simulation.pass_time(SECOND_MS)
    assert id_of_log(simulation.machine) == id_in_zookeeper(simulation)
    assert values(simulation) == [b"old"]


def test_log_of_another_broker_program_is_known_by_its_id_alone() -> None:
    simulation = with_a_record()
    simulation.machine.kill()
    simulation.machine.files.remove(CREATIONS)  # as Kafka has none
    make_again(simulation)
    simulation.machine.start()
    simulation.pass_time(10 * SECOND_MS)
    assert values(simulation) == []
    assert strays(simulation.machine) == ["t_0.0-stray"]
    assert id_of_log(simulation.machine) == id_in_zookeeper(simulation) not in {None, FOREIGN}


def test_log_that_another_program_made_for_the_topic_is_served() -> None:
    simulation = with_a_record()
    simulation.machine.stop()
    # Kafka used the directory meanwhile: the topic was made again, and so was its log.
    make_again(simulation, FOREIGN)
    write_topic_id(simulation.machine.files, f"{DATA_DIR}/t_0", FOREIGN)
    simulation.machine.start()
    simulation.pass_time(10 * SECOND_MS)
    assert values(simulation) == [b"old"]
    assert strays(simulation.machine) == []


def test_topic_keeps_its_log_when_it_gets_another_id_in_place() -> None:
    simulation = with_a_record()
    simulation.machine.kill()
    before = write_id(simulation, None)  # a tool of 0.10.1
    simulation.machine.start()
    simulation.pass_time(10 * SECOND_MS)
    assert id_of_log(simulation.machine) == id_in_zookeeper(simulation) != before
    assert values(simulation) == [b"old"]


def test_controller_takes_over_an_id_that_is_written_by_hand() -> None:
    simulation = with_a_record(2)
    write_id(simulation, FOREIGN)
    simulation.pass_time(SECOND_MS)
    simulation.machine_of(1).stop()
    simulation.machine_of(1).start()
    simulation.pass_time(10 * SECOND_MS)
    assert [id_of_log(machine) for machine in simulation.machines.values()][1] == FOREIGN
    assert id_in_zookeeper(simulation) == FOREIGN
    assert values(simulation) == [b"old"]


def test_log_whose_file_is_invalid_is_offline_until_it_is_mended(caplog: pytest.LogCaptureFixture) -> None:
    simulation = with_a_record()
    files, path = simulation.machine.files, f"{DATA_DIR}/t_0/partition.metadata"
    simulation.machine.stop()
    whole = read_file(files, path)
    replace_file(files, path, whole[:20])
    simulation.machine.start()
    simulation.pass_time(SECOND_MS)
    assert f"{path} is not a partition metadata file" in caplog.text
    assert simulation.fetch("t").error_code != ErrorCode.NONE
    replace_file(files, path, whole)
    simulation.pass_time(60 * SECOND_MS)
    assert values(simulation) == [b"old"]


def test_log_with_an_unreadable_id_is_judged_once_it_can_be_read() -> None:
    simulation = with_a_record()
    files = simulation.machine.files
    simulation.machine.kill()
    files.remove(CREATIONS)
    make_again(simulation)
    for _ in range(2):
        files.fail_next_read(match="partition.metadata")
    simulation.machine.start()
    simulation.pass_time(60 * SECOND_MS)
    assert values(simulation) == []
    assert strays(simulation.machine) == ["t_0.0-stray"]


# --- requests of the controller -----------------------------------------------------------------------------


def led_by_0(
    simulation: Simulation, topic_id: bytes, version: int = 5, *, epoch: int = 7
) -> tuple[ErrorCode, ...]:
    """Send broker 0 a LeaderAndIsr in the name of the controller; return the results for partitions."""
    led = {T0: LeaderAndIsr(0, epoch, (0,), (0,), 1)}
    named = {0: BrokerAddress(0, "machine-0", PORT)}
    body = messages.leader_and_isr(0, 1, led, named, {"t": topic_id}, version)
    response = simulation.call(Request(ApiKey.LEADER_AND_ISR, version, body))
    if version == messages.LEADER_AND_ISR_VERSION:
        (topic,) = response.topics
        assert topic == LeaderAndIsrTopicError(
            topic_id, tuple(LeaderAndIsrPartitionError("", 0, row.error_code) for row in topic.partitions)
        )
    return tuple(messages.parse_leader_and_isr_response(response, {"t": topic_id}).values())


def test_leadership_for_another_topic_is_refused_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulation = with_a_record()
    before = simulation.machine.broker.partitions[T0].leadership
    assert led_by_0(simulation, FOREIGN) == (ErrorCode.INCONSISTENT_TOPIC_ID,)
    assert simulation.machine.broker.partitions[T0].leadership == before
    assert values(simulation) == [b"old"]
    assert f"ignored a leadership of t-0 of the topic with id {uuid_text(FOREIGN)}" in caplog.text


def test_late_leadership_of_the_earlier_topic_makes_no_log() -> None:
    simulation = Simulation()
    simulation.start_brokers(2, {})
    simulation.move_to_controller()
    simulation.call(place_topic("t", (1,)))
    earlier = id_in_zookeeper(simulation)
    assert earlier is not None
    make_again(simulation)
    simulation.pass_time(SECOND_MS)
    simulation.move_to("machine-0")
    assert led_by_0(simulation, earlier) == (ErrorCode.INCONSISTENT_TOPIC_ID,)
    assert not simulation.machine.files.exists(f"{DATA_DIR}/t_0")


def test_log_of_a_topic_without_znodes_is_not_the_next_topics() -> None:
    simulation = with_a_record()
    earlier, store = id_in_zookeeper(simulation), simulation.zookeeper.connect()
    assert earlier is not None
    store.delete(paths.topic_path("t"), recursive=True)
    simulation.pass_time(SECOND_MS)
    assert led_by_0(simulation, FOREIGN) == (ErrorCode.INCONSISTENT_TOPIC_ID,)
    assert led_by_0(simulation, earlier) == (ErrorCode.NONE,)
    store.create(paths.topic_path("t"), TopicAssignment({0: (0,)}).to_json())
    simulation.pass_time(10 * SECOND_MS)
    assert values(simulation) == []
    assert strays(simulation.machine) == ["t_0.0-stray"]


def test_log_made_for_a_topic_without_znodes_is_not_the_next_topics() -> None:
    simulation = Simulation()
    simulation.start_brokers(2, {})
    simulation.move_to("machine-0")
    assert led_by_0(simulation, FOREIGN) == (ErrorCode.NONE,)  # it was sent before the znodes were removed
    assert simulation.produce("t", b"old").error_code == ErrorCode.NONE
    store = simulation.zookeeper.connect()
    store.create(paths.topic_path("t"), TopicAssignment({0: (0,)}).to_json())
    simulation.pass_time(10 * SECOND_MS)
    assert values(simulation) == []
    assert strays(simulation.machine) == ["t_0.0-stray"]


def test_served_log_takes_the_first_id_of_its_topic() -> None:
    simulation = Simulation.serving("t", properties={"inter.broker.protocol.version": "2.7"})
    write_id(simulation, FOREIGN)
    known = simulation.machine.broker.partitions[T0].leadership
    assert known is not None
    assert led_by_0(simulation, FOREIGN, epoch=known.leader_epoch) == (ErrorCode.NONE,)
    simulation.pass_time(SECOND_MS)
    assert id_of_log(simulation.machine) == FOREIGN


@pytest.mark.parametrize("version", range(5))
def test_versions_without_ids_are_served_too(version: int) -> None:
    simulation = with_a_record()
    assert led_by_0(simulation, FOREIGN, version) == (ErrorCode.NONE,)
    leadership = simulation.machine.broker.partitions[T0].leadership
    assert leadership is not None
    assert leadership.leader_epoch == 7


def test_fetch_by_the_earlier_id_gets_nothing_of_the_next_topics_log() -> None:
    simulation = with_a_record()
    earlier, store = id_in_zookeeper(simulation), simulation.zookeeper.connect()
    assert earlier is not None
    simulation.watches_are_held = True  # the metadata cache has the earlier topic meanwhile
    make_again(simulation, FOREIGN)
    state = PartitionState(0, 7, (0,), 1)
    store.create(paths.partition_state_path("t", 0), state.to_json(), make_parents=True)
    assert led_by_0(simulation, FOREIGN) == (ErrorCode.NONE,)
    assert simulation.produce("t", b"new").error_code == ErrorCode.NONE
    assert simulation.machine.broker.metadata_cache.topic_ids["t"] == earlier
    topic = FetchTopic("", (consumer_partition(0, 0, 1 << 20),), topic_id=earlier)
    request = Request(ApiKey.FETCH, 13, FetchRequest(-1, 0, 0, 1 << 20, 0, 0, -1, (topic,)))
    (part,) = simulation.call(request).topics[0].partitions
    assert part.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert not part.records
