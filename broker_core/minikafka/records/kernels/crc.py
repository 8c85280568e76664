"""CRC-32 and CRC-32C: by folding if the processor supports it (``folding``), else with sixteen tables,
sixteen bytes a step. The tables determine which of the two checksums is computed.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.jit import FOLDS, folded, inner, load_u64_little
from minikafka.records.kernels.signatures import Bytes, Number, Tables

ALL_ONES = np.uint32(0xFFFFFFFF)
CONSTANTS_AT = 4096
"""The position of the constants for folding, after the tables (``records.format.checksums``)."""


CRC32C_AT = 4108
"""The position of the tables of CRC-32C, after those of CRC-32."""


@inner
def crc32(tables: Tables, data: Bytes, start: Number, end: Number) -> Number:
    """Return the checksum of ``data[start:end]``, a valid range, with the first of ``tables``."""
    return extended(tables, data, start, end, ALL_ONES) ^ ALL_ONES


@inner
def crc32c(tables: Tables, data: Bytes, start: Number, end: Number) -> Number:
    """Return the CRC-32C of ``data[start:end]``; ``tables`` is ``records.format.checksums.CRC_TABLES``."""
    return extended(tables[CRC32C_AT:], data, start, end, ALL_ONES) ^ ALL_ONES


@inner
def extended(tables: Tables, data: Bytes, start: Number, end: Number, crc: Number) -> Number:
    """Continue the inverted checksum ``crc`` of the preceding bytes over ``data[start:end]``."""
    if FOLDS and end - start >= 16:
        return folded(data, start, end, crc, tables, CONSTANTS_AT)
    at = start
    while end - at >= 16:
        a = load_u64_little(data, at) ^ np.uint64(crc)
        b = load_u64_little(data, at + 8)
        crc = (
            tables[3840 + np.intp(a & 255)]
            ^ tables[3584 + np.intp(a >> 8 & 255)]
            ^ tables[3328 + np.intp(a >> 16 & 255)]
            ^ tables[3072 + np.intp(a >> 24 & 255)]
            ^ tables[2816 + np.intp(a >> 32 & 255)]
            ^ tables[2560 + np.intp(a >> 40 & 255)]
            ^ tables[2304 + np.intp(a >> 48 & 255)]
            ^ tables[2048 + np.intp(a >> 56)]
            ^ tables[1792 + np.intp(b & 255)]
            ^ tables[1536 + np.intp(b >> 8 & 255)]
            ^ tables[1280 + np.intp(b >> 16 & 255)]
            ^ tables[1024 + np.intp(b >> 24 & 255)]
            ^ tables[768 + np.intp(b >> 32 & 255)]
            ^ tables[512 + np.intp(b >> 40 & 255)]
            ^ tables[256 + np.intp(b >> 48 & 255)]
            ^ tables[np.intp(b >> 56)]
        )
        at += 16
    while at < end:
        crc = tables[np.intp((crc ^ data[at]) & 255)] ^ crc >> np.uint32(8)
        at += 1
    return crc
