"""``kafka.producer.Partitioner`` and the two that Kafka 0.10.1 has, with Java's hashes.

A hash counts by its absolute value, and the one that has none (-2^31) as 0, as in the release: bits of a
negative one that are masked would give another partition. All partitions are counted, with a leader or
without: a key must not move when a broker goes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records.columns import partitions_by_java_hash
from minikafka.records.format.hashes import bytes_hash, long_hash, partition_of_hash, string_hash

_BYTES_LIKE = (bytes, bytearray, memoryview)


class Partitioner(Protocol):
    """Plugged in by ``partitioner.class``. Asked only for messages with a key."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """A number in ``range(num_partitions)``."""


class DefaultPartitioner:
    """``hash(key) % partitions`` with the hash that Java has of the key.

    ===========================  =====================================================================
    key                          its hash
    ===========================  =====================================================================
    str                          ``String.hashCode``
    bytes, bytearray             ``Arrays.hashCode``. (The release takes ``Object.hashCode`` of an array,
                                 which is another one each time; its ByteArrayPartitioner has this one.)
    int, bool                    ``Integer.hashCode`` within 32 bits, else ``Long.hashCode``;
                                 ``Boolean.hashCode``
    anything else                TypeError: Python's own ``hash`` is not Java's
    ===========================  =====================================================================
    """

    def partition(self, key: Any, num_partitions: int) -> int:
        """The partition of a key that is not None."""
        return partition_of_hash(_java_hash(key), num_partitions)

    def partition_all(self, keys: Sequence[Any] | pa.Array, num_partitions: int) -> NDArray[np.int32]:
        """The partition of each key, int32[n]; -1 where it is None. A column of Arrow's is one of binary or
        of string.
        """
        if not isinstance(keys, pa.Array):
            kinds = {type(key) for key in keys} - {type(None)}
            column = _column(keys, kinds)
            if column is None:
                found = (-1 if key is None else self.partition(key, num_partitions) for key in keys)
                return np.fromiter(found, np.int32, len(keys))
            keys = column
        return partitions_by_java_hash(keys, num_partitions)


class ByteArrayPartitioner:
    """``Arrays.hashCode(key) % partitions``, for keys of bytes."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """The partition of a key that is not None. TypeError where it is not bytes."""
        if not isinstance(key, _BYTES_LIKE):
            raise TypeError(f"ByteArrayPartitioner takes keys of bytes, not {key!r:.100}")
        return partition_of_hash(bytes_hash(key), num_partitions)


def _column(keys: Sequence[Any], kinds: set[type]) -> pa.Array | None:
    """The keys as one column where they are of one kind."""
    if kinds <= {bytes}:
        made = pa.array(keys, pa.binary())
    elif kinds == {str}:
        try:
            made = pa.array(keys, pa.string())
        except UnicodeEncodeError:  # half of a pair; Java hashes it too
            return None
    else:
        return None
    return made if isinstance(made, pa.Array) else None


def _java_hash(key: Any) -> int:
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, _BYTES_LIKE):
        return bytes_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        return long_hash(key)
    raise TypeError(
        f"Java's hash of {key!r:.100} is not known: keys are str, bytes or int; others need a "
        "partitioner.class of their own"
    )
