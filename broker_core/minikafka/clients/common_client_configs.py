"""Settings that Kafka's clients share (``CommonClientConfigs``): types, security, and what minikafka does not
have.

``ClientSecurity`` has the settings of TLS and SASL, and makes the connector of a client.

``UNSUPPORTED_NAMES`` are of features that do not exist yet, and ``WITHOUT_EFFECT`` has Kafka's settings that
change nothing here. Our clients warn of both with the reason; the Spark source refuses the first, and checks
the values of the others as Kafka's clients do.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.base.config.config_def import AbstractConfig, Faults, definition_of
from minikafka.base.config.types import ANY_TEXT, BOOLEAN, Type, capped_int64, choice, int32, matching
from minikafka.base.config.unknown_names import NOT_YET, SECURITY_PREFIXES, warn_of_unknown
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.printable import printable
from minikafka.base.text import shorten

if TYPE_CHECKING:
    from minikafka.net.interfaces import Connector
    from minikafka.security.sasl.login import ClientLogin
    from minikafka.security.sasl.sasl_config import SaslConfig
    from minikafka.security.ssl_config import SslConfig

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")
"""Names that 0.10.1 takes for clients and groups."""
LEGAL_TEXT = "ASCII letters and digits, '.', '_' and '-'"
CLIENT_ID = matching(LEGAL_NAME, f"text of {LEGAL_TEXT}")
ACKS_ALL = -1
ACKS = choice({"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1})

UNSUPPORTED_NAMES = ("partitioner.class",)
"""Settings of features that do not exist yet."""
_AGE_MS = capped_int64(0)

WITHOUT_EFFECT: dict[str, Type] = {
    "allow.auto.create.topics": BOOLEAN,
    "auto.commit.interval.ms": int32(0),
    "auto.include.jmx.reporter": BOOLEAN,
    "block.on.buffer.full": BOOLEAN,
    "bootstrap.controllers": ANY_TEXT,
    "bootstrap.servers": ANY_TEXT,
    "client.dns.lookup": ANY_TEXT,
    "compression.gzip.level": int32(-1),
    "compression.lz4.level": int32(1),
    "compression.zstd.level": int32(-131_072),
    "default.api.timeout.ms": int32(0),
    "enable.metrics.push": BOOLEAN,
    "exclude.internal.topics": BOOLEAN,
    "fetch.max.bytes": int32(0),
    "group.id": ANY_TEXT,
    "group.instance.id": ANY_TEXT,
    "group.protocol": ANY_TEXT,
    "group.remote.assignor": ANY_TEXT,
    "heartbeat.interval.ms": int32(0),
    "max.poll.interval.ms": int32(1),
    "max.poll.records": int32(1),
    "metadata.fetch.timeout.ms": _AGE_MS,
    "metadata.max.idle.ms": _AGE_MS,
    "metadata.recovery.rebootstrap.trigger.ms": int32(0),
    "metadata.recovery.strategy": ANY_TEXT,
    "metric.reporters": ANY_TEXT,
    "metrics.num.samples": int32(1),
    "metrics.recording.level": ANY_TEXT,
    "metrics.sample.window.ms": _AGE_MS,
    "offsets.storage": ANY_TEXT,
    "partition.assignment.strategy": ANY_TEXT,
    "partitioner.adaptive.partitioning.enable": BOOLEAN,
    "partitioner.availability.timeout.ms": _AGE_MS,
    "partitioner.ignore.keys": BOOLEAN,
    "receive.buffer.bytes": int32(-1),
    "reconnect.backoff.max.ms": _AGE_MS,
    "reconnect.backoff.ms": _AGE_MS,
    "retry.backoff.max.ms": _AGE_MS,
    "security.providers": ANY_TEXT,
    "send.buffer.bytes": int32(-1),
    "session.timeout.ms": int32(0),
    "socket.connection.setup.timeout.max.ms": _AGE_MS,
    "socket.connection.setup.timeout.ms": _AGE_MS,
    "timeout.ms": int32(0),
    "transaction.timeout.ms": int32(0),
    "zookeeper.connect": ANY_TEXT,
}
"""Client property of Kafka -> type."""

UNSUPPORTED_BY_CLIENTS = dict.fromkeys(
    (
        *WITHOUT_EFFECT,
        "client.rack",
        "connections.max.idle.ms",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    ),
    "minikafka does not use it",
) | {
    **dict.fromkeys(UNSUPPORTED_NAMES, NOT_YET),
    "client.id": "set client_id of ClusterClient",
    "transactional.id": "use minikafka.TransactionalProducer",
}
"""Settings of which our own clients warn: name -> reason."""

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOL = "security.protocol"
SECURITY_SETTINGS = (PROTOCOL, *SECURITY_PREFIXES)
"""The settings of ``ClientSecurity``: names, and prefixes that end with a dot."""
_PROTOCOL_TYPE = choice({protocol.name: protocol for protocol in SecurityProtocol})
Part = TypeVar("Part", bound="AbstractConfig")


def security_names() -> frozenset[str]:
    """Return the names of all settings of ``ClientSecurity`` of which something is known."""
    from minikafka.security.sasl.sasl_config import SaslConfig
    from minikafka.security.ssl_config import SslConfig

    return definition_of(SslConfig).known | definition_of(SaslConfig).known | {PROTOCOL}


@dataclass(frozen=True, slots=True, repr=False)
class ClientSecurity:
    """The security of a client's connections: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

    It is a value: it can be compared, and sent to another process, with its secrets. Files of key stores are
    read by ``connector``, on the host that connects.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ssl: SslConfig | None = None
    """None if the protocol does not use it, as for ``sasl``."""
    sasl: SaslConfig | None = None

    def __repr__(self) -> str:
        mechanism = "" if self.sasl is None else f", mechanism={self.sasl.mechanism}"
        return f"ClientSecurity(protocol={self.protocol.name}{mechanism})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ClientSecurity:
        """Return the security settings among ``properties``; other names are passed over.

        Logs a warning for each name that is not defined, or that the protocol does not use. Raises
        ConfigErrors with every fault, also of settings that do not fit together.
        """
        security, without_effect = cls.read(properties)
        warn_of_unknown(without_effect)
        return security

    @classmethod
    def given_in(cls, properties: Mapping[str, object]) -> ClientSecurity | None:
        """Return ``from_properties``, without warnings; None if there are no security settings."""
        given = any(name == PROTOCOL or name.startswith(SECURITY_PREFIXES) for name in properties)
        return cls.read(properties)[0] if given else None

    @classmethod
    def read(cls, properties: Mapping[str, object]) -> tuple[ClientSecurity, list[ConfigError]]:
        """Return the security settings, and an error for each name without effect, which says why.

        Raises ConfigErrors as ``from_properties``.
        """
        given = {name: value for name, value in properties.items() if value is not None}
        # Without it nobody knows which of the others count.
        protocol: SecurityProtocol = _PROTOCOL_TYPE.parse(PROTOCOL, given.get(PROTOCOL, "PLAINTEXT"))
        faults = Faults()
        without_effect: list[ConfigError] = []

        def unused(prefix: str) -> None:
            reason = f"has no effect with {PROTOCOL}={protocol.name}"
            names = (name for name in given if name.startswith(prefix))
            without_effect.extend(ConfigError(name, None, reason) for name in names)

        def read(config: type[Part], prefix: str) -> Part | None:
            part = {name: value for name, value in given.items() if name.startswith(prefix)}
            definition = definition_of(config)
            without_effect.extend(definition.unknown(part))
            fields: dict[str, Any] = faults.take(definition.fields(part))
            return faults.attempt(lambda: config(**fields), None)

        ssl, sasl = None, None
        if protocol.uses_tls:
            from minikafka.security.ssl_config import SslConfig

            ssl = read(SslConfig, "ssl.")
        else:
            unused("ssl.")
        if protocol.uses_sasl:
            from minikafka.security.sasl.sasl_config import SaslConfig

            sasl = read(SaslConfig, "sasl.")
            faults.add(sasl.faults() if sasl else ())
        else:
            unused("sasl.")
        faults.check(given, without_effect)
        return cls(protocol, ssl, sasl), without_effect

    def as_user(self, user: str, password: str) -> ClientSecurity:
        """Return the same settings for another user. Raises ConfigError if users have no passwords here."""
        from minikafka.security.jaas import login_text

        mechanism = "none" if self.sasl is None else self.sasl.mechanism
        if self.sasl is None or mechanism not in PASSWORD_MECHANISMS:
            allowed = f"has no users with passwords; use {', '.join(PASSWORD_MECHANISMS)}"
            raise ConfigError("sasl.mechanism", mechanism, allowed)
        sasl = replace(self.sasl, jaas_config=login_text(mechanism, user, password))
        return replace(self, sasl=sasl)

    def connector(
        self,
        *,
        client_id: str,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> Connector:
        """Return what makes the connections of a client: with TLS, and logged in, as the settings say.

        connect_timeout_ms: the limit for TCP, TLS and SASL together. Raises ConfigErrors for key stores
        that cannot be used, and for a library that is missing.
        """
        # Imported here, as in the method below: a caller with its own connector needs no sockets.
        from minikafka.net.connection import secured_connector

        return secured_connector(
            self.ssl,
            None if self.sasl is None else _login(self.sasl),
            connections="connections to brokers",
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
        )

    def why_closed(self, host: str, port: int, client_id: str) -> str | None:
        """Return why a broker closes each connection at its first request: its listener demands a login, and
        this client has none; None if it does not, or does not tell.
        """
        if self.sasl is not None:
            return None
        from minikafka.net.connection import secured_connector
        from minikafka.net.sasl_probe import TIMEOUT_MS, demanded_mechanisms

        connector = secured_connector(
            self.ssl,
            None,
            connections="connections to brokers",
            client_id=client_id,
            connect_timeout_ms=TIMEOUT_MS,
        )
        mechanisms = demanded_mechanisms(connector, host, port, client_id)
        if not mechanisms:
            return None
        protocol = SecurityProtocol.SASL_SSL if self.protocol.uses_tls else SecurityProtocol.SASL_PLAINTEXT
        return (
            f"the listener demands a login; set {PROTOCOL}={protocol.name}, sasl.jaas.config, and "
            f"sasl.mechanism to one that it has: {printable(shorten(', '.join(mechanisms)))}"
        )


_CACHED = 16
"""Configurations of which one process keeps the logins, with their tokens."""


@functools.lru_cache(_CACHED)
def _login(sasl: SaslConfig) -> ClientLogin:
    """Return the one login of a configuration."""
    from minikafka.net.login_ports import login_ports
    from minikafka.security.sasl.login import login

    return login(sasl, login_ports())
