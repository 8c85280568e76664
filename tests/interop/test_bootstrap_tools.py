"""The tools of Apache Kafka 3.9.1 and 4 administer three of our brokers by ``--bootstrap-server`` alone."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.interop.frameworks import started, until
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Printed, Release

PATIENCE_S = 60

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    found.libs()
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    KAFKA_3_9.libs()
    with Cluster(brokers=3, config={"auto.leader.rebalance.enable": "false"}) as made:
        yield made


class Tools:
    """The tools of a release, used on a cluster."""

    def __init__(self, release: Release, cluster: Cluster) -> None:
        self.release = release
        self.bootstrap = cluster.bootstrap_servers
        self._servers = ("--bootstrap-server", self.bootstrap)

    def run(self, tool: str, *options: str, succeeds: bool = True) -> Printed:
        """Run one of the package of tools."""
        return self.release.run(f"org.apache.kafka.tools.{tool}", *self._servers, *options, succeeds=succeeds)

    def topics(self, *options: str) -> Printed:
        return self.run("TopicCommand", *options)

    def configs(self, *options: str) -> Printed:
        return self.release.run("kafka.admin.ConfigCommand", *self._servers, *options)

    def elect(self, *options: str) -> Printed:
        return self.run("LeaderElectionCommand", *options)

    def reassign(self, *options: str) -> Printed:
        return self.run("reassign.ReassignPartitionsCommand", *options)

    def groups(self, *options: str) -> Printed:
        return self.run("consumer.group.ConsumerGroupCommand", *options)

    def offsets(self, topic: str, time: str) -> str:
        return self.run("GetOffsetShell", "--topic-partitions", f"{topic}:0", "--time", time).out.strip()

    def produce(self, topic: str, count: int) -> Printed:
        """Run ``kafka-producer-perf-test``."""
        load = ("--topic", topic, "--num-records", str(count), "--record-size", "50", "--throughput", "-1")
        tool = "org.apache.kafka.tools.ProducerPerformance"
        if self.release is KAFKA_3_9:
            return self.release.run(tool, *load, "--producer-props", f"bootstrap.servers={self.bootstrap}")
        return self.release.run(tool, *load, *self._servers)


@pytest.fixture
def tools(release: Release, cluster: Cluster) -> Tools:
    return Tools(release, cluster)


@pytest.fixture
def topic(tools: Tools) -> str:
    return created(tools)


def created(tools: Tools) -> str:
    """A new topic of one partition, on brokers 0 and 1."""
    name = f"moved-{uuid.uuid4().hex[:8]}"
    tools.topics("--create", "--topic", name, "--replica-assignment", "0:1")
    return name


def partition(cluster: Cluster, topic: str) -> tuple[int, list[int]]:
    """Leader and replicas of the topic's only partition."""
    with ClusterClient(cluster.bootstrap_servers) as client:
        described = Admin(client).describe_topics([topic])[topic]
    assert not isinstance(described, Exception)
    (only,) = described.partitions
    return only.leader_id, list(only.replicas)


def plan(folder: Path, topic: str, *replicas: int) -> str:
    file = folder / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": replicas}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    return str(file)


