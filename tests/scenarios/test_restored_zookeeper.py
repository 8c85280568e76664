"""ZooKeeper restored from an older copy, or emptied, under running or restarted brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from minikafka.base.errors import CoordinationError, ErrorCode, InconsistentClusterId
from minikafka.base.files import read_file
from minikafka.base.ids import TopicPartition
from minikafka.controller import events
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets, write_offsets
from minikafka.registry.controller import ControllerEpoch
from minikafka.registry.entity_configs import EntityConfig
from minikafka.registry.memory import MemoryCopy, MemoryStore
from minikafka.server.admin import topics
from minikafka.server.zookeeper.counters import observe_topics
from tests.support import requests
from tests.support.simulation import DATA_DIR, Machine, Simulation

BROKERS = 3
PROPERTIES = {"replica.lag.time.max.ms": "3000"}


def cluster(simulation: Simulation, brokers: int = BROKERS) -> list[Machine]:
    """Start a broker on each machine, and create a topic on all of them."""
    machines = simulation.start_brokers(brokers, PROPERTIES)
    create_topic(simulation, "t", brokers)
    return machines


def create_topic(simulation: Simulation, name: str, replicas: int) -> None:
    """Create a topic through the controller."""
    simulation.move_to_controller()
    assert simulation.create_topic(name, replicas=replicas) == 0


def leader_of(simulation: Simulation) -> tuple[int, int]:
    """Return the leader and leader epoch of the partition in ZooKeeper."""
    store = simulation.zookeeper.connect()
    state = json.loads(store.read(paths.partition_state_path("t", 0))[0])
    store.close()
    return state["leader"], state["leader_epoch"]


def produce(simulation: Simulation, *values: bytes) -> None:
    """Produce to the leader until the messages are acknowledged."""
    for _ in range(60):
        leader, _ = leader_of(simulation)
        if leader >= 0 and simulation.machine_of(leader).running is not None:
            simulation.move_to(f"machine-{leader}")
            if simulation.produce("t", *values).error_code == ErrorCode.NONE:
                return
        simulation.pass_time(500)
    raise AssertionError(f"{values} were not acknowledged within 30 s")


def values(simulation: Simulation) -> list[bytes | None]:
    simulation.move_to(f"machine-{leader_of(simulation)[0]}")
    return [record.value for record in simulation.records("t")]


def bounce(simulation: Simulation, machine: Machine, properties: Mapping[str, str] = PROPERTIES) -> None:
    """Restart a broker after others have taken over its partitions."""
    machine.stop()
    simulation.pass_time(4_000)
    machine.start(properties)
    simulation.pass_time(6_000)


def copied_before(simulation: Simulation, bounces: int) -> tuple[list[Machine], MemoryCopy]:
    """Return the machines of a cluster, and a copy of ZooKeeper from before so many restarts."""
    machines = cluster(simulation)
    produce(simulation, b"a")
    copy = simulation.zookeeper.copy()
    for number in range(bounces):
        bounce(simulation, machines[number % BROKERS])
        produce(simulation, b"b%d" % number)
    return machines, copy


@pytest.mark.parametrize("bounces", [0, 1, 5])
def test_running_brokers_survive_a_restored_zookeeper(bounces: int) -> None:
    simulation = Simulation()
    machines, copy = copied_before(simulation, bounces)
    before = values(simulation)
    simulation.zookeeper.restore(copy)
    simulation.pass_time(10_000)
    simulation.end_stray_sessions()
    produce(simulation, b"c")
    assert values(simulation) == [*before, b"c"]
    bounce(simulation, machines[leader_of(simulation)[0]])
    produce(simulation, b"d")
    assert values(simulation) == [*before, b"c", b"d"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("bounces", [0, 1, 5])
def test_brokers_started_on_a_restored_zookeeper_lose_nothing(bounces: int, order: tuple[int, ...]) -> None:
    simulation = Simulation()
    machines, copy = copied_before(simulation, bounces)
    before = values(simulation)
    for machine in machines:
        machine.kill()
    simulation.zookeeper.restore(copy)
    for number in order:
        machines[number].start(PROPERTIES)
        simulation.pass_time(4_000)
    simulation.end_stray_sessions()
    produce(simulation, b"c")
    assert values(simulation) == [*before, b"c"]


def test_lowered_controller_epoch_rises_above_the_known_ones() -> None:
    simulation = Simulation()
    machines = cluster(simulation)
    for machine in machines[:2]:
        bounce(simulation, machine)
    store = simulation.zookeeper.connect()
    store.write(paths.CONTROLLER_EPOCH, ControllerEpoch(0).to_json())
    controller = json.loads(store.read(paths.CONTROLLER)[0])["brokerid"]
    bounce(simulation, machines[controller])
    assert int(store.read(paths.CONTROLLER_EPOCH)[0]) > 1
    create_topic(simulation, "u", BROKERS)
    produce(simulation, b"a")
    assert values(simulation) == [b"a"]


def test_emptied_zookeeper_is_reported_once_and_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation()
    cluster(simulation, 1)
    assert simulation.produce("t", b"a").error_code == ErrorCode.NONE
    copy = simulation.zookeeper.copy()
    caplog.clear()
    simulation.zookeeper.restore(None)
    simulation.pass_time(120_000)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "/cluster/id does not exist" in errors[0]
    assert simulation.produce("t", b"b").error_code == ErrorCode.NONE
    store = simulation.zookeeper.connect()
    assert store.exists(paths.BROKER_TOPICS) is None
    store.close()
    simulation.zookeeper.restore(copy)
    simulation.end_stray_sessions()
    create_topic(simulation, "u", 1)
    assert values(simulation) == [b"a", b"b"]


def test_removal_of_all_znodes_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation()
    cluster(simulation, 1)
    assert simulation.produce("t", b"a").error_code == ErrorCode.NONE
    store = simulation.zookeeper.connect()
    for name in store.children("/"):
        store.delete(f"/{name}", recursive=True)
    simulation.pass_time(10_000)
    assert "/cluster/id does not exist" in caplog.text
    assert simulation.produce("t", b"b").error_code == ErrorCode.NONE
    assert [record.value for record in simulation.records("t")] == [b"a", b"b"]


def test_broker_changes_nothing_in_the_zookeeper_of_another_cluster() -> None:
    other = Simulation(seed=7)
    cluster(other, 1)
    theirs = other.zookeeper.copy()
    simulation = Simulation()
    (machine,) = cluster(simulation, 1)
    assert simulation.produce("t", b"a").error_code == ErrorCode.NONE
    copy = simulation.zookeeper.copy()
    simulation.zookeeper.restore(theirs)
    simulation.pass_time(20_000)
    simulation.end_stray_sessions()
    store = simulation.zookeeper.connect()
    before = tree(store)
    deletion = simulation.call(requests.delete_topics("t"))
    assert deletion.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert simulation.create_topic("mine") == ErrorCode.NOT_CONTROLLER
    simulation.pass_time(2_000)
    zk_client, name = machine.broker.zk_client, TopicPartition("t", 0)
    known = machine.broker.partitions[name].leadership
    assert known is not None
    for write in (
        lambda: zk_client.topics.create({"mine": ({0: (0,)}, {})}),
        lambda: zk_client.request_deletions(["t"]),
        lambda: zk_client.add_partitions("t", {1: (0,)}),
        lambda: zk_client.settings.change(paths.TOPICS, "t", {"retention.ms": "1"}),
        zk_client.take_producer_ids,
        lambda: zk_client.raise_producer_ids(0, 5),
        lambda: zk_client.remove_topic("t"),
        lambda: zk_client.assign(events.WriteAssignments({"t": {0: (5,)}}), beside_0_10=False),
        lambda: zk_client.write_leaderships({name: replace(known, version=known.version + 1)}, create=False),
        lambda: zk_client.states.report_isr_changes([name]),
        lambda: write_offsets(zk_client.store, "g", {name: 1}),
    ):
        with pytest.raises(InconsistentClusterId):
            write()
    assert tree(store) == before
    store.close()
    simulation.zookeeper.restore(copy)
    simulation.end_stray_sessions()
    create_topic(simulation, "u", 1)
    assert simulation.produce("t", b"b").error_code == ErrorCode.NONE
    assert values(simulation) == [b"a", b"b"]


def test_broker_killed_while_it_registers_restarts_at_once() -> None:
    simulation = Simulation()
    (machine,) = cluster(simulation, 1)
    simulation.zookeeper.suspend_at_next_write(machine.store)
    simulation.zookeeper.expire(machine.store)
    simulation.settle()
    machine.kill()
    assert simulation.zookeeper.connect().exists(paths.broker_path(0)) is not None
    assert machine.start(PROPERTIES)


def test_nothing_is_read_from_the_zookeeper_of_another_cluster() -> None:
    other = Simulation(seed=7)
    cluster(other, 1)
    theirs = other.zookeeper.connect()
    theirs.write(paths.config_path(paths.TOPICS, "t"), EntityConfig({"retention.ms": "1"}).to_json())
    quota = EntityConfig({"producer_byte_rate": "1"}).to_json()
    theirs.create(paths.config_path(paths.CLIENTS, "simulation"), quota, make_parents=True)
    theirs.create(paths.consumer_offset_path("g", "t", 0), b"7", make_parents=True)
    theirs.close()
    simulation = Simulation()
    (machine,) = cluster(simulation, 1)
    copy = simulation.zookeeper.copy()
    simulation.zookeeper.restore(other.zookeeper.copy())
    simulation.pass_time(20_000)
    broker, name = machine.broker, TopicPartition("t", 0)
    log = broker.logs.logs()[name]
    kept_ms = log.config.limits.retention_ms
    described = simulation.call(requests.describe_configs("t"))
    assert described.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    fetched = simulation.call(requests.fetch_offsets("t").at(0))
    part = fetched.topics[0].partitions[0]
    assert (part.error_code, part.committed_offset) == (ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, -1)
    known = broker.partitions[name].leadership
    assert known is not None
    zk_client = broker.zk_client
    for read in (
        lambda: zk_client.settings.of_topics(["t"]),
        zk_client.settings.of_all_topics,
        zk_client.settings.of_clients_and_users,
        lambda: zk_client.settings.of(paths.BROKERS, "0"),
        lambda: zk_client.topics.incarnations(["t"]),
        lambda: observe_topics(zk_client.store, broker.logs.topic_incarnations),
        lambda: zk_client.states.read({name: (0,)}),
        lambda: read_offsets(zk_client.store, "g", [name]),
        zk_client.has_topics,
        zk_client.requests.elections,
        zk_client.requests.reassignments,
    ):
        with pytest.raises(InconsistentClusterId):
            read()
    assert log.config.limits.retention_ms == kept_ms
    simulation.zookeeper.restore(copy)
    simulation.end_stray_sessions()
    create_topic(simulation, "u", 1)
    assert zk_client.settings.of_topics(["t"]) == {"t": {}}


def tree(store: MemoryStore, above: str = "") -> dict[str, tuple[bytes, int]]:
    """Return data and version of all znodes by path."""
    found = {}
    for name in store.children(above or "/"):
        data, stat = store.read(f"{above}/{name}")
        found[f"{above}/{name}"] = data, stat.version
        found |= tree(store, f"{above}/{name}")
    return found


def test_pending_write_is_not_made_in_another_cluster() -> None:
    other = Simulation(seed=7)
    cluster(other, 1)
    theirs = other.zookeeper.copy()
    simulation = Simulation()
    (machine,) = cluster(simulation, 1)
    zk_client = machine.broker.zk_client
    simulation.zookeeper.restore(theirs)
    store = simulation.zookeeper.connect()
    before = store.children(paths.BROKER_TOPICS)
    for _ in range(60):  # a write before, during and after the creation of the new session
        with pytest.raises(CoordinationError):
            zk_client.topics.create({"mine": ({0: (0,)}, {})})
        simulation.pass_time(500)
    assert store.children(paths.BROKER_TOPICS) == before
    store.close()


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("bounced", [False, True])
@pytest.mark.parametrize("ghosts", [False, True])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_replica_down_since_the_copy_does_not_truncate_others(
    order: tuple[int, ...], bounced: bool, ghosts: bool, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics.random, "randrange", lambda end: first)  # the first leader
    properties = {**PROPERTIES, "min.insync.replicas": "2"}
    simulation = Simulation()
    machines = simulation.start_brokers(BROKERS, properties)
    create_topic(simulation, "t", BROKERS)
    produce(simulation, b"a")
    copy = simulation.zookeeper.copy()
    machines[0].kill()
    simulation.zookeeper.expire(machines[0].store)
    simulation.pass_time(6_000)
    produce(simulation, b"b")
    if bounced:
        machines[1].stop()
        simulation.pass_time(4_000)
        machines[1].start(properties)
        simulation.pass_time(10_000)
        produce(simulation, b"b2")
    before = values(simulation)
    for machine in machines[1:]:
        machine.stop()
    simulation.zookeeper.restore(copy)
    if not ghosts:
        simulation.zookeeper.end_stray_sessions()
    for number in order:
        machines[number].start(properties)
        simulation.pass_time(4_000)
    simulation.end_stray_sessions()
    produce(simulation, b"c")
    assert values(simulation) == [*before, b"c"]


# --- topics that were created, deleted or recreated since the copy ----------------------------------------


def wait_for_leader(simulation: Simulation, topic: str) -> int:
    """Wait for a leader of the topic's only partition, and connect to it; return its number."""
    for _ in range(60):
        for number, machine in simulation.machines.items():
            running = machine.running is not None
            partition = machine.broker.partitions.get(TopicPartition(topic, 0)) if running else None
            if partition is not None and partition.is_leader:
                simulation.move_to(f"machine-{number}")
                return number
        simulation.pass_time(500)
    raise AssertionError(f"{topic} has no leader within 30 s")


