"""A broker with Kafka's default limits for ``attack``: see ``fuzzed_broker``.

``python -m tests.faults.attacked_broker DIRECTORY [TOPIC=PARTITIONS]…``; these topics are there, and nobody
leads them. Its memory is not limited: the test measures it.
"""

from __future__ import annotations

import sys

from tests.faults import fuzzed_broker

PROPERTIES = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": str(64 << 20),
    "log.cleaner.dedupe.buffer.size": "1048576",
}

if __name__ == "__main__":
    topics = {name: int(count) for name, _, count in (text.partition("=") for text in sys.argv[2:])}
    fuzzed_broker.main(sys.argv[1], PROPERTIES, more_memory_bytes=None, led_elsewhere=topics)
