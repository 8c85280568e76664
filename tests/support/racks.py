"""Two brokers in racks a and b, each behind a relay that keeps what consumers fetch there (KIP-392)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.releases import Release
from tests.support.fetch_relay import FetchRelay
from tests.support.kafka_broker import KafkaBroker

SHARED = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
COUNT = 200
VALUE = b"x" * 100


class TwoRacks:
    """The brokers, and a topic that broker 0 in rack a leads, with records on both."""

    topic = "racks"

    def __init__(self, servers: str, relays: list[FetchRelay]) -> None:
        self.servers = servers
        self._relays = relays
        with ClusterClient(servers) as client:
            Admin(client).create_topic(NewTopic(self.topic, assignments={0: [0, 1]}))
            with BatchingProducer(client, BatchingConfig(acks=-1)) as producer:
                for _ in range(COUNT):
                    producer.send(self.topic, VALUE)

    def fetched(self) -> list[bool]:
        """Return of each broker whether it has sent records since the last call."""
        found = [relay.record_bytes > 0 for relay in self._relays]
        for relay in self._relays:
            relay.fetches.clear()
        return found


@contextlib.contextmanager
def _relays() -> Iterator[tuple[list[FetchRelay], list[dict[str, str]]]]:
    """Yield two relays, and the settings of the brokers behind them."""
    with FetchRelay() as first, FetchRelay() as second:
        own = [{"broker.rack": "a", **first.listeners}, {"broker.rack": "b", **second.listeners}]
        yield [first, second], own


@contextlib.contextmanager
def brokers_of_ours() -> Iterator[TwoRacks]:
    """Run two brokers of ours."""
    with _relays() as (relays, own), contextlib.ExitStack() as stack:
        cluster = Cluster(brokers=2, config=SHARED, broker_configs=dict(enumerate(own)))
        yield TwoRacks(stack.enter_context(cluster).bootstrap_servers, relays)


@contextlib.contextmanager
def brokers_of(release: Release, directory: Path) -> Iterator[TwoRacks]:
    """Run two brokers of Apache Kafka."""
    release.libs()
    with _relays() as (relays, own), contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(str(directory))).connect
        for number, settings in enumerate(own):
            place = directory / f"broker-{number}"
            broker = KafkaBroker(
                release,
                place,
                f"{zookeeper}/kafka",
                number=number,
                port=relays[number].broker_port,
                config=SHARED | settings,
            )
            stack.callback(broker.kill)
            broker.start()
        yield TwoRacks(broker.bootstrap, relays)