def stray_directories(machine: Machine) -> list[str]:
    return [name for name in machine.files.list_dir(DATA_DIR) if name.endswith(("-stray", "-delete"))]


def values_of(simulation: Simulation, topic: str) -> list[bytes | None]:
    wait_for_leader(simulation, topic)
    return [record.value for record in simulation.records(topic)]


def delete_and_recreate(simulation: Simulation, machines: list[Machine], topic: str) -> None:
    """Delete a topic, and create one of the same name."""
    leader = wait_for_leader(simulation, topic)
    simulation.move_to_controller()
    answer = simulation.call(requests.delete_topics(topic, timeout_ms=10_000))
    assert answer.topics[0].error_code == ErrorCode.NONE, leader
    simulation.pass_time(5_000)
    create_topic(simulation, topic, len(machines))


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("running", [True, False])
def test_topic_recreated_since_the_copy_keeps_its_records(brokers: int, running: bool) -> None:
    simulation = Simulation()
    machines = cluster(simulation, brokers)
    produce(simulation, b"old")
    copy = simulation.zookeeper.copy()
    delete_and_recreate(simulation, machines, "t")
    wait_for_leader(simulation, "t")
    assert simulation.produce("t", b"new").error_code == ErrorCode.NONE
    restore(simulation, machines, copy, running=running)
    assert values_of(simulation, "t") == [b"new"]
    assert simulation.produce("t", b"more").error_code == ErrorCode.NONE
    assert values_of(simulation, "t") == [b"new", b"more"]
    assert [stray_directories(machine) for machine in machines] == [[]] * brokers


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("before", [0, 30])
def test_lost_topic_gets_its_records_when_recreated(brokers: int, running: bool, before: int) -> None:
    simulation = Simulation()
    machines = cluster(simulation, brokers)
    copy = simulation.zookeeper.copy()
    create_topic(simulation, "u", brokers)
    wait_for_leader(simulation, "u")
    assert simulation.produce("u", b"a").error_code == ErrorCode.NONE
    simulation.pass_time(5_000)
    restore(simulation, machines, copy, running=running)
    for number in range(before):  # ZooKeeper's zxid is larger than at the first creation of the topic
        create_topic(simulation, f"x{number}", 1)
    create_topic(simulation, "u", brokers)
    assert values_of(simulation, "u") == [b"a"]
    assert simulation.produce("u", b"b").error_code == ErrorCode.NONE
    assert values_of(simulation, "u") == [b"a", b"b"]
    assert [stray_directories(machine) for machine in machines] == [[]] * brokers


