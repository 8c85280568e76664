"""Client properties: the ``kafka.*`` options of a source or sink, parsed once.

Every key is of one of four kinds, and none is dropped silently:

* used: a setting below, of TLS and SASL, or of a producer, with Kafka's meaning and range;
* set by the source itself (``auto.offset.reset``, serializers, …): refused, as Spark's connector does;
* of a feature that does not exist yet (``partitioner.class``): refused with "not supported yet";
* anything else: no effect, and named in one warning; a value of the wrong type is refused.

Key stores are read on the host that connects: their files must be on the driver and on every executor.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from minikafka.base.config.config_def import ConfigDef, Faults, definition_of, setting
from minikafka.base.config.types import (
    ANY_TEXT,
    BOOLEAN,
    LONG_MAX,
    TEXT,
    Type,
    capped_int64,
    int32,
    int64,
    text_type,
)
from minikafka.base.config.unknown_names import NOT_YET, SECURITY_PREFIXES, closest_match
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import (
    PROTOCOL,
    UNSUPPORTED_NAMES,
    WITHOUT_EFFECT,
    ClientSecurity,
    security_names,
)
from minikafka.clients.fetch.isolation_level import ISOLATION_LEVEL, IsolationLevel
from minikafka.clients.network.bootstrap import parse_bootstrap
from pyspark_minikafka.options.delivery_options import DELIVERY, SINK_ID, Delivery

if TYPE_CHECKING:
    from minikafka.clients.produce.config import BatchingConfig

PREFIX = "kafka."
GROUP_ID = "kafka.group.id"
SERVERS = "kafka.bootstrap.servers"

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
    "transactional.id": (
        "not allowed: the sink has transactional ids of its own; to write in transactions set "
        f"{DELIVERY}={Delivery.EXACTLY_ONCE.value}, and for a stream {SINK_ID}=NAME"
    ),
}
"""Client property -> why it cannot be set. All but the last are refused by Spark's connector too."""

BATCH_BYTES = 900_000
"""The largest encoded batch unless ``kafka.batch.size`` is set: a broker with default limits accepts it."""
SINK_DEFAULTS: dict[str, object] = {"acks": "all", "batch.size": BATCH_BYTES}
"""Defaults of the sink's producer that are not those of a producer. Spark takes a finished task as stored."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Settings of connections to brokers. Sizes are in bytes, times in milliseconds."""

    client_id: str = setting(
        "client.id", TEXT, "minikafka-spark", "The name of this client in the brokers' logs and quotas."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", int32(1), 30_000, "How long to wait for a response, and for a first broker."
    )
    metadata_max_age_ms: int | None = setting(
        "metadata.max.age.ms",
        capped_int64(0),
        None,
        "How old metadata may be; a second where a query looks for topics, five minutes where it writes.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        int64(-1).then(lambda value: LONG_MAX if value < 0 else value),
        540_000,
        "How long a connection may be idle and still be used; -1: for ever.",
    )
    security: ClientSecurity = field(default_factory=ClientSecurity)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Settings of fetch requests. 2 MiB are about 15,000 records of 100 bytes: one record batch for Spark."""

    max_bytes: int = setting(
        "max.partition.fetch.bytes", int32(1), 2 * 1024 * 1024, "Bytes of a partition in one fetch."
    )
    min_bytes: int = setting("fetch.min.bytes", int32(1), 1, "Bytes for which a broker waits.")
    max_wait_ms: int = setting("fetch.max.wait.ms", int32(0), 500, "How long it waits.")
    check_crcs: bool = setting("check.crcs", BOOLEAN, True, "Whether checksums are verified.")
    isolation: IsolationLevel = setting(
        "isolation.level", ISOLATION_LEVEL, "read_uncommitted", "`read_uncommitted` or `read_committed`."
    )
    rack: str = setting(
        "client.rack",
        ANY_TEXT,
        "",
        "The rack of the executors: a leader may send them to a follower in it (KIP-392).",
    )


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,19})\s*([a-z]*)")


def duration(low: int) -> Type:
    """Return the type of a duration in Spark's form (``15m``, ``90 s``; a plain number is milliseconds) of at
    least ``low`` milliseconds.
    """

    def convert(text: str) -> int:
        found = _DURATION.fullmatch(text.lower())
        unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
        if found is None or unit is None or not low <= int(found[1]) * unit <= LONG_MAX:
            raise ValueError
        return int(found[1]) * unit

    least = f", and at least {low} ms" if low else ""
    return text_type(f"a duration such as 15m (units: ms, s, m, h, d){least}", convert)


def producer_def() -> ConfigDef:
    """Return the settings of a sink's producer."""
    from minikafka.clients.produce.config import BatchingConfig  # not for reads: it imports the codecs

    return definition_of(BatchingConfig)


_SETTING = re.compile(
    r"(?<![\w./-])(?:bootstrap\.servers|security\.protocol|s(?:as|s)l(?:\.[a-z0-9]+)+)(?![\w-])"
)


def with_prefixes(text: str) -> str:
    """Return a text about connections with ``kafka.`` before each property, as users of Spark type them.

    Other words, such as the host ``ssl.example.com``, stay as they are.
    """
    if _SETTING.search(text) is None:
        return text
    known = {*security_names(), SERVERS.removeprefix(PREFIX)}
    return _SETTING.sub(lambda found: PREFIX + found[0] if found[0] in known else found[0], text)


_TEXTS = ("name", "allowed", "detail", "reason", "advice")
"""The attributes of errors of which their texts are made."""


