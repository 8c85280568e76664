from __future__ import annotations

import random
import zlib
from itertools import pairwise

import numpy as np

from minikafka.records import kernels, stops
from minikafka.records.arrays import read_only
from minikafka.records.checksums import CRC32_TABLES, SLICES
from tests.oracles import messages as oracle


def test_the_first_table_is_that_of_zip() -> None:
    for byte in (0, 1, 127, 255):
        assert int(CRC32_TABLES[byte]) ^ 0xFF000000 == zlib.crc32(bytes([byte ^ 0xFF]))


def test_each_table_is_the_one_before_after_a_zero_byte() -> None:
    tables = CRC32_TABLES.reshape(SLICES, 256)
    first = tables[0]
    for before, after in pairwise(tables):
        assert np.array_equal(after, (before >> 8) ^ first[before & 255])


def test_the_kernel_agrees_with_zlib_at_every_length() -> None:
    noise = random.Random(3).randbytes(300)
    for length in range(120):
        data = oracle.entry(0, magic=0, value=noise[:length])
        state = np.zeros(kernels.read.SCAN_STATE_SIZE, dtype=np.int64)
        state[kernels.read.SCAN_LARGEST_OFFSET] = 1
        state[kernels.read.SCAN_INTERVAL] = 1 << 30
        state[kernels.read.SCAN_CHECK_CRC] = 1
        room = np.empty(1, dtype=np.int64)
        stop = kernels.read.scan_run(read_only(data), CRC32_TABLES, state, room, room.copy())
        assert stop == stops.END
