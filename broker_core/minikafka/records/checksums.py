"""Checksums of messages: CRC-32 (the polynomial of Ethernet and zip) in magic 0 and 1, CRC-32C (Castagnoli's)
in magic 2, both reflected. The tables are made from crcmod's definition.

The kernels take sixteen bytes a step: table ``k`` holds, for each byte, what that byte does to the checksum
after ``k`` more zero bytes. One flat array, because the kernels index it as ``k * 256 + byte``.
"""

from __future__ import annotations

import crcmod
import numpy as np
from numpy.typing import NDArray

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.arrays import read_only

SLICES = 16


def sliced_tables(polynomial: int) -> NDArray[np.uint32]:
    """uint32[16 * 256] for a reflected 32-bit polynomial (with its leading 1), read-only."""
    first = np.array(crcmod.Crc(polynomial, initCrc=0, rev=True, xorOut=0xFFFFFFFF).table, dtype=np.uint32)
    tables = [first]
    for _ in range(SLICES - 1):
        before = tables[-1]
        tables.append((before >> np.uint32(8)) ^ first[before & np.uint32(0xFF)])
    flat = np.concatenate(tables)
    flat.flags.writeable = False
    return flat


CRC32_TABLES = sliced_tables(0x104C11DB7)
"""For magic 0 and 1."""
CRC32C_TABLES = sliced_tables(0x11EDC6F41)
"""For magic 2."""


def crc32c(data: Buffer, before: int = 0) -> int:
    """The checksum of ``data``; ``before`` is that of what lies before it, as with ``zlib.crc32``."""
    return int(kernels.hashing.checksum(CRC32C_TABLES, read_only(data), before))
