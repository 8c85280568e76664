"""Checksums of messages: CRC-32 (the polynomial of Ethernet and zip) in magic 0 and 1, CRC-32C (Castagnoli's)
in magic 2, both reflected. The tables are made from crcmod's definition.

Table ``k`` holds, for each byte, its contribution to the checksum after ``k`` more zero bytes: the kernels
process sixteen bytes a step. The tables are one flat array, indexed as ``k * 256 + byte``, followed by the
constants for folding.
"""

from __future__ import annotations

import crcmod
import numpy as np
from numpy.typing import NDArray

from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.kernels.arrays import read_only

SLICES = 16


def sliced_tables(polynomial: int) -> NDArray[np.uint32]:
    """Return the tables, uint32[16 * 256 + 12], read-only, for a reflected 32-bit polynomial (with its
    leading 1).
    """
    first = np.array(crcmod.Crc(polynomial, initCrc=0, rev=True, xorOut=0xFFFFFFFF).table, dtype=np.uint32)
    tables = [first]
    for _ in range(SLICES - 1):
        before = tables[-1]
        tables.append((before >> np.uint32(8)) ^ first[before & np.uint32(0xFF)])
    flat = np.concatenate([*tables, folding_constants(polynomial)])
    flat.flags.writeable = False
    return flat


def folding_constants(polynomial: int) -> NDArray[np.uint32]:
    """Return the multipliers of ``kernels.folding``: six 64-bit numbers, low word first, all reflected.

    x^160 and x^96 modulo the polynomial, x^64 modulo it and 0, the polynomial and the quotient of x^64 by it.
    """
    quotient, rest = 0, 1 << 64
    for shift in range(32, -1, -1):
        if rest >> 32 + shift & 1:
            quotient |= 1 << shift
            rest ^= polynomial << shift
    powers = [_power(exponent, polynomial) for exponent in (160, 96, 64)]
    reflected = [int(f"{number:033b}"[::-1], 2) for number in (*powers, 0, polynomial, quotient)]
    words = [word for number in reflected for word in (number & 0xFFFFFFFF, number >> 32)]
    return np.array(words, dtype=np.uint32)


def _power(exponent: int, polynomial: int) -> int:
    """Return x^exponent modulo the polynomial of degree 32."""
    power = 1
    for _ in range(exponent):
        power <<= 1
        if power >> 32:
            power ^= polynomial
    return power


CRC_TABLES = np.concatenate((sliced_tables(0x104C11DB7), sliced_tables(0x11EDC6F41)))
"""The tables of CRC-32, then those of CRC-32C."""
CRC_TABLES.flags.writeable = False
CRC32_TABLES = CRC_TABLES[: CRC_TABLES.size // 2]
"""For magic 0 and 1."""
CRC32C_TABLES = CRC_TABLES[CRC_TABLES.size // 2 :]
"""For magic 2."""


def crc32c(data: Buffer, before: int = 0) -> int:
    """Return the checksum of ``data``; ``before`` is that of the preceding bytes, as with ``zlib.crc32``."""
    return int(kernels.hashing.checksum(CRC32C_TABLES, read_only(data), before))
