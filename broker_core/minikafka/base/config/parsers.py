"""Parsers of settings: a property's name and text to its value, or ConfigError with what is allowed.

Numbers are read as Kafka reads them: ``int`` also takes ``1_000`` and digits of other scripts, Java does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from minikafka.base.errors import ConfigError

Parser = Callable[[str, str], Any]
"""(property name, text) -> value. Raises ConfigError with the name, the text and what is allowed."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def whole_number(text: str) -> int | None:
    """Return the number in ``text``, which may have blanks around it; None for anything else, and for more
    than 19 digits.
    """
    stripped = text.strip()
    return int(stripped) if _WHOLE_NUMBER.fullmatch(stripped) else None


def integer(low: int, high: int | None = None) -> Parser:
    """Return the parser of a whole number from ``low`` to ``high``, both included; None: no upper bound."""

    def parse(name: str, text: str) -> int:
        value = whole_number(text)
        if value is None or value < low or (high is not None and value > high):
            bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(name, text, f"must be a whole number {bounds}")
        return value

    return parse


def real_number(name: str, text: str, allowed: str, accepts: Callable[[float], bool]) -> float:
    """Return the number in ``text``.

    Raises ConfigError with ``allowed`` for other texts, and where ``accepts`` is False.
    """
    try:
        value = float(text.strip())
    except ValueError:
        raise ConfigError(name, text, allowed) from None
    if not accepts(value):
        raise ConfigError(name, text, allowed)
    return value


def boolean(name: str, text: str) -> bool:
    """Return the truth value of ``true`` or ``false``, in any case."""
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise ConfigError(name, text, "must be true or false")
    return value == "true"


def one_of(*allowed: str) -> Parser:
    """Return the parser of one of these words."""

    def parse(name: str, text: str) -> str:
        if text.strip() not in allowed:
            raise ConfigError(name, text, f"must be one of {', '.join(allowed)}")
        return text.strip()

    return parse
