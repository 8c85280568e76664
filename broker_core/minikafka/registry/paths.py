"""The paths of Kafka's znodes. Their values are in the modules of their nouns, which ``kinds`` lists."""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.registry.store import is_znode_name

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
UNKNOWN_USERS = "/cluster/unknown_users"
TOPIC_CONFIGS = "/config/topics"
CLIENT_CONFIGS = "/config/clients"
USER_CONFIGS = "/config/users"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_FAILURES = "/log_dir_event_notification"
LOG_FAILURE_PREFIX = "log_dir_event_"
BROKER_SEQUENCE = "/brokers/seqid"
CONSUMERS = "/consumers"
PRODUCER_IDS = "/latest_producer_id_block"

PERSISTENT_PATHS = (
    DELETE_TOPICS,
    BROKER_IDS,
    BROKER_SEQUENCE,
    BROKER_TOPICS,
    CONFIG_CHANGES,
    CLIENT_CONFIGS,
    TOPIC_CONFIGS,
    CONSUMERS,
    ISR_CHANGES,
)
"""The znodes that a 0.10.1 broker creates at its start, empty, as parents and for watches."""

TOPICS = "topics"
CLIENTS = "clients"
USERS = "users"
BROKERS = "brokers"
IPS = "ips"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS)
"""The types of entities that have settings: those of 0.10.1, and addresses (from Kafka 2.7 on)."""


def broker_path(broker_id: int) -> str:
    """Return the path of the registration znode of broker ``broker_id``."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of the znode of the replica assignment of ``topic``."""
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the parent of the partitions of ``topic``."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_state_path(topic: str, partition: int) -> str:
    """Return the path of the znode of the leader and ISR of one partition."""
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Return the path of the znode of the settings of ``topic``."""
    return config_path(TOPICS, topic)


def config_path(kind: str, name: str) -> str:
    """Return the path of the znode of the settings of an entity; ``kind`` is one of ``ENTITY_TYPES``."""
    return f"/config/{kind}/{name}"


def consumer_ids_path(group: str) -> str:
    """Return the path of the parent of the live consumers of ``group``.

    Raises INVALID_GROUP_ID, as do all functions below.
    """
    return f"{consumer_group_path(group)}/ids"


def consumer_id_path(group: str, consumer_id: str) -> str:
    """Return the path of the registration znode of one consumer of ``group``."""
    return f"{consumer_ids_path(group)}/{consumer_id}"


def consumer_owners_path(group: str) -> str:
    """Return the path of the parent of the topics of which ``group`` owns, or has owned, partitions."""
    return f"{consumer_group_path(group)}/owners"


def consumer_owner_path(group: str, topic: str, partition: int) -> str:
    """Return the path of the znode of the owner of a partition, a consumer's thread id as plain text."""
    return f"{consumer_owners_path(group)}/{topic}/{partition}"


def consumer_offsets_path(group: str) -> str:
    """Return the path of the parent of the topics that ``group`` has read."""
    return f"{consumer_group_path(group)}/offsets"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """Return the path of the znode of the offset that ``group`` has committed: a bare integer, as before the
    offsets topic.
    """
    return f"{consumer_offsets_path(group)}/{topic}/{partition}"


def consumer_group_path(group: str) -> str:
    """Return the path of the root of all znodes of a group.

    Raises BrokerError INVALID_GROUP_ID for a name that cannot be part of a path.
    """
    if not is_znode_name(group):
        raise BrokerError(ErrorCode.INVALID_GROUP_ID, f"invalid group id: {group!r} cannot be a znode name")
    return f"{CONSUMERS}/{group}"


def consumer_id(group: str, host: str, timestamp_ms: int, random_hex: str) -> str:
    """Return the id of a consumer in the form of 0.10.1; ``random_hex`` begins with a UUID."""
    return f"{group}_{host}-{timestamp_ms}-{random_hex[:8]}"
