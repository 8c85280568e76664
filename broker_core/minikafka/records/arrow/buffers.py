"""Memory for columns and message sets, from Arrow's memory pool.

The pool keeps freed memory. numpy allocates arrays of this size from the system for every set and returns
them to it, and the page faults of fresh memory cost as much as decoding: 100 ns a message of 142 bytes.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


def empty(size: int, dtype: type[T] | np.dtype[T]) -> NDArray[T]:
    """Return an uninitialized array of ``size`` items."""
    kind = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(size * kind.itemsize), dtype=kind)


def grown(array: NDArray[T], used: int, size: int) -> NDArray[T]:
    """Return an array of ``size`` items that starts with the first ``used`` of ``array``."""
    larger = empty(size, array.dtype)
    larger[:used] = array[:used]
    return larger
