"""The formats of the keys and values of one query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from pyspark_minikafka.formats.bad_values import ERROR_TYPE, BadValues
from pyspark_minikafka.formats.value_format import ValueFormat

SIDES = ("key", "value")
"""The columns that may have a format."""


@dataclass(frozen=True, slots=True)
class QueryFormats:
    """The formats of a query; None: ``binary``, the bytes as they are.

    bad_values: what becomes of values that are read and are not in their format. dead_letter_topic: where
    their records are sent.
    """

    key: ValueFormat | None = None
    value: ValueFormat | None = None
    bad_values: BadValues = BadValues.FAILFAST
    dead_letter_topic: str | None = None

    def sides(self) -> Iterator[tuple[str, ValueFormat]]:
        """Yield ``key`` and ``value``, each with its format, without those that have none."""
        if self.key is not None:
            yield "key", self.key
        if self.value is not None:
            yield "value", self.value

    def schema(self, binary: StructType) -> StructType:
        """Return the columns of a read: those of ``binary`` with the types of the formats, and the columns
        of bad values at the end.
        """
        types = {side: found.data_type() for side, found in self.sides()}
        fields = [StructField(field.name, types.get(field.name, field.dataType)) for field in binary.fields]
        if self.bad_values is BadValues.PERMISSIVE:
            fields += [StructField(f"{side}_error", ERROR_TYPE) for side in types]
        return StructType(fields)
