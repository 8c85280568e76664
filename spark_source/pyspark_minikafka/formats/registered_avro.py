"""The format ``avro`` with a schema registry: Avro binary behind the id of the schema that it is of.

Every value is read with the schema of its own id and resolved to one reader's schema, so a topic may have
values of several versions. Values of one id are decoded together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import DataType

from minikafka.base.errors import ConfigError
from minikafka.clients.schema_registry.client import AVRO, RegisteredSchema, Schema, SchemaNotFound
from minikafka.records.avro import AvroDecoder, AvroError, arrow_type
from pyspark_minikafka.formats.avro_format import AvroFormat, AvroSchema, decoder, schema_for
from pyspark_minikafka.formats.schema_registry import (
    HEADER_BYTES,
    NO_HEADER,
    NO_HEADER_REASON,
    NULL,
    RegistryAccess,
    SubjectNameStrategy,
    WrongSchemaType,
    header,
    merged_bad,
    of_type,
    schema_ids,
)
from pyspark_minikafka.formats.value_format import ColumnType, Decoded


@lru_cache(maxsize=1_000)
def parsed_schema(registered: RegisteredSchema) -> AvroSchema:
    """Return a schema of the registry. Raise WrongSchemaType, or AvroError if it is no schema."""
    found = of_type(registered, AVRO)
    try:
        return AvroSchema.parsed(found.text, tuple(one.text for one in found.references))
    except AvroError as problem:
        raise AvroError(f"schema {found.id} of the schema registry: {problem}") from None


@dataclass(frozen=True, slots=True)
class RegisteredAvroFormat:
    """Avro binary behind a schema's id.

    schema: the reader's schema or, in a write, that of the values; None in a write: that of the column.
    """

    schema: AvroSchema | None
    registry: RegistryAccess

    def data_type(self) -> DataType:
        """Return Spark's type of the reader's schema."""
        return self._known().data_type()

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``: each is read with the schema of its id."""
        ids = schema_ids(values)
        found = np.unique(ids[ids != NULL])
        if len(found) == 1 and found[0] != NO_HEADER:
            return self._decode_one(values, int(found[0]))
        columns: list[pa.Array] = []
        bad: list[tuple[NDArray[np.int64], tuple[str, ...]]] = []
        order: list[NDArray[np.int64]] = []
        for number in (NULL, *found.tolist()):
            rows = np.flatnonzero(ids == number)
            if number == NULL:
                part = self._all_bad(len(rows), None)
            elif number == NO_HEADER:
                part = self._all_bad(len(rows), NO_HEADER_REASON)
            else:
                part = self._decode_one(values.take(pa.array(rows)), number)
            columns.append(part.column)
            bad.append((rows[part.bad], part.reasons))
            order.append(rows)
        places = np.empty(len(values), dtype=np.int64)
        places[np.concatenate(order)] = np.arange(len(values))
        return Decoded(pa.concat_arrays(columns).take(pa.array(places)), *merged_bad(bad))

    def _decode_one(self, values: pa.BinaryArray, schema_id: int) -> Decoded:
        """Return the column of values of one id, or null."""
        try:
            made = self._decoder(schema_id)
        except (AvroError, SchemaNotFound, WrongSchemaType) as problem:
            rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            text = f"schema {schema_id}: {problem}"
            return Decoded(self._all_bad(len(values), None).column, rows, (text,) * len(rows))
        found = made.decode(values, HEADER_BYTES)
        return Decoded(found.column, found.bad, found.reasons)

    def _decoder(self, schema_id: int) -> AvroDecoder:
        writer = parsed_schema(self.registry.client.schema(schema_id))
        return decoder(writer.type, self._known().type)

    def _all_bad(self, count: int, reason: str | None) -> Decoded:
        """Return nulls, which are bad if there is a reason."""
        rows = np.arange(count if reason is not None else 0, dtype=np.int64)
        column = pa.nulls(count, arrow_type(self._known().type))
        return Decoded(column, rows, () if reason is None else (reason,) * count)

    def for_column(self, data_type: DataType) -> RegisteredAvroFormat:
        """Return the format that writes a column, with the given schema or that of ``to_avro``."""
        if self.schema is None and self.registry.use_latest:
            return self  # each topic has its own
        schema = self.schema or schema_for(data_type)
        if not self.has_subject(schema):
            raise ColumnType(f"a struct: {self.registry.strategy.value} has the name of the record")
        schema.check_column(data_type)
        return replace(self, schema=schema)

    def has_subject(self, schema: AvroSchema | None) -> bool:
        """Return True if there is a subject for a schema: most strategies need its name."""
        named = schema is not None and schema.name is not None
        return named or self.registry.strategy is SubjectNameStrategy.TOPIC

    def for_topic(self, topic: str, data_type: DataType) -> AvroFormat:
        """Return the format with the topic's schema and its id."""
        return self._written(topic).for_column(data_type)

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the Avro binary of each element, behind the schema's id."""
        return self._written(topic).encode(column, topic)

    def _written(self, topic: str) -> AvroFormat:
        """Return the format that a topic's values are written in."""
        if self.registry.use_latest:
            latest = self.registry.latest(topic, None if self.schema is None else self.schema.name, AVRO)
            return AvroFormat(parsed_schema(latest), header(latest.id))
        schema = self._known()
        schema_id = self.registry.written_id(topic, schema.name, Schema(AVRO, schema.text))
        return AvroFormat(schema, header(schema_id))

    def _known(self) -> AvroSchema:
        assert self.schema is not None, "a read has a schema, and a write is made for its column"
        return self.schema


def registered_avro(
    schema: AvroSchema | None, registry: RegistryAccess, *, sink: bool, column: DataType | None = None
) -> RegisteredAvroFormat:
    """Return the format. ``schema``: of the option; None: in a read the newest one of the query's subject,
    among those of the type ``column`` if Spark has fixed it.

    Raise ConfigError if that is not clear, AvroError if it cannot be used.
    """
    if schema is None and not sink:

        def made_of(found: RegisteredSchema) -> RegisteredAvroFormat:
            return RegisteredAvroFormat(parsed_schema(found), registry)

        return registry.newest_format(AVRO, None, "schema", made_of, column)
    made = RegisteredAvroFormat(schema, registry)
    if sink and (schema is not None or registry.use_latest) and not made.has_subject(schema):
        allowed = f"must be given, with a name: {registry.strategy.value} has the name of the record"
        raise ConfigError(f"minikafka.{registry.side}.schema", None, allowed)
    return made
