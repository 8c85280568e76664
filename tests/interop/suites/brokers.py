"""Brokers of Apache Kafka 3.9.1, or ours, with the settings of a suite."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from minikafka.embedded.broker import BrokerProcess
from minikafka.embedded.java import find_java
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port
from tests.interop.releases import JVM, KAFKA_3_9, java_environment
from tests.interop.suites.suite import APACHE_KAFKA, Address, Suite
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
    "kafka-run-class.sh": "",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
"""Scripts -> their classes; that without one is told which."""


@contextlib.contextmanager
def running(kind: str, suite: Suite, directory: Path) -> Iterator[Address]:
    """Brokers of that kind, as the suite wants them, on a ZooKeeper of theirs."""
    scripts = kafka_scripts(directory)
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(str(directory / "zookeeper"))).connect
        start = apache_kafka if kind == APACHE_KAFKA else minikafka
        bootstrap = ",".join(stack.enter_context(start(suite, directory, zookeeper)))
        for user, passwords in suite.users.items():
            add_user(scripts, bootstrap, user, *passwords)
        yield Address(kind, bootstrap, zookeeper, scripts)


@contextlib.contextmanager
def apache_kafka(suite: Suite, directory: Path, zookeeper: str) -> Iterator[list[str]]:
    """Brokers of Apache Kafka; yields their addresses."""
    with contextlib.ExitStack() as stack:
        brokers = []
        for number in suite.ids:
            address, own = own_settings(suite, number)
            port = int(address.rpartition(":")[2])
            config = {**COMMON, **suite.settings, **own}
            place = directory / f"broker-{number}"
            broker = KafkaBroker(KAFKA_3_9, place, zookeeper, number=number, port=port, config=config)
            brokers.append(broker)
            stack.callback(broker.kill)
            broker.start()
        yield [broker.bootstrap for broker in brokers]


@contextlib.contextmanager
def minikafka(suite: Suite, directory: Path, zookeeper: str) -> Iterator[list[str]]:
    """Brokers of ours; yields their addresses."""
    settings = {**COMMON, **suite.settings}
    with contextlib.ExitStack() as stack:
        addresses, brokers = [], []
        for number in suite.ids:
            address, own = own_settings(suite, number)
            place = {"log.dirs": str(directory / f"broker-{number}"), "zookeeper.connect": zookeeper}
            broker = BrokerProcess(number, str(directory), {**settings, **own, **place})
            stack.callback(broker.kill)
            addresses.append(address)
            brokers.append(broker)
        for broker in brokers:
            broker.wait_ready()
        yield addresses


def own_settings(suite: Suite, number: int) -> tuple[str, dict[str, str]]:
    """The address of a broker's first listener, and the settings of it alone."""
    listeners = suite.listeners.get(number, ()) or (f"PLAINTEXT://127.0.0.1:{free_port()}",)
    own = {"listeners": ",".join(listeners)}
    if len(suite.ids) > 1:
        own["broker.rack"] = f"RACK{number + 1}"
    return listeners[0].partition("://")[2], own


def add_user(scripts: str, bootstrap: str, user: str, sha_256: str, sha_512: str) -> None:
    """Give a user the passwords for SCRAM."""
    command = [f"{scripts}/bin/kafka-configs.sh", "--bootstrap-server", bootstrap, "--alter"]
    command += ["--entity-type", "users", "--entity-name", user, "--add-config"]
    command += [f"SCRAM-SHA-256=[password={sha_256}],SCRAM-SHA-512=[password={sha_512}]"]
    subprocess.run(command, check=True, stdout=sys.stderr, env=java_environment())


def kafka_scripts(directory: Path) -> str:
    """Write shell scripts of Kafka's tools into ``directory``/kafka/bin; return ``directory``/kafka."""
    folder = directory / "kafka" / "bin"
    folder.mkdir(parents=True)
    java, jars = shlex.join([find_java().path, *JVM]), f"{KAFKA_3_9.libs()}/*"
    for name, main in TOOLS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {java} -cp "{jars}:$CLASSPATH" {main} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder.parent)