def test_a_partition_moves_and_its_preferred_replica_is_elected(
    tools: Tools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    file = ("--reassignment-json-file", plan(tmp_path, topic, 2, 0))
    assert "Successfully started partition reassignment" in tools.reassign("--execute", *file).out
    assert wait_until(
        lambda: f"Reassignment of partition {topic}-0 is completed." in tools.reassign("--verify", *file).out,
        PATIENCE_S,
    )
    assert partition(cluster, topic) == (0, [2, 0])
    assert "No partition reassignments found." in tools.reassign("--list").out
    one = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert (
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"
        in tools.elect(*one).out
    )
    assert partition(cluster, topic)[0] == 2
    assert "Valid replica already elected for partitions" in tools.elect(*one).out


def test_a_reassignment_in_progress_is_listed_and_cancelled(
    tools: Tools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
        for _ in range(4):
            producer.send(topic, b"x" * 50_000).result(PATIENCE_S * 1000)
    file = ("--reassignment-json-file", plan(tmp_path, topic, 1, 2))
    tools.reassign("--execute", *file, "--throttle", "1000")
    listed = tools.reassign("--list").out
    assert re.search(rf"{topic}-0: replicas: 1,2,0\. adding: 2\. removing: 0\.", listed), listed
    assert "Successfully cancelled partition reassignment" in tools.reassign("--cancel", *file).out
    assert wait_until(lambda: partition(cluster, topic)[1] == [1, 0], PATIENCE_S)
    assert "No partition reassignments found." in tools.reassign("--list").out


def test_quotas_of_users_and_clients_are_set_shown_and_removed(tools: Tools) -> None:
    user, client = ("--entity-type", "users", "--entity-name", "al ice"), ("--entity-type", "clients")
    app = (*client, "--entity-name", "app/1")
    for whose in (user, app, (*user, *app), (*client, "--entity-default")):
        tools.configs("--alter", *whose, "--add-config", "producer_byte_rate=1024")
        assert "producer_byte_rate=1024.0" in tools.configs("--describe", *whose).out
        tools.configs("--alter", *whose, "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in tools.configs("--describe", *whose).out


def test_scram_users_are_made_shown_and_deleted(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    added = "SCRAM-SHA-256=[iterations=8192,password=alice-secret]"
    assert (
        "Completed updating config for user alice."
        in tools.configs("--alter", *user, "--add-config", added).out
    )
    described = tools.configs("--describe", *user).out
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192" in described
    )
    tools.configs("--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tools.configs("--describe", *user).out


def test_settings_of_topics_and_brokers_are_changed_and_described(tools: Tools, topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tools.configs("--alter", *of_topic, "--add-config", "retention.ms=100000")
    assert "retention.ms=100000" in tools.configs("--describe", *of_topic).out
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    rate = "leader.replication.throttled.rate"
    tools.configs("--alter", *of_broker, "--add-config", f"{rate}=1000000")
    assert f"{rate}=1000000" in tools.configs("--describe", *of_broker).out
    tools.configs("--alter", *of_broker, "--delete-config", rate)
    assert "log.retention.hours=168" in tools.configs("--describe", "--all", *of_broker).out


def test_topics_are_grown_described_and_deleted(tools: Tools, topic: str) -> None:
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.topics("--describe", "--topic", topic).out
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").out


def test_records_are_produced_and_consumed_by_the_performance_tools(tools: Tools, topic: str) -> None:
    assert "100 records sent" in tools.produce(topic, 100).out
    count = "--messages" if tools.release is KAFKA_3_9 else "--num-records"
    consumed = tools.run("ConsumerPerformance", "--topic", topic, count, "100", "--timeout", "30000").out
    assert re.search(r", 100, ", consumed.splitlines()[-1]), consumed


def test_records_go_through_the_verifiable_clients(tools: Tools, topic: str) -> None:
    sent = tools.run("VerifiableProducer", "--topic", topic, "--max-messages", "5").out
    assert sent.count('"producer_send_success"') == 5
    limits = ("--group-id", topic, "--max-messages", "5", "--reset-policy", "earliest")
    received = tools.run("VerifiableConsumer", "--topic", topic, *limits).out
    events = [json.loads(line) for line in received.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 5
    assert [event["success"] for event in events if event["name"] == "offsets_committed"][-1]


def test_latency_from_end_to_end_is_measured(tools: Tools, topic: str) -> None:
    tool = "org.apache.kafka.tools.EndToEndLatency"
    if tools.release is KAFKA_3_9:
        printed = tools.release.run(tool, tools.bootstrap, topic, "20", "all", "20")
    else:
        load = ("--topic", topic, "--num-records", "20", "--producer-acks", "all", "--record-size", "20")
        printed = tools.run("EndToEndLatency", *load)
    assert re.search(r"Avg latency: [\d.]+ ms", printed.out)


def test_records_are_deleted_up_to_an_offset(tools: Tools, topic: str, tmp_path: Path) -> None:
    tools.produce(topic, 100)
    file, wanted = tmp_path / "offsets.json", {"topic": topic, "partition": 0, "offset": 30}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    printed = tools.run("DeleteRecordsCommand", "--offset-json-file", str(file)).out
    assert f"partition: {topic}-0\tlow_watermark: 30" in printed
    assert tools.offsets(topic, "-2") == f"{topic}:0:30"
    assert tools.offsets(topic, "-1") == f"{topic}:0:100"


def test_offsets_of_a_group_are_reset_described_and_deleted(tools: Tools, topic: str) -> None:
    tools.produce(topic, 100)
    group = ("--group", topic)
    tools.groups("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    assert re.search(rf"{topic} +0 +.*\b0 +100 +100 ", tools.groups("--describe", *group).out)
    tools.groups("--reset-offsets", *group, "--topic", topic, "--shift-by", "60", "--execute")
    assert re.search(rf"{topic} +0 +.*\b60 +100 +40 ", tools.groups("--describe", *group).out)
    assert "Successful" in tools.groups("--delete-offsets", *group, "--topic", topic).out
    assert topic not in tools.groups("--list").out


def test_an_application_of_streams_is_reset(tools: Tools, topic: str) -> None:
    tools.produce(topic, 100)
    tools.groups("--reset-offsets", "--group", topic, "--topic", topic, "--to-latest", "--execute")
    asked = ("--application-id", topic, "--input-topics", topic, "--to-earliest")
    printed = tools.run("StreamsResetter", *asked).out
    assert f"Topic: {topic} Partition: 0 Offset: 0" in printed


def test_directories_and_sizes_of_logs_are_described(tools: Tools, topic: str) -> None:
    tools.produce(topic, 100)
    printed = tools.run("LogDirsCommand", "--describe", "--topic-list", topic).out
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    logs = {row["broker"]: row["logDirs"][0]["partitions"] for row in found["brokers"]}
    assert {broker: [log["partition"] for log in of_broker] for broker, of_broker in logs.items()} == {
        0: [f"{topic}-0"],
        1: [f"{topic}-0"],
        2: [],
    }
    assert logs[0][0]["size"] > 5_000


def test_versions_of_all_brokers_are_shown(tools: Tools) -> None:
    package = "kafka.admin" if tools.release is KAFKA_3_9 else "org.apache.kafka.tools"
    servers = ("--bootstrap-server", tools.bootstrap)
    printed = tools.release.run(f"{package}.BrokerApiVersionsCommand", *servers).out
    brokers = re.findall(r"\(id: (\d) rack: .*\) -> \(\n\tProduce\(0\): 0 to 11 ", printed)
    assert sorted(brokers) == ["0", "1", "2"]


def test_producers_of_a_partition_are_described(tools: Tools, topic: str) -> None:
    tools.produce(topic, 100)
    transactions = ("describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(
        r"^\d+ *\t0 +\t-1 +\t99 ", tools.run("TransactionsCommand", *transactions).out, re.MULTILINE
    )


def test_levels_of_loggers_are_changed_and_described(tools: Tools) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "root=INFO sensitive=false" in tools.configs("--describe", *loggers).out
    name = "minikafka.net"
    tools.configs("--alter", *loggers, "--add-config", f"{name}=WARN")
    assert f"{name}=WARN sensitive=false" in tools.configs("--describe", *loggers).out
    tools.configs("--alter", *loggers, "--delete-config", name)
    assert f"{name}=INFO sensitive=false" in tools.configs("--describe", *loggers).out


def test_all_leader_elections_and_an_unclean_one_are_elected(tools: Tools, topic: str) -> None:
    tools.elect("--election-type", "preferred", "--all-topic-partitions")
    unclean = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in tools.elect(*unclean).out


def test_replicas_are_verified_by_fetches_from_each_of_them(cluster: Cluster, tmp_path: Path) -> None:
    # It asks for the newest version that it knows: that of 4 is refused by 3.9.1 too.
    tools = Tools(KAFKA_3_9, cluster)
    topic = created(tools)
    tools.produce(topic, 100)
    asked = ("--broker-list", tools.bootstrap, "--topics-include", topic, "--report-interval-ms", "500")
    with started(KAFKA_3_9, tmp_path, "org.apache.kafka.tools.ReplicaVerificationTool", *asked) as tool:
        verified = f"max lag is 0 for partition {topic}-0 at offset 100 among 1 partitions"
        until(tool, lambda: verified in (tmp_path / "program.log").read_text(), verified)


def test_the_id_of_the_cluster_is_shown(tools: Tools, cluster: Cluster) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client:
        own = Admin(client).describe_cluster().cluster_id
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    tool = "org.apache.kafka.tools.ClusterTool"
    assert f"Cluster ID: {own}" in tools.release.run(tool, "cluster-id", *servers).out


def test_what_only_kraft_has_is_refused(tools: Tools) -> None:
    change = ("--name", "x", "--metrics", "org.apache.kafka.", "--interval", "1000")
    refused = tools.run("ClientMetricsCommand", "--alter", *change, succeeds=False).out
    assert "unsupported resource type 16: expected TOPIC" in refused
    refused = tools.run("FeatureCommand", "disable", "--feature", "group.version", succeeds=False).out
    assert "Could not disable group.version. The node does not support UPDATE_FEATURES" in refused
    refused = tools.run("MetadataQuorumCommand", "describe", "--status", succeeds=False).err
    assert "UnsupportedVersionException" in refused
