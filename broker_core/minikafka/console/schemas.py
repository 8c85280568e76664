"""Values behind the id of a schema, as JSON: Avro, protobuf and JSON, by a registry of Confluent's interface.

Avro is decoded by the kernels that the Spark source reads columns with, protobuf by its own runtime: the
length of a value bounds their work and memory. The registry is asked for each schema once, and waited for
during a few seconds of every ten at most, so that pages come in time while it is slow or away.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeVar

import pyarrow as pa

from minikafka.base.clock import Clock
from minikafka.base.errors import ConfigError, ConfigErrors, MinikafkaError
from minikafka.base.text import shorten
from minikafka.clients.schema_registry.client import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    SchemaRegistryClient,
)
from minikafka.clients.schema_registry.config import NAMESPACE, URL, registry_config
from minikafka.records.avro import Array, AvroDecoder, Enum, Map, Record, Type, Union, parse
from minikafka.records.avro.columns import merged_number
from minikafka.records.avro.types import without_null
from minikafka.records.protobuf import (
    Messages,
    check_installed,
    files_of_texts,
    message_indexes,
    read_indexes,
)

HEADER_BYTES = 5
"""The zero byte and the id of a schema."""
ITEMS_MAX = 100_000
"""The most values in a value: items without bytes cost nothing to send."""
NAMES_MAX = 64 << 20
"""The most characters that a value may make of a schema's names, each of which may come with every byte."""
TIMEOUT_MS = 2_000
WAITED_MAX_S, WAITED_WITHIN_S = 3.0, 10.0
"""The time in which the registry is waited for, in each such span."""
_KEPT = 50
"""Schemas whose decoders are kept: one of thousands of fields takes megabytes."""
_OPTION = "--schema-registry"
_SLOW = "the schema registry is slow or away; load the page again"
T = TypeVar("T")


class BadValue(MinikafkaError):
    """Bytes that are not of their schema, or a schema that is not understood."""


