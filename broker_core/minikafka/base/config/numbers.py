"""Whole numbers in settings and options, read as Kafka reads them.

``int`` takes more than Java does: ``1_000`` and digits of other scripts.
"""

from __future__ import annotations

import re

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def whole_number(text: str) -> int | None:
    """The number in a text, with or without blanks around it; None for anything else, and for 20 digits."""
    stripped = text.strip()
    return int(stripped) if _WHOLE_NUMBER.fullmatch(stripped) else None
