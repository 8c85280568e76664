"""The consumer in a group that a broker coordinates: ``GroupConsumer`` and its parts.

    consumer             poll, seek, commit
    membership, member   the join protocol: the state machine (``membership``) and its I/O (``member``)
    coordinator_client   finds the broker that coordinates a group
    subscription_state   the position of each assigned partition
    fetcher, fetch_buffer, rows   records on their way from a response to the application
    sole_member          the only member of a group, for a reader that chooses its partitions

Imports ``clients.fetch`` and ``clients.network``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.group.config import GroupConsumerConfig, Reset
    from minikafka.clients.group.consumer import GroupConsumer, RebalanceListener

__all__ = ["GroupConsumer", "GroupConsumerConfig", "RebalanceListener", "Reset"]

__getattr__ = lazy_exports(
    __name__,
    {
        "GroupConsumer": "minikafka.clients.group.consumer",
        "GroupConsumerConfig": "minikafka.clients.group.config",
        "RebalanceListener": "minikafka.clients.group.consumer",
        "Reset": "minikafka.clients.group.config",
    },
)
