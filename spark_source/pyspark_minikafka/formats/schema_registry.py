"""A schema registry as formats use it: subjects, the header of a value, and the client of a process.

Values have the form of Confluent's serializers: a zero byte, the schema's id (int32), and the content. A
``RegistryAccess`` is made of the options on the driver and pickled to the executors, where every process has
one client with its caches: a schema is asked for once in a Python worker, and not once a task. The tasks of a
write to one topic do not have it: they get the id of their schema from the driver.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import DataType

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.clients.schema_registry.client import (
    RegisteredSchema,
    Schema,
    SchemaNotFound,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from minikafka.clients.schema_registry.config import SchemaRegistryConfig
from pyspark_minikafka.formats.spark_schema import BadSchema, difference
from pyspark_minikafka.formats.value_format import ValueFormat

Format = TypeVar("Format", bound=ValueFormat)

MAGIC = b"\0"
HEADER_BYTES = 5
_NO_END = (1 << 31) - 1
NULL, NO_HEADER = -1, -2
"""Values in place of an id in the result of ``schema_ids``: a null value, and one without a header."""
NO_HEADER_REASON = "it does not begin with byte 0 and a schema's id, as what is written with a registry does"

_clients: dict[SchemaRegistryConfig, SchemaRegistryClient] = {}
_lock = threading.Lock()


def forget_clients() -> None:
    """Forget what this process knows of registries: a new query asks them anew."""
    with _lock:
        _clients.clear()


class SubjectNameStrategy(Enum):
    """The ways to name the subject of a schema, as Confluent's serializers do."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The registry of the keys, or of the values, of a query.

    side: ``key`` or ``value``. topics: those of the query; None if the options do not name them.
    """

    config: SchemaRegistryConfig
    side: str
    topics: tuple[str, ...] | None = None
    strategy: SubjectNameStrategy = SubjectNameStrategy.TOPIC
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False

    @property
    def client(self) -> SchemaRegistryClient:
        """The client of this process."""
        with _lock:
            if self.config not in _clients:
                _clients[self.config] = SchemaRegistryClient(self.config)
            return _clients[self.config]

    def subject(self, topic: str, record: str | None) -> str:
        """Return the subject of a schema: that of ``topic``, or of ``record``, its full name, or of both."""
        if self.strategy is SubjectNameStrategy.TOPIC:
            return f"{topic}-{self.side}"
        assert record is not None, "a schema without a name is refused when the format is made"
        return record if self.strategy is SubjectNameStrategy.RECORD else f"{topic}-{record}"

    def subjects(self, record: str | None, option: str) -> list[str]:
        """Return the subjects of the query's topics. Raise ConfigError that asks for ``option`` if they are
        not known.
        """
        name = f"minikafka.{self.side}.{option}"
        if self.strategy is not SubjectNameStrategy.TOPIC and record is None:
            allowed = f"must be given with {self.strategy.value}, as the subject has the name of the record"
            raise ConfigError(name, None, allowed)
        if self.strategy is SubjectNameStrategy.RECORD:
            return [self.subject("", record)]
        if self.topics is None:
            raise ConfigError(name, None, "must be given where the options do not name the topics")
        return [self.subject(topic, record) for topic in self.topics]

    def newest_format(
        self,
        schema_type: str,
        record: str | None,
        option: str,
        made_of: Callable[[RegisteredSchema], Format],
        column: DataType | None = None,
        *,
        fresh: bool = True,
    ) -> Format:
        """Return what ``made_of`` makes of the newest schema of the query's subject. Driver only.

        column: the type that Spark has fixed for the query's column, by ``load()``: then the newest schema of
        this type is taken. ``made_of`` may raise MinikafkaError or BadSchema.

        Raise ConfigError that asks for ``option`` if no schema has the type, or if it is not clear which of
        several subjects decides.
        """
        subjects = self.subjects(record, option)
        if column is not None:
            return self._format_of_column(schema_type, subjects, option, made_of, column)
        found: dict[int, RegisteredSchema] = {}
        for subject in subjects:
            try:
                schema = self.client.latest(subject, fresh=fresh)
            except SchemaNotFound as error:
                text = f"{error}; or give minikafka.{self.side}.{option}"
                raise SchemaNotFound(text, error.status, error.code) from None
            found[schema.id] = of_type(schema, schema_type)
        if len(found) > 1:
            allowed = (
                f"must be given, as the subjects {', '.join(subjects)} have different schemas: which of them "
                "the column has is not clear"
            )
            raise ConfigError(f"minikafka.{self.side}.{option}", None, allowed)
        return made_of(next(iter(found.values())))

    def _format_of_column(
        self,
        schema_type: str,
        subjects: Sequence[str],
        option: str,
        made_of: Callable[[RegisteredSchema], Format],
        column: DataType,
    ) -> Format:
        """Return the format of the newest schema that all ``subjects`` have and that has the type
        ``column``.
        """
        problem = ""
        for version, schema in self._common_versions(subjects):
            try:
                made = made_of(of_type(schema, schema_type))
            except (MinikafkaError, BadSchema) as error:
                problem = problem or f"version {version} cannot be used: {error}"
                continue
            other = difference(made.data_type(), column, self.side)
            if not other:
                return made
            problem = problem or f"version {version} {other}"
        allowed = (
            f"must be given, or load() called again: no version of the subject {', '.join(subjects)} has the "
            f"type that the query's column {self.side} has had since load() "
            f"({problem or 'they have no schema in common'})"
        )
        raise ConfigError(f"minikafka.{self.side}.{option}", None, allowed)

    def _common_versions(self, subjects: Sequence[str]) -> Iterator[tuple[int, RegisteredSchema]]:
        """Yield the schemas that all subjects have, with their versions in the first one, the newest first.
        Older versions are asked for only when their turn comes.
        """
        first, *others = (self.client.versions(subject) for subject in subjects)
        seen: list[set[int]] = [set() for _ in others]
        for version, schema in first:
            for ids, versions in zip(seen, others, strict=True):
                while schema.id not in ids and (older := next(versions, None)) is not None:
                    ids.add(older[1].id)
            if all(schema.id in ids for ids in seen):
                yield version, schema

    def latest(self, topic: str, record: str | None, schema_type: str) -> RegisteredSchema:
        """Return the newest schema of the subject that values are written to ``topic`` with. Raise
        WrongSchemaType if it is of another type.
        """
        return of_type(self.client.latest(self.subject(topic, record)), schema_type)

    def written_id(self, topic: str, record: str | None, schema: Schema) -> int:
        """Return the id that values of ``schema`` are written to ``topic`` with: it is registered, or must
        have been.
        """
        subject = self.subject(topic, record)
        if self.auto_register:
            return self.client.register(subject, schema, normalize=self.normalize)
        return self.client.look_up(subject, schema, normalize=self.normalize)

    def reference(self, name: str, schema: Schema) -> SchemaReference:
        """Return the reference to a schema whose subject is its name, as Confluent's serializers do."""
        if self.auto_register:
            self.client.register(name, schema, normalize=self.normalize)
        version = self.client.version(name, schema, normalize=self.normalize)
        return SchemaReference(name, name, version)


