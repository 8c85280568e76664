"""The start position of ``consume``: ``beginning``, ``end``, an offset, or a time."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass

from minikafka.base.errors import ConfigError

_TIMES = "a time (2013-01-01, 2013-01-01T05:00, 2013-01-01T05:00:00+01:00)"
ALLOWED_TIMES = f"must be {_TIMES}"
ALLOWED = f"must be beginning, end, an offset (12345), or {_TIMES}"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Start:
    """A start position. At most one field is set; none means the beginning."""

    at_end: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    """ms since the epoch: read from the first message at or after it, in each partition."""


def parse_start(text: str) -> Start:
    """Parse the value of ``--from``. A time without a zone is UTC, like printed times. Raise ConfigError."""
    word = text.strip()
    if word in {"beginning", "earliest"}:
        return Start()
    if word in {"end", "latest"}:
        return Start(at_end=True)
    if word.isascii() and word.isdigit():
        if int(word) > OFFSET_MAX:
            raise ConfigError("--from", text, f"an offset must be at most {OFFSET_MAX}")
        return Start(offset=int(word))
    return Start(timestamp_ms=parse_time("--from", text, ALLOWED))


def parse_duration(option: str, text: str) -> int:
    """Parse an ISO 8601 duration (P1DT2H, PT30M, PT1.5S), without years, months and weeks, to ms. Raise
    ConfigError.
    """
    found = _DURATION.fullmatch(text.strip().upper())
    if found is None or not any(found.groups()):
        raise ConfigError(option, text, "must be a duration such as PT30M, PT1H or P7D")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def time_before(option: str, text: str) -> int:
    """Return the time in ms a duration before now, at least 0 (1970). Raise ConfigError."""
    return max(0, time.time_ns() // 1_000_000 - parse_duration(option, text))


def parse_time(option: str, text: str, allowed: str = ALLOWED_TIMES) -> int:
    """Parse an ISO 8601 time to ms since the epoch; UTC unless it names a zone. Raise ConfigError."""
    word = text.strip()
    try:
        # Before Python 3.11 fromisoformat does not accept Z.
        moment = datetime.datetime.fromisoformat(word[:-1] + "+00:00" if word.endswith(("Z", "z")) else word)
    except ValueError:
        raise ConfigError(option, text, allowed) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    since_epoch = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    milliseconds = since_epoch // datetime.timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigError(option, text, "a time must not be before 1970")
    return milliseconds
