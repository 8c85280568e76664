"""The start and the end of a query, parsed from its options. Pure: ``planner`` asks the cluster.

The options of one end in order of precedence: one timestamp for all partitions (``startingTimestamp``), a
timestamp for each (``startingOffsetsByTimestamp``), offsets (``startingOffsets``). This source adds three
starts: a group's committed offsets, the newest records, and the records of the last minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from minikafka.base.config.config_def import ConfigKey, Faults
from minikafka.base.config.types import INT_MAX, LONG_MAX, TEXT, choice, digits, int64
from minikafka.base.errors import BrokerError, ConfigError
from minikafka.base.ids import TopicPartition, check_topic_name
from pyspark_minikafka.offsets import EARLIEST, LATEST, Offsets, parse_object, to_json
from pyspark_minikafka.options.group_options import group_name
from pyspark_minikafka.options.kafka_options import duration

_START = (
    ConfigKey(
        "startingTimestamp", int64(0), None, "Start at a time in milliseconds; wins over the two below."
    ),
    ConfigKey(
        "startingOffsetsByTimestamp",
        TEXT,
        None,
        "Start at a time for each partition, as JSON; wins over `startingOffsets`.",
    ),
    ConfigKey(
        "startingOffsets",
        TEXT,
        None,
        "Start at `earliest`, `latest`, offsets as JSON (-2: earliest, -1: latest), or where a group has "
        "committed; by default a batch at `earliest`, a stream at `latest`.",
    ),
)
_END = (
    ConfigKey("endingTimestamp", int64(0), None, "End at a time (batch)."),
    ConfigKey("endingOffsetsByTimestamp", TEXT, None, "End at a time for each partition (batch)."),
    ConfigKey("endingOffsets", TEXT, "latest", "End at `latest` or at offsets as JSON (batch)."),
)
_NO_MATCH = ConfigKey(
    "startingOffsetsByTimestampStrategy",
    choice({"error": False, "latest": True}),
    "error",
    "If no record is as late as the start: `error` or `latest`.",
)
_LAST = (
    ConfigKey(
        "minikafka.last.records",
        int64(1),
        None,
        "Start this many records before the end, divided by the size of partitions.",
    ),
    ConfigKey(
        "minikafka.last.duration", duration(1), None, "Start this long before now; units ms, s, m, h, d."
    ),
)
SELECTING = (*_START, *_END, _NO_MATCH)
"""Options that choose what is read."""
OPTIONS = (*SELECTING, *_LAST)

START_NAMES = tuple(key.name for key in _START)
END_NAMES = tuple(key.name for key in _END)

GROUP_PREFIX = "group:"
"""``startingOffsets=group:NAME``."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS_FORM = (
    'must be earliest, latest or JSON such as {"topic":{"0":23,"1":-2}} (-1 latest, -2 earliest) or '
    '{"topic":"earliest"}'
)
_TIMES_FORM = 'must be JSON such as {"topic":{"0":1357000000000}}, in milliseconds since 1970'


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """All partitions at earliest, all at latest, or each as in ``offsets`` or ``topics``.

    name: the option that was set.
    offsets: None, or an offset, LATEST or EARLIEST for each partition.
    topics: LATEST or EARLIEST for all partitions of a topic; only together with ``offsets``.
    """

    default: int
    offsets: Mapping[TopicPartition, int] | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    name: str = field(default="startingOffsets", compare=False)

    def mentions(self, special: int) -> list[str]:
        """Return the partitions and topics that are set to ``special`` (LATEST or EARLIEST), in order."""
        partitions = sorted(tp for tp, offset in (self.offsets or {}).items() if offset == special)
        return [*map(str, partitions), *sorted(name for name, at in self.topics.items() if at == special)]

    @property
    def all_latest(self) -> bool:
        """Return whether the option is the word ``latest``."""
        return self.offsets is None and self.default == LATEST

    @property
    def all_earliest(self) -> bool:
        """Return whether the option is the word ``earliest``."""
        return self.offsets is None and self.default == EARLIEST

    @property
    def moves(self) -> bool:
        """Return whether a later look-up can return higher offsets although nothing was deleted."""
        return self.all_latest or bool(self.mentions(LATEST))

    def of(self, assigned: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return an offset, LATEST or EARLIEST for each assigned partition. Raise ConfigError unless the
        option names exactly the assigned partitions.
        """
        assigned = tuple(assigned)
        if self.offsets is None:
            return dict.fromkeys(assigned, self.default)
        by_topic = {tp: self.topics[tp.topic] for tp in assigned if tp.topic in self.topics}
        unread = sorted(set(self.topics) - {tp.topic for tp in assigned})
        if unread:
            raise ConfigError(
                self.name, json.dumps(self._document()), f"names topics that are not read: {unread}"
            )
        return _all_of(self.name, self._document(), {**by_topic, **self.offsets}, assigned)

    def _document(self) -> dict[str, Any]:
        words = {at: word for word, at in _WORDS.items()}
        return {**to_json(self.offsets or {}), **{name: words[at] for name, at in self.topics.items()}}


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The first record of each partition at or after a timestamp, in ms since 1970.

    default: the timestamp of all partitions; None when ``times`` has one for each.
    or_latest: a partition without such a record starts at its end; otherwise that is an error.
    """

    name: str
    default: int | None
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    or_latest: bool = True

    def of(self, assigned: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return a timestamp for each assigned partition. Raise ConfigError unless all of them, and no other,
        are named.
        """
        if self.default is not None:
            return dict.fromkeys(assigned, self.default)
        return _all_of(self.name, to_json(self.times), self.times, tuple(assigned))


@dataclass(frozen=True, slots=True)
class Newest:
    """The last ``records`` before the end, divided in proportion to the partitions' sizes, or the records of
    the last ``duration_ms``. Exactly one of the two is set.
    """

    records: int | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupBound:
    """The committed offsets of a consumer group."""

    group: str


Bound = OffsetBound | TimeBound | Newest | GroupBound

ALL_LATEST = OffsetBound(LATEST)
ALL_EARLIEST = OffsetBound(EARLIEST)


def starting(options: Mapping[str, str], default: Bound) -> Bound:
    """Return the start that ``options`` (keys in lower case) ask for. Raise ConfigErrors when invalid."""
    faults = Faults()
    no_match = options.get(_NO_MATCH.name.lower(), "error")
    or_latest = faults.attempt(lambda: bool(_NO_MATCH.type.parse(_NO_MATCH.name, no_match)), False)
    bound = faults.attempt(lambda: _start(options, or_latest, default), default)
    faults.check(options)
    return bound


def _start(options: Mapping[str, str], or_latest: bool, default: Bound) -> Bound:
    own = [key.name for key in _LAST if key.name in options]
    if own:
        return _newest(own, options)
    moment, moments, offsets = START_NAMES
    value = options.get(offsets.lower(), "").strip()
    by_time = moment.lower() in options or moments.lower() in options
    if value.lower().startswith(GROUP_PREFIX) and not by_time:
        return GroupBound(group_name(offsets, value, value[len(GROUP_PREFIX) :]))
    return _bound(options, START_NAMES, or_latest, default)


def ending(options: Mapping[str, str], default: Bound) -> Bound:
    """Return the end that ``options`` ask for. A timestamp later than every record means latest."""
    return _bound(options, END_NAMES, True, default)


def _bound(options: Mapping[str, str], names: tuple[str, ...], or_latest: bool, default: Bound) -> Bound:
    moment, moments, offsets = names
    if moment.lower() in options:
        return TimeBound(moment, int64(0).parse(moment, options[moment.lower()]), or_latest=or_latest)
    if moments.lower() in options:
        times = _times(moments, options[moments.lower()])
        return TimeBound(moments, None, times, or_latest=or_latest)
    if offsets.lower() in options:
        return parse_bound(offsets, options[offsets.lower()])
    return default


def _newest(own: list[str], options: Mapping[str, str]) -> Newest:
    """Return the start that one of our ``own`` options names. Raise ConfigErrors, also for others."""
    faults = Faults()
    others = own[1:] + [name for name in START_NAMES if name.lower() in options]
    if others:
        allowed = f"cannot be combined with {others[0]}: both set the start of the query"
        faults.add([ConfigError(own[0], options[own[0]], allowed)])
    records, duration_ms = (
        faults.attempt(partial(key.type.parse, key.name, options[key.name]), None)
        if key.name in own
        else None
        for key in _LAST
    )
    faults.check(options)
    return Newest(records, duration_ms)


def parse_bound(name: str, value: str) -> OffsetBound:
    """Parse the value of ``startingOffsets`` or ``endingOffsets``. Raise ConfigError for an invalid one."""
    word = _WORDS.get(value.strip().lower())
    if word is not None:
        return OffsetBound(word, name=name)
    form = _OFFSETS_FORM + ("; or group:NAME" if name == "startingOffsets" else "")
    offsets: Offsets = {}
    topics: dict[str, int] = {}
    for topic, partitions in parse_object(name, value, form).items():
        _check_topic(name, value, topic)
        if isinstance(partitions, str) and partitions.strip().lower() in _WORDS:
            topics[topic] = _WORDS[partitions.strip().lower()]
            continue
        for partition, offset in _numbers(name, value, partitions, form):
            if offset < EARLIEST:
                raise ConfigError(name, value, f"offset {offset} of {topic}-{partition} must be at least -2")
            offsets[TopicPartition(topic, partition)] = offset
    if not offsets and not topics:
        raise ConfigError(name, value, form)
    return OffsetBound(EARLIEST, offsets, topics, name=name)


def _times(name: str, value: str) -> Offsets:
    times: Offsets = {}
    for topic, partitions in parse_object(name, value, _TIMES_FORM).items():
        _check_topic(name, value, topic)
        for partition, moment in _numbers(name, value, partitions, _TIMES_FORM):
            if moment < 0:
                raise ConfigError(name, value, f"the time {moment} of {topic}-{partition} is before 1970")
            times[TopicPartition(topic, partition)] = moment
    if not times:
        raise ConfigError(name, value, _TIMES_FORM)
    return times


def _numbers(name: str, value: str, partitions: object, form: str) -> Iterable[tuple[int, int]]:
    if not isinstance(partitions, dict) or not partitions:
        raise ConfigError(name, value, form)
    for partition, number in partitions.items():
        partition_id = digits(partition, INT_MAX)
        if partition_id is None or isinstance(number, bool) or not isinstance(number, int):
            raise ConfigError(name, value, form)
        if number > LONG_MAX:
            raise ConfigError(name, value, f"{number} does not fit in 64 bits")
        yield partition_id, number


def _check_topic(name: str, value: str, topic: str) -> None:
    try:
        check_topic_name(topic)
    except BrokerError as problem:
        raise ConfigError(name, value, problem.detail) from None


def check_batch(start: Bound, end: Bound, start_text: str | None, end_text: str | None) -> None:
    """Raise ConfigErrors for a start and end of a batch query that are wrong whatever the logs contain."""
    faults = Faults()
    if isinstance(start, OffsetBound) and start.moves:
        allowed = "a batch query cannot start at latest (-1): use earliest or the offsets of all partitions"
        faults.add([ConfigError("startingOffsets", start_text, allowed)])
    if isinstance(end, OffsetBound) and (end.all_earliest or end.mentions(EARLIEST)):
        allowed = "a query cannot end at earliest (-2): use latest or the offsets of all partitions"
        faults.add([ConfigError("endingOffsets", end_text, allowed)])
    faults.check()
    if isinstance(start, OffsetBound) and isinstance(end, OffsetBound):
        _check_offsets(start, end, start_text)
    if isinstance(start, TimeBound) and isinstance(end, TimeBound):
        _check_times(start, end)


def _check_offsets(start: OffsetBound, end: OffsetBound, text: str | None) -> None:
    if start.offsets is None or end.offsets is None or start.topics or end.topics:
        return
    if set(start.offsets) != set(end.offsets):
        raise ConfigError("startingOffsets", text, "must name the same partitions as endingOffsets")
    for tp, offset in start.offsets.items():
        if offset >= 0 and LATEST != end.offsets[tp] < offset:
            raise ConfigError(
                "startingOffsets", text, f"offset {offset} of {tp} is beyond its end, {end.offsets[tp]}"
            )


def _check_times(start: TimeBound, end: TimeBound) -> None:
    if start.default is None and end.default is None and set(start.times) != set(end.times):
        raise ConfigError(
            start.name, json.dumps(to_json(start.times)), f"must name the same partitions as {end.name}"
        )
    for tp in {None, *start.times, *end.times}:
        first = start.default if tp is None or start.default is not None else start.times.get(tp)
        last = end.default if tp is None or end.default is not None else end.times.get(tp)
        if first is not None and last is not None and first > last:
            of_partition = "" if tp is None else f" of {tp}"
            allowed = f"this time{of_partition} is later than {end.name}, {last}"
            raise ConfigError(start.name, str(first), allowed)


def _all_of(
    name: str,
    document: Mapping[str, Any],
    given: Mapping[TopicPartition, int],
    assigned: Iterable[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Return ``given``. Raise ConfigError unless it names exactly the ``assigned`` partitions."""
    partitions = set(assigned)
    if set(given) != partitions:
        raise ConfigError(
            name,
            json.dumps(document),
            "must name exactly the assigned partitions (-1 for latest, -2 for earliest): assigned "
            f"{_names(partitions)}, missing {_names(partitions - set(given))}, "
            f"unexpected {_names(set(given) - partitions)}",
        )
    return given


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions)) or "none"
