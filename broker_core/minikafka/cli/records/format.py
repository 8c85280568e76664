"""The format of ``consume -f``: percent codes and escapes as in rpk and kcat, compiled to one function.

    %t topic    %p partition   %o offset   %k key   %v or %s value   %h headers   %d or %T timestamp in ms
    %K, %V or %S   bytes of the key and the value, -1 for null       %H number of headers
    %x, %y         producer id and epoch                             %i number of the message, from 1
    %% %{ %}       these characters          \\n \\t \\r \\\\ \\0 \\xNN   escapes

Braces after a code change its form: ``%k{hex}`` and ``%v{base64}`` for bytes, ``%d{iso}`` and
``%d{strftime[%F %T]}`` for times in UTC, and ``%h{%k=%v }`` gives the form of each header. A null key or
value is empty. Bytes go to a pipe or a file unchanged; for a terminal, control characters in them are
escaped.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.text import is_unicode
from minikafka.base.times import utc_text
from minikafka.cli.records.output import Message

Formatter = Callable[[TopicPartition, Message], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_HEX_BYTE = re.compile(r"x([0-9a-fA-F]{2})")
_STRFTIME = re.compile(r"strftime\[(.*)\]", re.DOTALL)


class _Row(NamedTuple):
    """The input of a part: a message, or for the form of headers a header as key and value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    number: int


_Part = Callable[[_Row], bytes]
_Text = Callable[[_Row], bytes | None]
_TEXTS: dict[str, _Text] = {
    "t": lambda row: row.topic.encode("utf-8"),
    "k": lambda row: row.key,
    "v": lambda row: row.value,
    "s": lambda row: row.value,
}
_NUMBERS: dict[str, Callable[[_Row], int]] = {
    "p": lambda row: row.partition,
    "o": lambda row: row.offset,
    "K": lambda row: -1 if row.key is None else len(row.key),
    "V": lambda row: -1 if row.value is None else len(row.value),
    "S": lambda row: -1 if row.value is None else len(row.value),
    "H": lambda row: len(row.headers),
    "x": lambda row: row.producer_id,
    "y": lambda row: row.producer_epoch,
    "i": lambda row: row.number,
}
_BRACED_CODE = re.compile(r"%\{([a-zA-Z])\}")
_OF_HEADERS = frozenset("kvsKVS")
"""The codes that the form of a header may have."""


def compile_format(option: str, text: str, *, terminal: bool) -> Formatter:
    """Return the function that formats a message. Raise ConfigError with the position of a fault."""
    parts = tuple(_Parser(option, text, terminal).parts(0, len(text)))
    counter = itertools.count(1)

    def formatted(tp: TopicPartition, record: Message) -> bytes:
        row = _Row(
            tp.topic,
            tp.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            getattr(record, "headers", ()),
            getattr(record, "producer_id", -1),
            getattr(record, "producer_epoch", -1),
            next(counter),
        )
        return b"".join([part(row) for part in parts])

    return formatted


