"""The format of ``consume -f``: percent codes and escapes as in rpk and kcat, compiled to one function.

    %t topic    %p partition   %o offset   %k key   %v or %s value   %h headers   %d or %T timestamp in ms
    %K, %V or %S   bytes of the key and the value, -1 for null       %H number of headers
    %e             leader epoch                                      %i number of the message, from 1
    %x, %y         producer id and epoch                             %a an attribute, named in braces
    %% %{ %}       these characters          \\n \\t \\r \\\\ \\0 \\xNN   escapes

Braces after a code change its form:

    %k{hex}, {base64}, {base64raw}          bytes; base64raw has no padding
    %v{unpack[>qs]}                         binary data, by the letters of ``_unpacked``
    %o{hex}, {hex64} … {hex4}, {bool}       numbers as text
    %o{big64} … {big8}, {little64} …, {byte}   numbers as bytes; the highest that do not fit are cut off
    %d{iso}, {strftime[%F %T]}, {go[2006-01-02]}   times in UTC; # and { } stand for [ ], and may be repeated
    %a{compression}, {timestamp-type}, {transactional-bit}, {control-bit}   ``;`` and a form of numbers follow
    %h{%k=%v }                              the form of each header

A null key or value is empty. Bytes go to a pipe or a file unchanged; for a terminal, control characters in
them are escaped.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from minikafka.base.text import counted, is_unicode
from minikafka.base.times import utc_text
from minikafka.cli.records.output import Message
from minikafka.cli.records.time_layouts import layout_text

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_HEX_BYTE = re.compile(r"x([0-9a-fA-F]{2})")
_IN_BRACKETS = re.compile(r"(unpack|strftime|go)(\[+|\{+|#+)(.*)", re.DOTALL)
_UNPACKED = frozenset("bBhHiIqQ<>c.sx$")
_CLOSED_BY = {"[": "]", "{": "}", "#": "#"}
_UINT64 = (1 << 64) - 1
_TOPIC_OFFSETS = "[|]"
"""rpk's codes of the start and the ends of a log, which are not those of a message."""
_OF_WHOLE_RECORDS = frozenset("aexy")
"""The codes of what only whole records have, not those that are decoded all at once."""


class _Row(NamedTuple):
    """The input of a part: a message, or for the form of headers a header as key and value."""

    topic: str
    partition: int
    record: Message
    key: bytes | None
    value: bytes | None
    number: int


_Part = Callable[[_Row], bytes]
_Text = Callable[[_Row], bytes | None]
_Number = Callable[[_Row], int]


def _field(name: str) -> _Number:
    """Return the function for a number that only whole records have."""
    return lambda row: int(getattr(row.record, name, -1))


_TEXTS: dict[str, _Text] = {
    "t": lambda row: row.topic.encode("utf-8"),
    "k": lambda row: row.key,
    "v": lambda row: row.value,
    "s": lambda row: row.value,
}
_NUMBERS: dict[str, _Number] = {
    "p": lambda row: row.partition,
    "o": lambda row: row.record.offset,
    "K": lambda row: -1 if row.key is None else len(row.key),
    "V": lambda row: -1 if row.value is None else len(row.value),
    "S": lambda row: -1 if row.value is None else len(row.value),
    "H": lambda row: len(row.record.headers),
    "e": _field("leader_epoch"),
    "x": _field("producer_id"),
    "y": _field("producer_epoch"),
    "i": lambda row: row.number,
}
_ATTRIBUTES: dict[str, _Number] = {
    "compression": _field("codec"),
    "timestamp-type": _field("timestamp_type"),
    "transactional-bit": _field("transactional"),
    "control-bit": _field("control"),
}


