"""Filters of topic names by a pattern (``TopicFilter``, ``Whitelist`` and ``Blacklist`` of text 004).

The pattern is stored in a znode that consumers in Java read too, so it is a Java regular expression.
``clients.java_regex.translator`` says which patterns are refused. The pattern has to match a topic's whole
name.

As in 0.10.1, a comma becomes ``|``, and spaces and the quotes around the pattern are removed, because lists
of topics and lines of property files have them. So ``a{2,3}`` cannot be used: it becomes ``a{2|3}``, which is
refused.
"""

from __future__ import annotations

import re
from typing import ClassVar

from minikafka.base.errors import ConfigError
from minikafka.base.ids import OFFSETS_TOPIC
from minikafka.clients.java_regex.translator import BadPattern, compile_pattern

_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's ``trim`` removes."""
_QUOTES_BEFORE = re.compile("^[\"']+")
_QUOTES_BEHIND = re.compile("[\"']+(?=[\x85\u2028\u2029]?\\Z)")
"""Java's ``$`` also matches before a final line end; these three line ends can be left after the ``trim``."""


class TopicFilter:
    """A pattern for topic names. Use one of the two subclasses.

    Raises ConfigError for a pattern that Java refuses, or that cannot have the same meaning here, and
    TypeError for a pattern that is not text.
    """

    pattern: ClassVar[str]
    """The name of this kind in a consumer's registration."""

    def __init__(self, raw_regex: str) -> None:
        if not isinstance(raw_regex, str):
            raise TypeError(
                f"{type(self).__name__}: expected one pattern, such as 'flights|fli.*', "
                f"got {raw_regex!r:.100}"
            )
        regex = raw_regex.strip(_BLANKS).replace(",", "|").replace(" ", "")
        self._regex = _QUOTES_BEHIND.sub("", _QUOTES_BEFORE.sub("", regex))
        try:
            self._compiled: re.Pattern[str] = compile_pattern(self._regex, all_java_releases=True)
        except BadPattern as error:
            raise ConfigError(type(self).__name__, raw_regex, _allowed_text(raw_regex, error)) from None

    @property
    def regex(self) -> str:
        """The pattern after normalization, as it is used and registered."""
        return self._regex

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool) -> bool:
        """Return whether a consumer with this filter reads ``topic``.

        With ``exclude_internal_topics`` the topic of committed offsets is never allowed.
        """
        if exclude_internal_topics and topic == OFFSETS_TOPIC:
            return False
        return self._is_allowed(self._compiled.fullmatch(topic) is not None)

    def _is_allowed(self, matches: bool) -> bool:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicFilter):
            return NotImplemented
        return type(other) is type(self) and other.regex == self.regex

    def __hash__(self) -> int:
        return hash((type(self), self._regex))

    def __str__(self) -> str:
        return self._regex

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._regex!r})"


class Whitelist(TopicFilter):
    """Allows the topics that match."""

    pattern = "white_list"

    def _is_allowed(self, matches: bool) -> bool:
        return matches


class Blacklist(TopicFilter):
    """Allows the topics that do not match."""

    pattern = "black_list"

    def _is_allowed(self, matches: bool) -> bool:
        return not matches


def _allowed_text(raw_regex: str, error: BadPattern) -> str:
    allowed = f"must be a Java regular expression for topic names: {error}"
    return f"{allowed} (a comma means '|')" if "," in raw_regex else allowed
