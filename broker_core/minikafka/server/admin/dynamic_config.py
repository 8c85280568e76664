"""Configs of topics and brokers as clients read and change them.

A topic's config is in ZooKeeper; otherwise the broker's property applies, and then the default. Each value
that is set is a synonym, in the order of precedence (``Source`` in DescribeConfigs of Kafka 1.1). A broker's
configs are the properties that it was started with. Some can be changed while it runs, for it or for all
brokers (``server.config.dynamic_properties``), as can the rates of replication, which are in ZooKeeper only
(``replication_quotas``); the others are read-only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from minikafka.base.config.config_def import ConfigKey, Faults
from minikafka.base.config.types import PASSWORD, ConfigType
from minikafka.base.config.unknown_names import closest_match, did_you_mean
from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    CoordinationError,
    CoordinationLost,
    ErrorCode,
    InconsistentClusterId,
    SessionExpired,
)
from minikafka.base.ids import check_topic_name
from minikafka.log.config import COMPACTION_LAGS, LIST_PROPERTIES, TOPIC_CONFIG, LogConfig
from minikafka.registry import paths
from minikafka.registry.entity_configs import (
    ALTER_LOG_DIRS_RATE,
    BROKER_RATES,
    FOLLOWER_RATE,
    LEADER_RATE,
    RATE,
    ConfigChange,
    EntityConfig,
    change_config,
)
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.registry.users import DEFAULT_ENTITY, ClientEntity
from minikafka.server.config.dynamic_properties import DynamicProperties
from minikafka.server.config.listener_security import PREFIX
from minikafka.server.config.properties import BROKER_CONFIG
from minikafka.server.core.broker import Broker
from minikafka.server.quotas.client_quotas import UNLIMITED
from minikafka.wire.apis.alter_configs import AlterableConfig
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from minikafka.wire.apis.incremental_alter_configs import AlterOperation, IncrementalAlterableConfig

_RATE_KEYS = {
    name: ConfigKey(name, RATE, None, doc)
    for name, doc in (
        (LEADER_RATE, "Bytes a second that throttled replicas may fetch from this broker."),
        (FOLLOWER_RATE, "Bytes a second that the throttled replicas of this broker may fetch."),
        (ALTER_LOG_DIRS_RATE, "Bytes a second that may be copied from one data directory to another."),
    )
}

Settings = Mapping[str, str]
Change = Callable[[Settings], dict[str, str]]
"""Takes a resource's current configs and returns the new ones."""


# --- descriptions -------------------------------------------------------------------------------------------


def describe_topic(
    log: LogConfig, dynamic: DynamicProperties, overrides: Settings
) -> Iterable[DescribeConfigsResourceResult]:
    """Yield every config of a topic, sorted by name.

    ``log`` and ``dynamic`` are the broker's; invalid values in ``overrides`` are ignored.
    """
    properties = dynamic.effective
    for name, key in TOPIC_CONFIG.keys.items():
        synonyms = list(_broker_synonyms(key, dynamic))
        value = key.default_text
        for synonym in key.synonyms:
            if synonym.name in properties:
                text = properties[synonym.name].strip()
                value = text if synonym.factor == 1 else str(int(text) * synonym.factor)
                break
        if name in overrides and _is_usable(log, name, overrides[name]):
            value = overrides[name]
            synonyms.insert(0, DescribeConfigsSynonym(name, value, ConfigSource.TOPIC))
        yield _row(name, value, synonyms, key)


def _sources(dynamic: DynamicProperties) -> tuple[tuple[ConfigSource, Settings], ...]:
    """Return the broker's properties by their source, those that win first."""
    return (
        (ConfigSource.DYNAMIC_BROKER, dynamic.own),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, dynamic.cluster),
        (ConfigSource.STATIC_BROKER, dynamic.config.properties),
    )


def _broker_synonyms(key: ConfigKey, dynamic: DynamicProperties) -> Iterable[DescribeConfigsSynonym]:
    names = [synonym.name for synonym in key.synonyms]
    for source, properties in _sources(dynamic):
        for name in names:
            if name in properties:
                yield DescribeConfigsSynonym(name, properties[name], source)
    for name in names:
        default = BROKER_CONFIG.keys[name].default_text
        if default is not None:
            yield DescribeConfigsSynonym(name, default, ConfigSource.DEFAULT)


