"""Client properties: the ``kafka.*`` options of a source or sink, parsed once.

Every key is of one of four kinds, and none is dropped silently:

* used: it has a field below, with Kafka's meaning and range;
* set by the source itself (``auto.offset.reset``, serializers, …): refused, as Spark's connector does;
* of a feature that does not exist yet (``ssl.*``, transactions, …): refused with "not supported yet";
* anything else: no effect, and named in one warning; a value of the wrong type is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.config.unknown_names import closest_match, did_you_mean
from minikafka.base.errors import ConfigError
from minikafka.clients.fetch.isolation_level import ISOLATION_LEVEL, IsolationLevel

PREFIX = "kafka."
GROUP_ID = "kafka.group.id"
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOT_YET = "not supported yet by this version of minikafka"

_OFFSETS_ARE_SPARKS = (
    "not allowed: Spark keeps the offsets of a query itself; use the option startingOffsets to say where a "
    "new query starts"
)
_KEYS_ARE_BYTES = (
    "not allowed: keys and values are read and written as bytes; convert them with DataFrame operations"
)
REJECTED: dict[str, str] = {
    "auto.offset.reset": _OFFSETS_ARE_SPARKS,
    "enable.auto.commit": "not allowed: the source commits no offsets, they are in the query's checkpoint",
    "interceptor.classes": "not allowed: interceptors could change what is read or written",
    "key.deserializer": _KEYS_ARE_BYTES,
    "value.deserializer": _KEYS_ARE_BYTES,
    "key.serializer": _KEYS_ARE_BYTES,
    "value.serializer": _KEYS_ARE_BYTES,
}
"""Client property -> why it cannot be set. The same set as Spark's connector has."""

UNSUPPORTED_PREFIXES = ("ssl.", "sasl.")
UNSUPPORTED_KEYS = frozenset({"transactional.id", "partitioner.class"})
_SECURITY = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""The commonly set ones of these, so that a misspelt one is reported as such."""
ONLY_DEFAULT: dict[str, str] = {
    "security.protocol": "plaintext",
}
"""Client property -> the one value that this version can honour."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Settings of connections to brokers. Sizes are in bytes, times in milliseconds.

    metadata_max_age_ms: None means one second for the planner of a read, five minutes for a write.
    """

    client_id: str = "minikafka-spark"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int | None = None
    connections_max_idle_ms: int = 540_000


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Settings of fetch requests. 2 MiB are about 15,000 records of 100 bytes: one record batch for Spark."""

    max_bytes: int = 2 * 1024 * 1024
    min_bytes: int = 1
    max_wait_ms: int = 500
    check_crcs: bool = True
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Settings of the sink's producer.

    acks: 0 none, 1 the leader, -1 all in-sync replicas (the default: Spark takes a finished task as stored).
    batch_bytes: the largest batch of one partition; None lets the writer fill a request.
    idempotence: None means on where the brokers support it and the other settings allow it.
    """

    acks: int = -1
    codec: str = "none"
    retries: int = INT_MAX
    linger_ms: int = 0
    batch_bytes: int | None = None
    max_request_bytes: int = 1_048_576
    buffer_bytes: int = 33_554_432
    max_in_flight: int = 5
    max_block_ms: int = 60_000
    retry_backoff_ms: int = 100
    delivery_timeout_ms: int = 120_000
    idempotence: bool | None = None


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


def integer(name: str, value: str, low: int = 0, high: int = INT_MAX) -> int:
    """Return ``value`` as an integer from ``low`` to ``high``. Raise ConfigError for any other value."""
    digits = _INTEGER.fullmatch(value.strip())
    number = low - 1 if digits is None else int(digits[0])
    if not low <= number <= high:
        limit = f" and at most {high}" if number > high else ""
        raise ConfigError(name, value, f"must be a whole number of at least {low}{limit}")
    return number


def long_ms(name: str, value: str, low: int = 0) -> int:
    """Return ``value`` as milliseconds. Up to 2^63-1 is accepted; more than 2^31-1 (24 days) counts as that.
    Raise ConfigError otherwise.
    """
    return min(integer(name, value, low, LONG_MAX), INT_MAX)


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)")


def duration_ms(name: str, value: str, low: int = 0) -> int:
    """Return a duration in Spark's form (``15m``, ``90 s``; a plain number is milliseconds) in milliseconds.
    Raise ConfigError for any other form and for less than ``low`` ms.
    """
    found = _DURATION.fullmatch(value.strip().lower())
    unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
    if found is None or unit is None or not low <= int(found[1]) * unit <= LONG_MAX:
        least = f", and at least {low} ms" if low else ""
        raise ConfigError(name, value, f"must be a duration such as 15m (units: ms, s, m, h, d){least}")
    return int(found[1]) * unit


def boolean(name: str, value: str) -> bool:
    """Return the value of ``true`` or ``false``, in any case. Raise ConfigError for anything else."""
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(name, value, "must be true or false")
    return text == "true"


def _acks(name: str, value: str) -> int:
    text = value.strip().lower()
    known = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if text not in known:
        raise ConfigError(name, value, "must be one of all, -1, 0, 1")
    return known[text]


def _codec(name: str, value: str) -> str:
    text = value.strip().lower()
    if text not in CODECS:
        raise ConfigError(name, value, f"must be one of {', '.join(CODECS)}")
    return text


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise ConfigError(name, value, "must not be empty")
    return value.strip()


def _at_least(low: int) -> Callable[[str, str], int]:
    return lambda name, value: integer(name, value, low)


def _idle_ms(name: str, value: str) -> int:
    """Return the milliseconds of ``value``; -1 means never, as in Kafka's clients."""
    number = integer(name, value, -1, LONG_MAX)
    return LONG_MAX if number < 0 else number


