"""``--command-config FILE``: the properties with which a command connects, such as those of TLS and SASL.

It is a file of Java's form, as Kafka's own tools take it. ``bootstrap.servers`` may be in it too, so that one
file says all. Properties of other clients, such as ``acks`` or ``group.id``, are passed over: people have one
file for several programs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.config.config_def import AbstractConfig, Faults, definition_of, setting
from minikafka.base.config.property_files import read_properties
from minikafka.base.config.types import TEXT, int32
from minikafka.base.errors import ConfigError
from minikafka.cli.options import COMMAND_CONFIG_OPTION, COMMAND_CONFIG_VARIABLE
from minikafka.clients.common_client_configs import CLIENT_ID, SECURITY_SETTINGS, ClientSecurity
from minikafka.security.zookeeper_config import ZOOKEEPER_SECURITY


@dataclass(frozen=True, slots=True)
class CommandConfig(AbstractConfig):
    """The settings of a command's client."""

    bootstrap_servers: str | None = setting(
        "bootstrap.servers", TEXT, None, "The brokers, unless `--bootstrap` or MINIKAFKA_BOOTSTRAP is set."
    )
    client_id: str = setting(
        "client.id", CLIENT_ID, "minikafka-cli", "The name of the command in the brokers' logs and quotas."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", int32(1), 30_000, "How long to wait for a response."
    )
    security: ClientSecurity = field(default_factory=ClientSecurity, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``."""

    @classmethod
    def read(cls, path: str | None) -> CommandConfig:
        """Return the settings in a file; without one the defaults. Raises ConfigErrors, with its name."""
        if path is None:
            return cls()
        properties, faults = read_command_config(path), Faults()
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
    """Return the properties in a file. Raises ConfigError."""
    typed = path != os.environ.get(COMMAND_CONFIG_VARIABLE)
    return read_properties(path, COMMAND_CONFIG_OPTION if typed else COMMAND_CONFIG_VARIABLE)


def security_properties(path: str | None) -> dict[str, str]:
    """Return the properties of TLS and SASL in a file, and those of a client of ZooKeeper."""
    found = {} if path is None else read_command_config(path)
    return {
        name: value
        for name, value in found.items()
        if name.startswith(SECURITY_SETTINGS) or name in ZOOKEEPER_SECURITY
    }