def _is_usable(log: LogConfig, name: str, text: str) -> bool:
    try:
        log.with_overrides({name: text})
    except ConfigError:
        return False
    return True


def describe_broker(dynamic: DynamicProperties, rates: Settings) -> Iterable[DescribeConfigsResourceResult]:
    """Yield a broker's ``rates`` of replication, then every property, sorted by name.

    An unknown property may be a password, so its value is hidden.
    """
    yield from map(_rate, sorted(BROKER_RATES), map(rates.get, sorted(BROKER_RATES)))
    keys = BROKER_CONFIG.keys
    for name in sorted(keys.keys() | dynamic.effective.keys()):
        key = keys.get(name)
        is_dynamic = dynamic.is_dynamic(name)
        sensitive = (key is None and not is_dynamic) or (key is not None and key.type is PASSWORD)
        synonyms = []
        for source, properties in _sources(dynamic):
            if name in properties:
                value = None if sensitive else properties[name]
                synonyms.append(DescribeConfigsSynonym(name, value, source))
        if key is not None and key.default_text is not None:
            synonyms.append(DescribeConfigsSynonym(name, key.default_text, ConfigSource.DEFAULT))
        value = synonyms[0].value if synonyms else None
        yield _row(name, value, synonyms, key, read_only=not is_dynamic, sensitive=sensitive)


def describe_cluster_defaults(dynamic: DynamicProperties) -> Iterable[DescribeConfigsResourceResult]:
    """Yield the properties of all brokers that were changed, sorted by name."""
    for name, text in sorted(dynamic.cluster.items()):
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        yield _row(name, text, [DescribeConfigsSynonym(name, text, source)], BROKER_CONFIG.keys.get(name))


def _rate(name: str, text: str | None) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(name, str(UNLIMITED), ConfigSource.DEFAULT)]
    if text is not None:
        synonyms.insert(0, DescribeConfigsSynonym(name, text, ConfigSource.DYNAMIC_BROKER))
    return _row(name, synonyms[0].value, synonyms, _RATE_KEYS[name])


def _row(
    name: str,
    value: str | None,
    synonyms: Sequence[DescribeConfigsSynonym],
    key: ConfigKey | None,
    *,
    read_only: bool = False,
    sensitive: bool = False,
) -> DescribeConfigsResourceResult:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        is_default=source == ConfigSource.DEFAULT,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=tuple(synonyms),
        config_type=ConfigType.UNKNOWN if key is None else key.type.kind,
        documentation=None if key is None else key.doc,
    )


# --- jobs of the worker -------------------------------------------------------------------------------------


def refresh_topics(broker: Broker, topics: Iterable[str]) -> dict[str, Settings]:
    """Read the configs of topics from ZooKeeper, and apply them to their logs on this broker."""
    found = broker.zk_client.settings.of_topics(topics)
    _apply_topics(broker, found)
    return found


def _apply_topics(broker: Broker, found: Mapping[str, Settings]) -> None:
    for topic, settings in found.items():
        if broker.logs.partitions_of(topic):
            broker.logs.set_overrides(topic, settings)
        broker.replication_quotas.set_topic(topic, settings)


def refresh_topic(broker: Broker, topic: str) -> Settings:
    """Call ``refresh_topics`` for one topic."""
    return refresh_topics(broker, (topic,))[topic]


def refresh_broker(broker: Broker) -> Settings:
    """Read this broker's configs and those of all brokers from ZooKeeper, and apply them; return its own."""
    own = broker.zk_client.settings.of(paths.BROKERS, str(broker.broker_id))
    dynamic = broker.dynamic_properties
    broker.replication_quotas.set_rates(
        {name: text for name, text in own.items() if not dynamic.is_dynamic(name)}
    )
    defaults = dynamic.replace(cluster_defaults(broker), own)
    if defaults != broker.logs.defaults:
        topics = sorted({partition.topic for partition in broker.logs.logs()})
        # Read before anything changes: a job that loses ZooKeeper is run again, and must find the change.
        found = broker.zk_client.settings.of_topics(topics)
        broker.logs.defaults = defaults
        _apply_topics(broker, found)
    return own


