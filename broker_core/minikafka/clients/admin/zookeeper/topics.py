"""Marks topics for deletion in ZooKeeper, as ``kafka-topics --delete`` of 0.10.1.

The mark is the znode ``/admin/delete_topics/TOPIC`` (text 003, "Deleting topics"). The controller then
deletes the topic; a replica on a dead broker waits for the broker. If ``delete.topic.enable`` is false the
controller removes the mark.
"""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode, NodeExists
from minikafka.clients.admin.topics import unknown_topic_message
from minikafka.registry import paths
from minikafka.registry.store import Store


def mark_for_deletion(store: Store, topic: str) -> bool:
    """Mark a topic for deletion. Return False if it is marked already.

    Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION if there is no such topic.
    """
    known = store.children(paths.BROKER_TOPICS)
    if topic not in known:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic_message(topic, known))
    try:
        store.create(f"{paths.DELETE_TOPICS}/{topic}", make_parents=True)
    except NodeExists:
        return False
    return True
