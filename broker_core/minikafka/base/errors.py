"""Every exception of the project, as one tree.

    MinikafkaError
    ├── BrokerError(code)        an error of Kafka's protocol, with its numeric code
    │   ├── OffsetOutOfRange     an offset outside the log; carries the log's range
    │   ├── LogTruncated         records that were read are no longer in the log; carries its new end
    │   ├── AuthenticationFailed  a client could not prove who it is; carries the reason, which is for the log
    │   │   └── SslAuthenticationFailed  the two sides do not accept each other in TLS, or one has none
    │   ├── ProducerFenced       a newer producer has the transactional id, or the transaction took too long
    │   ├── TransactionAbortable  a transaction cannot be committed, and must be aborted
    │   ├── CorruptMessage       a stream met a damaged message, at this topic, partition and offset
    │   └── MessageSizeTooLarge  a stream met a message larger than its fetch size
    ├── UndecodableMessage       a decoder failed on a stream's message, at this topic, partition and offset
    ├── ConsumerTimeout          a stream had no message within ``consumer.timeout.ms``
    ├── GroupInUse               a group has members already; carries their names
    ├── Wakeup                   another thread ended a poll
    ├── FailedToSendMessage      a producer has used up its retries; carries the messages that were not sent
    ├── QueueFull                an asynchronous producer has no room for a message
    ├── ProducerClosed           a message was given to a producer that is closed
    ├── ConsumerRebalanceFailed  a consumer did not get its partitions, and has left its group
    ├── MessageStreamsExist      a connector has created its streams already
    ├── NoCommittedOffset        a group has no committed offset, and its configuration forbids a default
    ├── StorageError             the disk failed, or its content cannot be used
    │   ├── TooManyFiles         no file descriptor is left
    │   └── DirectoryLocked      another process holds the data directory
    ├── StoreError               a key store or trust store is of no known format, or damaged
    │   └── WrongStorePassword   the password of a store, or of a key in it, is wrong
    │       └── MissingStorePassword  the password of a store is not given
    ├── WireError                bytes or values that do not fit the protocol
    │   ├── LocalWireError       ours: a value that the schema cannot encode
    │   └── RemoteWireError      the peer's: truncated, oversized or invalid bytes
    │       └── ForeignProtocol  the peer speaks TLS or HTTP
    ├── NetworkError             a connection could not be made, broke or timed out
    │   ├── IdentityProviderUnreachable  a token or credentials for a login cannot be fetched
    │   └── NoSuchBroker         the cluster answers, but this broker is not among its live brokers
    ├── CoordinationError        ZooKeeper
    │   ├── NoNode / NodeExists / NotEmpty / BadVersion
    │   ├── InconsistentClusterId  ZooKeeper holds another cluster than the broker's
    │   ├── SessionExpired
    │   ├── CommitFailed         offsets of partitions that the committing consumer does not own
    │   └── CoordinationLost     no connection at the moment: the outcome of a write is unknown
    └── ConfigError              an option or property: its name, the value, what is allowed
        └── ConfigErrors         several of them, all named

A message says what was wrong, with the value, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from minikafka.base.error_codes import ErrorCode as ErrorCode  # noqa: PLC0414 (an error has its code)
from minikafka.base.printable import quoted
from minikafka.base.secrets import is_resource_name, redact, redact_text

Error = TypeVar("Error", bound=BaseException)
T = TypeVar("T")


class MinikafkaError(Exception):
    """Base of every error that this project raises on purpose."""

    peer = ""
    """The broker, or the address, whose connection failed."""
    advice = ""
    """The end of the text: what the user can check or do."""
    reasons: tuple[MinikafkaError, ...] = ()
    """Why the attempts of an operation failed that was repeated until its deadline."""


class BrokerError(MinikafkaError):
    """An error of Kafka's protocol, with its code: one that a broker answers, or has answered."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code.name}: {self.detail}" if self.detail else self.code.name

    @property
    def is_retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.code.is_retriable


