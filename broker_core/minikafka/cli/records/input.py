"""The messages of ``produce``: lines of text, lines of JSON, or whole files.

A line of JSON is an object as ``consume --format json`` prints it: ``key`` and ``value`` are strings or null,
or ``key_base64`` and ``value_base64``; ``headers`` is a list of objects with ``key`` and ``value`` or
``value_base64``; ``partition`` and ``timestamp`` (ms since the epoch) are numbers. All may be left out;
``topic`` and ``offset`` are passed over.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from minikafka.base.errors import ConfigError
from minikafka.base.text import is_unicode

Headers = tuple[tuple[str, bytes | None], ...]
STDIN = "-"
SHOWN_BYTES = 40
"""The bytes of an invalid line that the error shows."""
LEFT_OUT = "the lines before it were sent, this and later ones were not"
_OWN_FIELDS = {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
_FIELDS = _OWN_FIELDS | {"topic", "offset"}
_PARTITION_MAX = 2**31 - 1
_TIMESTAMP_MAX = 2**63 - 1


class Place(NamedTuple):
    """The place of a message in the input: its number among the messages, and its line, both from 1.

    source: the file; empty if there is only one input.
    """

    number: int
    line: int
    source: str = ""

    def __str__(self) -> str:
        return f"line {self.line} of {self.source}" if self.source else f"line {self.line}"


class GivenMessage(NamedTuple):
    """A message to send. partition: None to choose one by the key. timestamp_ms: None for now."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InputForm:
    """The form of the input, and what all messages have.

    key_separator: the text before it is the key. chooses_partition: no message has a partition of its own.
    empty_is_null: an empty value is sent as null.
    """

    json: bool = False
    whole: bool = False
    key_separator: str | None = None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    chooses_partition: bool = False
    timestamp_ms: int | None = None
    empty_is_null: bool = False


def given_messages(files: Sequence[str], form: InputForm) -> Iterator[GivenMessage]:
    """Yield the messages of ``files``, one after another; of stdin without any.

    Raise ConfigError at the first line that has another form, and for a file that cannot be read.
    """
    named = files or (STDIN,)
    sent = 0
    for name in named:
        with _opened(name) as file:
            lines = [file.read()] if form.whole else file
            for message in messages_in(lines, form, "" if len(named) == 1 else name, sent):
                sent = message.place.number
                yield message


def messages_in(
    lines: Iterable[bytes], form: InputForm, source: str = "", before: int = 0
) -> Iterator[GivenMessage]:
    """Yield the messages of lines, each without its newline; of a whole file with the form ``whole``.

    source: the file, for errors. before: the number of messages before these.
    """
    number = before
    for line, data in enumerate(lines, start=1):
        text = data[:-1] if data.endswith(b"\n") and not form.whole else data
        place = Place(number + 1, line, source)
        found = _json_message(place, text, form) if form.json else _text_message(place, text, form)
        if found is not None:
            number += 1
            yield found


@contextlib.contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with open(name, "rb") as file:
        yield file


def check_files(names: Iterable[str]) -> None:
    """Raise ConfigError for a file that cannot be read."""
    for name in names:
        if name == STDIN:
            continue
        try:
            with Path(name).open("rb") as file:
                file.read(0)
        except OSError as error:
            raise ConfigError("FILE", name, f"cannot be read: {error.strerror}") from None


def _text_message(place: Place, data: bytes, form: InputForm) -> GivenMessage:
    key, value = form.key, data
    if form.key_separator is not None:
        key, found, value = data.partition(form.key_separator.encode("utf-8", "surrogateescape"))
        if not found:
            shown = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
            allowed = f"not found in {place}, which starts with {shown!r}; {LEFT_OUT}"
            raise ConfigError("--key-separator", form.key_separator, allowed)
    sent = None if form.empty_is_null and not value else value
    return GivenMessage(place, key, sent, form.headers, form.partition, form.timestamp_ms)


def _json_message(place: Place, data: bytes, form: InputForm) -> GivenMessage | None:
    """Return the message of a line; None for an empty line."""
    if not data.strip():
        return None
    try:
        row = json.loads(data)
        if not isinstance(row, dict):
            raise _Invalid("must be a JSON object")
        return _from_object(place, row, form)
    except (_Invalid, ValueError, RecursionError) as error:  # a syntax error, or bytes that are not UTF-8
        problem = str(error) if isinstance(error, _Invalid) else f"is not JSON: {error}"
        shown = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        allowed = f"{place}, which starts with {shown!r}, {problem}; {LEFT_OUT}"
        raise ConfigError("--input", "json", allowed) from None


class _Invalid(Exception):
    """A fault in an object: the text after the place."""


def _from_object(place: Place, row: Mapping[str, object], form: InputForm) -> GivenMessage:
    if unknown := row.keys() - _FIELDS:
        name = min(unknown)
        raise _Invalid(f"has the field {name!r}; allowed are {', '.join(sorted(_FIELDS))}")
    key = _bytes(row, "key") if row.keys() & {"key", "key_base64"} else form.key
    value = _bytes(row, "value")
    if form.empty_is_null and not value:
        value = None
    partition = form.partition
    if partition is None and not form.chooses_partition:
        partition = _number(row, "partition", _PARTITION_MAX)
    timestamp_ms = form.timestamp_ms
    if timestamp_ms is None:
        timestamp_ms = _number(row, "timestamp", _TIMESTAMP_MAX)
    headers = form.headers + _headers(row.get("headers"))
    return GivenMessage(place, key, value, headers, partition, timestamp_ms)


def _bytes(row: Mapping[str, object], name: str) -> bytes | None:
    encoded = f"{name}_base64"
    if name in row and encoded in row:
        raise _Invalid(f"has both {name} and {encoded}")
    found = row.get(name, row.get(encoded))
    if found is None:
        return None
    if not isinstance(found, str):
        raise _Invalid(f"has a {name} that is not a string or null: {json.dumps(found)[:SHOWN_BYTES]}")
    try:
        return base64.b64decode(found, validate=True) if encoded in row else found.encode("utf-8")
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _Invalid(f"has an invalid {encoded if encoded in row else name}: {error}") from None


def _number(row: Mapping[str, object], name: str, most: int) -> int | None:
    found = row.get(name)
    if found is not None and (type(found) is not int or not 0 <= found <= most):
        raise _Invalid(f"has a {name} that is not a whole number of at least 0: {json.dumps(found)}")
    return found


def _headers(found: object) -> Headers:
    if found is None:
        return ()
    headers = []
    for row in found if isinstance(found, list) else [found]:
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise _Invalid('has headers that are not a list of objects such as {"key": "a", "value": "b"}')
        if unknown := row.keys() - {"key", "value", "value_base64"}:
            raise _Invalid(f"has a header with the field {min(unknown)!r}")
        headers.append((row["key"], _bytes(row, "value")))
    return tuple(headers)


def parse_header(text: str) -> tuple[str, bytes]:
    """Parse ``-H NAME=VALUE``. Raise ConfigError."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError("--header", text, "must be NAME=VALUE")
    if not is_unicode(name):
        raise ConfigError("--header", text, "must have a name in UTF-8")
    return name, value.encode("utf-8", "surrogateescape")
