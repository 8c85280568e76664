"""Brokers of Apache Kafka 3.9.1, or ours, with the settings of a suite."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from minikafka.embedded.cluster import Cluster
from minikafka.embedded.java import find_java
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.releases import JVM, KAFKA_3_9
from tests.interop.suites.suite import APACHE_KAFKA, NOT_SERVED, NOT_SERVED_HERE, Address, Suite
from tests.support.kafka_broker import KafkaBroker

COMMON = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "18000",
}
"""The settings of both kinds of brokers; those of a suite replace them."""

TOOLS = {
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


@contextlib.contextmanager
def running(kind: str, suite: Suite, directory: Path) -> Iterator[Address]:
    """Brokers of that kind, as the suite wants them."""
    scripts = kafka_scripts(directory)
    start = apache_kafka if kind == APACHE_KAFKA else minikafka
    with start(suite, directory) as (bootstrap, zookeeper):
        not_served = NOT_SERVED if kind == APACHE_KAFKA else NOT_SERVED | NOT_SERVED_HERE
        yield Address(bootstrap, zookeeper, scripts, not_served)


@contextlib.contextmanager
def apache_kafka(suite: Suite, directory: Path) -> Iterator[tuple[str, str]]:
    """Brokers of Apache Kafka on a ZooKeeper of theirs."""
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(str(directory / "zookeeper"))).connect
        brokers = [
            KafkaBroker(
                KAFKA_3_9,
                directory / f"broker-{number}",
                zookeeper,
                number=number,
                config={**COMMON, **suite.settings, **rack(number)},
            )
            for number in range(suite.brokers)
        ]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        yield ",".join(broker.bootstrap for broker in brokers), zookeeper


@contextlib.contextmanager
def minikafka(suite: Suite, directory: Path) -> Iterator[tuple[str, str]]:
    """Brokers of ours on a ZooKeeper of theirs. They know no transactions yet."""
    settings = {
        name: value
        for name, value in {**COMMON, **suite.settings}.items()
        if not name.startswith("transaction.")
    }
    with Cluster(
        suite.brokers,
        directory / "data",
        settings,
        broker_configs={number: rack(number) for number in range(suite.brokers)},
    ) as cluster:
        yield cluster.bootstrap_servers, cluster.zookeeper_connect


def rack(number: int) -> dict[str, str]:
    """Each broker is in a rack of its own."""
    return {"broker.rack": f"RACK{number + 1}"}


def kafka_scripts(directory: Path) -> str:
    """Write shell scripts of Kafka's tools into ``directory``/kafka/bin; return ``directory``/kafka."""
    folder = directory / "kafka" / "bin"
    folder.mkdir(parents=True)
    for name, main in TOOLS.items():
        java = shlex.join([find_java().path, *JVM, "-cp", f"{KAFKA_3_9.libs()}/*", main])
        (folder / name).write_text(f'#!/bin/sh\nexec {java} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder.parent)
