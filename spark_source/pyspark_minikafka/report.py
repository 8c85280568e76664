"""Warnings and news to the user, from whichever Python process finds them.

Spark passes on the standard error of its Python workers, and Python prints warnings of the ``logging``
module there when nothing is configured. So a logger is all it takes, and an application can still turn it
down.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from minikafka.base.printable import printable
from minikafka.base.secrets import redact_text

_LOGGER = logging.getLogger("minikafka.spark")
_SAID: set[str] = set()
_SAID_MAX = 1_000


def warn(sentences: Iterable[str]) -> None:
    """Log each sentence as a warning."""
    for sentence in sentences:
        _LOGGER.warning("minikafka: %s", printable(redact_text(sentence)))


def note(sentence: str, *, shown: bool) -> None:
    """Log ``sentence`` for information; where nothing is configured Python keeps that back, so ``shown`` says
    it on standard error.
    """
    sentence = printable(sentence)
    _LOGGER.info("minikafka: %s", sentence)
    if shown and not _LOGGER.isEnabledFor(logging.INFO):
        print(f"minikafka: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def warn_once(sentence: str) -> None:
    """Log ``sentence`` unless this process has done so."""
    if sentence not in _SAID:
        if len(_SAID) >= _SAID_MAX:
            _SAID.clear()
        _SAID.add(sentence)
        warn([sentence])
