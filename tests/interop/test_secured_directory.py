"""Kafka's console clients on a cluster of ``up --secure``, with the line that is printed for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from minikafka.cli.up import how_to_connect
from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release

pytestmark = [pytest.mark.interop, pytest.mark.process, pytest.mark.timeout(180)]

TOPIC, MESSAGE = "orders", "a first order"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, tmp_path_factory.mktemp("my data"), secure=True) as running:
        running.create_topic(TOPIC)
        yield running


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_console_clients_log_in_by_the_printed_line(cluster: Cluster, release: Release) -> None:
    lines = how_to_connect(cluster.data_dir, cluster.bootstrap_servers)
    words = shlex.split(next(line for line in lines if line.startswith("  Java:")))[1:]
    assert words.pop(0) == "kafka-console-consumer.sh"
    arguments = [TOPIC if word == "TOPIC" else word for word in words]
    properties = arguments[arguments.index("--consumer.config") + 1]
    own = ("--num-records", "1", "--topic", TOPIC, "--payload-file")
    sent = cluster.data_dir / "payload"
    sent.write_text(MESSAGE + "\n")
    servers = ("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}")
    tool = "org.apache.kafka.tools.ProducerPerformance"
    release.run(tool, *own, str(sent), "--throughput", "-1", *servers, "--producer.config", properties)
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    out = release.run(consumer, *arguments, "--max-messages", "1").out
    assert out.splitlines()[-1] == MESSAGE  # 4.2 and later deprecate the option, on stdout
