"""``kafka.producer.Partitioner`` and the two partitioners of Kafka 0.10.1, with Java's hashes.

The partition is the absolute value of the hash modulo the number of partitions. -2^31, which has no absolute
value in Java, counts as 0, as in the release; masking the sign bit would select another partition. Partitions
without a leader count too, so that a key does not move when a broker fails.
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
    """Selects the partition of a message with a key. Plugged in by ``partitioner.class``."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return a number in ``range(num_partitions)``."""


class DefaultPartitioner:
    """``hash(key) % partitions`` with Java's hash of the key.

    ===========================  =====================================================================
    key                          its hash
    ===========================  =====================================================================
    str                          ``String.hashCode``
    bytes, bytearray             ``Arrays.hashCode``. (The release takes ``Object.hashCode`` of an array,
                                 which differs each time; its ByteArrayPartitioner has this one.)
    int, bool                    ``Integer.hashCode`` within 32 bits, else ``Long.hashCode``;
                                 ``Boolean.hashCode``
    anything else                TypeError: Python's own ``hash`` is not Java's
    ===========================  =====================================================================
    """

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the partition of a key that is not None."""
        return partition_of_hash(_java_hash(key), num_partitions)

    def partition_all(self, keys: Sequence[Any] | pa.Array, num_partitions: int) -> NDArray[np.int32]:
        """Return the partition of each key, int32[n]; -1 for None. An Arrow column must be binary or
        string.
        """
        if not isinstance(keys, pa.Array):
            kinds = set(map(type, keys)) - {type(None)}
            column = _column(keys, kinds)
            if column is None:
                found = (-1 if key is None else self.partition(key, num_partitions) for key in keys)
                return np.fromiter(found, np.int32, len(keys))
            keys = column
        return partitions_by_java_hash(keys, num_partitions)


class ByteArrayPartitioner:
    """``Arrays.hashCode(key) % partitions``, for keys of bytes."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the partition of a key that is not None. Raises TypeError if it is not bytes."""
        if not isinstance(key, _BYTES_LIKE):
            raise TypeError(f"ByteArrayPartitioner: expected a key of bytes, got {key!r:.100}")
        return partition_of_hash(bytes_hash(key), num_partitions)


def _column(keys: Sequence[Any], kinds: set[type]) -> pa.Array | None:
    """Return the keys as one column if they are of one type."""
    if kinds <= {bytes}:
        made = pa.array(keys, pa.binary())
    elif kinds == {str}:
        try:
            made = pa.array(keys, pa.string())
        except UnicodeEncodeError:  # a lone surrogate, which Java hashes too
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
        f"expected a key of str, bytes or int, got {key!r:.100}, whose hash in Java is unknown: set "
        "partitioner.class for other types"
    )
