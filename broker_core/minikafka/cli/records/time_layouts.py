"""Times by a layout: that of Go's package ``time``, in which the parts of one reference moment stand for the
parts of a time, and that of ``strftime``. All times are in UTC.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

Moment = datetime.datetime

# Go's names are English, in all locales.
_MONTHS = ["January", "February", "March", "April", "May", "June"]
_MONTHS += ["July", "August", "September", "October", "November", "December"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_FRACTION = r"[.,](?:0+|9+)(?!\d)"
_GO_PARTS: dict[str, Callable[[Moment], str]] = {
    "January": lambda at: _MONTHS[at.month - 1],
    "Jan": lambda at: _MONTHS[at.month - 1][:3],
    "Monday": lambda at: _DAYS[at.weekday()],
    "Mon": lambda at: _DAYS[at.weekday()][:3],
    "MST": lambda at: "UTC",
    "2006": lambda at: f"{at.year:04}",
    "Z070000": lambda at: "Z",
    "Z07:00:00": lambda at: "Z",
    "Z0700": lambda at: "Z",
    "Z07:00": lambda at: "Z",
    "Z07": lambda at: "Z",
    "-070000": lambda at: "+000000",
    "-07:00:00": lambda at: "+00:00:00",
    "-0700": lambda at: "+0000",
    "-07:00": lambda at: "+00:00",
    "-07": lambda at: "+00",
    "002": lambda at: f"{at:%j}",
    "__2": lambda at: f"{at.timetuple().tm_yday:3}",
    "_2006": lambda at: f"_{at.year:04}",
    "_2": lambda at: f"{at.day:2}",
    "01": lambda at: f"{at.month:02}",
    "02": lambda at: f"{at.day:02}",
    "03": lambda at: f"{_hour_of_12(at):02}",
    "04": lambda at: f"{at.minute:02}",
    "05": lambda at: f"{at.second:02}",
    "06": lambda at: f"{at.year % 100:02}",
    "15": lambda at: f"{at.hour:02}",
    "PM": lambda at: "PM" if at.hour >= 12 else "AM",
    "pm": lambda at: "pm" if at.hour >= 12 else "am",
    "1": lambda at: str(at.month),
    "2": lambda at: str(at.day),
    "3": lambda at: str(_hour_of_12(at)),
    "4": lambda at: str(at.minute),
    "5": lambda at: str(at.second),
}
"""The parts of a layout of Go's. A longer part wins over one that it begins with."""

_GO_PART = re.compile(
    "|".join(
        [_FRACTION]
        + [
            re.escape(part) + "(?![a-z])" * (part in {"Jan", "Mon"})
            for part in sorted(_GO_PARTS, key=len, reverse=True)
        ]
    )
)

_STRFTIME_PART = re.compile("%.", re.DOTALL)


def _hour_of_12(at: Moment) -> int:
    return at.hour % 12 or 12


def go_text(at: Moment, layout: str) -> str:
    """Return the time by a layout such as ``2006-01-02T15:04:05.000Z07:00``."""

    def part(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] not in ".,":
            return _GO_PARTS[text](at)
        digits = f"{at.microsecond:06}000"[: len(text) - 1].ljust(len(text) - 1, "0")
        if text[1] == "0":
            return text[0] + digits
        shortest = digits.rstrip("0")
        return shortest and text[0] + shortest

    return _GO_PART.sub(part, layout)


def strftime_text(at: Moment, layout: str) -> str:
    """Return the time by a layout of ``strftime``, whose %s would take it for local time."""
    seconds = int(at.timestamp())
    return at.strftime(
        _STRFTIME_PART.sub(lambda found: str(seconds) if found[0] == "%s" else found[0], layout)
    )


def layout_text(kind: str, timestamp_ms: int, layout: str) -> str:
    """Return the time by a layout of ``kind``, go or strftime; empty for no timestamp, and the number itself
    beyond the calendar.
    """
    if timestamp_ms < 0:
        return ""
    try:
        at = Moment.fromtimestamp(timestamp_ms // 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    at = at.replace(microsecond=timestamp_ms % 1000 * 1000)
    return go_text(at, layout) if kind == "go" else strftime_text(at, layout)
