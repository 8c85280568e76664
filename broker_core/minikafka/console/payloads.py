"""Keys, values and headers of messages as people read them: JSON, text, or bytes in hex.

Bytes in Confluent's wire format are a zero byte, the id of a schema (int32), and the content: JSON with a
schema of JSON, otherwise Avro or protobuf.

All of it is untrusted: templates escape it, and characters that hide or reorder text are shown as escapes.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from dataclasses import dataclass, replace
from enum import Enum

from minikafka.base.errors import MinikafkaError
from minikafka.base.printable import UNPRINTABLE
from minikafka.clients.schema_registry.client import SchemaNotFound
from minikafka.console.schemas import HEADER_BYTES, Schemas

_log = logging.getLogger(__name__)

SHORT_BYTES = 1_000
"""The part of a value that lists show."""
LONG_BYTES = 512 * 1024
"""The part of a value that the page of one message shows."""
DECODED_BYTES_MAX = 64 * 1024
"""The longest value that lists decode by its schema."""
_ID_MAX = 10_000_000
"""The largest id that is taken for one: registries count from 1, or 100,000."""
_LONG_BYTES = 8
"""Of an integer, whose first bytes look like such a header."""
_ROW_BYTES = 16
_HEX_SHORT = 64
_INDENT = "  "
_DEPTH_MAX = 100
"""The deepest JSON that gets an indent."""
_INDENTED_TIMES_MAX = 8
"""The most that an indent makes of JSON, as a multiple of what is shown of other text."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,\s"]+')


class Kind(str, Enum):
    """The form in which bytes are shown."""

    NULL = "null"
    EMPTY = "empty"
    JSON = "JSON"
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes as they are shown. ``is_cut``: there are more than ``text`` shows."""

    kind: Kind
    text: str
    """Of JSON with an indent, of bytes in hex."""
    size_bytes: int
    is_cut: bool = False
    line: str = ""
    """JSON in a list as one line, as it was sent."""
    base64: str = ""
    """Binary bytes once more, for programs; empty in lists."""
    schema: str = ""
    """The schema that the bytes name, for people."""


def payload(data: bytes | None, schemas: Schemas | None = None, *, whole: bool = False) -> Payload:
    """Return a key, a value, or a header's value as it is shown: in a list, or as a whole.

    schemas: those of the registry, if there is one.
    """
    if data is None:
        return Payload(Kind.NULL, "null", 0)
    if not data:
        return Payload(Kind.EMPTY, "empty", 0)
    return (
        _readable(data, whole=whole) or _with_schema(data, schemas, whole=whole) or _binary(data, whole=whole)
    )


def _readable(data: bytes, *, whole: bool) -> Payload | None:
    """Return JSON or text; None for other bytes."""
    most = LONG_BYTES if whole else SHORT_BYTES
    part = data[:most]
    is_cut = len(data) > most
    text = decoded(part, is_cut=is_cut)
    if text is None:
        return None
    if not is_cut and (pretty := _pretty_json(text, most * _INDENTED_TIMES_MAX)) is not None:
        line = "" if whole else visible(" ".join(text.split("\n")))
        return Payload(Kind.JSON, visible(pretty), len(data), line=line)
    return Payload(Kind.TEXT, visible(text), len(data), is_cut)


def _with_schema(data: bytes, schemas: Schemas | None, *, whole: bool) -> Payload | None:
    """Return bytes that name a schema, as JSON if they can be decoded; None for others."""
    number = int.from_bytes(data[1:HEADER_BYTES], "big")
    if len(data) <= HEADER_BYTES or data[0] or not number:
        return None
    problem = ""
    if schemas is not None and number <= _ID_MAX:
        try:
            form, text = schemas.decode(number, data, LONG_BYTES if whole else DECODED_BYTES_MAX)
        except SchemaNotFound:
            problem = "the registry does not have it"
        except MinikafkaError as error:
            problem = " ".join(str(error).split())
        except Exception:  # noqa: BLE001 - a defect must not hide the other messages of a page
            _log.exception("unexpected error while decoding a value by schema id %d", number)
            problem = "unexpected error; see the log of the console"
        else:
            shown = payload(text.encode("utf-8"), whole=whole)
            return replace(shown, size_bytes=len(data), schema=f"{form}, schema id {number}")
    schema = visible(f"schema id {number} (Confluent wire format){problem and f': {problem}'}")
    content = _readable(data[HEADER_BYTES:], whole=whole)
    if content is not None and (content.kind is Kind.JSON or content.text[:1] in ("{", "[")):
        return replace(content, size_bytes=len(data), schema=schema)
    if number > _ID_MAX or len(data) == _LONG_BYTES:
        return None
    return replace(_binary(data, whole=whole), schema=schema)


def decoded(data: bytes, *, is_cut: bool = False) -> str | None:
    """Return UTF-8 text, or None for other bytes. ``is_cut``: the last character may be a part of one."""
    try:
        return _text_of(data)
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        return _text_of(data[: error.start])


def _text_of(data: bytes) -> str | None:
    text = data.decode("utf-8")
    # Text has no zero bytes and few control characters; numbers in binary have many.
    controls = sum(character < " " and character not in "\t\n\r" for character in text)
    return None if "\0" in text or controls * 10 > len(text) else text


def visible(text: str) -> str:
    """Return text of several lines with control characters and direction overrides as escapes."""
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(UNPRINTABLE.sub(lambda found: _escape(found[0]), line) for line in lines)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _pretty_json(text: str, most: int) -> str | None:
    """Return an object or an array with an indent; None for other text, and for what would be too large.

    Only blanks change: a number keeps its digits, and a name that comes twice stays.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _indented(text, most)


def _indented(text: str, most: int) -> str | None:
    """Return JSON with an indent; None if it is nested too deep, or has more than ``most`` characters then.

    The indent grows with depth times tokens, so that a small text could fill the memory.
    """
    parts: list[str] = []
    depth = size = 0
    is_opened = False
    for found in _JSON_TOKEN.finditer(text):
        token = found[0]
        if token in ("}", "]"):
            depth -= 1
            part = token if is_opened else f"\n{_INDENT * depth}{token}"
        elif token == ",":
            part = f",\n{_INDENT * depth}"
        else:
            part = (f"\n{_INDENT * depth}" if is_opened else "") + (": " if token == ":" else token)
        is_opened = token in ("{", "[")
        depth += is_opened
        size += len(part)
        if depth > _DEPTH_MAX or size > most:
            return None
        parts.append(part)
    return "".join(parts)


def _binary(data: bytes, *, whole: bool) -> Payload:
    if not whole:
        return Payload(Kind.BINARY, data[:_HEX_SHORT].hex(" "), len(data), len(data) > _HEX_SHORT)
    part = data[: LONG_BYTES // 8]
    is_cut = len(data) > len(part)
    encoded = "" if is_cut else base64.b64encode(data).decode("ascii")
    return Payload(Kind.BINARY, hex_dump(part), len(data), is_cut, base64=encoded)


def hex_dump(data: bytes) -> str:
    """Return lines of an offset, 16 bytes in hex, and their ASCII characters."""
    lines = []
    for at in range(0, len(data), _ROW_BYTES):
        row = data[at : at + _ROW_BYTES]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {characters}")
    return "\n".join(lines)
