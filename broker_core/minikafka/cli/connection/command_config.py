"""``--command-config FILE``: the properties with which a command connects, such as those of TLS and SASL.

It is a file of Java's form, as Kafka's own tools take it. ``bootstrap.servers`` may be in it too, so that one
file says all. Properties of other clients, such as ``acks`` or ``group.id``, are passed over: people have one
file for several programs. A name that no client knows is a warning.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minikafka.base.config.config_def import AbstractConfig, Faults, definition_of, setting
from minikafka.base.config.property_files import read_properties
from minikafka.base.config.types import ANY_TEXT, TEXT, int32
from minikafka.base.config.unknown_names import did_you_mean, unknown_names, warn_of_unknown
from minikafka.base.errors import ConfigError
from minikafka.cli.options import COMMAND_CONFIG_OPTION, COMMAND_CONFIG_VARIABLE
from minikafka.clients.common_client_configs import (
    CLIENT_ID,
    PASSWORD_MECHANISMS,
    SECURITY_SETTINGS,
    ClientSecurity,
    security_names,
)
from minikafka.security.jaas import login_text
from minikafka.security.sasl.sasl_config import JAAS
from minikafka.security.zookeeper_config import ZOOKEEPER_SECURITY

_SPARK_PREFIX = "kafka."
"""The prefix of these properties as options of Spark."""


@dataclass(frozen=True, slots=True)
class CommandConfig(AbstractConfig):
    """The settings of a command's client."""

    PASSED_ON: ClassVar[Collection[str]] = (*SECURITY_SETTINGS, *ZOOKEEPER_SECURITY)

    bootstrap_servers: str | None = setting(
        "bootstrap.servers", TEXT, None, "The brokers, unless `--bootstrap` or MINIKAFKA_BOOTSTRAP is set."
    )
    client_id: str = setting(
        "client.id", CLIENT_ID, "minikafka-cli", "The name of the command in the brokers' logs and quotas."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", int32(1), 30_000, "How long to wait for a response."
    )
    client_rack: str = setting(
        "client.rack", ANY_TEXT, "", "The rack of `consume`: a leader may send it to a follower in it."
    )
    security: ClientSecurity = field(default_factory=ClientSecurity, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``."""

    @classmethod
    def read(cls, path: str | None, *, own_login: bool = True) -> CommandConfig:
        """Return the settings in a file; without one the defaults. Raises ConfigErrors, with its name.

        Without ``own_login`` the file may lack the user of a login with a password: others will log in.
        """
        if path is None:
            return cls()
        properties = dict(read_command_config(path))
        mechanism = properties.get("sasl.mechanism", "")
        if not own_login and JAAS not in properties and mechanism in PASSWORD_MECHANISMS:
            properties[JAAS] = login_text(mechanism, "nobody", "none").value
        return cls.of(properties, path)

    @classmethod
    def of(cls, properties: Mapping[str, str], path: str) -> CommandConfig:
        """Return the settings among ``properties``, which are those of the file ``path``. Raises as
        ``read``.
        """
        faults = Faults()
        definition = definition_of(cls)
        fields: dict[str, Any] = faults.take(definition.fields(properties))
        security = faults.attempt(lambda: ClientSecurity.from_properties(properties), ClientSecurity())
        made = faults.attempt(lambda: cls(**fields, security=security), None)
        in_file = Faults()
        in_file.add(ConfigError(f"{path}: {fault.name}", fault.value, fault.allowed) for fault in faults)
        in_file.check()
        assert made is not None, "there is no fault"
        return made


def read_command_config(path: str) -> Mapping[str, str]:
    """Return the properties in a file. Raises ConfigError.

    Logs a warning for each name that no client knows.
    """
    typed = path != os.environ.get(COMMAND_CONFIG_VARIABLE)
    found = read_properties(path, COMMAND_CONFIG_OPTION if typed else COMMAND_CONFIG_VARIABLE)
    warn_of_unknown_names(found, path)
    return found


def warn_of_unknown_names(properties: Mapping[str, str], path: str) -> None:
    """Log a warning for each property of ``path`` that no client knows."""
    others = tuple(name.name for name in definition_of(CommandConfig).unknown(properties))
    if others:
        _warn_of_unknown(path, others)


@functools.cache  # several parts of one command read the file
def _warn_of_unknown(path: str, names: tuple[str, ...]) -> None:
    """Warn of those among ``names`` that no client knows; Spark's prefix before a known one is named too."""
    known = _names_of_clients()
    prefixed = [name for name in names if name.removeprefix(_SPARK_PREFIX) in known and name not in known]
    faults = unknown_names([name for name in names if name not in prefixed], known, {})
    faults += [
        ConfigError(name, None, "is not valid" + did_you_mean(name.removeprefix(_SPARK_PREFIX)))
        for name in prefixed
    ]
    warn_of_unknown(ConfigError(f"{fault.name} in {path}", None, fault.allowed) for fault in faults)


def _names_of_clients() -> frozenset[str]:
    """Return the properties of all clients."""
    # Only here: most files have none of them.
    from minikafka.clients.consumer.config import ConsumerConfig
    from minikafka.clients.group.config import GroupConsumerConfig
    from minikafka.clients.produce.config import BatchingConfig
    from minikafka.clients.producer.producer_config import ProducerConfig

    clients = (CommandConfig, BatchingConfig, GroupConsumerConfig, ProducerConfig, ConsumerConfig)
    return security_names().union(*(definition_of(config).known for config in clients))


def security_properties(path: str | None) -> dict[str, str]:
    """Return the properties of TLS and SASL in a file, and those of a client of ZooKeeper."""
    found = {} if path is None else read_command_config(path)
    return {
        name: value
        for name, value in found.items()
        if name.startswith(SECURITY_SETTINGS) or name in ZOOKEEPER_SECURITY
    }
