"""A program that appends batches of magic 2 to a data directory, as our broker's log does.

``python -m tests.interop.append_batches DIRECTORY LEG stop|kill``: it closes the directory in the end, or
kills itself. Our broker is not sent magic 2 yet.
"""

from __future__ import annotations

import os
import signal
import sys

from minikafka.base.clock import SystemClock
from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.manager import LogManager
from minikafka.records.validation import Limits, validate
from tests.interop.topics import TOPICS, sets_of

SEGMENT_BYTES = 8_000
INDEX_INTERVAL_BYTES = 512


def main(directory: str, leg: int, end: str) -> None:
    config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INDEX_INTERVAL_BYTES)
    manager = LogManager(RealFiles(), [directory], config, Layout.APACHE, SystemClock())
    manager.open_all()
    for topic in TOPICS:
        if topic.magic == 2:
            log = manager.get(TopicPartition(str(topic), 0))
            assert log is not None, f"{topic} does not lie in {directory}"
            for data, _ in sets_of(topic, leg):
                log.append(validate(data, Limits(max_magic=2), now_ms=0))
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    manager.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
