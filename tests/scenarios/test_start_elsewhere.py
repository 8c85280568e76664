"""Brokers that are started on a ZooKeeper that is empty, of another cluster, or an older copy."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode, InconsistentClusterId
from minikafka.base.files import read_file, replace_file
from minikafka.registry import paths
from minikafka.registry.cluster import ClusterId
from tests.support.simulation import DATA_DIR, Machine, Simulation

META = f"{DATA_DIR}/meta.properties"
GENERATED = {"broker.id": "-1"}


def with_a_record() -> tuple[Simulation, Machine]:
    simulation = Simulation.serving("t")
    assert simulation.produce("t", b"a").error_code == ErrorCode.NONE
    return simulation, simulation.machine


def leave_cluster(machine: Machine) -> None:
    """Remove the cluster id, as the error says, to start a new cluster with the records."""
    text = read_file(machine.files, META).decode()
    kept = [line for line in text.splitlines() if not line.startswith("cluster.id=")]
    replace_file(machine.files, META, ("\n".join(kept) + "\n").encode())


@pytest.mark.parametrize("killed", [True, False])
def test_start_on_an_emptied_zookeeper_is_refused_with_advice(killed: bool) -> None:
    simulation, machine = with_a_record()
    machine.kill() if killed else machine.stop()
    copy = simulation.zookeeper.copy()
    simulation.zookeeper.restore(None)
    before = contents(machine)
    with pytest.raises(
        InconsistentClusterId, match=r"has no /cluster/id.*Restore.*zookeeper.connect.*cluster.id"
    ):
        machine.start()
    store = simulation.zookeeper.connect()
    assert store.children("/") == []
    assert contents(machine) == before
    simulation.zookeeper.restore(copy)
    simulation.zookeeper.end_stray_sessions()
    machine.start()
    simulation.pass_time(10_000)
    assert [record.value for record in simulation.records("t")] == [b"a"]


@pytest.mark.parametrize("tree", ["none", "other"])
def test_refused_start_names_the_logs_and_how_to_check_them(tree: str) -> None:
    simulation, machine = with_a_record()
    assert simulation.create_topic("many", partitions=3) == ErrorCode.NONE
    machine.stop()
    simulation.zookeeper.restore(None)
    if tree == "other":
        simulation.zookeeper.connect().create(
            paths.CLUSTER_ID, ClusterId("another").to_json(), make_parents=True
        )
    with pytest.raises(InconsistentClusterId) as refused:
        machine.start()
    contents = f"{DATA_DIR} has many (partitions 0-2), t (partition 0)"
    assert f"{contents}; check it with `minikafka log verify {DATA_DIR}`" in str(refused.value)
    assert "zookeeper.connect is " in str(refused.value)


def contents(machine: Machine) -> dict[str, bytes]:
    """Return the contents of the log's files."""
    home = f"{DATA_DIR}/t_0"
    return {name: read_file(machine.files, f"{home}/{name}") for name in machine.files.list_dir(home)}


def test_start_on_another_clusters_zookeeper_changes_nothing_there() -> None:
    other = Simulation(seed=7)
    other.machine.start()
    assert other.create_topic("t") == ErrorCode.NONE
    other.machine.stop()
    simulation, machine = with_a_record()
    machine.stop()
    simulation.zookeeper.restore(other.zookeeper.copy())
    store = simulation.zookeeper.connect()
    before = store.exists(paths.BROKER_TOPICS)
    with pytest.raises(
        InconsistentClusterId, match=r"belong to cluster \S+, but ZooKeeper holds cluster \S+\. Nothing"
    ):
        machine.start()
    assert store.exists(paths.BROKER_TOPICS) == before
    assert store.children(paths.BROKER_IDS) == []
    assert "t_0" in machine.files.list_dir(DATA_DIR)


def test_records_are_kept_in_a_new_cluster_on_the_operators_request() -> None:
    simulation, machine = with_a_record()
    machine.stop()
    simulation.zookeeper.restore(None)
    leave_cluster(machine)
    machine.files.remove(f"{DATA_DIR}/topic-creations.json")
    machine.files.remove(f"{DATA_DIR}/t_0/partition.metadata")
    machine.start()
    assert simulation.create_topic("t") == ErrorCode.NONE
    simulation.pass_time(10_000)
    assert [record.value for record in simulation.records("t")] == [b"a"]
    assert simulation.produce("t", b"b").error_code == ErrorCode.NONE
    machine.stop()
    machine.start()
    assert [record.value for record in simulation.records("t")] == [b"a", b"b"]


def test_directory_without_a_cluster_id_gets_it_at_the_start() -> None:
    simulation, machine = with_a_record()
    written = read_file(machine.files, META)
    machine.stop()
    leave_cluster(machine)
    machine.start()
    assert read_file(machine.files, META) == written
    assert [record.value for record in simulation.records("t")] == [b"a"]


# --- broker ids -----------------------------------------------------------------------------------------


def test_new_broker_gets_no_id_of_a_live_broker_after_a_restore() -> None:
    simulation = Simulation.serving(properties=GENERATED)
    older = simulation.zookeeper.copy()
    store = simulation.zookeeper.connect()
    simulation.machine_of(1).start(GENERATED)
    assert [simulation.machine_of(number).broker.broker_id for number in (0, 1)] == [1001, 1002]
    simulation.zookeeper.restore(older)
    simulation.pass_time(20_000)
    simulation.end_stray_sessions()
    simulation.machine_of(2).start(GENERATED)
    assert simulation.machine_of(2).broker.broker_id == 1003
    assert sorted(store.children(paths.BROKER_IDS)) == ["1001", "1002", "1003"]


def test_new_broker_gets_no_id_of_an_assigned_replica(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation.serving("t", properties=GENERATED)
    simulation.machine.stop()
    store = simulation.zookeeper.connect()
    store.delete(paths.BROKER_SEQUENCE)
    simulation.machine_of(1).start(GENERATED)
    assert simulation.machine_of(1).broker.broker_id == 1002
    assert "would generate broker id 1001" in caplog.text


def test_new_broker_gets_no_id_seen_before_the_restore() -> None:
    simulation = Simulation.serving(properties=GENERATED)
    copy = simulation.zookeeper.copy()
    simulation.machine_of(1).start(GENERATED)
    simulation.pass_time(5_000)
    simulation.machine_of(1).kill()  # it is down, and has no replicas
    simulation.zookeeper.restore(copy)
    simulation.pass_time(20_000)
    simulation.end_stray_sessions()
    simulation.machine_of(2).start(GENERATED)
    assert simulation.machine_of(2).broker.broker_id == 1003
