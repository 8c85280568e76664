"""Conditions of a query that narrow what a batch read fetches. Pure.

Spark 4.1 and later hand over the conditions of a ``WHERE`` when ``spark.sql.python.filterPushdown.enabled``
is on. Those on ``topic`` and ``partition`` are met here for good: a partition is read or it is not. One on
``offset`` or a lower bound of ``timestamp`` only moves the ends of what is read, and Spark looks at each row
again. An upper bound of ``timestamp`` moves nothing: records need not lie in the order of their times, and
one behind the bound may be followed by one before it (``endingTimestamp`` cuts there all the same).

Spark 4.1 to 4.3 mix up the plans of queries on one DataFrame (see ``batch``), so there it takes the option
``minikafka.pushdown`` as well.

Filters are known by the names of their classes, so that this module can be imported with Spark 4.0, too.
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
    """The part of a read that filters leave.

    conditions: on topics and partitions, all of which must hold; the column and the filter on it.
    first_offset, end_offset: of every partition; None for no end.
    since_ms: nothing before this time is wanted; None for no such bound.
    """

    conditions: tuple[tuple[str, Any], ...] = ()
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def keeps(self, tp: TopicPartition) -> bool:
        """Return whether the partition is read at all."""
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


def narrowed(filters: Iterable[Any]) -> tuple[PushedFilters, list[Any]]:
    """Return the part of the read that ``filters`` leave, and the filters that Spark must apply to the rows
    too.
    """
    found = _Collected()
    left = [one for one in filters if not _meets(one, found)]
    narrowing = PushedFilters(
        tuple(found.conditions),
        found.first,
        min(found.ends, default=None),
        max(found.since, default=None),
    )
    return narrowing, left


def _meets(one: Any, found: _Collected) -> bool:
    """Note what ``one`` narrows; whether nothing is left of it for Spark to do."""
    inner = one.child if type(one).__name__ == "Not" else one
    column = inner.attribute[0] if len(inner.attribute) == 1 else None
    if column in ("topic", "partition") and _understood(inner, str if column == "topic" else int):
        found.conditions.append((column, one))
        return True
    if inner is one and column == "offset" and _understood(one, int):
        _bound_offsets(one, found)
    if inner is one and column == "timestamp" and _understood(one, datetime.datetime):
        _bound_times(one, found)
    return False


def _understood(one: Any, kind: type) -> bool:
    name = type(one).__name__
    if name in ("IsNull", "IsNotNull"):
        return True
    values = one.value if name == "In" else (one.value,)
    right = all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
    return name in _TESTS and right and (kind is str or not name.startswith("String"))


def _holds(condition: Any, value: object) -> bool:
    name = type(condition).__name__
    if name == "Not":
        return not _holds(condition.child, value)
    if name in ("IsNull", "IsNotNull"):
        return name == "IsNotNull"
    return _TESTS[name](value, condition.value)


def _bound_offsets(one: Any, found: _Collected) -> None:
    name = type(one).__name__
    values = getattr(one, "value", None)
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


def _bound_times(one: Any, found: _Collected) -> None:
    values = getattr(one, "value", None)
    values = values if isinstance(values, (tuple, list)) else [values]
    lower = ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual", "GreaterThan")
    # A time without a zone would mean another one on another machine.
    if type(one).__name__ in lower and values and all(value.tzinfo is not None for value in values):
        found.since.append(max((min(values) - _EPOCH) // _MILLISECOND, 0))
