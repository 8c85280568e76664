"""Kafka's znodes: their paths and their JSON, as Kafka 0.10.1 writes them.

Every value class has ``to_json`` (bytes for the znode), unless it is only read here, and
``from_json(data, path)``, which raises CoordinationError, with the path, for invalid data. Unknown keys are
ignored, as later releases add some. Mind the types: ``version`` is a string in the cluster id and a number
elsewhere, timestamps are strings.

    /brokers/ids/N                       BrokerRegistration, ephemeral
    /brokers/topics/T                    TopicAssignment
    /brokers/topics/T/partitions/P/state PartitionState, written conditionally on the znode's version
    /controller                          ControllerRegistration, ephemeral
    /controller_epoch                    ControllerEpoch, a bare number
    /cluster/id                          ClusterId
    /config/topics/T                     EntityConfig
    /config/clients/C                    EntityConfig; the client id as in a URL, or <default>
    /config/changes/config_change_N      ConfigChange, sequential
    /consumers/G/ids/ID                  ConsumerRegistration, ephemeral; for more see ``consumers``
    /latest_producer_id_block            ProducerIdBlock, of 0.11 and later, written like the states

Requests and notifications to the controller are in ``admin_paths``, ACLs in ``acl_paths``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from minikafka.base.errors import BrokerError, CoordinationError, ErrorCode
from minikafka.base.ids import BrokerAddress, host_port
from minikafka.registry.node import Node, dump, id_in
from minikafka.registry.store import is_znode_name

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
TOPIC_CONFIGS = "/config/topics"
CLIENT_CONFIGS = "/config/clients"
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
BROKERS = "brokers"
ENTITY_TYPES = (TOPICS, CLIENTS, "users", BROKERS)
"""The types of entities that have settings, in 0.10.1."""
_EPOCH_MAX = (1 << 31) - 1
"""The largest epoch: no other can follow it."""
DEFAULT_ENTITY = "<default>"
"""In place of a client's name: all clients without settings of their own."""


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


def client_entity(client_id: str) -> str:
    """Return the entity name of a client id: URL-encoded, as by later releases, so that it fits in a path."""
    return client_id if client_id == DEFAULT_ENTITY else quote(client_id, safe="")