class _Parser:
    """Parses a format to functions, one for each of its parts."""

    def __init__(self, option: str, text: str, terminal: bool) -> None:
        self._option = option
        self._text = text
        self._terminal = terminal

    def parts(self, at: int, end: int, codes: frozenset[str] | None = None) -> Iterator[_Part]:
        """Yield the parts between two positions; ``codes``: those that are allowed there, None for all."""
        while at < end:
            char = self._text[at]
            if char == "%":
                part, at = self._code(at, end, codes)
            elif char == "\\":
                part, at = self._escape(at, end)
            else:
                stop = next((i for i in range(at, end) if self._text[i] in "%\\"), end)
                part, at = _literal(_bytes(self._text[at:stop])), stop
            yield part

    def _fault(self, at: int, why: str) -> ConfigError:
        return ConfigError(self._option, self._text, f"at character {at + 1}: {why}")

    def _escape(self, at: int, end: int) -> tuple[_Part, int]:
        rest = self._text[at + 1 : end]
        found = _HEX_BYTE.match(rest)
        if found is not None:
            return _literal(bytes.fromhex(found[1])), at + 1 + found.end()
        if rest[:1] not in _ESCAPES:
            raise self._fault(at, "must be an escape \\n, \\t, \\r, \\\\, \\0 or \\xNN")
        return _literal(_ESCAPES[rest[0]]), at + 2

    def _code(self, at: int, end: int, codes: frozenset[str] | None) -> tuple[_Part, int]:
        code = self._text[at + 1 : min(at + 2, end)]
        if found := _BRACED_CODE.match(self._text, at, end):
            raise self._fault(at, f"must be %{found[1]}; for a brace, %{{ and %}}")
        if code and code in "%{}":
            return _literal(code.encode()), at + 2
        form_at, after = at + 2, at + 2
        if code and self._text[after : min(after + 1, end)] == "{":
            form_at, after = after + 1, self._closing(after, end) + 1
        form = self._text[form_at : after - 1] if after > form_at else ""
        if codes is not None and code not in codes:
            raise self._fault(at, "must be %k, %v, %K or %V in the form of headers")
        if code in _TEXTS:
            return self._text_part(at, _TEXTS[code], form), after
        if code in _NUMBERS and not form:
            return _number(_NUMBERS[code]), after
        if code in {"d", "T"}:
            return self._time_part(at, form), after
        if code == "h":
            return self._headers_part(form_at, after - 1 if form else form_at), after
        known = "".join(sorted({*_TEXTS, *_NUMBERS, "d", "T", "h"}, key=lambda known: (known.lower(), known)))
        raise self._fault(at, f"must be % and one of {' '.join(known)}, or %%")

    def _closing(self, at: int, end: int) -> int:
        """Return the position of the brace that closes the one at ``at``."""
        depth = 0
        i = at
        while i < end:
            if self._text[i] == "%":
                i += 2  # also %{ and %}
                continue
            depth += {"{": 1, "}": -1}.get(self._text[i], 0)
            if not depth:
                return i
            i += 1
        raise self._fault(at, "must end with a closing brace")

    def _text_part(self, at: int, text: _Text, form: str) -> _Part:
        if form == "hex":
            return lambda row: (text(row) or b"").hex().encode()
        if form == "base64":
            return lambda row: base64.b64encode(text(row) or b"")
        if form:
            raise self._fault(at, "must have {hex} or {base64} after it, or nothing")
        if self._terminal:
            return lambda row: printable((text(row) or b"").decode("utf-8", "backslashreplace")).encode()
        return lambda row: text(row) or b""

    def _time_part(self, at: int, form: str) -> _Part:
        if not form:
            return _number(lambda row: row.timestamp_ms)
        if form == "iso":
            return lambda row: (utc_text(row.timestamp_ms) or "").encode()
        found = _STRFTIME.fullmatch(form)
        if found is None:
            raise self._fault(at, "must have {iso} or {strftime[…]} after it, or nothing")
        pattern = found[1]
        if not is_unicode(pattern):
            raise self._fault(at, "must have UTF-8 in {strftime[…]}")
        return lambda row: _strftime(row.timestamp_ms, pattern)

    def _headers_part(self, at: int, end: int) -> _Part:
        if at == end:
            name, value = self._text_part(at, _TEXTS["k"], ""), self._text_part(at, _TEXTS["v"], "")
            form: tuple[_Part, ...] = (name, _literal(b"="), value)
            separator = b","
        else:
            form, separator = tuple(self.parts(at, end, _OF_HEADERS)), b""

        def headers(row: _Row) -> bytes:
            rows = (row._replace(key=name.encode("utf-8"), value=value) for name, value in row.headers)
            return separator.join([b"".join([part(header) for part in form]) for header in rows])

        return headers


def _bytes(text: str) -> bytes:
    """Return the bytes that the user has typed, also those that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _literal(data: bytes) -> _Part:
    return lambda row: data


def _number(number: Callable[[_Row], int]) -> _Part:
    return lambda row: b"%d" % number(row)


def _strftime(timestamp_ms: int, pattern: str) -> bytes:
    if timestamp_ms < 0:
        return b""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return b"%d" % timestamp_ms
    return moment.strftime(pattern).encode("utf-8")
