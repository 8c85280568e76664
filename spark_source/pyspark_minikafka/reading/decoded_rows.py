"""Record batches of a query with formats: keys and values decoded, and bad ones treated as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.formats import bad_values
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.value_format import Decoded, arrow_schema
from pyspark_minikafka.schema import source_schema

if TYPE_CHECKING:
    from minikafka.records.columns import Columns
    from pyspark_minikafka.options.options import SourceOptions


class RowDecoder:
    """Makes the record batches of a read whose keys or values have a format."""

    def __init__(self, options: SourceOptions) -> None:
        self._formats = options.formats
        self._schema = arrow_schema(source_schema(options.columns, options.formats))

    def record_batch(self, columns: Columns, topic: str, partition: int, stored: pa.Schema) -> pa.RecordBatch:
        """Return all rows, in the columns that Spark expects. Raise BadValue if a bad value ends the query.

        stored: the columns before decoding.
        """
        binary = columns.record_batch(topic, partition, stored)
        arrays = dict(zip(stored.names, binary.columns, strict=True))
        for side, value_format in self._formats.sides():
            if side not in arrays:
                continue
            values = arrays[side]
            decoded = value_format.decode(values, topic)
            if self._formats.bad_values is BadValues.PERMISSIVE:
                arrays[f"{side}_error"] = bad_values.errors(values, decoded)
            elif len(decoded.bad):
                raise self._first_bad(side, TopicPartition(topic, partition), columns, values, decoded)
            arrays[side] = decoded.column
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    @staticmethod
    def _first_bad(
        side: str, at: TopicPartition, columns: Columns, values: pa.BinaryArray, decoded: Decoded
    ) -> bad_values.BadValue:
        row = int(decoded.bad[0])
        return bad_values.bad_value(
            side, at, int(columns.offsets[row]), values[row].as_py(), decoded.reasons[0]
        )