class AuthenticationFailed(BrokerError):
    """A client could not prove who it is, or a broker that it knows the client's secret
    (``SaslAuthenticationException``; with other codes ``UnsupportedSaslMechanismException`` and
    ``IllegalSaslStateException``: only one of the two sides expects a login).

    ``detail`` is for the peer: a fixed text, from which nobody learns which users there are. ``reason`` says
    what was wrong: for the log of a broker, and for the user of a client.
    """

    def __init__(
        self,
        reason: str,
        peer_text: str = "authentication failed",
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> None:
        super().__init__(code, peer_text)
        self.reason = reason

    def __reduce__(self) -> tuple[type[AuthenticationFailed], tuple[str, str, ErrorCode]]:
        return AuthenticationFailed, (self.reason, self.detail, self.code)


class SslAuthenticationFailed(AuthenticationFailed):
    """A connection cannot be secured: the two sides do not accept each other in TLS, or only one of them
    speaks it (``SslAuthenticationException``).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason, ErrorCode.UNKNOWN)

    def __reduce__(self) -> tuple[type[AuthenticationFailed], tuple[str]]:  # type: ignore[override]
        return SslAuthenticationFailed, (self.reason,)

    def __str__(self) -> str:
        return self.reason


def without_frames(error: Error) -> Error:
    """Return ``error`` without its traceback, cause and context: to keep it until a response is made.

    Their frames hold what their functions had, up to the request, and often the error itself: such a cycle
    stays until a full garbage collection, which is rare (``base.memory``).
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def value_or_error(make: Callable[[], T]) -> T | BrokerError:
    """Return the value of ``make``, or the BrokerError that it raises, ``without_frames``."""
    try:
        return make()
    except BrokerError as error:
        return without_frames(error)


class OffsetOutOfRange(BrokerError):
    """An offset outside ``[start_offset, end_offset]`` of a log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside the log: expected {start_offset} to {end_offset}",
        )
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset

    def __reduce__(self) -> tuple[type[OffsetOutOfRange], tuple[int, int, int]]:
        return OffsetOutOfRange, (self.offset, self.start_offset, self.end_offset)


class LogTruncated(BrokerError):
    """Records before ``offset`` were read and are no longer in the log: an unclean election has truncated it
    to ``end_offset``.
    """

    def __init__(self, topic: str, partition: int, offset: int, epoch: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} was read to offset {offset}, of leader epoch {epoch}, but an unclean "
            f"election has truncated the log: that epoch ends at {end_offset}",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.epoch = epoch
        self.end_offset = end_offset

    def __reduce__(self) -> tuple[type[LogTruncated], tuple[str, int, int, int, int]]:
        return LogTruncated, (self.topic, self.partition, self.offset, self.epoch, self.end_offset)


class ProducerFenced(BrokerError):
    """A transactional producer is no longer the current one of its id (``ProducerFencedException``): another
    one was started, or the coordinator has aborted a transaction that was open for too long. Close it.
    """


class TransactionAbortable(BrokerError):
    """A transaction cannot be committed, and must be aborted (``TransactionAbortableException``). The cause
    says why; after the abort the producer can go on.
    """


class CorruptMessage(BrokerError):
    """A message of a stream that cannot be read. Reading can continue at ``after_offset``."""

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
    """A message (or compressed set) at ``offset`` is larger than the fetch size of a stream."""

    def __init__(self, topic: str, partition: int, offset: int, size_bytes: int, allowed_bytes: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the message of {topic}-{partition} at offset {offset} has {size_bytes} bytes, which exceeds "
            f"fetch.message.max.bytes={allowed_bytes}: increase fetch.message.max.bytes",
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
    """A decoder could not decode the key or the value of a message; its own error is the cause.

    The message does not count as consumed until the next one is requested.
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
    """No message arrived within ``consumer.timeout.ms``. Call ``next`` again to continue waiting."""


class NoCommittedOffset(MinikafkaError):
    """A group has committed nothing for a partition, and ``auto.offset.reset`` is ``none``."""


class Wakeup(MinikafkaError):
    """``wakeup`` ended a wait for records."""


class FailedToSendMessage(MinikafkaError):
    """A producer could not send messages, and does not retry (``FailedToSendMessageException``).

    failed: the messages, in their order, without the acknowledged ones.
    causes: the last error of each partition, or of a topic whose partitions are not known.
    """

    def __init__(self, text: str, failed: Sequence[Any], causes: Mapping[str, Exception]) -> None:
        super().__init__(text)
        self.failed = failed
        self.causes = causes

    def __reduce__(self) -> tuple[type[FailedToSendMessage], tuple[str, list[Any], dict[str, Exception]]]:
        return FailedToSendMessage, (str(self), list(self.failed), dict(self.causes))


class QueueFull(MinikafkaError):
    """The queue of an asynchronous producer is full (``QueueFullException``). ``dropped`` messages were not
    queued.
    """

    def __init__(self, text: str, dropped: int) -> None:
        super().__init__(text)
        self.dropped = dropped

    def __reduce__(self) -> tuple[type[QueueFull], tuple[str, int]]:
        return QueueFull, (str(self), self.dropped)


class ProducerClosed(MinikafkaError):
    """The producer is closed (``ProducerClosedException``)."""


class GroupInUse(MinikafkaError):
    """A group that must have no other members has some; ``holders`` are their names."""

    def __init__(self, group_id: str, holders: Iterable[str]) -> None:
        self.group_id = group_id
        self.holders = tuple(holders)
        super().__init__(f"group {group_id!r} is in use by {', '.join(self.holders)}")


class ConsumerRebalanceFailed(MinikafkaError):
    """A consumer did not get its partitions in ``rebalance.max.retries`` attempts, and has left its group."""


class MessageStreamsExist(MinikafkaError):
    """A consumer connector creates message streams at most once."""


class UserExists(MinikafkaError):
    """A user that was to be added has a password already."""


class NoSuchUser(MinikafkaError):
    """A user that was to be changed or deleted has no password."""


class StorageError(MinikafkaError):
    """The disk failed, or its content cannot be used."""


class TooManyFiles(StorageError):
    """No file descriptor was left to open a file. Nothing was changed, and nothing is lost."""


class DirectoryLocked(StorageError):
    """Another process holds the lock of a data directory."""


class StoreError(MinikafkaError):
    """A key store or trust store is of no known format, or damaged."""


class WrongStorePassword(StoreError):
    """The password of a key store or trust store, or of a key in it, is wrong."""


class MissingStorePassword(WrongStorePassword):
    """The password of a key store or trust store is not given."""


class WireError(MinikafkaError):
    """Bytes or values that do not fit the protocol."""


class LocalWireError(WireError):
    """Our fault: a value that the schema cannot encode."""


class RemoteWireError(WireError):
    """The peer's fault: truncated, oversized or invalid bytes."""


class ForeignProtocol(RemoteWireError):
    """The peer speaks another protocol than Kafka's: ``protocol`` is TLS or HTTP."""

    def __init__(self, text: str, protocol: str) -> None:
        super().__init__(text, protocol)
        self.protocol = protocol

    def __str__(self) -> str:
        return str(self.args[0])


class NetworkError(MinikafkaError):
    """A connection could not be made, broke, or timed out."""

    def __init__(self, detail: str, peer: str = "", advice: str = "") -> None:
        super().__init__(detail, peer, advice)
        self.detail = detail
        self.peer = peer
        self.advice = advice

    @property
    def problem(self) -> str:
        """The text without the advice."""
        return f"{self.peer}: {self.detail}" if self.peer else self.detail

    def __str__(self) -> str:
        return f"{self.problem}; {self.advice}" if self.advice else self.problem


class NoResponse(NetworkError):
    """No response to a request came within ``timeout_ms``."""

    def __init__(self, timeout_ms: int, peer: str = "", request: str = "") -> None:
        text = f"no response within {timeout_ms} ms"
        super().__init__(f"{request}: {text}" if request else text, peer)
        self.args = timeout_ms, peer, request
        self.timeout_ms = timeout_ms


class PeerClosed(NetworkError):
    """The peer closed the connection."""


class IdentityProviderUnreachable(NetworkError):
    """A token, or AWS credentials, for a login cannot be fetched at the moment."""


class NoSuchBroker(NetworkError):
    """The cluster answers, but this broker is not among its live brokers."""


class CoordinationError(MinikafkaError):
    """ZooKeeper refused an operation, or could not be reached."""


class NoNode(CoordinationError):
    """The znode, or its parent, does not exist."""


class NodeExists(CoordinationError):
    """The znode exists already."""


class NotEmpty(CoordinationError):
    """The znode has children."""


class BadVersion(CoordinationError):
    """The version of the znode is not the one that a conditional write expects."""


class NoAuth(CoordinationError):
    """The ACL of the znode does not allow the operation to this client."""


class InconsistentClusterId(CoordinationError):
    """ZooKeeper does not hold the cluster that this broker belongs to. Nothing is written there."""


class SessionExpired(CoordinationError):
    """The session has expired, and its ephemeral znodes are deleted."""


class CommitFailed(CoordinationError):
    """Offsets were not committed: the consumer does not own, or no longer owns, their partitions."""


class CoordinationLost(CoordinationError):
    """There is no connection at the moment; it is unknown whether a write took effect."""


class ConfigError(MinikafkaError):
    """An invalid option or property: its name, the value and what is allowed.

    ``value`` is redacted: a secret is ``***`` from here on, in every text, log and pickle. None if it was not
    given.
    """

    def __init__(self, name: str, value: object, allowed: str) -> None:
        known = [value] if is_resource_name(name) and isinstance(value, str) else []
        value, allowed = redact(name, value), redact_text(allowed, known)
        super().__init__(name, value, allowed)
        self.name = name
        self.value = value
        self.allowed = allowed

    @property
    def faults(self) -> tuple[ConfigError, ...]:
        """All faults that this error names."""
        return (self,)

    def __str__(self) -> str:
        given = "" if self.value is None else f"={quoted(self.value)}"
        return f"{self.name}{given}: {self.allowed}"


class ConfigErrors(ConfigError):
    """All faults of a configuration in one error; ``name``, ``value`` and ``allowed`` are those of the
    first.
    """

    def __init__(self, faults: Iterable[ConfigError]) -> None:
        self._faults = tuple(faults)
        first = self._faults[0]
        super().__init__(first.name, first.value, first.allowed)

    @property
    def faults(self) -> tuple[ConfigError, ...]:
        """All faults, in the order in which the settings were given."""
        return self._faults

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))

    def __reduce__(self) -> tuple[type[ConfigErrors], tuple[tuple[ConfigError, ...]]]:
        return ConfigErrors, (self.faults,)
