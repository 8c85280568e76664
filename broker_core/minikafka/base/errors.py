"""Every exception of the project, as one tree.

    MinikafkaError
    ├── BrokerError(code)        an error of Kafka's protocol, with its numeric code
    │   ├── OffsetOutOfRange     carries the valid range of the log that was asked
    │   ├── CorruptMessage       a stream met a damaged message, at this topic, partition and offset
    │   └── MessageSizeTooLarge  a stream met a message larger than what it may fetch
    ├── UndecodableMessage       a decoder failed on a stream's message, at this topic, partition and offset
    ├── ConsumerTimeout          a stream had no message within ``consumer.timeout.ms``
    ├── GroupHeld                a group has another owner, with its name
    ├── Woken                    a poll was ended by another thread
    ├── FailedToSendMessage      a producer has tried often enough; carries what was not sent
    ├── QueueFull                an asynchronous producer has no room for a message
    ├── ProducerClosed           something was sent with a producer that is closed
    ├── ConsumerRebalanceFailed  a consumer did not get its partitions, and has given up all
    ├── MessageStreamsExist      a connector has created its streams already
    ├── NoCommittedOffset        a group has no place to go on from, and is told not to choose one
    ├── StorageError             the disk or what lies on it
    │   └── DirectoryLocked      another process holds the data directory
    ├── WireError                bytes that are not the protocol
    │   ├── LocalWireError       ours: a value that the schema cannot carry
    │   └── RemoteWireError      the peer's: truncated, oversized or senseless bytes
    ├── NetworkError             a connection that could not be made, broke or timed out
    │   └── NoSuchBroker         the cluster answers, and does not name this broker among those that live
    ├── CoordinationError        ZooKeeper
    │   ├── NoNode / NodeExists / NotEmpty / BadVersion
    │   ├── OtherCluster         it holds another cluster than the broker's
    │   ├── SessionExpired
    │   └── CoordinationLost     no connection at the moment: the outcome of a write is unknown
    └── ConfigError              an option or property: its name, the value, what is allowed
        └── ConfigErrors         several of them, all named

A message says what was wrong, with the value, and what to do.
Codes are those of Kafka 2.1 (``Errors.java``), under the names that 0.10.1 has for those that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from minikafka.base.secrets import is_resource_name, redact, redact_text


class ErrorCode(IntEnum):
    """Kafka's numeric error codes, as they stand in responses (int16)."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    GROUP_LOAD_IN_PROGRESS = 14
    GROUP_COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR_FOR_GROUP = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later, after a metadata refresh."""
        return self in _RETRIABLE

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for ``code``; UNKNOWN for a code that this table does not hold."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN


_RETRIABLE = frozenset(
    {
        # CORRUPT_MESSAGE is retriable in Kafka too: the damage may have happened on the way.
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.GROUP_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR_FOR_GROUP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class MinikafkaError(Exception):
    """Base of every error that this project raises on purpose."""


class BrokerError(MinikafkaError):
    """An error of Kafka's protocol: what a broker answers, or answered, with its code."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code.name}: {self.detail}" if self.detail else self.code.name

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.is_retriable


