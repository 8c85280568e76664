"""``consumer_process.py ZOOKEEPER NAME STORAGE``: a high-level consumer that writes down what happens to it.

    session ID PASSWORD       once it reads: its session
    own TOPIC PARTITION MS    it owns the partition since then, as ZooKeeper has it
    got TOPIC PARTITION OFFSET VALUE MS    a message was handed out

SIGTERM ends it in order. Times are those of the wall clock, in ms.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.registry import paths

GROUP = "churn"
SESSION_MS = 2_000
LOCK = threading.Lock()


def tell(*words: object) -> None:
    with LOCK:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


class Told:
    """A rebalance listener."""

    def __init__(self, connector: ZookeeperConsumerConnector) -> None:
        self._connector = connector

    def before_releasing_partitions(self, ownership: Mapping[str, set[int]]) -> None:
        return

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, Any]]) -> None:
        store = self._connector.store
        tell("session", store.ticket.session_id, store.ticket.password.hex())
        for topic, owners in assignment.items():
            for partition, thread in owners.items():
                if thread.consumer == consumer_id:
                    stat = store.exists(paths.consumer_owner_path(GROUP, topic, partition))
                    if stat is not None:
                        tell("own", topic, partition, stat.created_ms)


def read(stream: Any) -> None:
    for message in stream:
        now_ms = time.time_ns() // 1_000_000
        tell("got", message.topic, message.partition, message.offset, message.message.decode(), now_ms)


def main() -> None:
    zookeeper, name, storage = sys.argv[1:]
    config = ConsumerConfig(
        group_id=GROUP,
        zookeeper_connect=zookeeper,
        consumer_id=name,
        zookeeper_session_timeout_ms=SESSION_MS,
        rebalance_backoff_ms=200,
        rebalance_max_retries=50,
        auto_commit_interval_ms=100,
        auto_offset_reset="smallest",
        offsets_storage=storage,
    )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with ZookeeperConsumerConnector(config) as connector:
        connector.set_consumer_rebalance_listener(Told(connector))
        threads = [
            threading.Thread(target=read, args=(stream,))
            for stream in connector.create_message_streams_by_filter(Whitelist("churn-.*"), 2)
        ]
        for thread in threads:
            thread.start()
        ended.wait()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