class Schemas:
    """The schemas of a registry, and the values that they describe. Thread-safe."""

    def __init__(self, client: SchemaRegistryClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = self._waited = 0.0
        self._known: dict[int, RegisteredSchema] = {}
        self._decoder = lru_cache(_KEPT)(partial(_or_error, _decoder))
        self._messages = lru_cache(_KEPT)(partial(_or_error, _messages))

    @classmethod
    def at(cls, url: str, clock: Clock | None = None) -> Schemas:
        """Return those of the registry at an address. Raises ConfigError."""
        settings = {
            URL: url,
            f"{NAMESPACE}http.connect.timeout.ms": str(TIMEOUT_MS),
            f"{NAMESPACE}http.read.timeout.ms": str(TIMEOUT_MS),
            f"{NAMESPACE}max.retries": "0",
        }
        try:
            config = replace(registry_config(settings), url_name=_OPTION)
            return cls(SchemaRegistryClient(config, clock))
        except ConfigErrors as error:
            fault = error.faults[0]
            raise ConfigError(_OPTION, fault.value, fault.allowed) from None

    def decode(self, schema_id: int, data: bytes, most: int) -> tuple[str, str]:
        """Return the type of a schema, and a value of at most ``most`` bytes as JSON.

        Raises BadValue, or MinikafkaError: SchemaNotFound, or another one if the registry does not answer.
        """
        if len(data) > most:
            raise BadValue(f"a value of more than {most:,} bytes is not decoded here")
        schema = self._schema(schema_id)
        if schema.type == JSON:
            try:
                return "JSON", data[HEADER_BYTES:].decode("utf-8")
            except UnicodeDecodeError:
                raise BadValue("the value is no text") from None
        if schema.type == AVRO:
            return "Avro", self._avro(schema, data)
        if schema.type == PROTOBUF:
            return "protobuf", self._protobuf(schema, data)
        raise BadValue(f"values of the type {schema.type} are not decoded")

    def _schema(self, schema_id: int) -> RegisteredSchema:
        if schema_id in self._known:
            return self._known[schema_id]
        # One thread at a time, so that each knows how long the others have waited.
        if not self._lock.acquire(timeout=WAITED_MAX_S):
            raise MinikafkaError(_SLOW)
        try:
            now_s = self._monotonic()
            if now_s - self._since >= WAITED_WITHIN_S:
                self._since, self._waited = now_s, 0.0
            if self._waited >= WAITED_MAX_S:
                raise MinikafkaError(_SLOW)
            try:
                found = self._known[schema_id] = self._client.schema(schema_id)
                return found
            finally:
                self._waited += self._monotonic() - now_s
        finally:
            self._lock.release()

    def _avro(self, schema: RegisteredSchema, data: bytes) -> str:
        kind, decoder, longest = _made(self._decoder(schema))
        _check_names(len(data), longest)
        found = decoder.decode(pa.array([data], pa.binary()), HEADER_BYTES)
        if found.reasons:
            raise BadValue(found.reasons[0])
        items = _items(found.column)
        if items > ITEMS_MAX:
            raise BadValue(f"the value has more than {ITEMS_MAX:,} values in it")
        _check_names(items, longest)
        try:
            value = found.column[0].as_py()
        except (ValueError, OverflowError) as error:  # a time that Python does not have
            raise BadValue(shorten(str(error))) from None
        return json.dumps(_plain(kind, value), ensure_ascii=False)

    def _protobuf(self, schema: RegisteredSchema, data: bytes) -> str:
        messages, names = _made(self._messages(schema))
        path, size = read_indexes(data[HEADER_BYTES:])
        if not size or path not in names:
            raise BadValue("the schema has no message of the indexes behind its id")
        _check_names(len(data), messages.longest_name)
        return messages.json(names[path], data[HEADER_BYTES + size :])


def _messages(schema: RegisteredSchema) -> tuple[Messages, Mapping[tuple[int, ...], str]]:
    """Return the message types of a schema, and their names by their indexes. Raises ProtobufError."""
    check_installed()
    references = [(found.name, found.text) for found in schema.references]
    files = files_of_texts(f"schema-{schema.id}.proto", schema.text, references)
    return Messages(files), message_indexes(files[-1])


def _decoder(schema: RegisteredSchema) -> tuple[Type, AvroDecoder, int]:
    """Return the type of a schema, its decoder, and the length of its longest name. Raises AvroError."""
    kind = parse(schema.text, [reference.text for reference in schema.references])
    return kind, AvroDecoder(kind, kind), _longest_name(kind)


def _or_error(make: Callable[[RegisteredSchema], T], schema: RegisteredSchema) -> T | MinikafkaError:
    """Return an error instead of raising it, so that it is kept: an invalid schema is not parsed again."""
    try:
        return make(schema)
    except MinikafkaError as error:
        return error


def _made(found: T | MinikafkaError) -> T:
    if isinstance(found, MinikafkaError):
        raise BadValue(str(found))
    return found


def _longest_name(kind: Type) -> int:
    """Return the length of the longest name of a field or symbol."""
    if isinstance(kind, Record):
        return max((max(len(field.name), _longest_name(field.type)) for field in kind.fields), default=0)
    if isinstance(kind, Enum):
        return max(map(len, kind.symbols), default=0)
    if isinstance(kind, Union):
        return max(map(_longest_name, kind.branches), default=0)
    below = kind.items if isinstance(kind, Array) else kind.values if isinstance(kind, Map) else None
    return 0 if below is None else _longest_name(below)


def _check_names(count: int, longest: int) -> None:
    """Raise BadValue if ``count`` names of the schema would be too long to show."""
    if count * longest > NAMES_MAX:
        raise BadValue(f"the value is too large for a schema with a name of {longest:,} characters")


def _items(column: pa.Array) -> int:
    """Return the number of values in a column, and in all columns below it."""
    if pa.types.is_struct(column.type):
        below = [column.field(number) for number in range(column.type.num_fields)]
    elif pa.types.is_map(column.type):
        below = [column.keys, column.items]
    else:
        below = [column.values] if pa.types.is_list(column.type) else []
    return len(column) + sum(map(_items, below))


def _plain(kind: Type, value: Any) -> Any:
    """Return a value of an Arrow column as JSON has it."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(kind, Record):
        return {field.name: _plain(field.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [_plain(kind.items, item) for item in value]
    if isinstance(kind, Map):
        return {name: _plain(kind.values, item) for name, item in value}
    if isinstance(kind, Union):
        return _plain_branch(without_null(kind), value)
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode('ascii')}"
    if isinstance(value, datetime):
        is_in_ms = value.microsecond % 1_000 == 0
        return value.isoformat(timespec="milliseconds" if is_in_ms else "microseconds").replace("+00:00", "Z")
    return str(value)


def _plain_branch(branches: tuple[Type, ...], value: Any) -> Any:
    """Return a value of a union, which is a struct of its branches if it has several."""
    if len(branches) == 1 or merged_number(branches) is not None:
        return _plain(branches[0], value)
    members: Mapping[str, Any] = value
    return next(
        (
            _plain(branch, members[f"member{number}"])
            for number, branch in enumerate(branches)
            if members[f"member{number}"] is not None
        ),
        None,
    )
