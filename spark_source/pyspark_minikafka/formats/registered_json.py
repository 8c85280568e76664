"""The format ``json`` with a schema registry: JSON behind the id of a JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from minikafka.base.errors import ConfigError
from minikafka.base.printable import printable
from minikafka.clients.schema_registry.client import JSON, RegisteredSchema, Schema
from pyspark_minikafka.formats.json_format import JsonFormat
from pyspark_minikafka.formats.json_schema import json_schema_text, mismatch, parse_json_schema
from pyspark_minikafka.formats.schema_registry import (
    NO_HEADER,
    NO_HEADER_REASON,
    RegistryAccess,
    SubjectNameStrategy,
    header,
    merged_bad,
    schema_ids,
    without_headers,
)
from pyspark_minikafka.formats.spark_schema import BadSchema, nullable
from pyspark_minikafka.formats.value_format import ColumnType, Decoded

_TITLE = "Value"


@dataclass(frozen=True, slots=True)
class RegisteredJsonFormat:
    """JSON of one type behind a schema's id. The fields of every version are found by their names, so the
    schema of a value is not needed to read it.

    schema: what a write registers, once it knows its column.
    """

    json: JsonFormat
    registry: RegistryAccess
    schema: Schema | None = None

    def data_type(self) -> DataType:
        """Return the type of the values."""
        return self.json.data_type()

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``."""
        ids = schema_ids(values)
        decoded = self.json.decode(without_headers(values, ids), topic)
        rows = np.flatnonzero(ids == NO_HEADER)
        if not len(rows):
            return decoded
        bad = merged_bad([(rows, [NO_HEADER_REASON] * len(rows)), (decoded.bad, decoded.reasons)])
        return Decoded(decoded.column, *bad)

    def for_column(self, data_type: DataType) -> RegisteredJsonFormat:
        """Return the format that registers a schema for ``data_type``."""
        column = self.json.for_column(data_type)
        if isinstance(data_type, StringType):  # it is JSON already, whatever it has
            text = '{"title":"' + _TITLE + '"}'
        else:
            text = json_schema_text(nullable(data_type), _TITLE)
        return replace(self, json=column, schema=Schema(JSON, text))

    def for_topic(self, topic: str, data_type: DataType) -> JsonFormat:
        """Return the format with the id of the topic's schema, which must be one that the column can have."""
        if self.registry.use_latest and not isinstance(data_type, StringType):
            latest = self.registry.latest(topic, None, JSON)
            problem = mismatch(latest.text, data_type, self.registry.side)
            if problem:
                allowed = f"a type that schema {latest.id} of the schema registry can have"
                raise ColumnType(f"{allowed} ({printable(problem)})")
        return self._written(topic)

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the JSON text of each element behind the schema's id."""
        return self._written(topic).encode(column, topic)

    def _written(self, topic: str) -> JsonFormat:
        """Return the format that a topic's values are written in."""
        registry = self.registry
        if registry.use_latest:
            return replace(self.json, prefix=header(registry.latest(topic, None, JSON).id))
        assert self.schema is not None, "a write is made for its column"
        return replace(self.json, prefix=header(registry.written_id(topic, None, self.schema)))


def registered_json(
    json: JsonFormat | None, registry: RegistryAccess, *, sink: bool, column: DataType | None = None
) -> RegisteredJsonFormat:
    """Return the format. ``json``: of the option's schema; None: of the newest schema of the query's subject,
    among those of the type ``column`` if Spark has fixed it.

    Raise ConfigError if that is not clear, BadSchema if no column can have it.
    """
    if registry.strategy is not SubjectNameStrategy.TOPIC:
        name = f"minikafka.{registry.side}.subject.name.strategy"
        raise ConfigError(name, registry.strategy.value, "JSON has no record's name: use TopicNameStrategy")
    if json is None and not sink:

        def made_of(found: RegisteredSchema) -> RegisteredJsonFormat:
            try:
                return RegisteredJsonFormat(JsonFormat(nullable(parse_json_schema(found.text))), registry)
            except BadSchema as problem:
                raise BadSchema(f"schema {found.id} of the schema registry: {problem}") from None

        return registry.newest_format(JSON, None, "schema", made_of, column)
    return RegisteredJsonFormat(json or JsonFormat(None), registry)