@pytest.mark.parametrize(("running", "failures"), [(True, 0), (True, 1), (True, 2), (False, 0)])
def test_pending_deletion_of_the_copy_spares_the_later_topic(running: bool, failures: int) -> None:
    simulation = Simulation()
    machines = cluster(simulation, 1)
    produce(simulation, b"old")
    store = simulation.zookeeper.connect()
    machines[0].kill()
    simulation.zookeeper.expire(machines[0].store)
    store.create(f"{paths.DELETE_TOPICS}/t")
    copy = simulation.zookeeper.copy()
    machines[0].start(PROPERTIES)
    simulation.pass_time(5_000)
    assert store.exists(paths.topic_path("t")) is None
    store.close()
    create_topic(simulation, "t", 1)
    wait_for_leader(simulation, "t")
    assert simulation.produce("t", b"new").error_code == ErrorCode.NONE
    for _ in range(failures):
        machines[0].files.fail_next_rename(match="t_0")
    restore(simulation, machines, copy, running=running)
    kept = [name for name in stray_directories(machines[0]) if name.endswith("-stray")]
    assert len(kept) == 1
    assert b"new" in contents(machines[0], kept[0])


def test_log_of_a_lost_topic_is_set_aside_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation()
    machine = cluster(simulation, 1)[0]
    copy = simulation.zookeeper.copy()
    create_topic(simulation, "u", 1)
    wait_for_leader(simulation, "u")
    assert simulation.produce("u", b"lost").error_code == ErrorCode.NONE
    simulation.pass_time(5_000)
    machine.kill()
    simulation.zookeeper.restore(copy)
    simulation.zookeeper.end_stray_sessions()
    store = simulation.zookeeper.connect()
    for name in ("x0", "x1", "x2", "u"):
        store.create(paths.topic_path(name), b'{"version":1,"partitions":{"0":[0]}}')
    store.close()
    machine.start(PROPERTIES)
    simulation.pass_time(10_000)
    kept = stray_directories(machine)
    assert [name for name in kept if name.startswith("u_0.")] == kept != []
    assert b"lost" in contents(machine, kept[0])
    messages = [message for message in caplog.messages if f" as {DATA_DIR}/{kept[0]}: " in message]
    assert len(messages) == 1
    assert "ZooKeeper was restored from an older copy" in messages[0]


