"""Send clicks in the background, with an asynchronous producer and a callback handler for each of its stages.

    python examples/async_producer.py [--data-dir D]

A web server sends every click without waiting: the messages wait in a queue, and a thread sends batches of
100, or what is queued 50 ms after the first. The callback handler hides addresses before a click is queued,
drops robots after it left the queue, counts the results of the batches, and adds a message at the end. The
key of a click is its page, so the clicks of a page are in one partition, in order. At the end all messages
are read again. Exit status 0 if all of them are as expected.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from minikafka.base.errors import FailedToSendMessage
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.producer import CallbackHandler, KeyedMessage, Producer
from minikafka.embedded import Cluster
from minikafka.records.format.message_set import iterate

TOPIC, PARTITIONS = "clicks", 3
PAGES = ("/", "/books", "/films", "/music")
CLICKS, ROBOTS = 1_000, 7
"""Every seventh click is a robot's."""


class Watcher(CallbackHandler):
    """Handles every click at each stage."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter()

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        """Hide the address, on the caller's thread, before the click is queued."""
        self.stages["before the queue"] += 1
        agent, _, number = event.message.split(" ")
        return event._replace(message=f"{agent} x.x.x.x {number}")

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        """Count a message that was queued, or that found no room."""
        self.stages["in the queue" if added else "dropped"] += 1

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """Return the messages to send instead of a queued one. (None arrives when the time is up.)"""
        if event is None or event.message.startswith("robot"):
            return ()
        self.stages["out of the queue"] += 1
        return (event,)

    def after_sending_data(self, events: Sequence[KeyedMessage], error: Exception | None) -> None:
        """Count the result of a batch."""
        failed = len(error.failed) if isinstance(error, FailedToSendMessage) else 0
        self.stages["not sent"] += failed
        self.stages["sent"] += len(events) - failed
        self.stages["batches"] += 1

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Return the last messages, after all others."""
        return [KeyedMessage(TOPIC, f"end {self.stages['sent']}", PAGES[0])]


def send(servers: str, watcher: Watcher) -> None:
    """Send a thousand clicks."""
    properties = {
        "metadata.broker.list": servers,
        "producer.type": "async",
        "queue.buffering.max.ms": 50,
        "batch.num.messages": 100,
        "request.required.acks": 1,
        "serializer.class": "kafka.serializer.StringEncoder",
        "callback.handler": watcher,
    }
    with Producer(properties) as producer:
        for number in range(CLICKS):
            agent = "robot" if number % ROBOTS == 0 else "human"
            click = f"{agent} 192.0.2.{number % 250} {number}"
            producer.send(KeyedMessage(TOPIC, click, PAGES[number % len(PAGES)]))
    # Closed: what was queued is sent.
    for stage, count in watcher.stages.items():
        print(f"{stage}: {count}")


def read(servers: str) -> dict[str, list[str]]:
    """Read the values of each key, and their partition."""
    found: dict[str, list[str]] = {}
    with Client(servers) as client:
        for partition in (TopicPartition(TOPIC, number) for number in range(PARTITIONS)):
            end = Admin(client).offsets({partition: LATEST})[partition]
            here: Counter[str] = Counter()
            for data in RangeFetcher(client, partition, 0, end or 0):
                for record in iterate(data):
                    page = (record.key or b"").decode()
                    found.setdefault(page, []).append((record.value or b"").decode())
                    here[page] += 1
            print(
                f"{partition}: {', '.join(f'{count} of {page}' for page, count in here.items()) or 'nothing'}"
            )
    return found


def expected() -> dict[str, list[str]]:
    """Return the messages that must be in the topic."""
    numbers = [number for number in range(CLICKS) if number % ROBOTS]
    clicks = {
        page: [f"human x.x.x.x {number}" for number in numbers if number % len(PAGES) == place]
        for place, page in enumerate(PAGES)
    }
    clicks[PAGES[0]].append(f"end {len(numbers)}")
    return clicks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    with Cluster(data_dir=parser.parse_args(arguments).data_dir) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        send(cluster.bootstrap_servers, Watcher())
        good = read(cluster.bootstrap_servers) == expected()
    print("all clicks are there, in the order of their pages" if good else "something is missing")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
