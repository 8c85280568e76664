"""Numbers, sizes, times and addresses as pages show them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from minikafka.base.config.types import INT_MAX
from minikafka.base.errors import ConfigError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_TYPED_SHOWN = 100


def number(value: int | None) -> str:
    """Return ``1,234,567``; a dash for an unknown number."""
    return "–" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return ``1.5 MiB``; a dash for an unknown size."""
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{value:,} B" if unit == 0 else f"{amount:,.1f} {_UNITS[unit]}"


def age(timestamp_ms: int | None) -> str:
    """Return the time since a moment: ``3 min``."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "–"
    seconds = max(0, int(time.time() - timestamp_ms / 1000))
    return next((f"{seconds // unit:,} {name}" for unit, name in _AGES if seconds >= unit), "0 s")


def parse_number(name: str, text: str, least: int = 0, most: int = INT_MAX) -> int:
    """Parse a whole number in a range. Raises ConfigError."""
    word = text.strip()
    digits = word.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(word) <= most:
        return int(word)
    raise ConfigError(name, text, f"must be a whole number from {least} to {most}")


def field_problem(error: ConfigError, labels: Mapping[str, str]) -> str:
    """Return the message of an error in a form: the label of the field, the text in it, and what it takes.

    labels: name of a field -> its label on the page.
    """
    label = labels.get(error.name)
    if label is None:
        return str(error)
    if error.value is None:
        return f"{label}: {error.allowed}"
    typed = repr(
        error.value if len(str(error.value)) <= _TYPED_SHOWN else str(error.value)[:_TYPED_SHOWN] + "…"
    )
    return f"{label} ({typed if error.value else 'empty'}): {error.allowed}"


def path(*parts: object, **query: object) -> str:
    """Return the address of a page: each part quoted, and what is not empty of the query."""
    quoted = "/".join(quote(str(part), safe="") for part in parts)
    given = {
        name: str(value)
        for name, value in query.items()
        if value is not None and value != "" and value is not False
    }
    return f"/{quoted}" + (f"?{urlencode(given)}" if given else "")
