"""The time of a rebalance in a group of the reference texts' consumers after one joins or leaves.

    python benchmarks/rebalance_bench.py [--runs N] [--partitions N] [--consumers N] [--json]

A topic of 100 partitions on our broker and its ZooKeeper; 10 consumers, of which each has a session of its
own, in one process. ``rebalance.backoff.ms`` is 200 (the release's default is 2 s: a pause after each attempt
that finds an owner still there). Counted is the time from when the last consumer is registered, or has left,
until each partition has the owner that the assignor names, and until every consumer fetches its share.

    join     the tenth consumer is created
    leave    one shuts down
    expire   one loses its session, as one that was cut off; it comes back by itself

Goal: 2 s each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from minikafka.base.errors import NoNode
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.topics import NewTopic
from minikafka.clients.consumer.assignment import AssignmentContext, create_assignor
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded import Cluster
from minikafka.registry import paths

TOPIC, GROUP = "shared", "group"
GOAL_S = 2.0
_PATIENCE_S = 60


class Group:
    """The consumers of one group, by their ids."""

    def __init__(self, zookeeper: str, partitions: int) -> None:
        self._zookeeper = zookeeper
        self._partitions = partitions
        self.consumers: dict[str, ZookeeperConsumerConnector] = {}

    def join(self, name: str) -> ZookeeperConsumerConnector:
        """A consumer with one stream, whose first rebalance is over or still under way."""
        config = ConsumerConfig(
            GROUP, self._zookeeper, consumer_id=name, rebalance_backoff_ms=200, rebalance_max_retries=50
        )
        consumer = ZookeeperConsumerConnector(config)
        self.consumers[name] = consumer
        consumer.create_message_streams({TOPIC: 1})
        return consumer

    def leave(self, name: str) -> None:
        """It shuts down."""
        self.consumers.pop(name).shutdown()

    def settled(self) -> bool:
        """Return True if the consumer that the assignor names owns and fetches every partition."""
        some = next(iter(self.consumers.values()))
        try:
            context = AssignmentContext(GROUP, some.consumer_id_string, True, some.store)
        except NoNode:
            return False
        shares = create_assignor("range").assign(context)
        if len(shares) != len(self.consumers):
            return False
        wanted = {
            paths.consumer_owner_path(GROUP, *tp): str(thread)
            for share in shares.values()
            for tp, thread in share.items()
        }
        owners = {path: data.decode() for path, (data, _) in some.store.read_all(wanted).items()}
        return owners == wanted and all(
            set(consumer.owned_partitions) == set(shares[consumer.consumer_id_string])
            for consumer in self.consumers.values()
        )

    def seconds_until_settled(self, begun: float) -> float:
        """Return the seconds from ``begun`` (``time.monotonic``) until the group is settled."""
        while not self.settled():
            if time.monotonic() > begun + _PATIENCE_S:
                raise SystemExit(f"the group is not in order after {_PATIENCE_S} s")
            time.sleep(0.005)
        return time.monotonic() - begun


def join(group: Group, count: int) -> float:
    """The last of ``count`` consumers comes."""
    begun = time.monotonic()
    group.join(f"c{count}")
    return group.seconds_until_settled(begun)


def leave(group: Group, count: int) -> float:
    """And goes."""
    group.leave(f"c{count}")
    return group.seconds_until_settled(time.monotonic())


def expire(group: Group, count: int) -> float:
    """The first one's session is ended, as ZooKeeper does with one that it does not hear of."""
    some, other = group.consumers["c1"], group.consumers["c2"]
    begun, session = time.monotonic(), some.store.session_id
    other.store.end_session(some.store.ticket)
    while some.store.session_id == session:
        time.sleep(0.005)
    return group.seconds_until_settled(begun)


CASES: dict[str, Callable[[Group, int], float]] = {"join": join, "leave": leave, "expire": expire}


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    took: dict[str, list[float]] = {name: [] for name in CASES}
    with Cluster() as cluster:
        with Client(cluster.bootstrap_servers) as client:
            Admin(client).create_topic(NewTopic(TOPIC, options.partitions, 1))
        group = Group(cluster.zookeeper_connect, options.partitions)
        for number in range(1, options.consumers):
            group.join(f"c{number}")
        group.seconds_until_settled(time.monotonic())
        for _ in range(options.runs):
            took["join"].append(join(group, options.consumers))
            took["leave"].append(leave(group, options.consumers))
            took["expire"].append(expire(group, options.consumers))
        for name in list(group.consumers):
            group.leave(name)
    if options.json:
        print(json.dumps(took))
        return
    for name, seconds in took.items():
        middle, most = statistics.median(seconds), max(seconds)
        print(f"{name:8} {middle:.2f} s, at most {most:.2f} s (goal {GOAL_S:.0f} s)")


if __name__ == "__main__":
    main()