def cluster_defaults(broker: Broker) -> Settings:
    """Read the configs of all brokers from ZooKeeper."""
    return broker.zk_client.settings.of(paths.BROKERS, DEFAULT_ENTITY)


def refresh_client(broker: Broker, change: ConfigChange) -> None:
    """Read the configs of a client, user or address, and apply the quotas and SCRAM credentials."""
    if change.entity_type == paths.IPS:
        _refresh_addresses(broker)
        return
    entity = ClientEntity.changed(change)
    settings = broker.zk_client.settings.of(change.entity_type, change.entity_name)
    broker.quotas.change(entity, settings)
    broker.scram_credentials.change(entity, settings)


def _refresh_addresses(broker: Broker) -> None:
    """Read the configs of all addresses, and apply the quotas."""
    broker.address_quotas.replace(broker.zk_client.settings.of_addresses())


def refresh_entities(broker: Broker) -> None:
    """Read and apply the configs of all clients, users and addresses, and of this broker."""
    _refresh_addresses(broker)
    found = broker.zk_client.settings.of_clients_and_users()
    broker.quotas.replace(found)
    broker.scram_credentials.replace(found)
    refresh_broker(broker)


def change_entity(broker: Broker, kind: str, name: str, change: Callable[[dict[str, str]], Settings]) -> None:
    """Change the configs of a client, user or address, and apply them on this broker.

    ``change`` as in ``change_config``. Raises INVALID_CONFIG for an invalid znode.
    """
    try:
        change_config(broker.zk_client.store, kind, name, change)
    except (CoordinationLost, SessionExpired, InconsistentClusterId):
        raise
    except CoordinationError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    refresh_client(broker, ConfigChange(kind, name))


def change_resource(broker: Broker, kind: int, name: str, change: Change, *, validate_only: bool) -> None:
    """Change the configs of a resource. Raises BrokerError with the reason when that is invalid."""
    if kind == ConfigResourceType.BROKER:
        _change_broker(broker, name, change, validate_only=validate_only)
        return
    if kind != ConfigResourceType.TOPIC:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"unsupported resource type {kind}: expected TOPIC or BROKER, or BROKER_LOGGER by "
            "IncrementalAlterConfigs",
        )
    check_topic(broker, name)
    before = refresh_topic(broker, name)
    after = change(before)
    changed = {key: text for key, text in after.items() if before.get(key) != text}
    if not COMPACTION_LAGS.isdisjoint(changed):
        changed |= {key: after[key] for key in COMPACTION_LAGS & after.keys()}
    try:
        # Other existing configs, perhaps of a newer Kafka, are not the client's fault.
        broker.logs.defaults.with_overrides(changed)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    check_settings_size(name, after)
    if validate_only:
        return
    try:
        broker.zk_client.settings.change(paths.TOPICS, name, after)
    except (CoordinationLost, SessionExpired):
        raise
    except InconsistentClusterId as error:
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
    except CoordinationError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    refresh_topic(broker, name)


def _change_broker(broker: Broker, name: str, change: Change, *, validate_only: bool) -> None:
    if name:
        check_broker(broker, name)
    before = refresh_broker(broker) if name else cluster_defaults(broker)
    after = change(before)
    try:
        changed = {key: text for key, text in after.items() if before.get(key) != text}
        _check_dynamic(broker.dynamic_properties, name, changed)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not validate_only:
        try:
            broker.zk_client.settings.change(paths.BROKERS, name or DEFAULT_ENTITY, after)
        except InconsistentClusterId as error:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
        refresh_broker(broker)


