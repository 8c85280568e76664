"""Principals: the names of authenticated clients, which ACLs and quotas are about.

A principal is ``TYPE:NAME``, and the type is ``User`` unless a plug-in makes others. The name is

* ``ANONYMOUS`` for a client of a listener without authentication, or one of TLS without a certificate;
* the authorization id for SASL;
* for a certificate, what ``ssl.principal.mapping.rules`` (KIP-371) make of its distinguished name in the form
  of RFC 2253, such as ``CN=alice,OU=sales``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from minikafka.base import acls
from minikafka.base.errors import AuthenticationFailed, ConfigError
from minikafka.base.text import shorten

USER_TYPE = "User"
MAX_NAME_CHARS, MAX_NAME_PARTS = 1_000, 32
"""Limits of a distinguished name that a rule is tried on. A rule such as Kafka's example with six ``(.*?)``
takes a second for a name of 900 characters made for it, in which the whole broker stands still.
"""


@dataclass(frozen=True, slots=True, order=True)
class KafkaPrincipal:
    """The principal of a client."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def user(cls, name: str) -> KafkaPrincipal:
        """Return the principal of a user, such as the one of an authorization id."""
        return cls(USER_TYPE, name)

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """Parse ``TYPE:NAME``; a name may contain colons. Raises ValueError."""
        kind, _, name = text.partition(":")
        if not (kind and name):
            raise ValueError(f"invalid principal {text!r}: expected TYPE:NAME, such as User:alice")
        return cls(kind, name)


ANONYMOUS = KafkaPrincipal.parse(acls.ANONYMOUS)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule ``RULE:pattern/replacement/[L|U]``. Java's syntax that Python's ``re`` lacks is refused."""

    pattern: re.Pattern[str]
    replacement: str
    """A template of Python's ``re``."""
    case: str

    def apply(self, distinguished_name: str) -> str | None:
        """Return the name that the rule makes, or None if its pattern is not a full match."""
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        # As Java's replaceAll, which also replaces an empty match at the end: ``.*`` is seldom what is meant.
        name = self.pattern.sub(self.replacement, distinguished_name)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
    r")?\s*(?:,|\Z)",
    re.DOTALL,
)
_REPLACEMENT_PART = re.compile(r"\\(?P<escaped>.)|\$(?P<group>[0-9]{1,9})|(?P<text>[^\\$]+|\$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SslPrincipalMapper:
    """``ssl.principal.mapping.rules``: the first rule that matches a distinguished name makes a principal."""

    text: str
    rules: tuple[_Rule | None, ...]
    """None is ``DEFAULT``: the distinguished name as it is."""

    @classmethod
    def parse(cls, text: str, name: str = "ssl.principal.mapping.rules") -> SslPrincipalMapper:
        """Parse rules separated by commas; empty ones are passed over. Raises ConfigError for ``name``."""
        rules: list[_Rule | None] = []
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                rest = text[position:].strip()
                raise ConfigError(
                    name, text, f"expected DEFAULT or RULE:pattern/replacement/[L|U] at {rest[:80]!r}"
                )
            position = found.end()
            if found["default"]:
                rules.append(None)
            elif found["pattern"] is not None:
                rules.append(_parsed_rule(found, name, text))
        if not rules:
            raise ConfigError(name, text, "must have a rule, such as DEFAULT")
        return cls(text, tuple(rules))

    def principal(self, distinguished_name: str) -> KafkaPrincipal:
        """Return the principal of a certificate. Raises AuthenticationFailed if no rule matches, or if the
        name is too long for rules.
        """
        parts, length = distinguished_name.count(",") + 1, len(distinguished_name)
        if self.rules[0] is not None and (length > MAX_NAME_CHARS or parts > MAX_NAME_PARTS):
            raise AuthenticationFailed(
                f"the certificate's name {shorten(distinguished_name)!r} has {length} characters and {parts} "
                f"parts: rules of ssl.principal.mapping.rules are for {MAX_NAME_CHARS} and {MAX_NAME_PARTS}"
            )
        for rule in self.rules:
            mapped = distinguished_name if rule is None else rule.apply(distinguished_name)
            if mapped is not None:
                return KafkaPrincipal.user(mapped)
        raise AuthenticationFailed(
            f"no rule of ssl.principal.mapping.rules={self.text} matches the certificate's name "
            f"{distinguished_name!r}; append DEFAULT to accept any name"
        )


def _parsed_rule(found: re.Match[str], name: str, text: str) -> _Rule:
    try:
        pattern = re.compile(found["pattern"], re.ASCII)  # Java's \d, \w and \s are those of ASCII
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(name, text, f"{found['pattern']!r} is not a regular expression: {error}") from None
    return _Rule(pattern, _template(found["replacement"], pattern.groups), found["case"])


def _template(replacement: str, groups: int) -> str:
    """Return Java's replacement as a template of Python.

    ``$12`` is the group 12, or the group 1 and a 2 where there are fewer; a group that is not there stays as
    it is written. A backslash makes the next character an ordinary one.
    """
    parts = []
    for part in _REPLACEMENT_PART.finditer(replacement):
        digits = part["group"]
        if digits is None:
            parts.append((part["escaped"] or part["text"]).replace("\\", r"\\"))
            continue
        length = len(digits)
        while length > 1 and int(digits[:length]) > groups:
            length -= 1
        number = int(digits[:length])
        parts.append(f"\\g<{number}>{digits[length:]}" if number <= groups else f"${digits}")
    return "".join(parts)