def contents(machine: Machine, directory: str) -> bytes:
    """Return the contents of all files in a log's directory."""
    path = f"{DATA_DIR}/{directory}"
    return b"".join(read_file(machine.files, f"{path}/{name}") for name in machine.files.list_dir(path))


def restore(simulation: Simulation, machines: list[Machine], copy: MemoryCopy, *, running: bool) -> None:
    """Restore the copy, under running brokers or while all are down."""
    if not running:
        for machine in machines:
            machine.kill()
    simulation.zookeeper.restore(copy)
    if not running:
        for machine in machines:
            machine.start(PROPERTIES)
    simulation.pass_time(10_000)
    simulation.end_stray_sessions()


# --- partitions that were moved since the copy -----------------------------------------------------------


def reassign(simulation: Simulation, *replicas: int) -> None:
    """Reassign the partition, and wait until that is complete."""
    store = simulation.zookeeper.connect()
    wanted = {"topic": "t", "partition": 0, "replicas": list(replicas)}
    store.create(paths.REASSIGN_PARTITIONS, json.dumps({"version": 1, "partitions": [wanted]}).encode())
    for _ in range(60):
        simulation.pass_time(500)
        if store.exists(paths.REASSIGN_PARTITIONS) is None:
            store.close()
            return
    raise AssertionError("the reassignment did not end within 30 s")


