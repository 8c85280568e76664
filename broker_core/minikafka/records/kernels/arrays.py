"""Views of buffers as arrays for the kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minikafka.base.files import Buffer

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)


def as_int64(number: int) -> int:
    """Return ``number`` modulo 2^64 as int64, as the kernels (and Java) add offsets and timestamps."""
    return (number - INT64_MIN) % (1 << 64) + INT64_MIN


def read_only(data: Buffer) -> NDArray[np.uint8]:
    """Return ``data`` as a read-only uint8[n]."""
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


def writable(data: Buffer) -> NDArray[np.uint8]:
    """Return ``data``, which must be writable, as uint8[n]."""
    array = np.frombuffer(data, dtype=np.uint8)
    if not array.flags.writeable:
        raise ValueError("expected a writable buffer")
    return array
