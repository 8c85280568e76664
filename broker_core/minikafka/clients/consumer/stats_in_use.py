"""Who uses the stats of a client: they are forgotten when the last of its consumers in this process leaves.

The registries have them by client id, which is the group's name unless another is given. So several consumers
of a process often have the same, and one that leaves must not take away what the others count with. A
connector uses them until its shutdown, a simple consumer for as long as it is referenced.
"""

from __future__ import annotations

import threading
from collections import Counter

from minikafka.clients.consumer.fetch_request_and_response_stats import FetchRequestAndResponseStatsRegistry
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry

_lock = threading.RLock()  # a collection of garbage may end a simple consumer while it is held
_users: Counter[str] = Counter()


def begin_to_use(client_id: str) -> None:
    """One more does."""
    with _lock:
        _users[client_id] += 1


def cease_to_use(client_id: str) -> None:
    """One of them does no more."""
    with _lock:
        _users[client_id] -= 1
        if _users[client_id] <= 0:
            del _users[client_id]
            ConsumerTopicStatsRegistry.remove(client_id)
            FetchRequestAndResponseStatsRegistry.remove(client_id)
