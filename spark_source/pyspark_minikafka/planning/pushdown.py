"""Filters of a query that narrow what a batch read fetches. Pure.

Spark 4.1 and later hand over the filters of a ``WHERE`` when ``spark.sql.python.filterPushdown.enabled`` is
on. Those on ``topic`` and ``partition`` are applied completely: a partition is read or it is not. One on
``offset`` or a lower bound of ``timestamp`` only narrows the range, and Spark filters each row again. An
upper bound of ``timestamp`` narrows nothing: records are not necessarily in the order of their timestamps,
and a record after the bound may be followed by one before it (``endingTimestamp`` ends the read there all the
same).

Spark 4.1 to 4.3 mix up the plans of queries on one DataFrame (see ``batch``), so there the option
``minikafka.pushdown`` is required as well.

Filters are recognized by their class names, so that this module can be imported with Spark 4.0, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from minikafka.base.ids import TopicPartition

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)

_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda found, wanted: bool(found == wanted),
    "EqualNullSafe": lambda found, wanted: bool(found == wanted),
    "GreaterThan": lambda found, wanted: bool(found > wanted),
    "GreaterThanOrEqual": lambda found, wanted: bool(found >= wanted),
    "LessThan": lambda found, wanted: bool(found < wanted),
    "LessThanOrEqual": lambda found, wanted: bool(found <= wanted),
    "In": lambda found, wanted: found in wanted,
    "StringStartsWith": lambda found, wanted: bool(found.startswith(wanted)),
    "StringEndsWith": lambda found, wanted: bool(found.endswith(wanted)),
    "StringContains": lambda found, wanted: wanted in found,
}


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The part of a read that its filters leave.

    conditions: filters on topics and partitions, all of which must hold: the column and the filter on it.
    first_offset, end_offset: of every partition; None for no end.
    since_ms: the lower bound of timestamps; None for no bound.
    """

    conditions: tuple[tuple[str, Any], ...] = ()
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def keeps(self, tp: TopicPartition) -> bool:
        """Return True if the partition is read."""
        return all(
            _holds(condition, tp.topic if column == "topic" else tp.partition)
            for column, condition in self.conditions
        )


EVERYTHING = PushedFilters()


@dataclass(slots=True)
class _Collected:
    conditions: list[tuple[str, Any]] = field(default_factory=list)
    first: int = 0
    ends: list[int] = field(default_factory=list)
    since: list[int] = field(default_factory=list)


def push_filters(filters: Iterable[Any]) -> tuple[PushedFilters, list[Any]]:
    """Return the part of the read that ``filters`` leave, and the filters that Spark must still apply to the
    rows.
    """
    found = _Collected()
    left = [condition for condition in filters if not _push(condition, found)]
    pushed = PushedFilters(
        tuple(found.conditions), found.first, min(found.ends, default=None), max(found.since, default=None)
    )
    return pushed, left


def _push(condition: Any, found: _Collected) -> bool:
    """Add what ``condition`` narrows to ``found``. Return True if Spark need not apply it again."""
    inner = condition.child if type(condition).__name__ == "Not" else condition
    column = inner.attribute[0] if len(inner.attribute) == 1 else None
    if column in ("topic", "partition") and _is_supported(inner, str if column == "topic" else int):
        found.conditions.append((column, condition))
        return True
    if inner is condition and column == "offset" and _is_supported(condition, int):
        _bound_offsets(condition, found)
    if inner is condition and column == "timestamp" and _is_supported(condition, datetime.datetime):
        _bound_times(condition, found)
    return False


def _is_supported(condition: Any, kind: type) -> bool:
    name = type(condition).__name__
    if name in ("IsNull", "IsNotNull"):
        return True
    values = condition.value if name == "In" else (condition.value,)
    right = all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
    return name in _TESTS and right and (kind is str or not name.startswith("String"))


def _holds(condition: Any, value: object) -> bool:
    name = type(condition).__name__
    if name == "Not":
        return not _holds(condition.child, value)
    if name in ("IsNull", "IsNotNull"):
        return name == "IsNotNull"
    return _TESTS[name](value, condition.value)


def _bound_offsets(condition: Any, found: _Collected) -> None:
    name = type(condition).__name__
    values = getattr(condition, "value", None)
    values = values if isinstance(values, (tuple, list)) else [values]
    if name in ("IsNull", "IsNotNull") or not values:
        return
    if name in ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual"):
        found.first = max(found.first, min(values))
    if name == "GreaterThan":
        found.first = max(found.first, values[0] + 1)
    if name in ("EqualTo", "EqualNullSafe", "In", "LessThanOrEqual"):
        found.ends.append(max(max(values) + 1, 0))
    if name == "LessThan":
        found.ends.append(max(values[0], 0))


def _bound_times(condition: Any, found: _Collected) -> None:
    values = getattr(condition, "value", None)
    values = values if isinstance(values, (tuple, list)) else [values]
    lower = ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual", "GreaterThan")
    # A time without a zone would mean different times on different machines.
    if type(condition).__name__ in lower and values and all(value.tzinfo is not None for value in values):
        found.since.append(max((min(values) - _EPOCH) // _MILLISECOND, 0))
