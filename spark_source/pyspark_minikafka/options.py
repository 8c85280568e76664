"""Options of the source and of the sink: those of Spark's Kafka connector, with the same meaning.

Keys are case-insensitive and parsed once. A refusal is a ConfigError with the option, its value and what is
allowed. Options of the peer that come in a later version are refused, never ignored.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import BrokerError, ConfigError
from minikafka.base.ids import TopicPartition, check_topic_name
from pyspark_minikafka.kafka_options import (
    LONG_MAX,
    NOT_YET,
    PREFIX,
    ConnectionOptions,
    FetchOptions,
    KafkaOptions,
    ProducerOptions,
    boolean,
    integer,
    kafka_options,
)
from pyspark_minikafka.offsets import ALL_EARLIEST, ALL_LATEST, EARLIEST, LATEST, OffsetBound, parse_bound
from pyspark_minikafka.offsets import parse_object as _parse_object

SERVERS = "kafka.bootstrap.servers"
DATA_DIR = "minikafka.data.dir"
DEFAULT_DATA_DIR = "minikafka-data"
OUR_PREFIX = "minikafka."

STRATEGIES = ("assign", "subscribe", "subscribePattern")
_ENDINGS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_NOT_YET = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
)
_SOURCE_KEYS = (
    *STRATEGIES,
    *_NOT_YET,
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "groupIdPrefix",
    "includeHeaders",
    DATA_DIR,
    SERVERS,
)
_SINK_KEYS = ("topic", "includeHeaders", DATA_DIR, SERVERS)


class Mode(Enum):
    """What the options are for. LOAD: ``load()``, before it is known whether a batch or a stream follows."""

    LOAD = "load"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches the regular expression."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Whether ``topic`` is one of them."""
        return re.fullmatch(self.pattern, topic) is not None


Strategy = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class Location:
    """Where the brokers are: addresses, or the data directory (absolute) of the embedded one."""

    bootstrap_servers: str | None
    data_dir: str | None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads and how. Times are milliseconds.

    poll_timeout_ms: how long a task waits for records that must be there.
    max_offsets_per_trigger: None for no limit; streams only.
    warnings: sentences for the log, once a query.
    """

    location: Location
    connection: ConnectionOptions
    fetch: FetchOptions
    strategy: Strategy
    starting: OffsetBound
    ending: OffsetBound
    fail_on_data_loss: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    max_offsets_per_trigger: int | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go and how. topic: None when every row names its own."""

    location: Location
    connection: ConnectionOptions
    producer: ProducerOptions
    topic: str | None
    warnings: tuple[str, ...]


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    # items() of Spark's case-insensitive dict are in lower case already; a plain dict in a test need not be.
    return {key.lower(): value for key, value in options.items()}


def _location(options: Mapping[str, str], kafka: KafkaOptions, working_directory: str) -> Location:
    data_dir = options.get(DATA_DIR)
    if kafka.bootstrap_servers is not None:
        if data_dir is not None:
            raise ConfigError(DATA_DIR, data_dir, f"is for the embedded broker: {SERVERS} must be absent")
        return Location(kafka.bootstrap_servers, None)
    for name, value in options.items():
        # Only a warning, and rows would go to a cluster that nobody meant.
        if "bootstrap" in name or difflib.get_close_matches(name, [SERVERS], cutoff=0.85):
            raise ConfigError(name, value, f"is no option: {SERVERS} is, or none for a cluster of one's own")
    if data_dir is not None and not data_dir.strip():
        raise ConfigError(DATA_DIR, data_dir, "must be a directory (it is made when it is not there)")
    path = os.path.expanduser((data_dir or DEFAULT_DATA_DIR).strip())
    return Location(None, os.path.normpath(os.path.join(working_directory, path)))


def _warnings(options: Mapping[str, str], kafka: KafkaOptions, known: tuple[str, ...]) -> tuple[str, ...]:
    warnings = []
    if kafka.without_effect:
        warnings.append(f"these options have no effect: {', '.join(kafka.without_effect)}")
    by_lower = {name.lower(): name for name in (*_SOURCE_KEYS, *_SINK_KEYS)}
    for name in sorted(options):
        if name in by_lower or name.startswith((PREFIX, "option.")):
            continue
        if name.startswith(OUR_PREFIX):
            raise ConfigError(name, options[name], f"is no option; {DATA_DIR} is")
        # Spark and its tools add keys of their own, so only what looks like a slip of the pen is mentioned.
        close = difflib.get_close_matches(name, [key.lower() for key in known], n=1, cutoff=0.85)
        if close:
            warnings.append(f"the unknown option {name} is ignored; did you mean {by_lower[close[0]]}?")
    return tuple(warnings)


def _headers(options: Mapping[str, str]) -> None:
    value = options.get("includeheaders")
    if value is not None and boolean("includeHeaders", value):
        raise ConfigError("includeHeaders", value, NOT_YET)


def _topic(name: str, value: str, topic: str) -> str:
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError(name, value, problem.detail) from None
    return topic


def _assign(value: str) -> Assign:
    form = 'must be JSON such as {"topic":[0,1]} with at least one partition'
    partitions = set()
    for topic, numbers in _parse_object("assign", value, form).items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigError("assign", value, form)
        _topic("assign", value, topic)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ConfigError("assign", value, form)
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise ConfigError("assign", value, form)
    return Assign(tuple(sorted(partitions)))


