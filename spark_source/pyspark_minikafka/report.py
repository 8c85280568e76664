"""Warnings and progress messages for the user, from any Python process of a query.

Spark passes on the standard error of its Python workers, and Python prints warnings of the ``logging``
module there when nothing is configured. So a logger is enough, and an application can still silence it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from minikafka.base.printable import printable
from minikafka.base.secrets import redact_text

_LOGGER = logging.getLogger("minikafka.spark")
_WARNED: set[str] = set()
_WARNED_MAX = 1_000


def warn(sentences: Iterable[str]) -> None:
    """Log each sentence as a warning."""
    for sentence in sentences:
        _LOGGER.warning("minikafka: %s", printable(redact_text(sentence)))


def note(sentence: str, *, shown: bool) -> None:
    """Log ``sentence`` at level INFO. Python drops that when nothing is configured, so with ``shown`` it is
    then printed on standard error.
    """
    sentence = printable(sentence)
    _LOGGER.info("minikafka: %s", sentence)
    if shown and not _LOGGER.isEnabledFor(logging.INFO):
        print(f"minikafka: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def warn_once(sentence: str) -> None:
    """Log ``sentence`` unless this process has done so."""
    if sentence not in _WARNED:
        if len(_WARNED) >= _WARNED_MAX:
            _WARNED.clear()
        _WARNED.add(sentence)
        warn([sentence])
