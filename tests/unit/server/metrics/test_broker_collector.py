"""The metrics of simulated brokers, as Prometheus's own parser reads them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minikafka.base.exposition import Exposition
from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.registry.consumer_offsets import write_offsets
from minikafka.registry.users import ClientEntity
from minikafka.server.metrics.broker_collector import BrokerCollector
from minikafka.server.metrics.definitions import all_metrics
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.health import Health
from minikafka.server.metrics.kafka_exporter import KafkaExporter, Scrape, SeriesBudget
from minikafka.server.metrics.zookeeper_groups import ZooKeeperGroups
from minikafka.wire.consumer_protocol import Assignment, ConsumerPartitions, encode_assignment
from tests.support import requests
from tests.support.coordinated_transactions import T0, CoordinatedTransactions
from tests.support.simulation import Machine, Simulation
from tests.support.transactions import end_transaction, write_in_transaction

SET = build_message_set([Record(None, value, 0) for value in (b"x", b"y", b"z")])
OFFSETS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


def scrape(machine: Machine, only: str = "") -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples of a broker by name, and by the values of their labels."""
    assert machine.running is not None
    health = Health()
    health.started(machine.running)
    ends = EndOffsets(machine.broker, machine.connector)
    out = Exposition()
    BrokerCollector(machine.running, health, ends, 0.0).expose(out)
    ends.close()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(out.encode().decode()):
        for sample in family.samples:
            if sample.name.startswith(only):
                found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def commit(simulation: Simulation, group: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets of topic t."""
    while simulation.call(requests.find_coordinator(group)).error_code:
        simulation.settle()
    response = simulation.call(requests.commit_offsets("t", group=group, offsets=offsets))
    assert {part.error_code for topic in response.topics for part in topic.partitions} == {0}


def kill(simulation: Simulation, machine: Machine) -> None:
    """Kill a broker, and let its session end."""
    session = machine.store
    machine.kill()
    simulation.pass_time(20_000)
    simulation.zookeeper.expire(session)
    simulation.settle()


@pytest.fixture
def one() -> Simulation:
    return Simulation.serving("t", properties=OFFSETS)


def test_partition_has_the_series_of_kafka_exporter(one: Simulation) -> None:
    one.produce("t", b"a", b"b", b"c")
    found = scrape(one.machine, "kafka_topic")
    at = ("t", "0")
    assert found["kafka_topic_partitions"] == {("t",): 1}
    assert {
        name.removeprefix("kafka_topic_partition_"): row[at] for name, row in found.items() if at in row
    } == {
        "current_offset": 3,
        "oldest_offset": 0,
        "leader": 0,
        "leader_is_preferred": 1,
        "replicas": 1,
        "in_sync_replica": 1,
        "under_replicated_partition": 0,
    }


def test_open_transaction_shows_the_offsets_it_holds_back(one: Simulation) -> None:
    name = "minikafka_last_stable_offset_lag"
    one.produce("t", b"a")
    assert name not in scrape(one.machine)
    log = one.machine.broker.partitions[TopicPartition("t", 0)].log
    write_in_transaction(log, 7, 3)
    one.produce("t", b"b", b"c")
    assert scrape(one.machine)[name] == {("t", "0"): 5}
    end_transaction(log, 7, commit=True)
    one.produce("t", b"d")
    assert name not in scrape(one.machine)


def test_lag_and_offset_of_one_scrape_fit_while_others_write(
    one: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = one.machine.broker.partitions[TopicPartition("t", 0)]
    write_in_transaction(partition.log, 7, 3)
    one.produce("t", b"b")
    ends = itertools.count(partition.high_watermark)
    monkeypatch.setattr(type(partition), "_high_watermark", property(lambda _: next(ends)), raising=False)
    found = scrape(one.machine)
    current = found["kafka_topic_partition_current_offset"]["t", "0"]
    assert current - found["minikafka_last_stable_offset_lag"]["t", "0"] == 0


def test_group_has_its_offsets_and_lag(one: Simulation) -> None:
    one.produce("t", *[b"x"] * 10)
    commit(one, "g", {0: 4})
    found = scrape(one.machine, "kafka_consumergroup")
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 4}
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 6}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 6}
    assert found["kafka_consumergroup_members"] == {("g",): 0}


def test_offset_beyond_the_end_has_an_unknown_lag(one: Simulation) -> None:
    commit(one, "g", {0: 4})
    found = scrape(one.machine, "kafka_consumergroup")
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): -1}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 0}


def test_sum_over_brokers_counts_everything_once() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(3, OFFSETS)
    simulation.move_to_controller()
    assert simulation.create_topic("t", partitions=6, replicas=3) == 0
    simulation.settle()
    leaders = {
        number: leadership.leader
        for number, leadership in machines[0].broker.metadata_cache.topics["t"].items()
    }
    for number, leader in leaders.items():
        simulation.move_to(f"machine-{leader}")
        simulation.call(requests.produce("t", SET, partitions=(number,)))
    simulation.pass_time(2_000)
    found = [scrape(machine, "kafka_topic") for machine in machines]
    ends = [row["kafka_topic_partition_current_offset"] for row in found]
    own = [{key: end for key, end in row.items() if key[0] == "t"} for row in ends]
    assert sum(len(row) for row in own) == 6
    assert {key: end for row in own for key, end in row.items()} == {("t", str(n)): 3 for n in range(6)}
    counts = [row.get("kafka_topic_partitions", {}).get(("t",)) for row in found]
    assert sorted(count for count in counts if count is not None) == [6]


def test_lag_is_known_where_another_broker_leads() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(2, OFFSETS)
    simulation.move_to_controller()
    assert simulation.create_topic("t", partitions=2) == 0
    simulation.settle()
    for number, leadership in machines[0].broker.metadata_cache.topics["t"].items():
        simulation.move_to(f"machine-{leadership.leader}")
        simulation.call(requests.produce("t", SET, partitions=(number,)))
    simulation.move_to_controller()
    coordinator = simulation.call(requests.find_coordinator("g"))
    while coordinator.error_code:
        simulation.settle()
        coordinator = simulation.call(requests.find_coordinator("g"))
    simulation.move_to(coordinator.host)
    commit(simulation, "g", {0: 1, 1: 2})
    lags = [scrape(machine).get("kafka_consumergroup_lag") for machine in machines]
    assert [row for row in lags if row] == [{("g", "t", "0"): 2, ("g", "t", "1"): 1}]


def test_end_before_a_commit_is_asked_for_anew() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(2, {})
    simulation.move_to_controller()
    simulation.call(requests.place_topic("t", (0,)))
    simulation.settle()
    simulation.move_to("machine-0")
    simulation.call(requests.produce("t", SET))
    ends, partition = EndOffsets(machines[1].broker, machines[1].connector), TopicPartition("t", 0)
    assert ends.of({partition: 2}) == {partition: 3}
    simulation.call(requests.produce("t", SET))
    assert ends.of({partition: 3}) == {partition: 3}  # that of a moment ago
    assert ends.of({partition: 4}) == {partition: 6}
    ends.close()


def test_changes_of_a_session_count_from_zero(one: Simulation) -> None:
    # Else Prometheus would see no rise when the first one happens.
    (events,) = scrape(one.machine, "minikafka_zookeeper_session_events").values()
    assert events == {("connected",): 0, ("suspended",): 0, ("expired",): 0}


def test_partition_without_a_leader_comes_from_the_controller() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(2, {})
    simulation.move_to_controller()
    (controller,) = [machine for machine in machines if machine.broker.controller.active]
    (other,) = [machine for machine in machines if machine is not controller]
    simulation.call(requests.place_topic("t", (other.number,)))
    simulation.settle()
    kill(simulation, other)
    found = scrape(controller)
    assert found["kafka_topic_partition_leader"] == {("t", "0"): -1}
    assert found["minikafka_offline_partitions"] == {(): 1}
    assert found["kafka_brokers"] == {(): 1}


def test_topics_count_messages_and_bytes(one: Simulation) -> None:
    one.produce("t", b"a", b"b")
    one.fetch("t")
    one.fetch("t", 99)
    found = scrape(one.machine, "minikafka_topic")
    at = ("t",)
    assert found["minikafka_topic_messages_in_total"][at] == 2
    assert found["minikafka_topic_bytes_in_total"][at] == found["minikafka_topic_bytes_out_total"][at] > 50
    assert found["minikafka_topic_fetch_requests_total"][at] == 2
    assert found["minikafka_topic_failed_fetch_requests_total"][at] == 1


def test_deleted_topic_has_no_series_and_begins_again_at_zero(one: Simulation) -> None:
    one.produce("t", b"a")
    assert scrape(one.machine)["minikafka_topic_messages_in_total"] == {("t",): 1}
    one.call(requests.delete_topics("t"))
    one.pass_time(40_000)  # the housekeeper forgets its counters
    assert "kafka_topic_partition_current_offset" not in scrape(one.machine)
    assert one.create_topic("t") == 0
    one.produce("t", b"b", b"c")
    assert scrape(one.machine)["minikafka_topic_messages_in_total"] == {("t",): 2}


@pytest.mark.parametrize(
    ("properties", "topics"),
    [
        ({}, {"orders", "orders-old", "clicks"}),
        ({"metrics.topic.filter": "^orders"}, {"orders", "orders-old"}),
        ({"metrics.topic.filter": "^orders", "metrics.topic.exclude": "old$"}, {"orders"}),
        ({"metrics.max.series": "0"}, set()),
    ],
)
def test_filters_bound_the_series(properties: dict[str, str], topics: set[str]) -> None:
    simulation = Simulation.serving("orders", "orders-old", "clicks", properties=properties)
    found = scrape(simulation.machine)
    seen = {key[0] for key in found.get("kafka_topic_partition_current_offset", {})}
    assert seen == topics
    assert (found["minikafka_metrics_dropped_series"][()] > 0) is (
        properties.get("metrics.max.series") == "0"
    )


def test_group_filter_leaves_groups_out() -> None:
    simulation = Simulation.serving("t", properties={**OFFSETS, "metrics.group.exclude": "^console-"})
    for group in ("console-1", "billing"):
        commit(simulation, group, {0: 0})
    found = scrape(simulation.machine)
    assert set(found["kafka_consumergroup_current_offset"]) == {("billing", "t", "0")}
    assert set(found["kafka_consumergroup_members"]) == {("billing",)}


def test_controller_and_replicas_are_counted() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(2, {"replica.lag.time.max.ms": "2000"})
    simulation.move_to_controller()
    simulation.call(requests.place_topic("t", (0, 1)))
    simulation.pass_time(2_000)
    assert sum(scrape(machine)["minikafka_controller_active"][()] for machine in machines) == 1
    kill(simulation, machines[1])
    found = scrape(machines[0])
    assert found["minikafka_under_replicated_partitions"] == {(): 1}
    assert found["minikafka_isr_shrinks_total"][()] + found["minikafka_leader_elections_total"][()] == 1
    assert found["kafka_topic_partition_under_replicated_partition"] == {("t", "0"): 1}


def test_every_series_is_of_a_defined_metric(one: Simulation) -> None:
    one.produce("t", b"a")
    commit(one, "g", {0: 0})
    assert one.machine.running is not None
    out = Exposition()
    health = Health()
    BrokerCollector(one.machine.running, health, EndOffsets(one.machine.broker, one.network), 0.0).expose(out)
    defined = {metric.name: metric for metric in all_metrics()}
    for family in text_string_to_metric_families(out.encode().decode()):
        name = family.name if family.name in defined else f"{family.name}_total"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(defined[name].labels), name


def test_assigned_partition_without_a_commit_has_minus_one() -> None:
    simulation = Simulation.serving("t", partitions=2, properties=OFFSETS)
    commit(simulation, "g", {0: 0})
    join = simulation.call(requests.join_group("g"))
    assignment = encode_assignment(Assignment((ConsumerPartitions("t", (0, 1)),)))
    simulation.call(
        requests.sync_group("g", join.generation_id, join.member_id, {join.member_id: assignment})
    )
    found = scrape(simulation.machine)
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 0, ("g", "t", "1"): -1}
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 0, ("g", "t", "1"): -1}
    assert found["kafka_consumergroup_members"] == {("g",): 1}


def test_assignment_of_partitions_that_do_not_exist_adds_nothing() -> None:
    simulation = Simulation.serving("t", properties=OFFSETS)
    commit(simulation, "g", {0: 0})
    join = simulation.call(requests.join_group("g"))
    named = (ConsumerPartitions("t", tuple(range(30_000))), ConsumerPartitions("other", (0,)))
    shares = {join.member_id: encode_assignment(Assignment(named))}
    simulation.call(requests.sync_group("g", join.generation_id, join.member_id, shares))
    found = scrape(simulation.machine)
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 0}
    assert found["minikafka_metrics_dropped_series"] == {(): 0}


def test_sum_of_lags_is_left_out_while_an_end_is_not_known() -> None:
    simulation = Simulation()
    machines = simulation.start_brokers(2, OFFSETS)
    simulation.move_to_controller()
    simulation.call(requests.place_topic("t", (0,), (1,)))
    simulation.settle()
    coordinator = simulation.call(requests.find_coordinator("g"))
    while coordinator.error_code:
        simulation.settle()
        coordinator = simulation.call(requests.find_coordinator("g"))
    simulation.move_to(coordinator.host)
    commit(simulation, "g", {0: 0, 1: 0})
    (here,) = [machine for machine in machines if machine.host == coordinator.host]
    assert scrape(here)["kafka_consumergroup_lag_sum"] == {("g", "t"): 0}
    (other,) = [machine for machine in machines if machine is not here]
    kill(simulation, other)
    found = scrape(here)
    assert "kafka_consumergroup_lag_sum" not in found
    assert found["kafka_consumergroup_lag"][("g", "t", str(other.number))] == -1


def test_group_in_zookeeper_has_its_lag(one: Simulation) -> None:
    one.produce("t", *[b"x"] * 10)
    store = one.machine.broker.zk_client.store
    write_offsets(store, "old", {TopicPartition("t", 0): 7, TopicPartition("gone", 0): 1})
    groups = ZooKeeperGroups(store, lambda group_id: True)
    groups.read()
    assert groups.offsets() == {"old": {TopicPartition("t", 0): 7, TopicPartition("gone", 0): 1}}
    exporter = KafkaExporter(
        one.machine.broker,
        one.machine.running.coordinator,  # type: ignore[union-attr]
        EndOffsets(one.machine.broker, one.network),
        groups,
        one.machine.broker.config.metrics,
    )
    out = Exposition()
    metadata = one.machine.broker.metadata_cache
    exporter.expose_groups(Scrape(out, metadata, {"t": metadata.topics["t"]}, SeriesBudget(1000)))
    assert (
        'kafka_consumergroupzookeeper_lag_zookeeper{consumergroup="old",topic="t",partition="0"} 3\n'
        in out.encode().decode()
    )
    assert 'topic="gone"' not in out.encode().decode()


def test_transactions_are_counted_by_state_with_the_oldest_age() -> None:
    txn = CoordinatedTransactions()
    txn.add(txn.init(), T0)
    txn.world.pass_time(5_000)
    found = scrape(txn.world.machine)
    assert found["minikafka_transactions"] == {("Ongoing",): 1}
    assert 5 <= found["minikafka_oldest_open_transaction_seconds"][()] < 10


def test_requests_that_a_quota_pauses_are_counted() -> None:
    simulation = Simulation.serving("t", properties={"quota.producer.default": "1000"})
    simulation.produce("t", b"x" * 20_000)
    found = scrape(simulation.machine, "minikafka_throttled")
    assert found["minikafka_throttled_requests_total"] == {("producer_byte_rate",): 1}


def test_use_of_a_quota_is_that_of_those_who_share_it() -> None:
    simulation = Simulation.serving("t", properties={"quota.producer.default": "1000"})
    simulation.machine.broker.quotas.change(ClientEntity("ANONYMOUS", None), {"consumer_byte_rate": "500"})
    simulation.produce("t", b"x" * 20_000)
    simulation.fetch("t")
    found = scrape(simulation.machine, "minikafka_client_quota")
    produced, fetched = ("producer_byte_rate", "", "simulation"), ("consumer_byte_rate", "ANONYMOUS", "")
    assert found["minikafka_client_quota_limit"] == {produced: 1000, fetched: 500}
    rates, pauses = found["minikafka_client_quota_rate"], found["minikafka_client_quota_pause_seconds"]
    assert rates[produced] == pytest.approx(2000, rel=0.05)
    assert pauses[produced] == pytest.approx(10, rel=0.05)
    simulation.pass_time(20_000)
    assert scrape(simulation.machine, "minikafka_client_quota") == {}


def test_filter_leaves_clients_with_quotas_out() -> None:
    properties = {"quota.producer.default": "1000", "metrics.client.exclude": "client-id=simulation$"}
    simulation = Simulation.serving("t", properties=properties)
    simulation.produce("t", b"x")
    assert scrape(simulation.machine, "minikafka_client_quota") == {}