def name_options(error: Exception) -> None:
    """Write the properties in an error's text as options, as ``with_prefixes``: the clients, in whatever
    process they run, know only Kafka's own names.
    """
    for fault in error.faults if isinstance(error, ConfigError) else (error,):
        fault.args = tuple(with_prefixes(part) if isinstance(part, str) else part for part in fault.args)
        for name in _TEXTS:
            text = getattr(fault, name, None)
            if isinstance(text, str):
                setattr(fault, name, with_prefixes(text))


_LIKENESS = 0.85
"""``difflib``'s ratio above which a name counts as misspelt."""


@functools.lru_cache(256)  # the same options are read again for every micro-batch that is written
def meant(name: str, others: tuple[str, ...] = ()) -> str | None:
    """Return the option that the unknown ``name`` was probably meant to be; None when none is similar.

    name: in lower case, with its prefix. others: options that are not client properties.
    """
    used = (*definition_of(ConnectionOptions).keys, *definition_of(FetchOptions).keys, *producer_def().keys)
    ours = {*used, *REJECTED, PROTOCOL, *UNSUPPORTED_NAMES}
    if name.removeprefix(PREFIX) in {*WITHOUT_EFFECT, *ours} or name.startswith(SECURITY_PREFIXES):
        return None if name.startswith(PREFIX) else PREFIX + name
    known = {other.lower(): other for other in others} | {PREFIX + key: PREFIX + key for key in ours}
    for text in (name, name.removeprefix(PREFIX), PREFIX + name):
        close = closest_match(text, known, _LIKENESS)
        if close is not None:
            return known[close]
    return None


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """All client properties of one source or sink.

    producer: None for a source. without_effect: full option names that were given and change nothing, for
    one warning. warnings: of settings of TLS and SASL without effect, each with the reason.
    """

    bootstrap_servers: str | None
    connection: ConnectionOptions
    fetch: FetchOptions
    producer: BatchingConfig | None
    without_effect: tuple[str, ...]
    warnings: tuple[str, ...]


def _servers(protocol: SecurityProtocol | None) -> Type:
    """Return the type of a list of servers, which may begin with ``protocol``; None: with any."""

    def convert(text: str) -> str:
        try:
            return ",".join(map(str, parse_bootstrap(text, protocol=protocol)))
        except ConfigError as problem:
            hint = "" if text.strip(", ") else "; leave the option out to use the embedded broker"
            raise ValueError(with_prefixes(problem.allowed) + hint) from None

    return text_type("HOST:PORT[,HOST:PORT…]", convert)


def _refuse(key: str, value: str) -> None:
    """Raise ConfigError for a property that is not supported; ``key`` is without its prefix."""
    if key in REJECTED:
        raise ConfigError(PREFIX + key, value, REJECTED[key])
    if key in UNSUPPORTED_NAMES:
        raise ConfigError(PREFIX + key, value, NOT_YET)


def _check_unused(key: str, value: str) -> None:
    """Raise ConfigError when a property without effect has a value that Kafka's own clients refuse."""
    if key in WITHOUT_EFFECT:
        WITHOUT_EFFECT[key].parse(PREFIX + key, value)
        return
    for keys in (definition_of(FetchOptions).keys, producer_def().keys):
        if key in keys:
            keys[key].type.parse(PREFIX + key, value)


def kafka_options(options: Mapping[str, str], faults: Faults, *, sink: bool) -> KafkaOptions:
    """Parse the ``kafka.*`` keys of ``options``, whose keys are in lower case. Add to ``faults``.

    Properties of the other side (a consumer's on a sink) have no effect, as unknown ones.
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for key, value in given.items():
        faults.attempt(partial(_refuse, key, value), None)
    servers = given.pop("bootstrap.servers", None)
    properties = Faults()
    connection = properties.take(definition_of(ConnectionOptions).read(given))
    fetch = {} if sink else properties.take(definition_of(FetchOptions).read(given))
    security, idle = properties.attempt(lambda: ClientSecurity.read(given), (None, []))
    bootstrap = servers
    if servers is not None:
        protocol = None if security is None else security.protocol
        bootstrap = faults.attempt(partial(_servers(protocol).parse, SERVERS, servers), servers)
    used = {*definition_of(ConnectionOptions).keys, PROTOCOL}
    used |= {*producer_def().keys} if sink else {*definition_of(FetchOptions).keys, "group.id"}
    producer = None
    if sink:
        from minikafka.clients.produce.config import BatchingConfig

        known = {key: value for key, value in given.items() if key in producer_def().keys}
        producer = properties.attempt(
            lambda: BatchingConfig.from_properties({**SINK_DEFAULTS, **known}), BatchingConfig()
        )
    faults.add(
        ConfigError(PREFIX + fault.name, fault.value, with_prefixes(fault.allowed)) for fault in properties
    )
    others = [key for key in given if not key.startswith(SECURITY_PREFIXES)]
    without_effect = sorted(key for key in others if key not in used)
    for key in without_effect:
        faults.attempt(partial(_check_unused, key, given[key]), None)
    return KafkaOptions(
        bootstrap_servers=bootstrap,
        connection=ConnectionOptions(**connection, security=security or ClientSecurity()),
        fetch=FetchOptions(**fetch),
        producer=producer,
        without_effect=tuple(PREFIX + key for key in without_effect),
        warnings=tuple(_warnings_of_idle(idle, embedded=servers is None)),
    )


def _warnings_of_idle(idle: Sequence[ConfigError], *, embedded: bool) -> Iterator[str]:
    """Yield warnings about options of TLS and SASL that have no effect."""
    if embedded and idle:
        names = ", ".join(PREFIX + name.name for name in idle)
        yield f"no effect of {names}: an embedded cluster that is secured has the login of its data directory"
        return
    for name in idle:
        yield f"{PREFIX}{name.name} {with_prefixes(name.allowed)}"
