"""The names of the sink's own topics, which no read by a pattern takes in. Pure.

__minikafka-staging-ID      encoded batches of the stream with ``minikafka.sink.id`` ID, until they are copied
__minikafka-token-ID        its last batch that was committed; compacted
__minikafka-write-MS-HEX    both, for one batch write that began at MS (milliseconds since 1970)
"""

from __future__ import annotations

import re

PREFIX = "__minikafka-"
STAGING_PREFIX = f"{PREFIX}staging-"
TOKEN_PREFIX = f"{PREFIX}token-"
WRITE_PREFIX = f"{PREFIX}write-"
_WRITE = re.compile(re.escape(WRITE_PREFIX) + r"(\d+)-[0-9a-f]+")


def is_private(topic: str) -> bool:
    """Return True for a topic of a sink."""
    return topic.startswith(PREFIX)


def write_began_ms(topic: str) -> int | None:
    """Return the time at which the write that owns ``topic`` began; None for other topics."""
    found = _WRITE.fullmatch(topic)
    return None if found is None else int(found[1])
