"""Broker properties in environment variables, as Kafka's own container images read them.

``KAFKA_`` and a property's name in capitals, with ``.`` written as ``_``, ``_`` as ``__``, ``-`` as ``___``:
``KAFKA_LOG_DIRS`` is ``log.dirs``. Three kinds of variables have this form and are none:

* those of Java and of Kafka's scripts, such as ``KAFKA_HEAP_OPTS``;
* those that Kubernetes and old links of Docker add for a service named ``kafka``, such as
  ``KAFKA_PORT=tcp://10.0.0.1:9092``;
* those of KRaft, such as ``KAFKA_PROCESS_ROLES``. Its controllers' listeners are left out too, and
  ``node.id`` is the broker's id, so that a file made for Kafka's image can be used as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from minikafka.base.errors import ConfigError

PREFIX = "KAFKA_"
SECRETS = "/etc/kafka/secrets"
"""The directory of the files that ``KAFKA_SSL_…_FILENAME`` and ``…_CREDENTIALS`` name, as for Kafka."""

_SCRIPTS = re.compile(
    r"KAFKA_(?:VERSION|HEAP_OPTS|OPTS|GC_LOG_OPTS|JVM_PERFORMANCE_OPTS|JMX_(?:OPTS|PORT|HOSTNAME)"
    r"|LOG4J_(?:OPTS|ROOT_LOGLEVEL|LOGGERS)|TOOLS_LOG4J_LOGLEVEL)"
)
_SERVICE_LINK = re.compile(r"KAFKA_(?:SERVICE_(?:HOST|PORT\w*)|PORT_\d+_\w+|NAME|ENV_\w+)")
_SECRET_FILES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
_SECRET_TEXTS = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
}
_WORDS = {1: ".", 2: "_", 3: "-"}
_OF_KRAFT = re.compile(r"process\.roles|controller\.(?:quorum|listener)\..*|metadata\.log\..*|node\.id")
_CONTROLLER_LISTENERS = "controller.listener.names"
_LISTENER = re.compile(r"(?P<name>[^:]+)://(?:\[[^\]]*\]|[^:\[]*)(?P<port>:\d+)")


@dataclass(frozen=True, slots=True)
class EnvironmentProperties:
    """The properties that variables set, and those variables that set none."""

    properties: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    """Names of variables that say something to Java, to scripts or to KRaft alone."""


def _no_secrets(path: str) -> NoReturn:
    raise ConfigError(path, "", "cannot be read")


def read_environment(
    environment: Mapping[str, str], read_secret: Callable[[str], str] = _no_secrets
) -> EnvironmentProperties:
    """Return the properties in ``environment``. An empty variable is like one that is not set.

    read_secret: returns the text of a file. Raises ConfigError for a name that stands for no property.
    """
    properties: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or not value.strip() or _is_service_link(name, value):
            continue
        if _SCRIPTS.fullmatch(name):
            ignored.append(name)
        elif name in _SECRET_FILES:
            properties[_SECRET_FILES[name]] = f"{SECRETS}/{value}"
        elif name in _SECRET_TEXTS:
            properties[_SECRET_TEXTS[name]] = read_secret(f"{SECRETS}/{value}").rstrip("\r\n")
        else:
            properties[property_name(name)] = value
    return _without_kraft(properties, ignored)


def property_name(variable: str) -> str:
    """Return the property that a variable stands for. Raises ConfigError."""

    def word(run: re.Match[str]) -> str:
        if len(run[0]) not in _WORDS:
            raise ConfigError(
                variable, "", "stands for no property: `.` is written _, `_` is __, and `-` is ___"
            )
        return _WORDS[len(run[0])]

    return re.sub("_+", word, variable.removeprefix(PREFIX)).lower()


def variable_name(name: str) -> str:
    """Return the variable that stands for a property."""
    return PREFIX + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def with_bind_addresses(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with ``listeners`` on all addresses for ``advertised.listeners``, unless set."""
    advertised = properties.get("advertised.listeners")
    if advertised is None or "listeners" in properties:
        return dict(properties)
    bound = ",".join(
        _LISTENER.sub(r"\g<name>://0.0.0.0\g<port>", part.strip()) for part in advertised.split(",")
    )
    return {**properties, "listeners": bound}


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name)) or (name == "KAFKA_PORT" and "://" in value)


def _without_kraft(properties: dict[str, str], ignored: list[str]) -> EnvironmentProperties:
    controllers = {name.strip() for name in properties.get(_CONTROLLER_LISTENERS, "").split(",")} - {""}
    kept = {name: value for name, value in properties.items() if not _OF_KRAFT.fullmatch(name)}
    if "node.id" in properties:
        kept.setdefault("broker.id", properties["node.id"])
    for name in ("listeners", "advertised.listeners") if controllers else ():
        if name in kept:
            parts = [part.strip() for part in kept[name].split(",")]
            kept[name] = ",".join(part for part in parts if part.partition("://")[0] not in controllers)
    of_kraft = (name for name in properties.keys() - kept.keys() if name != "node.id")
    return EnvironmentProperties(kept, tuple(sorted({*ignored, *map(variable_name, of_kraft)})))
