"""Topics and settings administered with other people's tools, against our broker."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, Printed
from tests.support.python_clients import confluent_kafka, kafka

PATIENCE_S = 30


@pytest.fixture
def topic() -> str:
    """The name of a topic that is not there."""
    return f"administered-{uuid.uuid4().hex[:8]}"


# --- Apache Kafka 3.9.1's command line ----------------------------------------------------------------------


def topics(cluster: Cluster, *options: str) -> Printed:
    """``kafka-topics``."""
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    return KAFKA_3_9.run("org.apache.kafka.tools.TopicCommand", *servers, *options)


def configs(cluster: Cluster, *options: str) -> Printed:
    """``kafka-configs``."""
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    return KAFKA_3_9.run("kafka.admin.ConfigCommand", *servers, *options)


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_kafka_topics_makes_describes_grows_and_deletes_a_topic(
    minikafka_cluster: Cluster, topic: str
) -> None:
    cluster, new = minikafka_cluster, ("--partitions", "2", "--replication-factor", "1")
    made = topics(cluster, "--create", "--topic", topic, *new, "--config", "retention.ms=100000")
    assert f"Created topic {topic}." in made.out
    topics(cluster, "--alter", "--topic", topic, "--partitions", "5")
    described = topics(cluster, "--describe", "--topic", topic).out
    assert "PartitionCount: 5" in described
    assert "Configs: retention.ms=100000" in described
    assert described.count("Leader: 0") == 5
    topics(cluster, "--delete", "--topic", topic)
    assert topic not in topics(cluster, "--list").out


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_kafka_get_offsets_finds_the_newest_message(minikafka_cluster: Cluster, topic: str) -> None:
    minikafka_cluster.create_topic(topic)
    servers = ("--bootstrap-server", minikafka_cluster.bootstrap_servers)
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=servers[1])) as producer:
        for time_ms in (5_000, 9_000, 7_000):
            producer.send(topic, b"x", timestamp_ms=time_ms).get(PATIENCE_S)
    found = {
        time: KAFKA_3_9.run(
            "org.apache.kafka.tools.GetOffsetShell", *servers, "--topic", topic, "--time", time
        ).out.strip()
        for time in ("max-timestamp", "earliest-local", "latest", "6000")
    }
    assert found == {
        "max-timestamp": f"{topic}:0:1",
        "earliest-local": f"{topic}:0:0",
        "latest": f"{topic}:0:3",
        "6000": f"{topic}:0:1",
    }


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_the_log_of_a_broker_names_the_software_of_its_clients(minikafka_cluster: Cluster) -> None:
    topics(minikafka_cluster, "--list")
    confluent_kafka.Producer({"bootstrap.servers": minikafka_cluster.bootstrap_servers}).list_topics(
        timeout=PATIENCE_S
    )
    log = (minikafka_cluster.data_dir / "logs" / "broker-0.log").read_text("utf-8")
    lines = [line for line in log.splitlines() if "first client with this software: " in line]
    for software in ("name=apache-kafka-java version=3.9.1 ", "name=confluent-kafka-python version="):
        assert sum(software in line for line in lines) == 1


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_kafka_configs_reads_and_changes_a_topics_settings(minikafka_cluster: Cluster, topic: str) -> None:
    minikafka_cluster.create_topic(topic)
    one = ("--entity-type", "topics", "--entity-name", topic)
    added = "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    configs(minikafka_cluster, "--alter", *one, "--add-config", added)
    configs(minikafka_cluster, "--alter", *one, "--delete-config", "max.message.bytes")
    described = configs(minikafka_cluster, "--describe", *one).out
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in described
    assert "max.message.bytes" not in described
    everything = configs(minikafka_cluster, "--describe", "--all", *one).out
    assert (
        "retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.hours=168}"
        in everything
    )


# --- Python -------------------------------------------------------------------------------------------------


def test_librdkafka_administers_topics_and_settings(minikafka_cluster: Cluster, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": minikafka_cluster.bootstrap_servers})
    resource = confluent_kafka.admin.ConfigResource("topic", topic)

    def done(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(PATIENCE_S)

    done(admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1)], validate_only=True))
    assert topic not in admin.list_topics().topics
    done(admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1)]))
    done(admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 4)]))
    assert len(admin.list_topics().topics[topic].partitions) == 4
    with pytest.raises(confluent_kafka.KafkaException, match=r"4 partitions.* 3 "):
        done(admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 3)]))
    change = confluent_kafka.admin.ConfigEntry(
        "retention.ms", "7", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
    )
    done(
        admin.incremental_alter_configs(
            [confluent_kafka.admin.ConfigResource("topic", topic, incremental_configs=[change])]
        )
    )
    found = done(admin.describe_configs([resource]))
    assert {name: row.value for name, row in found.items() if not row.is_default} == {"retention.ms": "7"}
    done(admin.delete_topics([topic]))


def test_kafka_python_administers_topics_and_settings(minikafka_cluster: Cluster, topic: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=minikafka_cluster.bootstrap_servers)
    admin.create_topics([kafka.admin.NewTopic(topic, 2, 1)])
    admin.create_partitions({topic: kafka.admin.NewPartitions(4)})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    kind = kafka.admin.ConfigResourceType.TOPIC
    for value in ("5", "x"):
        answer = admin.alter_configs([kafka.admin.ConfigResource(kind, topic, {"retention.ms": value})])
    assert "InvalidConfigurationError: retention.ms='x'" in answer["topic"][topic]
    found = admin.describe_configs([kafka.admin.ConfigResource(kind, topic)])["topic"][topic]
    assert {name: row["value"] for name, row in found.items()} == {"retention.ms": "5"}
    admin.delete_topics([topic])
    admin.close()


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_kafka_configs_changes_a_brokers_rates_of_replication(minikafka_cluster: Cluster) -> None:
    cluster, one = minikafka_cluster, ("--entity-type", "brokers", "--entity-name", "0")
    rate = "leader.replication.throttled.rate"
    configs(cluster, "--alter", *one, "--add-config", f"{rate}=1000000")
    assert f"{rate}=1000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{rate}=1000000" in (
        configs(cluster, "--describe", *one).out
    )
    configs(cluster, "--alter", *one, "--delete-config", rate)
    assert rate not in configs(cluster, "--describe", *one).out
