from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from itertools import pairwise

import crcmod.predefined
import numpy as np
import pytest

from minikafka.records import kernels
from minikafka.records.format.checksums import CRC32_TABLES, CRC32C_TABLES, SLICES, crc32c, folding_constants
from minikafka.records.kernels.arrays import read_only
from minikafka.records.scan.scan import scan
from tests.oracles import messages as oracle


def test_the_first_table_is_that_of_zip() -> None:
    for byte in (0, 1, 127, 255):
        assert int(CRC32_TABLES[byte]) ^ 0xFF000000 == zlib.crc32(bytes([byte ^ 0xFF]))


def test_each_table_is_the_one_before_after_a_zero_byte() -> None:
    tables = CRC32_TABLES[: SLICES * 256].reshape(SLICES, 256)
    first = tables[0]
    for before, after in pairwise(tables):
        assert np.array_equal(after, (before >> 8) ^ first[before & 255])


def test_folding_constants_are_the_published_ones_of_crc_32() -> None:
    low_and_high = folding_constants(0x104C11DB7).reshape(-1, 2).tolist()
    assert [low | high << 32 for low, high in low_and_high] == [
        0x1751997D0,
        0x0CCAA009E,
        0x163CD6124,
        0,
        0x1DB710641,
        0x1F7011641,
    ]


def test_kernel_agrees_with_zlib_and_crcmod_at_every_length() -> None:
    noise = random.Random(3).randbytes(400)
    castagnoli = crcmod.predefined.mkCrcFun("crc-32c")
    for length in range(300):
        data = noise[length % 19 :][:length]
        assert kernels.hashing.checksum(CRC32_TABLES, read_only(data), 0) == zlib.crc32(data)
        assert kernels.hashing.checksum(CRC32C_TABLES, read_only(data), 0) == castagnoli(data)


def test_checksum_can_be_continued_at_any_position() -> None:
    data = random.Random(4).randbytes(80)
    whole = crc32c(data)
    assert all(crc32c(data[cut:], crc32c(data[:cut])) == whole for cut in range(81))


BY_TABLES = """
import random, zlib
from minikafka.records import kernels
from minikafka.records.kernels.arrays import read_only
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.kernels import folding
assert not folding.AVAILABLE
noise = random.Random(3).randbytes(100)
for length in range(100):
    assert kernels.hashing.checksum(CRC32_TABLES, read_only(noise[:length]), 0) == zlib.crc32(noise[:length])
"""


@pytest.mark.process
def test_processor_without_clmul_uses_the_tables() -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "MINIKAFKA_COMPILING_KERNELS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BY_TABLES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_scan_accepts_checksums_of_messages_of_every_length() -> None:
    noise = random.Random(3).randbytes(300)
    for length in range(120):
        data = oracle.entry(0, magic=0, value=noise[:length])
        assert scan(data, base_offset=0).problem is None
