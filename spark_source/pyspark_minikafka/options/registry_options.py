"""Options of the schema registry, with the names of Confluent's clients below ``minikafka.``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minikafka.base.config.config_def import ConfigDef, ConfigKey, definition_of, setting
from minikafka.base.config.types import BOOLEAN, choice
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.schema_registry import config
from pyspark_minikafka.strategy import Assign, Subscribe, strategy

if TYPE_CHECKING:
    from pyspark_minikafka.formats.schema_registry import RegistryAccess

PREFIX = "minikafka."
NAMESPACE = PREFIX + config.NAMESPACE
URL = PREFIX + config.URL
_CLASSES = "io.confluent.kafka.serializers.subject."
_TOPIC = "TopicNameStrategy"
_NAMES = (_TOPIC, "RecordNameStrategy", "TopicRecordNameStrategy")
_STRATEGIES = choice(
    {prefix + name: name for prefix in ("", _CLASSES) for name in _NAMES},  # as in Confluent's own properties
    "one of " + ", ".join(_NAMES),
)


@dataclass(frozen=True, slots=True)
class _Writes:
    auto_register: bool | None = setting(
        "minikafka.auto.register.schemas",
        BOOLEAN,
        None,
        "Whether a write registers its schema; otherwise the registry must have it. By default true, without "
        "`minikafka.use.latest.version`.",
    )
    use_latest: bool = setting(
        "minikafka.use.latest.version",
        BOOLEAN,
        False,
        "Whether a write names the newest schema of its subject in place of its own, which must fit.",
    )
    normalize: bool = setting(
        "minikafka.normalize.schemas", BOOLEAN, False, "Whether the registry normalizes schemas of writes."
    )


def _strategy_key(side: str) -> ConfigKey:
    return ConfigKey(
        f"minikafka.{side}.subject.name.strategy",
        _STRATEGIES,
        _TOPIC,
        f"The subject of the schema of {side}s: by topic, by the record's full name "
        "(`RecordNameStrategy`), or by both (`TopicRecordNameStrategy`).",
        "strategy",
    )


STRATEGY = {side: _strategy_key(side) for side in ("key", "value")}
"""The option of the subject's name, of each side."""
OPTIONS = (*(replace(key, name=PREFIX + key.name) for key in config.SETTINGS), *STRATEGY.values())
"""Options of reads and writes, but those of TLS: these are Kafka's ``ssl.…`` below ``NAMESPACE``."""
WRITES = tuple(definition_of(_Writes).keys.values())
"""Options of writes."""


def is_given(options: Mapping[str, str]) -> bool:
    """Return True if an option names a registry."""
    return any(name.startswith(NAMESPACE) for name in options)


def refuse_without_registry(options: Mapping[str, str], keys: Iterable[ConfigKey]) -> None:
    """Raise ConfigErrors if one of ``keys`` is given where no registry is used."""
    allowed = f"has no meaning without {URL} and a format that has schemas"
    faults = [ConfigError(key.name, options[key.name], allowed) for key in keys if key.name in options]
    if faults:
        raise ConfigErrors(faults)


def registry_access(options: Mapping[str, str], side: str, *, sink: bool) -> RegistryAccess:
    """Return the registry of one side. ``options`` have keys in lower case. Raise ConfigErrors."""
    from pyspark_minikafka.formats.schema_registry import RegistryAccess, SubjectNameStrategy

    properties = {name.removeprefix(PREFIX): value for name, value in options.items()}
    found = config.registry_config(properties, PREFIX)
    values, faults = definition_of(_Writes).read(options)
    named, more = ConfigDef([STRATEGY[side]]).read(options)
    writes = _Writes(**values)
    if writes.use_latest and writes.auto_register:
        allowed = "conflicts with minikafka.use.latest.version=true: a write does one of the two"
        faults.append(ConfigError("minikafka.auto.register.schemas", "true", allowed))
    if faults or more:
        raise ConfigErrors([*faults, *more])
    auto_register = not writes.use_latest if writes.auto_register is None else writes.auto_register
    return RegistryAccess(
        found,
        side,
        _topics(options, sink),
        SubjectNameStrategy(named["strategy"]),
        auto_register,
        writes.use_latest,
        writes.normalize,
    )


def _topics(options: Mapping[str, str], sink: bool) -> tuple[str, ...] | None:
    """Return the topics that options name; None if they do not, or not validly."""
    if sink:
        topic = options.get("topic", "").strip()
        return (topic,) if topic else None
    try:
        found = strategy(options)
    except ConfigError:  # it is reported where it is used
        return None
    if isinstance(found, Assign):
        return tuple(sorted({partition.topic for partition in found.partitions}))
    return found.topics if isinstance(found, Subscribe) else None
