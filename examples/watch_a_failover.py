"""Watch a failover: three brokers, the leader of a partition is killed, and nothing is lost.

    python examples/watch_a_failover.py [--data-dir D]

A producer writes orders with acks=all to a partition with three replicas, of which two must be in sync
(``min.insync.replicas=2``). Its leader is killed by ``kill -9``: its session with ZooKeeper ends, the
controller has another broker in sync lead, and the ISR, the replicas in sync, shrinks. Then the broker is
started again, copies what it has missed, and is back in the ISR. In the end every order that was acknowledged
is read, once and in its place. Exit status 0 when it is so.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.network.metadata import PartitionMetadata
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from minikafka.embedded import Cluster
from minikafka.records.format.message_set import iterate

ORDERS = TopicPartition("orders", 0)
SESSION_MS = 2_000
"""After so long without a sign of life a broker counts as dead. (Kafka's default is 6,000.)"""
EVERY_S = 0.005
"""Between two orders."""
LOOK_S = 0.05
PATIENCE_S = 90
SOME = 200


class Orders(threading.Thread):
    """Writes one order after the other until ``stop`` is called."""

    def __init__(self, client: Client) -> None:
        super().__init__(name="orders")
        self._producer = BatchingProducer(client, BatchingConfig(idempotence=True))  # so acks is all
        self._stopping = threading.Event()
        self.sent: list[tuple[bytes, SendFuture]] = []

    def run(self) -> None:
        for number in count():
            if self._stopping.wait(EVERY_S):
                return
            value = b"order %d" % number
            self.sent.append((value, self._producer.send(ORDERS.topic, value, partition=ORDERS.partition)))

    @property
    def acknowledged(self) -> int:
        """The number of orders that all in-sync replicas have."""
        return sum(delivery.done and delivery.error is None for _, delivery in list(self.sent))

    def stop(self) -> dict[int, bytes]:
        """Stop writing. Return offset and value of each acknowledged order."""
        self._stopping.set()
        self.join()
        self._producer.flush()
        self._producer.close()
        return {delivery.result().offset: value for value, delivery in self.sent if delivery.error is None}


class Watcher:
    """Prints the changes of the partition, with the time since the start."""

    def __init__(self, admin: Admin, orders: Orders) -> None:
        self._admin = admin
        self._orders = orders
        self._began_s = time.monotonic()
        self._shown: tuple[int, tuple[int, ...]] | None = None

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)

    def partition(self) -> PartitionMetadata:
        """Return the partition now. Print a line if it has changed."""
        found = self._admin.describe_cluster().partition(ORDERS)
        assert found is not None
        if self._shown != (found.leader_id, found.in_sync):
            self._shown = found.leader_id, found.in_sync
            led = f"led by broker {found.leader_id}" if found.leader_id >= 0 else "without a leader"
            in_sync = ",".join(map(str, found.in_sync))
            self.say(
                f"{ORDERS} is {led}, in sync: {in_sync}; {self._orders.acknowledged} orders acknowledged"
            )
        return found

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until ``condition`` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_S} s for {what}")
            time.sleep(LOOK_S)

    def some_more(self) -> None:
        """Poll until SOME more orders are acknowledged."""
        enough = self._orders.acknowledged + SOME
        self.until(lambda: bool(self.partition()) and self._orders.acknowledged >= enough, "more orders")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    given = parser.parse_args(arguments).data_dir
    config = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    with Cluster(3, given, config) as cluster, Client(cluster.bootstrap_servers) as client:
        cluster.create_topic(ORDERS.topic, replicas=3, config={"min.insync.replicas": "2"})
        orders = Orders(client)
        watcher = Watcher(Admin(client), orders)
        watcher.say(f"three brokers serve: {cluster.bootstrap_servers}")
        orders.start()
        try:
            fail_over(cluster, watcher)
        finally:
            acknowledged = orders.stop()
        return compare(client, watcher, acknowledged)


def fail_over(cluster: Cluster, watcher: Watcher) -> None:
    """Kill the leader, wait for another leader, and restart the killed broker."""
    watcher.some_more()
    leader = watcher.partition().leader_id
    watcher.say(f"kill -9 of broker {leader}, the leader")
    cluster.kill(leader)
    watcher.until(lambda: len(watcher.partition().in_sync) == 2, "the ISR to shrink")
    watcher.some_more()
    watcher.say(f"broker {leader} is started again")
    cluster.restart(leader)
    watcher.until(lambda: len(watcher.partition().in_sync) == 3, "the ISR to grow")
    watcher.some_more()


def compare(client: Client, watcher: Watcher, acknowledged: dict[int, bytes]) -> int:
    """Read all orders and check that every acknowledged one is there. Return the exit status."""
    end = Admin(client).offsets({ORDERS: LATEST})[ORDERS]
    found = {
        record.offset: record.value
        for message_set in RangeFetcher(client, ORDERS, 0, end or 0)
        for record in iterate(message_set)
    }
    lost = sum(found.get(offset) != value for offset, value in acknowledged.items())
    twice = len(found) - len(set(found.values()))
    watcher.say(
        f"{len(acknowledged)} orders were acknowledged, {len(found)} are there: {lost} lost, {twice} twice"
    )
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main())
