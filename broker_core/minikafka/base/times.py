"""Times and durations as text: ISO 8601 in messages and options, and durations such as 1h30m.

Every option and field that takes a time takes all that ``parse_moment`` does. A duration there is always
*ago*: ``1h``, ``-1h`` and ``PT1H`` are an hour ago.
"""

from __future__ import annotations

import datetime
import functools
import re

from minikafka.base.errors import ConfigError

TIMES = "a time (2013-01-01, 2013-01-01T05:00, 2013-01-01T05:00:00+01:00)"
MOMENTS = "a time (2013-01-01, 2013-01-01T05:00+01:00, 1357016400000), or how long ago (1h, 1h30m, PT1H)"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_ISO_DURATION = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?", re.ASCII
)
_SHORT_DURATION = re.compile(r"(?:\d{1,9}(?:ms|s|m|h|d)){1,10}", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH_SCALES = {13: 1, 10: 1_000}
"""The ms in a unit of a number since 1970, by its digits: ms or s."""


def parse_time(option: str, text: str, allowed: str = f"must be {TIMES}") -> int:
    """Parse an ISO 8601 time to ms since the epoch; UTC unless it names a zone. Raise ConfigError."""
    word = text.strip()
    try:
        # Before Python 3.11 fromisoformat does not accept Z.
        moment = datetime.datetime.fromisoformat(word[:-1] + "+00:00" if word.endswith(("Z", "z")) else word)
    except ValueError:
        raise ConfigError(option, text, allowed) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    milliseconds = (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigError(option, text, "a time must not be before 1970")
    return milliseconds


def parse_moment(option: str, text: str, now_ms: int, allowed: str = f"must be {MOMENTS}") -> int:
    """Parse an ISO 8601 time, ms (13 digits) or s (10) since 1970, or a duration before ``now_ms``, with or
    without a minus. Raise ConfigError.
    """
    word = text.strip()
    if word.isascii() and word.isdigit():
        if len(word) not in _EPOCH_SCALES:
            raise ConfigError(option, text, allowed)
        return int(word) * _EPOCH_SCALES[len(word)]
    ago_ms = duration_ms(word.removeprefix("-"))
    return parse_time(option, text, allowed) if ago_ms is None else max(0, now_ms - ago_ms)


def check_not_future(option: str, text: str, time_ms: int, now_ms: int, advice: str = "") -> int:
    """Return ``time_ms``, which ``text`` means. Raise ConfigError if it is in the future."""
    if time_ms > now_ms:
        raise ConfigError(option, text, f"is in the future; it is {utc_text(now_ms)} now{advice}")
    return time_ms


def parse_duration(option: str, text: str) -> int:
    """Parse a duration, 1h30m or ISO 8601, to ms. Raise ConfigError."""
    found = duration_ms(text.strip())
    if found is None:
        raise ConfigError(option, text, "must be a duration such as 30m, 1h, 7d, PT30M, PT1H or P7D")
    return found


def duration_ms(text: str) -> int | None:
    """Return the ms of a duration such as 1h30m or 7d, or as in ISO 8601 without years, months and weeks
    (P1DT2H, PT30M, PT1.5S); None for another text.
    """
    short_ms = short_duration_ms(text)
    if short_ms is not None:
        return short_ms
    found = _ISO_DURATION.fullmatch(text.upper())
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def short_duration_ms(text: str) -> int | None:
    """Return the ms of a duration such as 500ms, 90m, 1h30m or 7d; None for another text."""
    if not _SHORT_DURATION.fullmatch(text):
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in re.findall(r"(\d+)(ms|s|m|h|d)", text))


def time_before(option: str, text: str, now_ms: int) -> int:
    """Return the time in ms a duration, with or without a minus, before ``now_ms``, at least 0. Raise
    ConfigError.
    """
    return max(0, now_ms - parse_duration(option, text.strip().removeprefix("-")))


def utc_text(timestamp_ms: int | None) -> str | None:
    """Return ``2013-01-01T05:15:00.000Z``; None for no timestamp; the number itself beyond the calendar."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    text = _second_text(seconds)
    return str(timestamp_ms) if text is None else f"{text}.{milliseconds:03d}Z"


@functools.lru_cache(maxsize=64)  # the times of messages in a row have few seconds
def _second_text(seconds: int) -> str | None:
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}"