def moved_since_the_copy(simulation: Simulation, *, running: bool) -> tuple[list[Machine], int, int]:
    """Move the only replica of a partition with two records, and restore ZooKeeper from before. Return the
    machines, the broker in ZooKeeper and the broker with the log.
    """
    machines = simulation.start_brokers(BROKERS, PROPERTIES)
    create_topic(simulation, "t", 1)
    wait_for_leader(simulation, "t")
    produce(simulation, b"a")
    before, copy = leader_of(simulation)[0], simulation.zookeeper.copy()
    after = (before + 1) % BROKERS
    reassign(simulation, after)
    produce(simulation, b"b")
    restore(simulation, machines, copy, running=running)
    return machines, before, after


@pytest.mark.parametrize("running", [True, False])
def test_log_of_a_partition_moved_since_the_copy_is_reported(
    running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation()
    machines, before, after = moved_since_the_copy(simulation, running=running)
    messages = [message for message in caplog.messages if f"{DATA_DIR}/t_0 (its replicas are on" in message]
    assert len(messages) == 1
    assert f"brokers [{before}]" in messages[0]
    assert "minikafka reassign execute" in messages[0]
    assert TopicPartition("t", 0) not in machines[after].broker.partitions
    held = machines[after].broker.logs.get(TopicPartition("t", 0))
    assert held is not None
    assert held.end_offset == 2


@pytest.mark.parametrize("running", [True, False])
def test_partition_moved_back_to_its_log_has_its_records(running: bool) -> None:
    simulation = Simulation()
    machines, before, after = moved_since_the_copy(simulation, running=running)
    reassign(simulation, before, after)
    assert values(simulation) == [b"a", b"b"]
    assert [stray_directories(machine) for machine in machines] == [[]] * BROKERS


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_log_is_set_aside_when_others_were_written_meanwhile(running: bool, count: int) -> None:
    simulation = Simulation()
    machines, before, after = moved_since_the_copy(simulation, running=running)
    later = [b"c%d" % number for number in range(count)]
    for value in later:
        produce(simulation, value)
    reassign(simulation, before, after)
    assert values(simulation) == later
    reassign(simulation, after)
    assert values(simulation) == later
    kept = stray_directories(machines[after])
    assert [name for name in kept if name.endswith("-stray")] == kept != []
    held = contents(machines[after], kept[0])
    assert b"a" in held
    assert b"b" in held