def client_of(entity: str) -> str:
    """Return the client id of an entity name: the inverse of ``client_entity``."""
    return entity if entity == DEFAULT_ENTITY else unquote(entity)


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


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker: version 3 of the JSON, or 4 of later releases; 1 and 2 of earlier ones are read too."""

    broker_id: int
    host: str | None
    """Host and port of the plain-text listener; None and -1 if the broker has none."""
    port: int
    endpoints: tuple[str, ...]
    """One ``PROTOCOL://host:port`` for each listener."""
    timestamp_ms: int
    """When it registered."""
    jmx_port: int = -1
    rack: str | None = None
    version: int = 3

    @classmethod
    def of(cls, address: BrokerAddress, timestamp_ms: int) -> BrokerRegistration:
        """Return the registration of a broker with one plain-text listener."""
        endpoint = f"PLAINTEXT://{host_port(address.host, address.port)}"
        return cls(
            address.broker_id, address.host, address.port, (endpoint,), timestamp_ms, rack=address.rack
        )

    @property
    def address(self) -> BrokerAddress | None:
        """The address of the plain-text listener; None if there is none."""
        for endpoint in self.endpoints:
            scheme, _, location = endpoint.partition("://")
            host, _, port = location.rpartition(":")
            number = id_in(port)
            if scheme == "PLAINTEXT" and number is not None:
                return BrokerAddress(self.broker_id, host.strip("[]"), number, self.rack)
        if self.host and self.port >= 0:
            return BrokerAddress(self.broker_id, self.host, self.port, self.rack)
        return None

    def to_json(self) -> bytes:
        """Return the data for ``broker_path(broker_id)``."""
        fields: dict[str, object] = {
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": list(self.endpoints),
            "host": self.host,
            "version": self.version,
            "port": self.port,
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        return dump(fields)

    @classmethod
    def from_json(cls, data: bytes, path: str) -> BrokerRegistration:
        """Parse the registration in ``data``; the broker's id is the last part of ``path``."""
        node = Node(data, path)
        name = path.rpartition("/")[2]
        broker_id = id_in(name)
        if broker_id is None:
            raise CoordinationError(f"{path}: invalid broker id {name!r}")
        version = node.integer("version")
        host, port = node.optional_text("host"), node.integer("port")
        endpoints = node.texts("endpoints") if version >= 2 else (f"PLAINTEXT://{host}:{port}",)
        return cls(
            broker_id=broker_id,
            host=host,
            port=port,
            endpoints=endpoints,
            timestamp_ms=node.number_as_text("timestamp", -1),
            jmx_port=node.integer("jmx_port", -1),
            rack=node.optional_text("rack"),
            version=version,
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The replicas of every partition of a topic; the first replica is the preferred leader."""

    partitions: Mapping[int, tuple[int, ...]]
    """Partition number -> broker ids, in ascending order of partitions."""

    def to_json(self) -> bytes:
        """Return the data for ``topic_path(topic)``."""
        partitions = {str(partition): list(replicas) for partition, replicas in self.partitions.items()}
        return dump({"version": 1, "partitions": partitions})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> TopicAssignment:
        """Parse the assignment in ``data``.

        Raises CoordinationError also for a partition without replicas, or with a duplicate broker. Lists may
        have different lengths: a running reassignment leaves them so.
        """
        node = Node(data, path)
        partitions = {}
        for key, listed in node.mapping("partitions").items():
            partition = id_in(key)
            if partition is None or key != str(partition):
                raise node.error("partitions", "an object whose keys are partition numbers")
            replicas = node.broker_ids("partitions", listed)
            if not replicas or len(set(replicas)) < len(replicas):
                raise CoordinationError(
                    f"{path}: invalid replicas {list(replicas)} for partition {partition}: "
                    "expected one or more distinct brokers"
                )
            partitions[partition] = replicas
        return cls(dict(sorted(partitions.items())))


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader and ISR of a partition. The znode's version guards writes; it is not in the JSON."""

    leader: int
    """Broker id; -1 if there is none."""
    leader_epoch: int
    """Raised at every change of the leader."""
    isr: tuple[int, ...]
    """Ids of the in-sync replicas."""
    controller_epoch: int
    """Epoch of the controller that decided it last."""

    def to_json(self) -> bytes:
        """Return the data for ``partition_state_path(topic, partition)``."""
        return dump(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str) -> PartitionState:
        """Parse the state in ``data``.

        Raises CoordinationError also for a duplicate broker in the ISR, and for a leader or an epoch out of
        range. The controller checks that leader and ISR fit the replicas.
        """
        node = Node(data, path)
        state = cls(
            leader=node.integer("leader"),
            leader_epoch=node.integer("leader_epoch"),
            isr=node.broker_ids("isr", node.value("isr")),
            controller_epoch=node.integer("controller_epoch"),
        )
        if len(set(state.isr)) < len(state.isr):
            raise node.error("isr", "a list of distinct broker ids")
        if state.leader < -1:
            raise node.error("leader", "a broker id or -1")
        if not 0 <= state.leader_epoch < _EPOCH_MAX:
            raise node.error("leader_epoch", f"a number from 0 to {_EPOCH_MAX - 1}")
        if state.controller_epoch < 0:
            raise node.error("controller_epoch", "0 or more")
        return state


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The broker that is the controller."""

    broker_id: int
    timestamp_ms: int
    """When it was elected; -1 if the znode does not say."""

    def to_json(self) -> bytes:
        """Return the data for ``CONTROLLER``."""
        return dump({"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def from_json(cls, data: bytes, path: str = CONTROLLER) -> ControllerRegistration:
        """Parse the registration in ``data``; releases before 0.8.1 wrote the bare broker id."""
        broker_id = id_in(data.strip())
        if broker_id is not None:
            return cls(broker_id, -1)
        node = Node(data, path)
        return cls(node.integer("brokerid"), node.number_as_text("timestamp", -1))


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """The number of controller elections so far. The first controller has epoch 1."""

    epoch: int

    def to_json(self) -> bytes:
        """Return the data for ``CONTROLLER_EPOCH``: the bare number."""
        return b"%d" % self.epoch

    @classmethod
    def from_json(cls, data: bytes, path: str = CONTROLLER_EPOCH) -> ControllerEpoch:
        """Parse the epoch in ``data``."""
        epoch = id_in(data.strip())
        if epoch is None:
            raise CoordinationError(f"{path}: expected a number, got {data[:200]!r}")
        return cls(epoch)


@dataclass(frozen=True, slots=True)
class EntityConfig:
    """The settings of one topic, client or broker."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Kafka's name of the setting -> value as text."""

    def to_json(self) -> bytes:
        """Return the data for ``topic_config_path(topic)``."""
        return dump({"version": 1, "config": dict(self.config)})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> EntityConfig:
        """Parse the settings in ``data``; none if there is no data."""
        if not data:
            return cls()
        node = Node(data, path)
        config = node.mapping("config")
        if not all(isinstance(value, str) for value in config.values()):
            raise node.error("config", "an object whose values are strings")
        return cls(config)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The notification that the settings of an entity have changed: versions 1 and 2 of the JSON."""

    entity_type: str
    """One of ``ENTITY_TYPES``."""
    entity_name: str
    """A topic, client or broker; for users it may have more parts, ``alice/clients/app``."""

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``CONFIG_CHANGES``, of version 2, which 0.10.1 writes."""
        return dump({"version": 2, "entity_path": f"{self.entity_type}/{self.entity_name}"})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ConfigChange:
        """Parse the notification in ``data``."""
        node = Node(data, path)
        match node.integer("version"):
            case 1:
                key, change = "entity_type", cls(node.text("entity_type"), node.text("entity_name"))
            case 2:
                key, (entity_type, _, name) = "entity_path", node.text("entity_path").partition("/")
                change = cls(entity_type, name)
            case _:
                raise node.error("version", "1 or 2")
        if change.entity_type not in ENTITY_TYPES or not change.entity_name:
            raise node.error(key, f"one of {', '.join(ENTITY_TYPES)}, with a name")
        return change


_ESCAPED_TOO = re.compile(r"[/\x7f-\x9f]")
"""Characters that 0.10.1 escapes in a pattern although JSON does not require it."""


def _escape(found: re.Match[str]) -> str:
    return "\\/" if found[0] == "/" else f"\\u{ord(found[0]):04x}"


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """A consumer of a group in ZooKeeper, with its subscription."""

    subscription: Mapping[str, int]
    """Topic or pattern -> number of threads that read it."""
    timestamp_ms: int
    """When it registered; -1 if the znode does not say."""
    pattern: str = "static"
    """``static`` for topics; ``white_list`` or ``black_list`` for a pattern."""

    def to_json(self) -> bytes:
        """Return the data for ``consumer_id_path(group, consumer_id)``, identical to those that 0.10.1
        writes.
        """
        plain = dump(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(self.timestamp_ms),
            }
        )
        return _ESCAPED_TOO.sub(_escape, plain.decode("utf-8")).encode("utf-8")

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ConsumerRegistration:
        """Parse the registration in ``data``."""
        node = Node(data, path)
        subscription = node.mapping("subscription")
        if not all(type(threads) is int for threads in subscription.values()):
            raise node.error("subscription", "an object whose values are numbers of threads")
        return cls(subscription, node.number_as_text("timestamp", -1), node.text("pattern"))


@dataclass(frozen=True, slots=True)
class ClusterId:
    """The cluster's id: 22 characters of URL-safe base64, created once and never replaced."""

    id: str

    def to_json(self) -> bytes:
        """Return the data for ``CLUSTER_ID``."""
        return dump({"version": "1", "id": self.id})

    @classmethod
    def from_json(cls, data: bytes, path: str = CLUSTER_ID) -> ClusterId:
        """Parse the id in ``data``."""
        node = Node(data, path)
        return cls(node.text("id"))


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The block of producer ids that was allocated last, both ends included. The next block follows it."""

    broker_id: int
    first: int
    last: int

    def to_json(self) -> bytes:
        """Return the data for ``PRODUCER_IDS``."""
        return dump(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str = PRODUCER_IDS) -> ProducerIdBlock:
        """Parse the block in ``data``."""
        node = Node(data, path)
        block = cls(
            node.integer("broker"), node.number_as_text("block_start"), node.number_as_text("block_end")
        )
        if not 0 <= block.first <= block.last < 1 << 63:
            raise node.error("block_end", "between block_start and 2^63 - 1")
        return block
