"""The security settings of a client of ZooKeeper, ``zookeeper.…``: who it is, what others may do, and TLS.

Kafka's brokers authenticate by SASL, with a section ``Client`` in a file of the JVM, or by certificate.
Here a client has credentials of ZooKeeper's own scheme ``digest`` instead of SASL. The settings of TLS
are those of Kafka 2.5 and newer: ``zookeeper.`` before the names of ``SslConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from minikafka.base.config.config_def import AbstractConfig, ConfigKey, Faults, definition_of, setting
from minikafka.base.config.types import BOOLEAN, PASSWORD, TEXT, Type, choice, one_of
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.ssl_config import SslConfig

PREFIX = "zookeeper."
OPEN, KAFKA, PRIVATE = "false", "true", "private"
SET_ACL = "zookeeper.set.acl"
CREDENTIALS = "zookeeper.digest.credentials"
_ENABLE = "zookeeper.ssl.client.enable"
_UNCHECKED = choice({"false": False}, "false: revoked certificates are not looked up")
_SSL_FIELDS = frozenset(
    {
        "keystore_type",
        "keystore_location",
        "keystore_password",
        "truststore_type",
        "truststore_location",
        "truststore_password",
        "endpoint_identification_algorithm",
        "enabled_protocols",
        "cipher_suites",
    }
)
SSL_KEYS = tuple(
    replace(key, name=PREFIX + key.name, doc=f"Of connections to ZooKeeper. {key.doc}")
    for key in definition_of(SslConfig).keys.values()
    if key.field in _SSL_FIELDS
)
"""The settings of TLS, with their prefix."""


@dataclass(frozen=True, slots=True)
class ZooKeeperClientConfig(AbstractConfig):
    """The security settings of a client of ZooKeeper. Raises ConfigErrors with all invalid settings."""

    CHECKED: ClassVar[Mapping[str, Type]] = {
        "zookeeper.clientCnxnSocket": TEXT,  # Java's class for TLS
        "zookeeper.ssl.protocol": SslConfig.CHECKED["ssl.protocol"],
        "zookeeper.ssl.crl.enable": _UNCHECKED,
        "zookeeper.ssl.ocsp.enable": _UNCHECKED,
    }

    set_acl: str = setting(
        SET_ACL,
        one_of(OPEN, KAFKA, PRIVATE),
        OPEN,
        "Whether only the broker may change the znodes that it creates, as by Kafka: others may read them, "
        "but for those of users, brokers and delegation tokens, and /consumers stays open. `private`: others "
        "may do nothing at all.",
    )
    credentials: Password | None = setting(
        CREDENTIALS,
        PASSWORD,
        None,
        "USER:PASSWORD for ZooKeeper (its scheme `digest`): the owner of the znodes that are created. All "
        "brokers and tools of a cluster have the same. Not a setting of Kafka.",
    )
    ssl_enabled: bool = setting(_ENABLE, BOOLEAN, False, "Whether connections to ZooKeeper have TLS.")
    ssl: SslConfig | None = None
    """The settings of TLS; None: without it."""

    @classmethod
    def among(cls, properties: Mapping[str, object]) -> ZooKeeperClientConfig:
        """Return the settings that are among ``properties``. Raises ConfigErrors."""
        faults = Faults()
        values = faults.take(definition_of(cls).read(properties))
        ssl = None
        if values["ssl_enabled"]:
            given = {key.name: properties[key.name] for key in SSL_KEYS if key.name in properties}
            plain = {name.removeprefix(PREFIX): value for name, value in given.items()}
            try:
                ssl = SslConfig.from_properties(plain)
            except ConfigError as error:
                faults.add(prefixed(error))
        found = faults.attempt(lambda: cls(**values, ssl=ssl), cls())
        faults.check(properties)
        return found

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        has_certificate = self.ssl_enabled and (self.ssl is None or self.ssl.has_keys)
        if self.set_acl != OPEN and self.credentials is None and not has_certificate:
            text = (
                f"needs a client that ZooKeeper knows: set {CREDENTIALS}, or {_ENABLE}=true with "
                "zookeeper.ssl.keystore.location"
            )
            yield CREDENTIALS, ConfigError(SET_ACL, self.set_acl, text)
        if self.credentials is not None:
            user, _, password = self.credentials.value.partition(":")
            if not (user and password):
                yield SET_ACL, ConfigError(CREDENTIALS, self.credentials, "must be USER:PASSWORD")


def prefixed(error: ConfigError) -> Iterator[ConfigError]:
    """Yield the faults of settings of TLS under the names that they have here."""
    for fault in error.faults:
        yield ConfigError(PREFIX + fault.name, fault.value, fault.allowed)


def keys() -> list[ConfigKey]:
    """Return all settings."""
    return [*definition_of(ZooKeeperClientConfig).keys.values(), *SSL_KEYS]


ZOOKEEPER_SECURITY = frozenset({*(key.name for key in keys()), *ZooKeeperClientConfig.CHECKED})
"""The names of all settings."""