def _buffer_bytes(name: str, value: str) -> int:
    """Return the bytes of ``value``, at most 2 GiB: a task waits for its brokers long before that is full."""
    return min(integer(name, value, 1, LONG_MAX), INT_MAX)


_Parser = Callable[[str, str], object]
_CONNECTION: dict[str, tuple[str, _Parser]] = {
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _at_least(1)),
    "metadata.max.age.ms": ("metadata_max_age_ms", long_ms),
    "connections.max.idle.ms": ("connections_max_idle_ms", _idle_ms),
}
_FETCH: dict[str, tuple[str, _Parser]] = {
    "max.partition.fetch.bytes": ("max_bytes", _at_least(1)),
    "fetch.min.bytes": ("min_bytes", _at_least(1)),
    "fetch.max.wait.ms": ("max_wait_ms", _at_least(0)),
    "check.crcs": ("check_crcs", boolean),
    "isolation.level": ("isolation", ISOLATION_LEVEL.parse),
}
_PRODUCER: dict[str, tuple[str, _Parser]] = {
    "acks": ("acks", _acks),
    "compression.type": ("codec", _codec),
    "retries": ("retries", _at_least(0)),
    "linger.ms": ("linger_ms", long_ms),
    "batch.size": ("batch_bytes", _at_least(0)),
    "max.request.size": ("max_request_bytes", _at_least(1)),
    "buffer.memory": ("buffer_bytes", _buffer_bytes),
    "max.in.flight.requests.per.connection": ("max_in_flight", _at_least(1)),
    "max.block.ms": ("max_block_ms", long_ms),
    "retry.backoff.ms": ("retry_backoff_ms", long_ms),
    "delivery.timeout.ms": ("delivery_timeout_ms", _at_least(1)),
    "enable.idempotence": ("idempotence", boolean),
}


_LIKENESS = 0.85
"""``difflib``'s ratio above which a name counts as misspelt."""
_KAFKAS_OWN: dict[str, _Parser | None] = {
    "allow.auto.create.topics": boolean,
    "auto.commit.interval.ms": _at_least(0),
    "block.on.buffer.full": boolean,
    "bootstrap.servers": None,
    "client.dns.lookup": None,
    "client.rack": None,
    "default.api.timeout.ms": _at_least(0),
    "exclude.internal.topics": boolean,
    "fetch.max.bytes": _at_least(0),
    "group.id": None,
    "group.instance.id": None,
    "group.protocol": None,
    "group.remote.assignor": None,
    "heartbeat.interval.ms": _at_least(0),
    "max.poll.interval.ms": _at_least(1),
    "max.poll.records": _at_least(1),
    "metadata.fetch.timeout.ms": long_ms,
    "metadata.max.idle.ms": long_ms,
    "metadata.recovery.strategy": None,
    "metric.reporters": None,
    "metrics.num.samples": _at_least(1),
    "metrics.recording.level": None,
    "metrics.sample.window.ms": long_ms,
    "offsets.storage": None,
    "partition.assignment.strategy": None,
    "partitioner.adaptive.partitioning.enable": boolean,
    "partitioner.availability.timeout.ms": long_ms,
    "partitioner.ignore.keys": boolean,
    "receive.buffer.bytes": _at_least(-1),
    "reconnect.backoff.max.ms": long_ms,
    "reconnect.backoff.ms": long_ms,
    "retry.backoff.max.ms": long_ms,
    "send.buffer.bytes": _at_least(-1),
    "session.timeout.ms": _at_least(0),
    "socket.connection.setup.timeout.max.ms": long_ms,
    "socket.connection.setup.timeout.ms": long_ms,
    "timeout.ms": _at_least(0),
    "transaction.timeout.ms": _at_least(0),
    "zookeeper.connect": None,
}
"""Client property of Kafka without effect here -> the check of its value; None: any text. They are not
reported as misspelt.
"""


