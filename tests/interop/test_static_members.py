"""Static members and cooperative rebalances of real clients in groups of our broker, and of our consumer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.interop.clients import CLIENTS, Client
from tests.interop.driver import Member, Program
from tests.interop.test_python_groups import PARTITIONS, PER_PARTITION, fill
from tests.support.python_clients import confluent_kafka, kafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

COOPERATIVE = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
PATIENCE_S = 40
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("static")
    with Cluster(data_dir=directory / "data", config={"group.min.session.timeout.ms": "500"}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"t{next(_NUMBERS)}"
    cluster.create_topic(name, partitions=PARTITIONS)
    fill(cluster.bootstrap_servers, name)
    return name


@pytest.fixture(
    scope="module", params=[client for client in CLIENTS if client.name in {"Java 3.9", "Java 4"}], ids=str
)
def java(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    client: Client = request.param
    prepared = client.prepare(tmp_path_factory.mktemp("java"))
    program = client.program(prepared, cluster.bootstrap_servers, "")
    yield program
    program.close()


def all_owned(program: Program, *members: Member) -> None:
    """Wait until these have all partitions, and as many as each other."""

    def even() -> bool:
        owned = [len(member.owned) for member in members]
        return sum(owned) == PARTITIONS and max(owned) - min(owned) <= 1

    program.until(even, "an even assignment", PATIENCE_S)


def test_a_java_member_that_restarts_makes_no_rebalance(java: Program, topic: str) -> None:
    first = java.join("first", f"g-{topic}", topic, "plain", "group.instance.id=one")
    second = java.join("second", f"g-{topic}", topic, "plain", "group.instance.id=two")
    all_owned(java, first, second)
    before, owned = (first.rebalances, second.rebalances), (set(first.owned), set(second.owned))
    for name, instance, at in (("second", "two", 1), ("first", "one", 0)):  # the leader too
        java.leave(name)
        again = java.join(name, f"g-{topic}", topic, "plain", f"group.instance.id={instance}")
        java.until(lambda again=again, at=at: again.owned == owned[at], "its partitions", PATIENCE_S)
    assert java.members["second"].rebalances == 1
    assert first.rebalances == before[0]
    assert java.wrongs == []
    java.leave("first", "second")
    java.forget()


def test_a_second_java_client_of_the_same_name_fences_the_first(java: Program, topic: str) -> None:
    first = java.join("first", f"g-{topic}", topic, "plain", "group.instance.id=one")
    java.until(lambda: len(first.owned) == PARTITIONS, "its partitions", PATIENCE_S)
    java.join("other", f"g-{topic}", topic, "plain", "group.instance.id=one")
    java.until(lambda: any("FencedInstanceId" in error for error in first.errors), "to be fenced", PATIENCE_S)
    java.leave("first", "other")
    java.forget()


def test_java_members_keep_what_they_can_and_ours_joins_them(
    java: Program, topic: str, cluster: Cluster
) -> None:
    group = f"g-{topic}"
    first = java.join("first", group, topic, "commits", COOPERATIVE)
    java.until(lambda: len(first.owned) == PARTITIONS, "its partitions", PATIENCE_S)
    second = java.join("second", group, topic, "commits", COOPERATIVE)
    all_owned(java, first, second)
    with ClusterClient(cluster.bootstrap_servers) as client, ours(client, group, topic) as third:
        polls = Polling(lambda: third.poll_records(100))
        java.until(
            lambda: len(first.owned) == len(second.owned) == len(third.assignment) == PARTITIONS // 3,
            "an assignment of thirds",
            PATIENCE_S,
        )
        polls.end()
    all_owned(java, first, second)
    java.until(
        lambda: len(first.records) + len(second.records) + polls.records >= PARTITIONS * PER_PARTITION,
        "all records",
        PATIENCE_S,
    )
    assert java.wrongs == []
    java.leave("first", "second")
    java.forget()


class Polling:
    """Polls a consumer on a thread of its own."""

    def __init__(self, poll: Callable[[], list[Any]]) -> None:
        self.records = 0
        self._poll = poll
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self.records += len(self._poll())

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


def ours(
    client: ClusterClient, group: str, topic: str, listener: Any = None, **settings: Any
) -> GroupConsumer:
    usual: dict[str, Any] = {
        "auto_offset_reset": Reset.EARLIEST,
        "heartbeat_interval_ms": 200,
        "assignors": ("cooperative-sticky",),
    }
    config = GroupConsumerConfig(group, **{**usual, **settings})
    consumer = GroupConsumer(client, config, listener=listener)
    consumer.subscribe([topic])
    return consumer


class Counting:
    """Counts how often its consumer was given partitions."""

    def __init__(self) -> None:
        self.count = 0

    def assigned(self, *_: object) -> None:
        self.count += 1

    def revoked(self, *_: object) -> None:
        return

    on_partitions_assigned, on_partitions_revoked = assigned, revoked


class Started:
    """A consumer that is polled on a thread, and how many partitions it has."""

    def __init__(
        self, consumer: Any, poll: Callable[[], object], count: Callable[[], int], *clients: ClusterClient
    ) -> None:
        self.count = 0
        self._to_close = (consumer, *clients)

        def poll_and_count() -> list[object]:
            found = poll()
            self.count = count()
            return [found]

        self._polling = Polling(poll_and_count)

    def close(self) -> None:
        self._polling.end()
        for one in self._to_close:
            one.close()


def librdkafka(cluster: Cluster, group: str, topic: str, instance: str, counting: Counting) -> Started:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.instance.id": instance,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic], on_assign=counting.assigned)
    return Started(consumer, lambda: consumer.poll(0.05), lambda: len(consumer.assignment()))


def kafka_python(cluster: Cluster, group: str, topic: str, instance: str, counting: Counting) -> Started:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    )

    class Listener(Counting, kafka.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def on_partitions_assigned(self, *_: object) -> None:
            counting.assigned()

    consumer.subscribe([topic], listener=Listener())
    # A poll that ends before the group is complete makes it join again.
    return Started(consumer, lambda: consumer.poll(1_000), lambda: len(consumer.assignment()))


def our_own(cluster: Cluster, group: str, topic: str, instance: str, counting: Counting) -> Started:
    client = ClusterClient(cluster.bootstrap_servers)
    consumer = ours(client, group, topic, listener=counting, group_instance_id=instance)
    return Started(consumer, lambda: consumer.poll(50), lambda: len(consumer.assignment), client)


@pytest.mark.parametrize("kind", [librdkafka, kafka_python, our_own])
def test_static_members_in_python_come_back_without_a_rebalance(
    cluster: Cluster, topic: str, kind: Callable[..., Started]
) -> None:
    group, countings = f"g-{topic}", (Counting(), Counting())
    made = [kind(cluster, group, topic, f"i{number}", one) for number, one in enumerate(countings)]

    def shared() -> bool:
        return all(one.count == PARTITIONS // 2 for one in made)

    assert wait_until(shared, PATIENCE_S)
    before = countings[0].count
    made[1].close()
    made[1] = kind(cluster, group, topic, "i1", countings[1])
    assert wait_until(shared, PATIENCE_S)
    made[0].close()
    made[1].close()
    assert countings[0].count == before