def _check_dynamic(dynamic: DynamicProperties, name: str, changed: Settings) -> None:
    """Raise ConfigErrors for configs of broker ``name`` that are not dynamic or have invalid values.

    ``name`` is empty for those of all brokers.
    """
    faults = Faults()
    for key, text in changed.items():
        if dynamic.is_dynamic(key):
            faults.attempt(partial(dynamic.check, key, text), None)
        elif key in BROKER_RATES and name:
            faults.attempt(partial(RATE.parse, key, text), None)
        elif key in BROKER_RATES:
            faults.add([ConfigError(key, None, "is a rate of one broker: name the broker")])
        elif key not in BROKER_CONFIG.known and not key.startswith(PREFIX):
            meant = did_you_mean(closest_match(key, BROKER_CONFIG.keys))
            faults.add([ConfigError(key, None, f"is not a property of this version{meant}")])
        else:
            allowed = (
                "cannot be changed while a broker runs: set it in the properties of "
                f"{f'broker {name}' if name else 'each broker'} and restart it"
            )
            faults.add([ConfigError(key, None, allowed)])
    faults.check(changed)


def check_settings_size(topic: str, settings: Settings) -> None:
    """Raise INVALID_CONFIG when a topic's configs do not fit into a znode."""
    size = len(EntityConfig(settings).to_json())
    if size > DATA_MAX_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"the configs of topic {topic} have {size} bytes, which exceeds the limit of a znode "
            f"({DATA_MAX_BYTES})",
        )


def check_broker(broker: Broker, name: str) -> None:
    """Raise INVALID_REQUEST unless ``name`` is this broker: only a broker itself knows its configs."""
    if name != str(broker.broker_id):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.broker_id}: send the request to broker {name}"
        )


def check_topic(broker: Broker, name: str) -> None:
    """Raise INVALID_TOPIC or UNKNOWN_TOPIC_OR_PARTITION unless the topic exists."""
    check_topic_name(name)
    if name not in broker.metadata_cache.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


# --- changes ------------------------------------------------------------------------------------------------


def replace_all(given: Sequence[AlterableConfig]) -> Change:
    """Return the change of AlterConfigs: replace all configs.

    The last value of a repeated name counts, as in Kafka 2.1: clients send the values that they read, then
    their changes.
    """

    def change(_: Settings) -> dict[str, str]:
        return {entry.name: _required_value(entry.name, entry.value) for entry in given}

    return change


def alter_some(broker: Broker, given: Sequence[IncrementalAlterableConfig]) -> Change:
    """Return the change of IncrementalAlterConfigs: only these configs."""

    def change(before: Settings) -> dict[str, str]:
        check_once(entry.name for entry in given)
        after = dict(before)
        for entry in given:
            match entry.config_operation:
                case AlterOperation.SET:
                    after[entry.name] = _required_value(entry.name, entry.value)
                case AlterOperation.DELETE:
                    after.pop(entry.name, None)
                case AlterOperation.APPEND:
                    members, others = _members(broker, before, entry)
                    after[entry.name] = ",".join(
                        members + [other for other in others if other not in members]
                    )
                case AlterOperation.SUBTRACT:
                    members, others = _members(broker, before, entry)
                    after[entry.name] = ",".join(member for member in members if member not in others)
                case other:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST,
                        f"invalid operation {other} for {entry.name}: expected "
                        + ", ".join(f"{known.value} ({known.name})" for known in AlterOperation),
                    )
        return after

    return change


def _members(
    broker: Broker, before: Settings, entry: IncrementalAlterableConfig
) -> tuple[list[str], list[str]]:
    """Return the current members of a list config, and the members that the request names."""
    if entry.name not in LIST_PROPERTIES:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{entry.name} is not a list config: use SET or DELETE")
    text = before.get(entry.name)
    if text is None:
        standing = describe_topic(broker.logs.defaults, broker.dynamic_properties, {})
        text = next(row.value for row in standing if row.name == entry.name) or ""
    return _split(text), _split(_required_value(entry.name, entry.value))


def _split(text: str) -> list[str]:
    return [member.strip() for member in text.split(",") if member.strip()]


def _required_value(name: str, value: str | None) -> str:
    if value is None:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"the value of {name} is null: provide a value, or omit the config"
        )
    return value


def check_once(names: Iterable[str]) -> None:
    """Raise INVALID_REQUEST when a name is repeated."""
    for name, times in Counter(names).items():
        if times > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} appears {times} times")
