"""A consumer group with a filter: two consumers share all topics whose names match, also new ones.

    python examples/consumer_group_with_a_filter.py [--data-dir D]

Each shop writes its orders to its own topic. Two high-level consumers, as on two machines, read `orders-.*`
and `returns` together in the group `stock`: each partition has one owner, recorded in ZooKeeper. While they
read, a new shop opens, and its topic is divided as well. Then one consumer leaves, and the other takes over
its partitions, continues at its offsets, and leaves too: finished messages are committed, and none is read
twice. Exit status 0 if each order was read once, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from minikafka.clients.consumer import Consumer
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded import Cluster
from minikafka.embedded.process import wait_until
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import read_offsets
from minikafka.registry.zookeeper import ZooKeeperStore

GROUP = "stock"
FILTER = Whitelist("orders-.*,returns")
"""A Java pattern, in which a comma is an or."""
PARTITIONS, ORDERS = 4, 50
PATIENCE_S = 60


class Machine:
    """One consumer with two streams, each read by a thread of its own. Use it as a context manager."""

    def __init__(self, name: str, zookeeper: str) -> None:
        self.read: list[str] = []
        properties = {
            "group.id": GROUP,
            "consumer.id": name,
            "zookeeper.connect": zookeeper,
            "auto.offset.reset": "smallest",
            "rebalance.backoff.ms": 200,
        }
        self._connector = Consumer.create(properties)
        streams = self._connector.create_message_streams_by_filter(FILTER, 2, value_decoder=bytes.decode)
        self._threads = [threading.Thread(target=self._work, args=(stream,)) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _work(self, stream: KafkaStream[bytes, str]) -> None:
        """Read until the consumer is shut down. Taking the next message marks the previous one as done."""
        for message in stream:
            self.read.append(str(message.message))

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the group. After an error, unfinished messages are not committed, and are delivered again."""
        self._connector.__exit__(kind, error, trace)
        for thread in self._threads:
            thread.join()

    def leave(self) -> None:
        """Commit the read messages and release the partitions. A second call does nothing."""
        self.__exit__(None, None, None)


class Shops:
    """The topics of the shops, and their consumers."""

    def __init__(self, cluster: Cluster, producer: BatchingProducer, store: ZooKeeperStore) -> None:
        self.sold: list[str] = []
        self._cluster, self._producer, self._store = cluster, producer, store

    def open(self, topic: str) -> None:
        """Create a topic with orders in all partitions."""
        self._cluster.create_topic(topic, partitions=PARTITIONS)
        self.sell(topic)

    def sell(self, topic: str) -> None:
        """Send more orders."""
        for number in range(ORDERS):
            order = f"{topic} {len(self.sold)}"
            self.sold.append(order)
            self._producer.send(topic, order.encode(), partition=number % PARTITIONS)
        self._producer.flush()

    def owned(self, topics: Sequence[str]) -> Counter[str]:
        """Return the number of partitions of these topics that each consumer owns."""
        places = [
            paths.consumer_owner_path(GROUP, topic, number)
            for topic in topics
            for number in range(PARTITIONS)
        ]
        threads = (data.decode() for data, _ in self._store.read_all(places).values())
        return Counter(thread.rsplit("-", 1)[0] for thread in threads)


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds. Raise TimeoutError if it does not."""
    if not wait_until(condition, PATIENCE_S):
        raise TimeoutError(f"{what}: not within {PATIENCE_S} s")


def show(what: str, owned: Counter[str]) -> None:
    """Print how many partitions each consumer owns."""
    print(f"{what}: {', '.join(f'{who} has {count} partitions' for who, count in sorted(owned.items()))}")


def run(cluster: Cluster, shops: Shops) -> list[str]:
    """Run the scenario with both consumers. Return all that the group has read."""
    topics = ["orders-eu", "orders-us", "returns"]
    for topic in topics:
        shops.open(topic)
    zookeeper = cluster.zookeeper_connect

    def shared(count: int) -> Callable[[], bool]:
        return lambda: list(shops.owned(topics).values()) == [len(topics) * PARTITIONS // count] * count

    with Machine("one", zookeeper) as one, Machine("other", zookeeper) as other:

        def all_is_read() -> bool:
            return len(one.read) + len(other.read) == len(shops.sold)

        wait_for("two share three topics", shared(2))
        show("at first", shops.owned(topics))
        topics.append("orders-asia")
        shops.open("orders-asia")
        wait_for("the new shop is shared, too", shared(2))
        show("orders-asia has come", shops.owned(topics))
        wait_for("all is read", all_is_read)
        one.leave()
        wait_for("the other takes over", shared(1))
        show("one has left", shops.owned(topics))
        shops.sell("orders-eu")
        wait_for("the rest is read", all_is_read)
    return one.read + other.read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    with (
        Cluster(data_dir=parser.parse_args(arguments).data_dir) as cluster,
        Client(cluster.bootstrap_servers) as client,
        BatchingProducer(client) as producer,
        contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store,
    ):
        cluster.create_topic("audit")
        producer.send("audit", b"nobody's order").result()
        shops = Shops(cluster, producer, store)
        read = run(cluster, shops)
        committed = sum(read_offsets(store, GROUP).values())
    print(f"{len(shops.sold)} orders, {len(read)} read, {committed} committed")
    return 0 if sorted(read) == sorted(shops.sold) and committed == len(read) else 1


if __name__ == "__main__":
    sys.exit(main())
