"""Options of the source and of the sink: those of Spark's Kafka connector, with the same meaning.

Keys are case-insensitive and parsed once. Invalid options raise ConfigErrors with the name, value and allowed
values of each, and with the names that have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.base.config.config_def import ConfigDef, ConfigKey, Faults, definition_of, setting
from minikafka.base.config.types import BOOLEAN, TEXT, capped_int64, choice, int32, int64
from minikafka.base.config.unknown_names import closest_match, did_you_mean, with_suggestion
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.common_client_configs import PROTOCOL
from pyspark_minikafka import workers
from pyspark_minikafka.checkpoint import spark_checkpoint, subscription
from pyspark_minikafka.formats.bad_values import DEAD_LETTER_TOPIC
from pyspark_minikafka.formats.query_formats import QueryFormats
from pyspark_minikafka.options import bounds, registry_options
from pyspark_minikafka.options.bounds import ALL_EARLIEST, ALL_LATEST, Bound, GroupBound
from pyspark_minikafka.options.column_options import (
    COLUMNS,
    HEADERS,
    column_warnings,
    has_headers,
    read_columns,
)
from pyspark_minikafka.options.delivery_options import OPTIONS as DELIVERY_OPTIONS
from pyspark_minikafka.options.delivery_options import TRANSACTION_TIMEOUT, DeliveryOptions, delivery_options
from pyspark_minikafka.options.delivery_options import without_effect as delivery_warnings
from pyspark_minikafka.options.format_options import OPTIONS as FORMAT_OPTIONS
from pyspark_minikafka.options.format_options import READ_OPTIONS as READ_FORMAT_OPTIONS
from pyspark_minikafka.options.format_options import format_options
from pyspark_minikafka.options.group_options import COMMIT_GROUP, GroupOptions, group_options, without_effect
from pyspark_minikafka.options.group_options import OPTIONS as GROUP_OPTIONS
from pyspark_minikafka.options.kafka_options import (
    GROUP_ID,
    PREFIX,
    SERVERS,
    ConnectionOptions,
    FetchOptions,
    KafkaOptions,
    duration,
    kafka_options,
)
from pyspark_minikafka.options.kafka_options import meant as meant_by
from pyspark_minikafka.reading.task_reports import ADDRESS, ReportAddress
from pyspark_minikafka.strategy import OPTIONS as STRATEGY_OPTIONS
from pyspark_minikafka.strategy import Strategy, Subscribe, strategy, topic_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from minikafka.clients.produce.config import BatchingConfig

DATA_DIR = "minikafka.data.dir"
ESTIMATE = "minikafka.estimate"
DEFAULT_DATA_DIR = "minikafka-data"
OUR_PREFIX = "minikafka."

_OF_OTHERS = {
    "databricks.serviceCredential": "is an option of Databricks' own connector; use "
    "kafka.sasl.jaas.config and the other options of the service (see docs/guides/managed-clusters.md)"
}
"""Options of other connectors without which a query would fail to log in, and what to use here."""
_DELEGATION_TOKENS = (
    "delegation tokens are kept in the JVM, where a Python source cannot reach them; use "
    "kafka.sasl.jaas.config with a user and password, or another login"
)
_NO_ACKNOWLEDGEMENT = (
    "kafka.acks=0: brokers acknowledge nothing, so a write may lose some or all rows without an error; the "
    "default is all"
)


class Mode(Enum):
    """The kind of query. LOAD: ``load()``, before it is known whether a batch or a stream follows."""

    LOAD = "load"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Location:
    """The location of the brokers: addresses, or the absolute data directory of the embedded broker.

    zookeeper_connect: the ZooKeeper of consumer groups, when an option names one.
    """

    bootstrap_servers: str | None
    data_dir: str | None
    zookeeper_connect: str | None = None


@dataclass(frozen=True, slots=True)
class TriggerOptions:
    """The number of offsets of a micro-batch. A batch waits for ``min_offsets``, for at most ``max_delay_ms``
    after the previous batch.
    """

    min_offsets: int | None = setting(
        "minOffsetsPerTrigger", int64(1), None, "The fewest offsets of a micro-batch."
    )
    max_offsets: int | None = setting(
        "maxOffsetsPerTrigger",
        int64(1),
        None,
        "The most offsets of a micro-batch, divided by what waits. Without support a batch takes all there "
        "is, with a warning.",
    )
    max_delay_ms: int = setting(
        "maxTriggerDelay", duration(0), "15m", "How long `minOffsetsPerTrigger` may delay a batch."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options of a read. Times are in milliseconds.

    groups: options about consumer groups. checkpoint: the query's checkpoint, when the options name it.
    accept_changed_topics: topics of the checkpoint that are no longer subscribed are dropped. columns: those
    of the read, in order. warnings: logged once a query.
    """

    location: Location
    connection: ConnectionOptions
    fetch: FetchOptions
    strategy: Strategy
    starting: Bound
    ending: Bound
    trigger: TriggerOptions
    groups: GroupOptions
    checkpoint: spark_checkpoint.CheckpointLocation | None
    accept_changed_topics: bool
    formats: QueryFormats
    columns: tuple[str, ...]
    warnings: tuple[str, ...]
    min_partitions: int | None = setting(
        "minPartitions", int32(1), None, "The fewest tasks: ranges of offsets are split."
    )
    max_records_per_partition: int | None = setting(
        "maxRecordsPerPartition", int64(1), None, "The most records of a task."
    )
    by_work: bool = setting(
        "minikafka.tasks",
        choice({"work": True, "partition": False}),
        "work",
        "`work`: small ranges share a task, and in a batch query a range of most of the work is split; "
        "`partition`: a task for each range.",
    )
    cores: int | None = setting(
        "minikafka.cores",
        int32(1),
        None,
        "The cores that the tasks of a read share; by default those that the command line of Spark's driver "
        "says, else those of the driver's host.",
    )
    fail_on_data_loss: bool = setting(
        "failOnDataLoss", BOOLEAN, True, "Whether lost data ends the query, or is a warning."
    )
    poll_timeout_ms: int = setting(
        "kafkaConsumer.pollTimeoutMs",
        capped_int64(1),
        120_000,
        "How long a task waits for records of its range.",
    )
    offset_retries: int = setting(
        "fetchOffset.numRetries", int32(0), 3, "How often offsets are looked up again."
    )
    offset_retry_interval_ms: int = setting(
        "fetchOffset.retryIntervalMs", capped_int64(0), 1_000, "How long to wait in between."
    )
    log_tasks: bool = setting(
        "minikafka.log.tasks", BOOLEAN, False, "Whether each task logs a line for each range."
    )
    report_address: ReportAddress | None = setting(
        "minikafka.metrics.address",
        ADDRESS,
        None,
        "Where tasks report what they have read, and how long it took: from `reader_options()` of a "
        "`MetricsListener`.",
    )
    pushdown: bool | None = setting(
        "minikafka.pushdown",
        BOOLEAN,
        None,
        "Whether conditions narrow what is fetched; by default where Spark plans them correctly: not on 4.1 "
        "to 4.3.",
    )
    single_batch_allowed: bool = setting(
        "minikafka.single.batch",
        choice({"warn": False, "allow": True}),
        "warn",
        "`allow`: no warning about the closing batch that AvailableNow omits before Spark 4.2.",
    )
    estimate: bool = setting(
        ESTIMATE, BOOLEAN, False, "Set by the Scala shim, which asks for the size of a read."
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a write. topic: None when every row names its topic."""

    location: Location
    connection: ConnectionOptions
    producer: BatchingConfig
    topic: str | None
    formats: QueryFormats
    warnings: tuple[str, ...]
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)


_LOCATION = (
    ConfigKey(DATA_DIR, TEXT, "./minikafka-data", "The directory of the embedded cluster."),
    ConfigKey(
        SERVERS, TEXT, None, "Brokers: HOST:PORT, separated by commas; by default the embedded cluster."
    ),
)
SOURCE_CONFIG = ConfigDef(
    [
        *STRATEGY_OPTIONS,
        *bounds.OPTIONS,
        *definition_of(TriggerOptions).keys.values(),
        *definition_of(SourceOptions).keys.values(),
        HEADERS,
        COLUMNS,
        ConfigKey("groupIdPrefix", TEXT, None, "Taken, with a warning: the source has no group."),
        *GROUP_OPTIONS,
        ConfigKey(
            spark_checkpoint.RESUME_FROM,
            TEXT,
            None,
            "The checkpoint of a query whose first batch another source planned.",
        ),
        subscription.OPTION,
        *FORMAT_OPTIONS,
        *READ_FORMAT_OPTIONS,
        *_LOCATION,
    ]
)
"""Every option of a read."""
SINK_CONFIG = ConfigDef(
    [
        ConfigKey("topic", TEXT, None, "The topic of all rows; wins over the column `topic`."),
        *registry_options.WRITES,
        *DELIVERY_OPTIONS,
        ConfigKey(HEADERS.name, BOOLEAN, False, "Accepted; the column `headers` is written if it is there."),
        *FORMAT_OPTIONS,
        *_LOCATION,
    ]
)
"""Every option of a write."""
_SELECTING = {key.name for key in (*STRATEGY_OPTIONS, *bounds.SELECTING)} | {"topic"}
"""Options that choose what is read or written. A misspelt one is an error, not a warning."""


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    # items() of Spark's case-insensitive dict are in lower case already; a plain dict in a test need not be.
    return {key.lower(): value for key, value in options.items()}


def _location(options: Mapping[str, str], kafka: KafkaOptions, working_directory: str | None) -> Location:
    data_dir = options.get(DATA_DIR)
    if kafka.bootstrap_servers is not None:
        if data_dir is not None:
            allowed = f"is only for the embedded broker; set either {DATA_DIR} or {SERVERS}"
            raise ConfigError(DATA_DIR, data_dir, allowed)
        return Location(kafka.bootstrap_servers, None)
    if kafka.connection.security.protocol is not SecurityProtocol.PLAINTEXT:
        allowed = f"is for brokers that are named: set {SERVERS} (embedded ones need no options to log in)"
        raise ConfigError(PREFIX + PROTOCOL, kafka.connection.security.protocol.name, allowed)
    for name, value in options.items():
        # An error, not a warning: rows would go to the embedded cluster instead of the intended one.
        if "bootstrap" in name or closest_match(name, [SERVERS], 0.85):
            allowed = f"unknown option{did_you_mean(SERVERS)} (Set neither to use the embedded broker.)"
            raise ConfigError(name, value, allowed)
    if data_dir is not None and not data_dir.strip():
        raise ConfigError(DATA_DIR, data_dir, "must be a directory; it is created when it does not exist")
    path = os.path.expanduser((data_dir or DEFAULT_DATA_DIR).strip())
    return Location(None, os.path.normpath(_absolute(DATA_DIR, path, working_directory)))


def _absolute(option: str, path: str, working_directory: str | None) -> str:
    if os.path.isabs(path):
        return path
    started_in = working_directory or workers.directory()
    if started_in is None:
        raise ConfigError(option, path, "must be absolute: Spark runs Python in a temporary directory here")
    return os.path.join(started_in, path)


def _unused(
    options: Mapping[str, str], kafka: KafkaOptions, known: tuple[str, ...], faults: Faults
) -> dict[str, str | None]:
    """Return the options without effect, each with the one that was probably meant. A misspelt option that
    chooses what is read is a fault: the query would read something else.
    """
    anywhere = {name.lower() for name in (*SOURCE_CONFIG.keys, *SINK_CONFIG.keys)}
    unused = {}
    for name in sorted(options):
        client = name.startswith(PREFIX)
        # Spark and its tools add keys of their own, so other names are reported only if they look misspelt.
        if name in (known if client else anywhere) or name.startswith(
            ("option.", registry_options.NAMESPACE)
        ):
            continue
        if client and name not in kafka.without_effect:
            continue
        if name.startswith(OUR_PREFIX):
            faults.add([ConfigError(name, options[name], _unknown_own_option(name, known))])
            continue
        ours = OUR_PREFIX + name
        meant = ours if ours in known else meant_by(name, known)
        meant = "startingOffsets" if meant == "kafka.auto.offset.reset" else meant
        if meant in _SELECTING:
            faults.add([ConfigError(name, options[name], f"unknown option{did_you_mean(meant)}")])
        elif client or meant is not None:
            unused[name] = meant
    return unused


def _refuse_other_logins(options: Mapping[str, str], faults: Faults) -> None:
    """Refuse what other connectors log in with, and this one cannot."""
    for name, allowed in _OF_OTHERS.items():
        if name.lower() in options:
            faults.add([ConfigError(name, None, allowed)])
    tokens = (name for name in options if name.startswith("spark.kafka.clusters."))
    faults.add(ConfigError(name, None, _DELEGATION_TOKENS) for name in tokens)


def _check(options: Mapping[str, str], unused: Mapping[str, str | None], faults: Faults) -> tuple[str, ...]:
    """Raise ConfigErrors if there are faults, with the ``unused`` options; or return the warning of them."""
    _refuse_other_logins(options, faults)
    faults.check(
        options, [ConfigError(name, None, f"has no effect{did_you_mean(unused[name])}") for name in unused]
    )
    named = ", ".join(with_suggestion(name, meant) for name, meant in unused.items())
    return (f"these options have no effect: {named}",) if named else ()


def _unknown_own_option(name: str, known: tuple[str, ...]) -> str:
    meant = closest_match(name, known)
    own = ", ".join(key for key in known if key.startswith(OUR_PREFIX))
    return f"unknown option{did_you_mean(meant)}" if meant else f"unknown option; expected one of {own}"


def _read(section: type, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of ``section``, by field. Raise ConfigErrors."""
    keys = definition_of(section).keys
    given = {name: options[name.lower()] for name in keys if name.lower() in options}
    values, faults = definition_of(section).read(given)
    if faults:
        raise ConfigErrors(faults)
    return values


def _bounds(options: Mapping[str, str], mode: Mode) -> tuple[Bound, Bound]:
    faults, default = Faults(), ALL_LATEST if mode is Mode.STREAM else ALL_EARLIEST
    start = faults.attempt(lambda: bounds.starting(options, default), default)
    end = faults.attempt(lambda: bounds.ending(options, ALL_LATEST), ALL_LATEST)
    if mode is Mode.STREAM:
        allowed = "is for batch queries only: a stream has no end"
        ends = [name for name in bounds.END_NAMES if name.lower() in options]
        faults.add(ConfigError(name, options[name.lower()], allowed) for name in ends)
    faults.check(options)
    if mode is Mode.BATCH:
        bounds.check_batch(start, end, options.get("startingoffsets"), options.get("endingoffsets"))
    return start, end


def _trigger(options: Mapping[str, str]) -> TriggerOptions:
    trigger = TriggerOptions(**_read(TriggerOptions, options))
    least, most = trigger.min_offsets, trigger.max_offsets
    if least is not None and most is not None and least > most:
        allowed = f"must not be higher than maxOffsetsPerTrigger, {most}"
        raise ConfigError("minOffsetsPerTrigger", str(least), allowed)
    return trigger


def _group_warnings(options: Mapping[str, str]) -> tuple[str, ...]:
    if GROUP_ID in options:
        ignored = ", and groupIdPrefix is ignored" if "groupidprefix" in options else ""
        return (f"{GROUP_ID} has no effect: records are read outside of consumer groups{ignored}",)
    if "groupidprefix" in options:
        return ("groupIdPrefix has no effect: records are read outside of consumer groups",)
    return ()


def _checkpoint(
    options: Mapping[str, str], working_directory: str | None
) -> spark_checkpoint.CheckpointLocation | None:
    """Return the query's checkpoint. One that ``minikafka.resume.from`` names must exist."""
    resumes = spark_checkpoint.RESUME_FROM in options
    option = spark_checkpoint.RESUME_FROM if resumes else spark_checkpoint.CHECKPOINT
    directory = options.get(option.lower(), "").strip()
    if directory and not spark_checkpoint.is_address(directory):
        directory = _absolute(option, directory, working_directory)
    location = spark_checkpoint.CheckpointLocation(option, directory)
    if resumes:
        spark_checkpoint.check(location)
    return location if directory else None


def _sink_checkpoint(options: Mapping[str, str], working_directory: str | None) -> str | None:
    """Return the checkpoint that a write names; None for none, and for a relative one without a base."""
    directory = options.get(spark_checkpoint.CHECKPOINT.lower(), "").strip()
    if not directory or spark_checkpoint.is_address(directory) or os.path.isabs(directory):
        return directory or None
    started_in = working_directory or workers.directory()
    return None if started_in is None else os.path.join(started_in, directory)


_OF_STREAMS = (
    *definition_of(TriggerOptions).keys,
    COMMIT_GROUP,
    spark_checkpoint.RESUME_FROM,
    subscription.CHANGED_TOPICS,
)


def _check_dead_letters(topic: str | None, chosen: Strategy) -> None:
    """Raise ConfigError if dead letters would be read again, and be sent again."""
    if topic is not None and chosen.reads(topic):
        raise ConfigError(DEAD_LETTER_TOPIC, topic, "must not be among the topics that are read")


def batch_warnings(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the warnings of a batch query that ``load()`` did not know to be one."""
    options = _lowered(given)
    return tuple(f"{name} has no effect on a batch query" for name in _OF_STREAMS if name.lower() in options)


def source_options(
    given: Mapping[str, str],
    mode: Mode,
    schema: StructType | None = None,
    *,
    working_directory: str | None = None,
) -> SourceOptions:
    """Parse the options of a read. Raise ConfigErrors for invalid ones.

    schema: the columns that Spark has fixed, by ``load()``; a schema of a registry must have them.
    working_directory: the base of relative paths; None: the directory where Spark was started.
    """
    options, faults = _lowered(given), Faults()
    kafka = kafka_options(options, faults, sink=False)
    unused = _unused(options, kafka, tuple(SOURCE_CONFIG.keys), faults)
    # A default that stands for an option at fault is never used: ``_check`` raises.
    chosen = faults.attempt(lambda: strategy(options), Subscribe(()))
    starting, ending = faults.attempt(lambda: _bounds(options, mode), (ALL_EARLIEST, ALL_LATEST))
    trigger = faults.attempt(lambda: _trigger(options), TriggerOptions())
    location = faults.attempt(lambda: _location(options, kafka, working_directory), Location(None, ""))
    starts_at = starting.group if isinstance(starting, GroupBound) else None
    embedded = location.data_dir is not None
    groups = faults.attempt(
        lambda: group_options(options, embedded=embedded, starts_at=starts_at), GroupOptions()
    )
    checkpoint = None
    if mode is not Mode.BATCH:
        checkpoint = faults.attempt(lambda: _checkpoint(options, working_directory), None)
    accept_changed_topics = faults.attempt(lambda: subscription.accepts_changes(options), False)
    absolute = partial(_absolute, working_directory=working_directory)
    formats = faults.attempt(lambda: format_options(options, absolute, schema=schema), QueryFormats())
    faults.attempt(lambda: _check_dead_letters(formats.dead_letter_topic, chosen), None)
    columns = faults.attempt(lambda: read_columns(options, formats), ())
    others = faults.attempt(lambda: _read(SourceOptions, options), {})
    warnings = _check(options, unused, faults) + kafka.warnings
    warnings += _group_warnings(options) + column_warnings(options, columns)
    warnings += without_effect(options, used=groups.commit is not None or starts_at is not None)
    if mode is Mode.BATCH:
        warnings += batch_warnings(options)
        trigger = TriggerOptions()
    return SourceOptions(
        location=replace(location, zookeeper_connect=groups.zookeeper_connect),
        connection=kafka.connection,
        fetch=kafka.fetch,
        strategy=chosen,
        starting=starting,
        ending=ending,
        trigger=trigger,
        groups=groups,
        checkpoint=checkpoint,
        accept_changed_topics=accept_changed_topics,
        formats=formats,
        columns=columns,
        warnings=warnings,
        **others,
    )


def cluster_options(
    given: Mapping[str, str], *, working_directory: str | None = None
) -> tuple[Location, KafkaOptions]:
    """Parse the options that say which cluster a read is from, and how to connect; ignore all others. Raise
    ConfigErrors for invalid ones.
    """
    options, faults = _lowered(given), Faults()
    kafka = kafka_options(options, faults, sink=False)
    location = faults.attempt(lambda: _location(options, kafka, working_directory), Location(None, ""))
    faults.check(options)
    return location, kafka


def sink_options(given: Mapping[str, str], *, working_directory: str | None = None) -> SinkOptions:
    """Parse the options of a write. Raise ConfigErrors for invalid ones."""
    options, faults = _lowered(given), Faults()
    kafka = kafka_options(options, faults, sink=True)
    kafka = replace(  # the producer of a task has no transactions
        kafka, without_effect=tuple(name for name in kafka.without_effect if name != TRANSACTION_TIMEOUT)
    )
    unused = _unused(options, kafka, tuple(SINK_CONFIG.keys), faults)
    location = faults.attempt(lambda: _location(options, kafka, working_directory), Location(None, ""))
    faults.attempt(lambda: has_headers(options), None)
    topic = options.get("topic")
    if topic is not None:
        topic = faults.attempt(partial(topic_name, "topic", topic, topic.strip()), None)
    absolute = partial(_absolute, working_directory=working_directory)
    formats = faults.attempt(lambda: format_options(options, absolute, sink=True), QueryFormats())
    delivery = faults.attempt(lambda: delivery_options(options, kafka.producer), DeliveryOptions())
    if delivery.is_exactly_once:
        delivery = replace(delivery, checkpoint=_sink_checkpoint(options, working_directory))
    warnings = _check(options, unused, faults) + kafka.warnings + delivery_warnings(options, delivery)
    assert kafka.producer is not None, "a sink has a producer"
    if kafka.producer.acks == 0:
        warnings += (_NO_ACKNOWLEDGEMENT,)
    return SinkOptions(
        location=location,
        connection=kafka.connection,
        producer=kafka.producer,
        topic=topic,
        formats=formats,
        warnings=warnings,
        delivery=delivery,
    )