def _number_forms() -> dict[str, Callable[[int], bytes]]:
    """Return the forms of numbers, by their names in braces."""

    def hex_digits(digits: int) -> Callable[[int], bytes]:
        return lambda number: b"%0*x" % (digits, number & (1 << 4 * digits) - 1)

    def in_bytes(size: int, order: Literal["big", "little"]) -> Callable[[int], bytes]:
        return lambda number: (number & (1 << 8 * size) - 1).to_bytes(size, order)

    def decimal(number: int) -> bytes:
        return b"%d" % number

    found: dict[str, Callable[[int], bytes]] = {
        "ascii": decimal,
        "number": decimal,
        "bool": lambda number: b"true" if number else b"false",
        "byte": in_bytes(1, "big"),
        "hex": lambda number: b"%x" % (number & _UINT64),
        "hex4": hex_digits(1),
    }
    for bits in (64, 32, 16, 8):
        found[f"hex{bits}"] = hex_digits(bits // 4)
        found[f"big{bits}"] = in_bytes(bits // 8, "big")
        found[f"little{bits}"] = in_bytes(bits // 8, "little")
    return found


_NUMBER_FORMS = _number_forms()
_NUMBER_FORM_NAMES = "{hex}, {hex64} … {hex4}, {big64} … {big8}, {little64} … {little8}, {byte} or {bool}"
_BRACED_CODE = re.compile(r"%\{([a-zA-Z])\}")
_CODES = sorted({*_TEXTS, *_NUMBERS, *"adhT"}, key=lambda code: (code.lower(), code))
_OF_HEADERS = frozenset("kvsKVS")
"""The codes that the form of a header may have."""


class Formatter:
    """Formats messages. whole: it has codes of what only whole records have (%a, %e, %x, %y)."""

    def __init__(self, parts: tuple[_Part, ...], *, whole: bool) -> None:
        self.whole = whole
        self._parts = parts
        self._count = 0

    def __call__(self, tp: TopicPartition, record: Message) -> bytes:
        self._count += 1
        row = _Row(tp.topic, tp.partition, record, record.key, record.value, self._count)
        return b"".join([part(row) for part in self._parts])


def compile_format(option: str, text: str, *, terminal: bool) -> Formatter:
    """Return the function that formats a message. Raise ConfigError with the position of a fault."""
    parser = _Parser(option, text, terminal)
    parts = tuple(parser.parts(0, len(text)))
    return Formatter(parts, whole=parser.whole)


class _Parser:
    """Parses a format to functions, one for each of its parts."""

    def __init__(self, option: str, text: str, terminal: bool) -> None:
        self._option = option
        self._text = text
        self._terminal = terminal
        self.whole = False
        """A code needs whole records."""

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
        self.whole = self.whole or code in _OF_WHOLE_RECORDS
        if code in _NUMBERS:
            return self._number_part(at, _NUMBERS[code], form), after
        if code == "a":
            return self._attribute_part(at, form), after
        if code in {"d", "T"}:
            return self._time_part(at, form), after
        if code == "h":
            return self._headers_part(form_at, after - 1 if form else form_at), after
        if code and code in _TOPIC_OFFSETS:
            advice = "`minikafka topic describe` prints the start and the end of each partition"
            raise self._fault(at, f"%{code} is not supported; {advice}")
        raise self._fault(at, f"must be % and one of {' '.join(_CODES)}, or %%")

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
        if form == "base64raw":
            return lambda row: base64.b64encode(text(row) or b"").rstrip(b"=")
        found = _IN_BRACKETS.fullmatch(form)
        if found is not None and found[1] == "unpack":
            layout = self._inside(at, found)
            if not set(layout) <= _UNPACKED:
                known = "bBhHiIqQ for integers, < and > for their order, c or . for a byte, s for the rest"
                raise self._fault(at, f"must have in {{unpack[…]}} only {known}, x and $")
            return self._shown(lambda row: _unpacked(layout, text(row) or b""))
        if form:
            raise self._fault(
                at, "must have {hex}, {base64}, {base64raw} or {unpack[…]} after it, or nothing"
            )
        return self._shown(lambda row: text(row) or b"")

    def _shown(self, data: _Part) -> _Part:
        """Return the part for bytes of any value, which are escaped for a terminal."""
        if self._terminal:
            return lambda row: printable(data(row).decode("utf-8", "backslashreplace")).encode()
        return data

    def _number_part(self, at: int, number: _Number, form: str) -> _Part:
        formed = _NUMBER_FORMS.get(form or "ascii")
        if formed is None:
            raise self._fault(at, f"must have {_NUMBER_FORM_NAMES} after it, or nothing")
        return self._shown(lambda row: formed(number(row)))

    def _attribute_part(self, at: int, form: str) -> _Part:
        name, _, number_form = form.partition(";")
        if name not in _ATTRIBUTES:
            known = ", ".join(f"{{{attribute}}}" for attribute in _ATTRIBUTES)
            raise self._fault(at, f"must have one of {known} after it")
        if name == "compression" and not number_form:
            return _codec_name
        return self._number_part(at, _ATTRIBUTES[name], number_form)

    def _time_part(self, at: int, form: str) -> _Part:
        if form == "iso":
            return lambda row: (utc_text(row.record.timestamp_ms) or "").encode()
        found = _IN_BRACKETS.fullmatch(form)
        if found is None or found[1] == "unpack":
            if form and form not in _NUMBER_FORMS:
                layouts = "{iso}, {strftime[…]} or {go[…]}"
                raise self._fault(at, f"must have {layouts} after it, a form of numbers, or nothing")
            return self._number_part(at, lambda row: row.record.timestamp_ms, form)
        kind, layout = found[1], self._inside(at, found)
        if not is_unicode(layout):
            raise self._fault(at, f"must have UTF-8 in {{{kind}[…]}}")
        return lambda row: layout_text(kind, row.record.timestamp_ms, layout).encode("utf-8")

    def _inside(self, at: int, found: re.Match[str]) -> str:
        """Return the text between the brackets of ``unpack[[…]]``, which may be repeated."""
        _, opened, rest = found.groups()
        closed = _CLOSED_BY[opened[0]] * len(opened)
        if not rest.endswith(closed):
            raise self._fault(at, f"must end with {closed}}}")
        return str(rest.removesuffix(closed))

    def _headers_part(self, at: int, end: int) -> _Part:
        if at == end:
            name, value = self._text_part(at, _TEXTS["k"], ""), self._text_part(at, _TEXTS["v"], "")
            form: tuple[_Part, ...] = (name, _literal(b"="), value)
            separator = b","
        else:
            form, separator = tuple(self.parts(at, end, _OF_HEADERS)), b""

        def headers(row: _Row) -> bytes:
            rows = (row._replace(key=name.encode("utf-8"), value=value) for name, value in row.record.headers)
            return separator.join([b"".join([part(header) for part in form]) for header in rows])

        return headers


def _unpacked(layout: str, data: bytes) -> bytes:
    """Return binary data as text, by the letters of Python's module ``struct``; little endian until ``>``.

    x is a blank, c and . are a byte, s is the rest, and $ demands the end. A part that does not fit is named.
    """
    order, at, found = "<", 0, []
    for letter in layout:
        if letter in "<>":
            order = letter
        elif letter == "x":
            found.append(b" ")
        elif letter == "s":
            found.append(data[at:])
            at = len(data)
        elif letter == "$":
            if at < len(data):
                found.append(f"<{counted(len(data) - at, 'byte')} left>".encode())
        else:
            form = order + ("c" if letter == "." else letter)
            end = at + struct.calcsize(form)
            if end > len(data):
                needs = f"<{letter} needs {counted(end - at, 'byte')}, has {len(data) - at}>"
                found.append(needs.encode())
                break
            (value,) = struct.unpack_from(form, data, at)
            found.append(value if isinstance(value, bytes) else b"%d" % value)
            at = end
    return b"".join(found)


def _codec_name(row: _Row) -> bytes:
    record: Any = row.record  # a whole one
    return str(record.codec.name).lower().encode()


def _bytes(text: str) -> bytes:
    """Return the bytes that the user has typed, also those that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _literal(data: bytes) -> _Part:
    return lambda row: data
