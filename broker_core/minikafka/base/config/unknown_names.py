"""Unknown names of options and properties: the one rule for them, and the name that was probably meant.

Command line, brokers, clients and the Spark source all report misspelled names in this form.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.errors import ConfigError

NOT_YET = "not supported yet by this version of minikafka"
SECURITY_PREFIXES = ("ssl.", "sasl.")
"""Prefixes of settings of brokers and clients that are ``NOT_YET`` supported."""
SIMILARITY = 0.8
"""``difflib``'s ratio of two names above which one is taken for a misspelling of the other."""

_log = logging.getLogger(__name__)


def closest_match(name: str, known: Iterable[str], similarity: float = SIMILARITY) -> str | None:
    """Return the ``known`` name that is most similar to ``name``; None when none is similar enough."""
    found = difflib.get_close_matches(name, sorted(known), 1, similarity)
    return found[0] if found else None


def did_you_mean(meant: str | None) -> str:
    """Return a hint to append to a sentence: ``; did you mean NAME?``. Empty for None."""
    return "" if meant is None else f"; did you mean {meant}?"


def with_suggestion(name: str, meant: str | None) -> str:
    """Return ``name (did you mean NAME?)``, or the name alone for None."""
    return name if meant is None else f"{name} (did you mean {meant}?)"


def with_suggestions(names: Iterable[str], known: Collection[str]) -> str:
    """Return the unknown ``names``, separated by commas, each with its closest match in ``known``."""
    return ", ".join(with_suggestion(name, closest_match(name, known)) for name in names)


def reason_unsupported(name: str, unsupported: Mapping[str, str], prefix: str = "") -> str | None:
    """Return why Kafka's setting ``name`` is not supported, and the name that was probably meant; None if
    ``unsupported`` has neither the name nor a prefix of it that ends with a dot.

    prefix: precedes the name that was meant.
    """
    if name in unsupported:
        return unsupported[name]
    for start, reason in unsupported.items():
        if start.endswith(".") and name.startswith(start):
            meant = closest_match(name, [other for other in unsupported if not other.endswith(".")])
            return reason + did_you_mean(None if meant is None else prefix + meant)
    return None


def unknown_names(
    given: Iterable[str], known: Collection[str], unsupported: Mapping[str, str]
) -> list[ConfigError]:
    """Return an error for each of the ``given`` names that is not ``known``, with the reason or the closest
    match, and without the value, which may be a secret.

    Names that begin with ``external`` belong to other programs, as in 0.10.1, and are skipped.
    """
    found = []
    for name in given:
        reason = None if name in known else reason_unsupported(name, unsupported)
        if reason is not None:
            found.append(ConfigError(name, None, f"has no effect: {reason}"))
        elif name not in known and not name.startswith("external"):
            match = closest_match(name, known)
            found.append(ConfigError(name, None, f"is not valid{did_you_mean(match)}"))
    return found


def warn_of_unknown(names: Iterable[ConfigError]) -> None:
    """Log a warning for each of the unknown names."""
    for name in names:
        _log.warning("property %s %s", name.name, name.allowed)


def near_matches(name: str, known: Collection[str]) -> str:
    """Return ``; there is 'orders'`` with the known names that are like ``name``; empty for none."""
    near = difflib.get_close_matches(name, known)
    return f"; there is {' and '.join(map(repr, near))}" if near else ""
