"""Record batches of a query with formats: keys and values decoded, and bad ones treated as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.formats import bad_values
from pyspark_minikafka.formats.bad_values import BadValues
from pyspark_minikafka.formats.value_format import arrow_schema
from pyspark_minikafka.reading.dead_letters import STORED, DeadLetters, Fault
from pyspark_minikafka.schema import source_schema, stored_columns

if TYPE_CHECKING:
    from minikafka.records.columns import Columns
    from pyspark_minikafka.location import Target
    from pyspark_minikafka.options.options import SourceOptions


class RowDecoder:
    """Makes the record batches of a read whose keys or values have a format.

    stored: the columns before decoding.
    """

    def __init__(self, options: SourceOptions, target: Target) -> None:
        self._bad_values = options.formats.bad_values
        self._schema = arrow_schema(source_schema(options.columns, options.formats))
        self._dead_letters: DeadLetters | None = None
        self.stored = stored_columns(options.columns)
        self._sides = [found for found in options.formats.sides() if found[0] in self.stored]
        if self._bad_values is BadValues.DEAD_LETTER and self._sides:
            self._dead_letters = DeadLetters(options, target)
            self.stored = tuple(dict.fromkeys((*self.stored, *STORED)))

    def record_batch(self, columns: Columns, topic: str, partition: int, stored: pa.Schema) -> pa.RecordBatch:
        """Return the rows in the columns that Spark expects: all, or those without dead letters.

        Raise BadValue if a bad value ends the query. stored: the schema of the columns before decoding.
        """
        binary = columns.record_batch(topic, partition, stored)
        arrays = dict(zip(stored.names, binary.columns, strict=True))
        faults: dict[int, Fault] = {}
        decoded = {}
        for side, value_format in self._sides:
            found = value_format.decode(arrays[side], topic)
            decoded[side] = found.column
            if self._bad_values is BadValues.PERMISSIVE:
                decoded[f"{side}_error"] = bad_values.errors(arrays[side], found)
            for row, reason in zip(found.bad.tolist(), found.reasons, strict=True):
                faults.setdefault(row, Fault(row, side, int(columns.offsets[row]), reason))
        batch = pa.RecordBatch.from_arrays(
            [decoded.get(name, arrays.get(name)) for name in self._schema.names], schema=self._schema
        )
        if not faults or self._bad_values is BadValues.PERMISSIVE:
            return batch
        at = TopicPartition(topic, partition)
        if self._dead_letters is None:
            first = faults[min(faults)]
            value = arrays[first.side][first.row].as_py()
            raise bad_values.bad_value(first.side, at, first.offset, value, first.reason)
        in_order = [faults[row] for row in sorted(faults)]
        self._dead_letters.send(at, in_order, [arrays[name] for name in STORED], columns.timestamps)
        good = np.ones(columns.count, dtype=np.bool_)
        good[list(faults)] = False
        return batch.filter(pa.array(good))