class OffsetOutOfRange(BrokerError):
    """An offset outside ``[start_offset, end_offset]`` of a log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside the log, which has {start_offset} to {end_offset}",
        )
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset

    def __reduce__(self) -> tuple[type[OffsetOutOfRange], tuple[int, int, int]]:
        return OffsetOutOfRange, (self.offset, self.start_offset, self.end_offset)


class CorruptMessage(BrokerError):
    """A message of a stream that cannot be read; it can be read on at ``after_offset``."""

    def __init__(self, topic: str, partition: int, offset: int, after_offset: int, problem: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{topic}-{partition} at offset {offset}: {problem}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.after_offset = after_offset
        self._problem = problem

    def __reduce__(self) -> tuple[type[CorruptMessage], tuple[str, int, int, int, str]]:
        return CorruptMessage, (self.topic, self.partition, self.offset, self.after_offset, self._problem)


class MessageSizeTooLarge(BrokerError):
    """A message (or compressed set) at ``offset`` has more bytes than a stream may fetch at a time."""

    def __init__(self, topic: str, partition: int, offset: int, size_bytes: int, allowed_bytes: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"what {topic}-{partition} has at offset {offset} takes {size_bytes} bytes, more than the "
            f"{allowed_bytes} of fetch.message.max.bytes: raise that",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.size_bytes = size_bytes
        self.allowed_bytes = allowed_bytes

    def __reduce__(self) -> tuple[type[MessageSizeTooLarge], tuple[str, int, int, int, int]]:
        fields = self.topic, self.partition, self.offset, self.size_bytes, self.allowed_bytes
        return MessageSizeTooLarge, fields


class UndecodableMessage(MinikafkaError):
    """A decoder did not make a key or a value of the bytes of a message; its own error is the cause.

    The message does not count as consumed until the next one is asked for.
    """

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(topic, partition, offset, problem)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}: {self.problem}"


class ConsumerTimeout(MinikafkaError):
    """No message came within ``consumer.timeout.ms``: ask for the next one to go on waiting."""


class NoCommittedOffset(MinikafkaError):
    """A group has committed nothing for a partition, and ``auto.offset.reset`` is ``none``."""


class Wakeup(MinikafkaError):
    """A wait for records was ended by ``wakeup``."""


class FailedToSendMessage(MinikafkaError):
    """What a producer could not send, for good or after its last try (``FailedToSendMessageException``).

    failed: the messages themselves, in their order; acknowledged ones are not among them.
    causes: the last error of each partition, or of a topic whose partitions are not known.
    """

    def __init__(self, text: str, failed: Sequence[Any], causes: Mapping[str, Exception]) -> None:
        super().__init__(text)
        self.failed = failed
        self.causes = causes

    def __reduce__(self) -> tuple[type[FailedToSendMessage], tuple[str, list[Any], dict[str, Exception]]]:
        return FailedToSendMessage, (str(self), list(self.failed), dict(self.causes))


class QueueFull(MinikafkaError):
    """The queue of an asynchronous producer is full (``QueueFullException``): ``dropped`` messages were not
    taken.
    """

    def __init__(self, text: str, dropped: int) -> None:
        super().__init__(text)
        self.dropped = dropped

    def __reduce__(self) -> tuple[type[QueueFull], tuple[str, int]]:
        return QueueFull, (str(self), self.dropped)


class ProducerClosed(MinikafkaError):
    """The producer was closed before (``ProducerClosedException``)."""


class GroupInUse(MinikafkaError):
    """Who wants a group for itself finds others in it; ``holders`` are their names."""

    def __init__(self, group_id: str, holders: Iterable[str]) -> None:
        self.group_id = group_id
        self.holders = tuple(holders)
        super().__init__(f"group {group_id!r} is held by {', '.join(self.holders)}")


class ConsumerRebalanceFailed(MinikafkaError):
    """A consumer did not get its partitions in ``rebalance.max.retries`` attempts, and has left its group."""


class MessageStreamsExist(MinikafkaError):
    """A consumer connector creates message streams at most once."""


class StorageError(MinikafkaError):
    """The disk failed, or what lies on it cannot be used."""


class TooManyFiles(StorageError):
    """There was no descriptor left to open a file with: nothing was done, and nothing is lost."""


class DirectoryLocked(StorageError):
    """Another process holds the lock of a data directory."""


class WireError(MinikafkaError):
    """Bytes or values that do not fit the protocol."""


class LocalWireError(WireError):
    """Our fault: a value that the schema cannot carry."""


class RemoteWireError(WireError):
    """The peer's fault: truncated, oversized or senseless bytes."""


class NetworkError(MinikafkaError):
    """A connection could not be made, broke, or timed out."""


class NoSuchBroker(NetworkError):
    """The cluster answers, and does not name this broker among those that live."""


class CoordinationError(MinikafkaError):
    """ZooKeeper refused, or could not be asked."""


class NoNode(CoordinationError):
    """The znode, or its parent, is not there."""


class NodeExists(CoordinationError):
    """The znode is there already."""


class NotEmpty(CoordinationError):
    """The znode has children."""


class BadVersion(CoordinationError):
    """A conditional write met another version than the expected one."""


class InconsistentClusterId(CoordinationError):
    """ZooKeeper does not hold the cluster that this broker belongs to: nothing is written there."""


class SessionExpired(CoordinationError):
    """The session is gone, and its ephemeral znodes with it."""


class CommitFailed(CoordinationError):
    """Offsets are not committed, as their partitions are not owned, or not any more, by who commits."""


class CoordinationLost(CoordinationError):
    """No connection at the moment; whether a write took effect is unknown."""


class ConfigError(MinikafkaError):
    """An option or property that cannot be used: its name, the value and what is allowed.

    ``value`` is as people may see it: a secret is ``***`` from here on, in every text, log and pickle. None
    where it was not given.
    """

    def __init__(self, name: str, value: object, allowed: str) -> None:
        known = [value] if is_resource_name(name) and isinstance(value, str) else []
        value, allowed = redact(name, value), redact_text(allowed, known)
        super().__init__(name, value, allowed)
        self.name = name
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        given = "" if self.value is None else f"={self.value!r}"
        return f"{self.name}{given}: {self.allowed}"


class ConfigErrors(ConfigError):
    """All that is wrong with a configuration, in one error; ``name``, ``value`` and ``allowed`` are the
    first's.
    """

    def __init__(self, faults: Iterable[ConfigError]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(first.name, first.value, first.allowed)

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))

    def __reduce__(self) -> tuple[type[ConfigErrors], tuple[tuple[ConfigError, ...]]]:
        return ConfigErrors, (self.faults,)
