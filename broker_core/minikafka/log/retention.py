"""Retention policies: they choose the segments that a log no longer needs, from the oldest on.

A policy is pure: it gets the facts of each segment, the log's limits and the time, and returns how many of
the oldest segments to delete. ``cleanup.policy`` names it: ``delete`` is ``ByAgeAndSize`` below; a class
path, ``package.module:Class``, is ``minikafka.log.retention:ByModificationTime``, the texts' own rule, or a
class of the operator, created without arguments. Only the broker's own properties may introduce a class
path, as importing it runs code: a topic can choose it once the broker's ``log.cleanup.policy`` names it. (The
texts' "pluggable log deletion policy"; ``Log.deleteOldSegments`` of 0.10.1.)
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from minikafka.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment as a policy sees it. Times are ms since the epoch, sizes bytes."""

    base_offset: int
    next_offset: int
    """The base offset of the following segment, or the log end offset."""
    size: int
    last_time_ms: int
    """The largest timestamp of its messages; the file's last modification where there is none (magic 0)."""
    modified_ms: int
    """The last modification of its log file."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The retention limits of a log; None for no limit."""

    retention_ms: int | None
    retention_bytes: int | None


class RetentionPolicy(Protocol):
    """Chooses the segments to delete. Appends to the log wait for the call, so it must be quick."""

    def expired(self, segments: Sequence[SegmentFacts], limits: RetentionLimits, now_ms: int) -> int:
        """Return how many of the oldest segments are no longer needed, 0 to all of them."""


class ByAgeAndSize:
    """Deletes by ``retention.ms`` and ``retention.bytes``.

    A segment is deleted when its newest message is older than the first, and when the log would still have at
    least the second without it. As in 0.10.1, the first segment that is kept keeps all after it.
    """

    def expired(self, segments: Sequence[SegmentFacts], limits: RetentionLimits, now_ms: int) -> int:
        return max(self._by_age(segments, limits, now_ms), self._by_size(segments, limits))

    def _by_age(self, segments: Sequence[SegmentFacts], limits: RetentionLimits, now_ms: int) -> int:
        limit = limits.retention_ms
        if limit is None:
            return 0
        return _leading(now_ms - self._time_ms(segment) > limit for segment in segments)

    @staticmethod
    def _time_ms(segment: SegmentFacts) -> int:
        """Return the time from which a segment's age counts."""
        return segment.last_time_ms

    @staticmethod
    def _by_size(segments: Sequence[SegmentFacts], limits: RetentionLimits) -> int:
        if limits.retention_bytes is None:
            return 0
        excess = sum(segment.size for segment in segments) - limits.retention_bytes
        count = 0
        for segment in segments:
            excess -= segment.size
            if excess < 0:
                break
            count += 1
        return count


class ByModificationTime(ByAgeAndSize):
    """Like ``ByAgeAndSize``, but a segment's age counts from the last modification of its file.

    The texts' rule ("deletes any log with a modification time of more than N days ago"), and Kafka's up to
    0.10.0: timestamps that producers set, in the past or the future, delete nothing early and keep nothing
    forever. Files that were copied without their times look new.
    """

    @staticmethod
    def _time_ms(segment: SegmentFacts) -> int:
        return segment.modified_ms


def _leading(answers: Iterable[bool]) -> int:
    """Return the number of leading true values."""
    count = 0
    for answer in answers:
        if not answer:
            break
        count += 1
    return count


@cache
def policy_of(name: str) -> RetentionPolicy:
    """Return the policy that a part of ``cleanup.policy`` names: ``delete``, or ``package.module:Class``.

    Raises ConfigError when there is no such class, or no instance can be created.
    """
    if name == "delete":
        return ByAgeAndSize()
    try:
        policy = pkgutil.resolve_name(name)()
    except Exception as error:
        raise ConfigError(
            "log.cleanup.policy", name, f"cannot create an instance without arguments: {error!r}"
        ) from error
    if not callable(getattr(policy, "expired", None)):
        raise ConfigError(
            "log.cleanup.policy", name, "expected a class with a method expired(segments, limits, now_ms)"
        )
    return policy  # type: ignore[no-any-return]