@functools.lru_cache(256)  # the same options are read again for every micro-batch that is written
def meant(name: str, others: tuple[str, ...] = ()) -> str | None:
    """Return the option that the unknown ``name`` was probably meant to be; None when none is similar.

    name: in lower case, with its prefix. others: options that are not client properties.
    """
    ours = {*_CONNECTION, *_FETCH, *_PRODUCER, *REJECTED, *ONLY_DEFAULT, *UNSUPPORTED_KEYS}
    if name.removeprefix(PREFIX) in {*_KAFKAS_OWN, *ours, *_SECURITY}:
        return None if name.startswith(PREFIX) else PREFIX + name
    if name.startswith(PREFIX):
        ours |= _SECURITY  # ``provider`` alone, which Spark adds, is none of these
    known = {other.lower(): other for other in others} | {PREFIX + key: PREFIX + key for key in ours}
    for text in (name, name.removeprefix(PREFIX), PREFIX + name):
        close = closest_match(text, known, _LIKENESS)
        if close is not None:
            return known[close]
    return None


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """All client properties of one source or sink.

    without_effect: full option names that were given and change nothing, for one warning.
    """

    bootstrap_servers: str | None
    connection: ConnectionOptions
    fetch: FetchOptions
    producer: ProducerOptions
    without_effect: tuple[str, ...]


def _servers(name: str, value: str) -> str:
    """Return ``host:port[,host:port…]`` without blanks. Raise ConfigError that names a malformed address."""
    servers = [part.strip() for part in value.split(",") if part.strip()]
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not host or not colon or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ConfigError(name, value, f"must be HOST:PORT[,HOST:PORT…]; found {server!r}")
    if not servers:
        raise ConfigError(
            name, value, "must be HOST:PORT[,HOST:PORT…]; leave the option out to use the embedded broker"
        )
    return ",".join(servers)


def _refuse(key: str, value: str) -> None:
    """Raise ConfigError for a property that is not supported; ``key`` is without its prefix."""
    if key in REJECTED:
        raise ConfigError(PREFIX + key, value, REJECTED[key])
    if key in UNSUPPORTED_KEYS or key.startswith(UNSUPPORTED_PREFIXES):
        meant = None if key in _SECURITY else closest_match(key, _SECURITY)
        hint = did_you_mean(None if meant is None else PREFIX + meant)
        raise ConfigError(PREFIX + key, value, NOT_YET + hint)
    if key in ONLY_DEFAULT and value.strip().lower() != ONLY_DEFAULT[key]:
        raise ConfigError(PREFIX + key, value, f"{NOT_YET}; leave it out or use {ONLY_DEFAULT[key]}")


def _check_unused(key: str, name: str, value: str) -> None:
    """Raise ConfigError when a property without effect has a value that Kafka's own clients refuse."""
    parse = _KAFKAS_OWN.get(key)
    for table in (_FETCH, _PRODUCER):
        if key in table:
            _, parse = table[key]
    if parse is not None:
        parse(name, value)


def kafka_options(options: Mapping[str, str], *, sink: bool) -> KafkaOptions:
    """Parse the ``kafka.*`` keys of ``options``, whose keys are in lower case.

    Properties of the other side (a consumer's on a sink) have no effect, as unknown ones.
    """
    bootstrap: str | None = None
    connection: dict[str, object] = {}
    ours: dict[str, object] = {}
    table = _PRODUCER if sink else _FETCH
    without_effect = []
    for name, value in sorted(options.items()):
        if not name.startswith(PREFIX):
            continue
        key = name.removeprefix(PREFIX)
        _refuse(key, value)
        if key == "bootstrap.servers":
            bootstrap = _servers(name, value)
        elif key in _CONNECTION:
            field, parse = _CONNECTION[key]
            connection[field] = parse(name, value)
        elif key in table:
            field, parse = table[key]
            ours[field] = parse(name, value)
        elif key not in ONLY_DEFAULT and (sink or name != GROUP_ID):
            _check_unused(key, name, value)
            without_effect.append(name)
    return KafkaOptions(
        bootstrap_servers=bootstrap,
        connection=ConnectionOptions(**connection),  # type: ignore[arg-type]
        fetch=FetchOptions() if sink else FetchOptions(**ours),  # type: ignore[arg-type]
        producer=ProducerOptions(**ours) if sink else ProducerOptions(),  # type: ignore[arg-type]
        without_effect=tuple(without_effect),
    )