class WrongSchemaType(SchemaRegistryError):
    """A schema of the registry is of another type than the format."""


def of_type(schema: RegisteredSchema, schema_type: str) -> RegisteredSchema:
    """Return ``schema``. Raise WrongSchemaType if it is of another type."""
    if schema.type != schema_type:
        raise WrongSchemaType(
            f"schema {schema.id} of the schema registry is of the type {schema.type}, not {schema_type}"
        )
    return schema


def schema_ids(values: pa.BinaryArray) -> NDArray[np.int64]:
    """Return the schema's id of each value; NULL for null, NO_HEADER for a value without one."""
    ids = np.full(len(values), NO_HEADER, dtype=np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    ids[~valid] = NULL
    data, starts, ends = contents(values)
    rows = np.flatnonzero(valid & (ends - starts >= HEADER_BYTES))
    rows = rows[(data[starts[rows]] == MAGIC[0]) & (data[starts[rows] + 1] < 128)]  # an id is an int32
    at, found = starts[rows], np.zeros(len(rows), dtype=np.int64)
    for byte in range(1, HEADER_BYTES):
        found = found << 8 | data[at + byte]
    ids[rows] = found
    return ids


def contents(values: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the memory of ``values``, and where each begins and ends in it."""
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        nothing = np.zeros(0, dtype=np.int64)
        return np.zeros(0, dtype=np.uint8), nothing, nothing
    bounds = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    memory = np.zeros(0, dtype=np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)
    return memory, bounds[:-1], bounds[1:]


def without_headers(values: pa.BinaryArray, ids: NDArray[np.int64]) -> pa.BinaryArray:
    """Return what is behind the headers; null where ``ids`` has no id."""
    behind = pc.binary_slice(values, HEADER_BYTES, _NO_END)  # Arrow fails without an end
    absent = ids < 0
    return pc.if_else(pa.array(absent), None, behind) if absent.any() else behind


def header(schema_id: int) -> bytes:
    """Return what is before a value with a schema."""
    return MAGIC + struct.pack(">i", schema_id)


def merged_bad(
    parts: Sequence[tuple[NDArray[np.int64], Sequence[str]]],
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the bad values of several parts, which have different ones, by ascending numbers."""
    found = sorted(
        (int(row), reason) for rows, reasons in parts for row, reason in zip(rows, reasons, strict=True)
    )
    return np.array([row for row, _ in found], dtype=np.int64), tuple(reason for _, reason in found)
