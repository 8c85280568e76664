"""The ranges of offsets that a user wants to read: parsed from text, and looked up at the brokers.

A user says it once for all partitions of a read::

    start, end            the start or the current end of each partition (also beginning and earliest, latest)
    47                    the offset 47
    +2, -3                two messages after the start, three before the end
    10:20, :20, :end      from a position up to another one, which is not read itself
    @2013-01-01T05:00     the first message at or after a time; without a zone it is UTC
    @1357016400000        the same in ms, or with 10 digits in seconds, since the epoch
    @-1h, @1h, @PT1H      an hour ago; units are ms, s, m, h and d
    @2013-01-01:1h        one hour from that time on; also @-2h:1h, @2h:+1h. A minus: it ends that long ago
    @2h:1h                from two hours to one hour ago: a duration without a sign before another is ago
    @-1h:end, @:-1h       from an hour ago to the current end; from the start to an hour ago

``parse_read_range`` is pure. ``find_ranges`` asks for the offsets of all partitions at once, at most four
times, and gives each partition's offsets within its log. An end is never beyond the end of the log at that
moment, so that a read with an end does not wait for messages.

    wanted = parse_read_range("-o", "@-1h:end", now_ms())
    for tp, found in find_ranges(cluster, partitions, wanted, cluster.deadline()).items():
        ...  # read from found.start to found.end
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from minikafka.base.config.types import digits
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.times import MOMENTS, duration_ms, parse_moment
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_known_offsets, list_offsets
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline

OFFSET_MAX = 2**63 - 1
_ALLOWED = "must be start, end, 47, +2, -3, 10:20, :end, or @time, @time:time with a time such as "
ALLOWED_RANGES = _ALLOWED + "2013-01-01T05:00, 1357016400000, or 1h (ago)"
ALLOWED_POSITIONS = f"must be beginning, end, an offset (12345), or {MOMENTS}"
_START_WORDS = frozenset({"start", "beginning", "earliest", "oldest"})
_END_WORDS = frozenset({"end", "latest", "newest"})


class Anchor(Enum):
    """The kind of a position."""

    START = auto()
    """``value`` messages after the start of the log."""
    END = auto()
    """``-value`` messages before the end of the log: the last stable offset with READ_COMMITTED."""
    OFFSET = auto()
    """The offset ``value``."""
    TIME = auto()
    """The first message at or after ``value``, in ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in any partition."""

    anchor: Anchor
    value: int = 0


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range in any partition; its ``end`` is not read. Without an end, also messages that come later."""

    start: Position = Position(Anchor.START)
    end: Position | None = None


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of a range in one partition. log_end: the last stable offset with READ_COMMITTED."""

    log_start: int
    log_end: int
    start: int
    """From log_start to log_end."""
    end: int | None = None
    """From start to log_end; None for no end."""
    requested: int | None = None
    """The start that was requested, perhaps outside the log; None if no message is as late as the time."""


def parse_position(option: str, text: str, now_ms: int) -> Position:
    """Parse beginning (earliest), end (latest), an offset, which every bare number is, or a time. Raise
    ConfigError.
    """
    word = text.strip()
    if word in {"beginning", "earliest"}:
        return Position(Anchor.START)
    if word in {"end", "latest"}:
        return Position(Anchor.END)
    if _is_number(word):
        return Position(Anchor.OFFSET, _offset(option, text, word))
    return Position(Anchor.TIME, parse_moment(option, text, now_ms, ALLOWED_POSITIONS))


def parse_read_range(option: str, text: str, now_ms: int) -> ReadRange:
    """Parse the forms that the module lists. Raise ConfigError."""
    word = text.strip()
    if word.startswith("@"):
        return _time_range(option, text, word[1:], now_ms)
    first, _, last = word.partition(":")
    if not first and not last:
        raise ConfigError(option, text, ALLOWED_RANGES)
    start = _offset_position(option, text, first) if first else Position(Anchor.START)
    if not last:
        return ReadRange(start)
    end = _offset_position(option, text, last)
    if start.anchor is end.anchor and end.value <= start.value:
        raise ConfigError(option, text, "the end must be after the start")
    return ReadRange(start, end)


def _offset_position(option: str, text: str, word: str) -> Position:
    if word in _START_WORDS:
        return Position(Anchor.START)
    if word in _END_WORDS:
        return Position(Anchor.END)
    sign, number = (word[0], word[1:]) if word[0] in "+-" else ("", word)
    if not _is_number(number):
        raise ConfigError(option, text, ALLOWED_RANGES)
    value = _offset(option, text, number)
    if not sign:
        return Position(Anchor.OFFSET, value)
    return Position(Anchor.START, value) if sign == "+" else Position(Anchor.END, -value)


def _time_range(option: str, text: str, word: str, now_ms: int) -> ReadRange:
    """Parse T, T:, T:T or :T. A time may contain colons: the whole text is tried first, then each split."""
    for colon in [len(word), *(at for at, char in enumerate(word) if char == ":")]:
        first, last = word[:colon], word[colon + 1 :]
        start_ms = _time(first, now_ms)
        if (first and start_ms is None) or not (first or last):
            continue
        start = Position(Anchor.START) if start_ms is None else Position(Anchor.TIME, start_ms)
        if not last:
            return ReadRange(start)
        if last in _END_WORDS:
            return ReadRange(start, Position(Anchor.END))
        end_ms = _end_of_time_range(first, start_ms, last, now_ms)
        if end_ms is None:
            continue
        if start_ms is not None and end_ms <= start_ms:
            raise ConfigError(option, text, "the end must be after the start")
        return ReadRange(start, Position(Anchor.TIME, end_ms))
    raise ConfigError(option, text, ALLOWED_RANGES)


def _end_of_time_range(first: str, start_ms: int | None, last: str, now_ms: int) -> int | None:
    """Return the end in ms since the epoch; None for no time."""
    both_ago = duration_ms(first) is not None and not last.startswith("+")
    length_ms = None if start_ms is None or both_ago else duration_ms(last.removeprefix("+"))
    if start_ms is None or length_ms is None:
        return _time(last, now_ms)
    return start_ms + length_ms


def _time(word: str, now_ms: int) -> int | None:
    """Return ms since the epoch; None for no time."""
    try:
        return parse_moment("", word, now_ms)
    except ConfigError:
        return None


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _offset(option: str, text: str, number: str) -> int:
    value = digits(number, OFFSET_MAX)
    if value is None:
        raise ConfigError(option, text, f"an offset must be at most {OFFSET_MAX}")
    return value


def find_ranges(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    wanted: ReadRange,
    deadline: Deadline,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    failed: list[MinikafkaError] | None = None,
) -> dict[TopicPartition, PartitionRange]:
    """Return the offsets of a range in each partition. Raises as ``list_offsets``; or adds the errors to
    ``failed``, and leaves out the partitions whose leaders do not answer.
    """
    chosen = list(partitions)

    def offsets(at: int) -> dict[TopicPartition, int | None]:
        wanted = dict.fromkeys(chosen, at)
        if failed is None:
            return list_offsets(cluster, wanted, deadline, isolation)
        known, error = list_known_offsets(cluster, wanted, deadline, isolation)
        failed.extend([] if error is None else [error])
        chosen[:] = [tp for tp in chosen if tp in known]
        return known

    # The end first: messages that are deleted in between make a log empty, not negative.
    ends, starts = offsets(LATEST), offsets(EARLIEST)
    timed = {
        position.value: offsets(position.value)
        for position in (wanted.start, wanted.end)
        if position is not None and position.anchor is Anchor.TIME
    }
    found = {}
    for tp in chosen:
        log_start = starts[tp] or 0
        log_end = max(ends[tp] or 0, log_start)
        at_time = {value: offset[tp] for value, offset in timed.items()}
        requested = _resolve(wanted.start, log_start, log_end, at_time)
        start = log_end if requested is None else min(max(requested, log_start), log_end)
        end = None
        if wanted.end is not None:
            limit = _resolve(wanted.end, log_start, log_end, at_time)
            end = log_end if limit is None else max(start, min(limit, log_end))
        found[tp] = PartitionRange(log_start, log_end, start, end, requested)
    return found


def _resolve(position: Position, log_start: int, log_end: int, at_time: dict[int, int | None]) -> int | None:
    """Return the offset of a position; None for a time after the last message."""
    if position.anchor is Anchor.TIME:
        return at_time[position.value]
    if position.anchor is Anchor.OFFSET:
        return position.value
    if position.anchor is Anchor.START:
        return log_start + position.value
    return max(log_start, log_end + position.value)
