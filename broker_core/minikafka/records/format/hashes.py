"""Java's hashes, with which Kafka chooses partitions: murmur2 for keys (``Utils.murmur2`` of 0.10.1), and the
``hashCode`` of strings, byte arrays and numbers for groups and the Scala producer's keys.
"""

from __future__ import annotations

from minikafka.base.files import Buffer

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash as a signed integer, as in Java."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of_key(key: Buffer, partitions: int) -> int:
    """Return the partition of ``key``, in ``range(partitions)``, by Java's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + (high << 8 | low)) & _MASK
    return h - (1 << 32) if h >> 31 else h


def bytes_hash(data: Buffer) -> int:
    """Return Java's ``Arrays.hashCode`` of a byte array, whose bytes are signed: a signed 32-bit integer."""
    h = 1
    for byte in memoryview(data).cast("B"):
        h = (31 * h + byte - (byte >> 7 << 8)) & _MASK
    return h - (1 << 32) if h >> 31 else h


def long_hash(number: int) -> int:
    """Return Java's ``Integer.hashCode`` of a number of 32 bits, else its ``Long.hashCode``: a signed 32-bit
    integer. Raises OverflowError above 64 bits.
    """
    if -(1 << 31) <= number < 1 << 31:
        return number
    bits = int.from_bytes(number.to_bytes(8, "big", signed=True), "big")
    h = (bits ^ bits >> 32) & _MASK
    return h - (1 << 32) if h >> 31 else h


def partition_of_hash(h: int, partitions: int) -> int:
    """Return the partition of a hash in Kafka's Scala code (``Utils.abs`` of 0.10.1): by its absolute value,
    and by 0 for the hash whose absolute value Java cannot represent.
    """
    return (0 if h == -(1 << 31) else abs(h)) % partitions


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` for ``group``. Its leader is the group's coordinator."""
    return partition_of_hash(string_hash(group), partitions)
