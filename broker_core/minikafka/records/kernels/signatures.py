"""The argument types of kernels: 64-bit integers, and contiguous one-dimensional arrays of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = Any
"""An int64 in compiled code. (To a type checker numpy's scalars are not ``int``, and the loops mix them.)"""
Bytes = NDArray[np.uint8]
Tables = NDArray[np.uint32]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Shorts = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array that a kernel reads or, if ``written``, also writes."""

    dtype: np.dtype[Any]
    written: bool

    @property
    def flags(self) -> int:
        """The numpy flags that it must have: contiguous, aligned, and writable if it is written."""
        return 0x1 | 0x100 | (0x400 if self.written else 0)


I64 = None
"""An integer."""
Argument = ArrayOf | None

BYTES = ArrayOf(np.dtype(np.uint8), written=False)
BYTES_OUT = ArrayOf(np.dtype(np.uint8), written=True)
TABLES = ArrayOf(np.dtype(np.uint32), written=False)
I64S = ArrayOf(np.dtype(np.int64), written=False)
I64S_OUT = ArrayOf(np.dtype(np.int64), written=True)
I32S = ArrayOf(np.dtype(np.int32), written=False)
I32S_OUT = ArrayOf(np.dtype(np.int32), written=True)
I8S_OUT = ArrayOf(np.dtype(np.int8), written=True)