def _subscribe(value: str) -> Subscribe:
    topics = {part.strip() for part in value.split(",") if part.strip()}
    if not topics:
        raise ConfigError("subscribe", value, "must name at least one topic, as in topic1,topic2")
    return Subscribe(tuple(sorted(_topic("subscribe", value, topic) for topic in topics)))


def _subscribe_pattern(value: str) -> SubscribePattern:
    if not value.strip():
        raise ConfigError("subscribePattern", value, "must be a regular expression on topic names, not empty")
    try:
        re.compile(value)
    except re.error as problem:
        raise ConfigError("subscribePattern", value, f"must be a regular expression: {problem}") from None
    return SubscribePattern(value)


def _strategy(options: Mapping[str, str]) -> Strategy:
    given = [name for name in STRATEGIES if name.lower() in options]
    choices = "exactly one of the options assign, subscribe and subscribePattern must say what to read"
    if not given:
        raise ConfigError("subscribe", None, choices)
    if len(given) > 1:
        raise ConfigError(given[1], options[given[1].lower()], f"{choices}; given are {', '.join(given)}")
    value = options[given[0].lower()]
    if given[0] == "assign":
        return _assign(value)
    if given[0] == "subscribe":
        return _subscribe(value)
    return _subscribe_pattern(value)


def _refuse_later_options(options: Mapping[str, str], mode: Mode) -> None:
    for name in _ENDINGS:
        value = options.get(name.lower())
        if value is not None and mode is Mode.STREAM:
            raise ConfigError(name, value, "an end is for batch queries only: a stream has none")
    for name in _NOT_YET:
        value = options.get(name.lower())
        if value is not None:
            raise ConfigError(name, value, NOT_YET)


def _bounds(options: Mapping[str, str], mode: Mode) -> tuple[OffsetBound, OffsetBound]:
    start_text, end_text = options.get("startingoffsets"), options.get("endingoffsets")
    start = ALL_LATEST if mode is Mode.STREAM else ALL_EARLIEST
    if start_text is not None:
        start = parse_bound("startingOffsets", start_text)
    end = ALL_LATEST if end_text is None else parse_bound("endingOffsets", end_text)
    if mode is Mode.BATCH and start.moves:
        raise ConfigError(
            "startingOffsets",
            start_text,
            "a batch query cannot start at latest (-1): use earliest or the offsets of all partitions",
        )
    if end.all_earliest or end.mentions(EARLIEST):
        raise ConfigError(
            "endingOffsets",
            end_text,
            "a query cannot end at earliest (-2): use latest or the offsets of all partitions",
        )
    _check_order(start, end, start_text)
    return start, end


def _check_order(start: OffsetBound, end: OffsetBound, start_text: str | None) -> None:
    """What can be seen wrong before any broker is asked."""
    if start.offsets is None or end.offsets is None:
        return
    if set(start.offsets) != set(end.offsets):
        raise ConfigError("startingOffsets", start_text, "must name the same partitions as endingOffsets")
    for tp, offset in start.offsets.items():
        if offset >= 0 and LATEST != end.offsets[tp] < offset:
            raise ConfigError(
                "startingOffsets", start_text, f"offset {offset} of {tp} is beyond its end, {end.offsets[tp]}"
            )


def source_options(
    given: Mapping[str, str], mode: Mode, *, working_directory: str | None = None
) -> SourceOptions:
    """Parse the options of a read; ConfigError for the first that is wrong.

    working_directory: what a relative ``minikafka.data.dir`` is relative to; the process's own by default.
    """
    options = _lowered(given)
    kafka = kafka_options(options, sink=False)
    strategy = _strategy(options)
    _refuse_later_options(options, mode)
    _headers(options)
    starting, ending = _bounds(options, mode)
    limit = options.get("maxoffsetspertrigger")
    max_offsets = None if limit is None else integer("maxOffsetsPerTrigger", limit, 1, LONG_MAX)
    warnings = _warnings(options, kafka, _SOURCE_KEYS)
    if "groupidprefix" in options:
        warnings += ("groupIdPrefix has no effect: no consumer group is used",)
    if mode is Mode.BATCH and max_offsets is not None:
        warnings += ("maxOffsetsPerTrigger has no effect on a batch query",)
        max_offsets = None
    return SourceOptions(
        location=_location(options, kafka, working_directory or os.getcwd()),
        connection=kafka.connection,
        fetch=kafka.fetch,
        strategy=strategy,
        starting=starting,
        ending=ending,
        fail_on_data_loss=boolean("failOnDataLoss", options.get("failondataloss", "true")),
        poll_timeout_ms=integer(
            "kafkaConsumer.pollTimeoutMs", options.get("kafkaconsumer.polltimeoutms", "120000"), 1
        ),
        offset_retries=integer("fetchOffset.numRetries", options.get("fetchoffset.numretries", "3")),
        offset_retry_interval_ms=integer(
            "fetchOffset.retryIntervalMs", options.get("fetchoffset.retryintervalms", "1000")
        ),
        max_offsets_per_trigger=max_offsets,
        warnings=warnings,
    )


def sink_options(given: Mapping[str, str], *, working_directory: str | None = None) -> SinkOptions:
    """Parse the options of a write; ConfigError for the first that is wrong."""
    options = _lowered(given)
    kafka = kafka_options(options, sink=True)
    _headers(options)
    topic = options.get("topic")
    return SinkOptions(
        location=_location(options, kafka, working_directory or os.getcwd()),
        connection=kafka.connection,
        producer=kafka.producer,
        topic=None if topic is None else _topic("topic", topic, topic.strip()),
        warnings=_warnings(options, kafka, _SINK_KEYS),
    )
