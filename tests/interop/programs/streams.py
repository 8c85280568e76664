"""``streams.py KEY=VALUE… -- FILTER STREAMS``: our high-level consumer; prints each value that it gets.

SIGTERM ends it in order.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.topic_filter import Whitelist
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector

LOCK = threading.Lock()


def read(stream: Any) -> None:
    for message in stream:
        with LOCK:
            sys.stdout.write(f"{message.message.decode()}\n")
            sys.stdout.flush()


def main() -> None:
    border = sys.argv.index("--")
    config = ConsumerConfig.from_properties(dict(word.split("=", 1) for word in sys.argv[1:border]))
    topics, streams = sys.argv[border + 1 :]
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with ZookeeperConsumerConnector(config) as connector:
        made = connector.create_message_streams_by_filter(Whitelist(topics), int(streams))
        threads = [threading.Thread(target=read, args=(stream,)) for stream in made]
        for thread in threads:
            thread.start()
        ended.wait()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
