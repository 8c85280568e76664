"""Read raw offsets: the low-level consumer reads a log from any offset, and commits where it should.

    python examples/raw_offsets.py [--data-dir D]

The readings of a sensor are in a topic of two partitions; one message is larger than a read. The simple
consumer asks any broker for the leader of a partition, connects to it, looks up the ends of the log, reads
from the middle on, fetches from both partitions at once, and commits its offset: in ZooKeeper, as
Kafka's first consumers do, and at the group's coordinator. Exit status 0 if all was read as written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.clients.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    Committed,
    ConsumerMetadataRequest,
    FetchRequest,
    FetchRequestBuilder,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SimpleConsumer,
    TopicMetadataRequest,
)
from minikafka.embedded import Cluster

ONE, OTHER = TopicPartition("readings", 0), TopicPartition("readings", 1)
VALUES = [b"20.5", b"20.7", b"a photograph of the sensor: " + b"x" * 50_000, b"21.0"]
READ_BYTES = 1_000
GROUP = "raw"
IN_ZOOKEEPER, WITH_THE_COORDINATOR = 0, 1
"""Versions of the requests for a group's offsets, which say where they are kept."""
PATIENCE_S = 30


def leader(client: SimpleConsumer, partition: TopicPartition) -> BrokerAddress:
    """Return the leader of a partition, which any broker knows."""
    found = client.send(TopicMetadataRequest((partition.topic,)))
    described = found.topics[partition.topic].partition(partition.partition)
    assert described is not None
    return found.brokers[described.leader_id]


def coordinator(client: SimpleConsumer) -> BrokerAddress:
    """Return the group's coordinator; the first request creates the topic of the offsets."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := client.send(ConsumerMetadataRequest(GROUP))).coordinator is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no coordinator after {PATIENCE_S} s: {found.error.name}")
        time.sleep(0.05)
    return found.coordinator


def read(consumer: SimpleConsumer) -> bool:
    """Read both logs. Return True if all messages are there."""
    first = consumer.earliest_or_latest_offset(ONE, EARLIEST_TIME)
    end = consumer.earliest_or_latest_offset(ONE, LATEST_TIME)
    print(f"{ONE} has offsets {first} to {end - 1}")
    messages = consumer.iterator(FetchRequest(*ONE, offset=1, max_size=READ_BYTES))
    found = []
    for message in messages:
        found.append(message.value)
        print(f"{message.offset}: {len(message.value or b'')} bytes, {(message.value or b'')[:30].decode()}")
    both = FetchRequestBuilder().add_fetch(*ONE, 3, READ_BYTES).add_fetch(*OTHER, 0, READ_BYTES)
    answer = consumer.fetch(both.max_wait(1_000).min_bytes(1).build())
    for part in answer:
        print(f"{part.request.topic}-{part.request.partition}: {[message.value for message in part]}")
    return found == VALUES[1:] and [[message.value for message in part] for part in answer] == [
        [b"21.0"],
        [b"18.3"],
    ]


def remember(consumer: SimpleConsumer, offset: int, version: int) -> bool:
    """Commit an offset and fetch it again. Return True if it is the same."""
    done = consumer.commit_offsets(OffsetCommitRequest(GROUP, {ONE: Committed(offset)}, version))
    kept = consumer.fetch_offsets(OffsetFetchRequest(GROUP, (ONE,), version)).offsets[ONE]
    where = "in ZooKeeper" if version == IN_ZOOKEEPER else "with the coordinator"
    print(f"group {GROUP} continues at offset {kept.offset} of {ONE}, {where}")
    return not done.has_error and kept.offset == offset


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    with Cluster(data_dir=parser.parse_args(arguments).data_dir) as cluster:
        cluster.create_topic(ONE.topic, partitions=2)
        with Client(cluster.bootstrap_servers) as client, BatchingProducer(client) as producer:
            for value in VALUES:
                producer.send(ONE.topic, value, partition=ONE.partition).result()
            producer.send(OTHER.topic, b"18.3", partition=OTHER.partition).result()
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with SimpleConsumer(host, int(port)) as anybody:
            leads, keeps = leader(anybody, ONE), coordinator(anybody)
        print(f"{ONE} is led by {leads}")
        with SimpleConsumer(leads.host, leads.port) as consumer:
            good = read(consumer) and remember(consumer, 3, IN_ZOOKEEPER)
        with SimpleConsumer(keeps.host, keeps.port) as consumer:
            good = remember(consumer, 4, WITH_THE_COORDINATOR) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
