"""Commands by ``--bootstrap`` alone, on real Kafka 3.9.1 and 4 with two brokers and four disks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin
from minikafka.clients.group.config import GroupConsumerConfig
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.offsets import Committed
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release
from tests.support.command_line import CommandLine
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PATIENCE_S = 60
JSON = ("--format", "json")
_NUMBERS = itertools.count()


class KafkaCluster:
    """Two brokers with two data directories each."""

    def __init__(self, release: Release, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self.brokers = [KafkaBroker(release, directory / "0", zookeeper, config=self.config(0))]
        other = KafkaBroker(
            release,
            directory / "1",
            zookeeper,
            number=1,
            config=self.config(1),
            controller=self.brokers[0].controller,
        )
        self.brokers.append(other)

    def config(self, number: int) -> dict[str, object]:
        return {"log.dirs": ",".join(self.disk(number, disk) for disk in (0, 1))}

    def disk(self, number: int, disk: int) -> str:
        return str(self.directory / f"broker-{number}-disk-{disk}")

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        with ClusterClient(self.bootstrap) as client:
            assert wait_until(lambda: len(Admin(client).describe_cluster().brokers) == 2, PATIENCE_S)

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    @property
    def bootstrap(self) -> str:
        return self.brokers[0].bootstrap


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    release: Release = request.param
    release.libs()
    directory = tmp_path_factory.mktemp("real-kafka")
    with EmbeddedZooKeeper(str(directory / "zookeeper")) as zookeeper:
        cluster = KafkaCluster(release, directory, f"{zookeeper.connect}/kafka")
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()


@pytest.fixture
def minikafka(kafka: KafkaCluster, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    command = CommandLine(capfd)
    command.options = ("--bootstrap", kafka.bootstrap)
    return command


@pytest.fixture
def topic(minikafka: CommandLine) -> str:
    """Return a topic with one partition on broker 0."""
    name = f"moves-{next(_NUMBERS)}"
    assert minikafka.run("topic", "create", name, "--replica-assignment", "0") == 0, minikafka.err
    return name


def fill(kafka: KafkaCluster, topic: str) -> None:
    with ClusterClient(kafka.bootstrap) as client, BatchingProducer(client) as producer:
        for _ in range(20):
            producer.send(topic, bytes(100_000)).result(PATIENCE_S * 1000)


def write_plan(path: Path, topic: str, *replicas: int, log_dirs: list[str] | None = None) -> str:
    row: dict[str, object] = {"topic": topic, "partition": 0, "replicas": replicas}
    row |= {} if log_dirs is None else {"log_dirs": log_dirs}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def test_a_partition_moves_and_its_preferred_replica_is_elected(
    kafka: KafkaCluster, minikafka: CommandLine, topic: str, tmp_path: Path
) -> None:
    fill(kafka, topic)
    plan = write_plan(tmp_path / "plan.json", topic, 1, 0)
    throttle = ("--throttle", "1000", "--no-wait")
    assert minikafka.run("reassign", "execute", "--file", plan, *throttle) == 0, minikafka.err
    assert minikafka.run("reassign", "verify", "--file", plan) == 3, minikafka.err
    assert "copying is throttled to 1000 bytes per second" in minikafka.err
    assert minikafka.run("reassign", "list", *JSON) == 0
    assert [(row["topic"], row["wanted"], row["status"]) for row in minikafka.rows] == [
        (topic, [1, 0], "under way")
    ]
    assert minikafka.run("reassign", "execute", "--file", plan, "--throttle", "100000000") == 0, minikafka.err
    assert wait_until(lambda: minikafka.run("reassign", "verify", "--file", plan, *JSON) == 0, PATIENCE_S)
    (row,) = minikafka.rows
    assert (row["replicas"], sorted(row["in_sync"]), row["status"]) == ([1, 0], [0, 1], "done")
    assert "all is done; the throttle is removed" in minikafka.err
    assert minikafka.run("config", "get", "topic", topic) == 0
    assert "throttled" not in minikafka.out
    assert minikafka.run("reassign", "execute", "--file", plan) == 0
    assert "0 of 1 partition change" in minikafka.err

    assert minikafka.run("elect", topic, *JSON) == 0, minikafka.err
    leaders = [(row["leader"], row["preferred"], row["done"]) for row in minikafka.rows]
    assert leaders == [(1, 1, True)]
    assert minikafka.run("elect", topic) == 0
    assert "the preferred replica already leads every partition" in minikafka.err


def test_a_move_is_cancelled(kafka: KafkaCluster, minikafka: CommandLine, topic: str, tmp_path: Path) -> None:
    fill(kafka, topic)
    plan = write_plan(tmp_path / "plan.json", topic, 1)
    throttle = ("--throttle", "1000", "--no-wait")
    assert minikafka.run("reassign", "execute", "--file", plan, *throttle) == 0, minikafka.err
    assert minikafka.run("reassign", "cancel", "--file", plan, *JSON) == 0, minikafka.err
    assert [(row["replicas"], row["dropped"], row["status"]) for row in minikafka.rows] == [
        ([0], [1], "cancelled")
    ]
    assert minikafka.run("reassign", "list") == 0
    assert "no reassignment is in progress" in minikafka.err
    assert minikafka.run("reassign", "verify", "--file", plan) == 1
    assert "no reassignment is in progress" in minikafka.out


def test_a_log_moves_to_another_disk(
    kafka: KafkaCluster, minikafka: CommandLine, topic: str, tmp_path: Path
) -> None:
    fill(kafka, topic)
    with ClusterClient(kafka.bootstrap) as client:
        found = Admin(client).describe_log_dirs([0])
    tp = TopicPartition(topic, 0)
    (now,) = (row.path for row in found if tp in {replica.topic_partition for replica in row.replicas})
    (other,) = (row.path for row in found if row.path != now)
    plan = write_plan(tmp_path / "plan.json", topic, 0, log_dirs=[other])
    throttle = ("--replica-alter-log-dirs-throttle", "1000")
    assert minikafka.run("reassign", "execute", "--file", plan, "--no-wait", *throttle) == 0, minikafka.err
    assert minikafka.run("reassign", "verify", "--file", plan) == 3, minikafka.err
    assert minikafka.run("reassign", "cancel", "--file", plan, *JSON) == 0, minikafka.err
    assert [row["to_dir"] for row in minikafka.rows] == [other]
    assert minikafka.run("reassign", "execute", "--file", plan, *JSON) == 0, minikafka.err
    assert [row["status"] for row in minikafka.rows] == ["done"]
    created = kafka.disk(1, 1)
    plan = write_plan(tmp_path / "grow.json", topic, 0, 1, log_dirs=[now, created])
    assert minikafka.run("reassign", "execute", "--file", plan, *JSON) == 0, minikafka.err
    assert [(row["replicas"], row["status"]) for row in minikafka.rows] == [([0, 1], "done")]
    assert minikafka.run("cluster", "log-dirs", "--topic", topic, *JSON) == 0
    dirs = {row["broker"]: row["log_dir"] for row in minikafka.rows if row["topic"] == topic}
    assert dirs == {0: now, 1: created}


def test_quotas_are_set_and_read(minikafka: CommandLine) -> None:
    quota = ("producer_byte_rate=1024", "request_percentage=12.5")
    assert minikafka.run("config", "set", "user", "al ice", *quota) == 0, minikafka.err
    assert minikafka.run("config", "set", "client", "app", "--user", "<default>", "consumer_byte_rate=7") == 0
    assert minikafka.run("config", "set", "ip", "10.0.0.1", "connection_creation_rate=5") == 0, minikafka.err
    assert minikafka.run("config", "get", "user", "al ice", *JSON) == 0
    assert {row["setting"]: row["value"] for row in minikafka.rows} == {
        "producer_byte_rate": "1024",
        "request_percentage": "12.5",
    }
    assert minikafka.run("config", "get", "client", "app", "--user", "al ice", "--all", *JSON) == 0
    assert {row["setting"]: row["source"] for row in minikafka.rows} == {
        "consumer_byte_rate": "users/<default>/clients/app",
        "producer_byte_rate": "users/al%20ice",
        "request_percentage": "users/al%20ice",
    }
    assert minikafka.run("config", "get", "ip", "10.0.0.1", *JSON) == 0
    assert [row["value"] for row in minikafka.rows] == ["5"]
    assert minikafka.run("config", "set", "user", "al ice", "--delete", "producer_byte_rate") == 0
    assert minikafka.run("config", "set", "user", "al ice", "--delete", "producer_byte_rate") == 2
    assert "has no such setting; it has request_percentage" in minikafka.err


def test_users_are_added_changed_listed_and_deleted(minikafka: CommandLine) -> None:
    assert minikafka.run("user", "add", "bo b", "--password", "tiger") == 0, minikafka.err
    assert minikafka.run("user", "add", "bo b", "--password", "lion") == 1
    assert "user bo b exists already" in minikafka.err
    assert minikafka.run("user", "passwd", "bo b", "--password", "lion", "--iterations", "8192") == 0
    assert minikafka.run("user", "list", *JSON) == 0
    assert [(row["user"], row["iterations"]) for row in minikafka.rows] == [("bo b", 8192)] * 2
    assert minikafka.run("user", "delete", "bo b") == 0
    assert minikafka.run("user", "delete", "bo b") == 1
    assert "there is no user bo b with a password" in minikafka.err


def test_single_offsets_are_deleted_and_a_static_member_removed(
    kafka: KafkaCluster, minikafka: CommandLine, topic: str
) -> None:
    assert minikafka.run("topic", "alter", topic, "--partitions", "2") == 0, minikafka.err
    group = f"readers-of-{topic}"
    with ClusterClient(kafka.bootstrap) as client:
        config = GroupConsumerConfig(group, auto_commit=False, group_instance_id="worker-1")
        consumer = GroupConsumer(client, config)
        consumer.subscribe([topic])
        assert wait_until(
            lambda: consumer.poll(100) is not None and len(consumer.assignment) == 2, PATIENCE_S
        )
        consumer.commit_sync({TopicPartition(topic, number): Committed(0) for number in (0, 1)})
        assert minikafka.run("group", "describe", group, "--members", *JSON) == 0, minikafka.err
        assert [(row["instance"], row["partitions"]) for row in minikafka.rows] == [("worker-1", 2)]
        assert minikafka.run("group", "delete", group, "--topic", topic) == 1
        assert f"the offsets of topic '{topic}' cannot be deleted" in minikafka.err
        consumer.close()  # a static member stays
    wanted = ("--instance-id", "worker-1", "--instance-id", "worker-2")
    assert minikafka.run("group", "remove-members", group, *wanted) == 1
    assert minikafka.out == f"removed worker-1 of {group}\n"
    assert "has no static member 'worker-2'" in minikafka.err
    assert minikafka.run("group", "delete", group, "--topic", f"{topic}:1") == 0, minikafka.err
    assert minikafka.run("group", "describe", group, *JSON) == 0
    assert [row["partition"] for row in minikafka.rows] == [0]
