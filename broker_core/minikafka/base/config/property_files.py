"""Property files (Java's ``.properties``) and properties in arguments: read and written.

A line is ``key=value`` or ``key: value``; ``#`` and ``!`` start comments, a backslash at the end of a line
continues it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from minikafka.base.errors import ConfigError


def read_properties(path: str, name: str) -> dict[str, str]:
    """Read the file at ``path``. Raises ConfigError for the argument ``name`` if it cannot be read."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigError(name, path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        what = f"byte {error.start}, {error.object[error.start]:#04x}, is not UTF-8"
        raise ConfigError(name, path, f"cannot be read: {what}") from None


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Return the properties in ``text``. Raises ConfigError with the line; ``source`` names the file."""
    properties: dict[str, str] = {}
    lines = iter(enumerate(_LINE_END.split(text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_SPACES)
        if not line or line[0] in "#!":
            continue
        while _GOES_ON.search(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_SPACES)
        pair = _KEY_VALUE.match(line)
        if pair is None:
            # Not the line itself: it may be the second half of a secret.
            raise ConfigError(
                source, f"line {number}", "expected key=value; end a line with \\ to continue it"
            )
        key, value = (_ESCAPE.sub(_unescaped, _stripped(text)) for text in pair.groups())
        properties[key] = value
    return properties


_SPACES = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_KEY_VALUE = re.compile(r"((?:[^\\=:]|\\.)*)[=:](.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _stripped(text: str) -> str:
    """Return ``text`` without the spaces around it; a space after a backslash is kept."""
    bare = text.rstrip(_SPACES)
    return text[: len(bare) + bool(_GOES_ON.search(bare))].lstrip(_SPACES)


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


def properties_text(properties: Mapping[str, str]) -> str:
    """Return ``properties`` in the ``.properties`` format, with its escapes."""
    return "".join(
        f"{_escaped(_IN_NAMES, name)}={_escaped(_IN_VALUES, value)}\n" for name, value in properties.items()
    )


_IN_NAMES = re.compile(r"[\\\n\r\t\f =:#!]")
_IN_VALUES = re.compile(r"[\\\n\r\t\f]|\A | \Z")
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\f": "f"}


def _escaped(special: re.Pattern[str], text: str) -> str:
    return special.sub(lambda found: "\\" + _LETTERS.get(found[0], found[0]), text)


def write_properties(path: str, properties: Mapping[str, str]) -> None:
    """Write a ``.properties`` file that only its owner can read, as it may hold passwords."""

    def for_the_owner(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    with open(path, "w", encoding="utf-8", opener=for_the_owner) as file:
        os.fchmod(file.fileno(), 0o600)  # an older file may be readable by all
        file.write(properties_text(properties))


def key_values(name: str, given: Iterable[str] | None) -> dict[str, str]:
    """Parse ``key=value`` texts into a dict; the last value of a key wins. Raise ConfigError for ``name``."""
    pairs: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(name, text, "must be KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
