"""The decorators of the kernels, and the few primitives that numba does not have: unaligned big-endian
access, memcpy.

The primitives do not check bounds and do not know negative positions: what calls them has proved the range.
Importing this module imports numba and fills the cache of compiled kernels (``cache.prepare``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from minikafka.records.kernels.cache import prepare

F = TypeVar("F", bound=Callable[..., Any])

Number = Any
"""An int64 in compiled code. (numpy's scalars are no ``int`` to a type checker, and the loops mix them.)"""
Bytes = NDArray[np.uint8]
Tables = NDArray[np.uint32]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Shorts = NDArray[np.int8]

I64 = types.int64
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
TABLES = types.Array(types.uint32, 1, "C", readonly=True)
I64S = types.Array(types.int64, 1, "C", readonly=True)
I64S_OUT = types.Array(types.int64, 1, "C")
I32S = types.Array(types.int32, 1, "C", readonly=True)
I32S_OUT = types.Array(types.int32, 1, "C")
I8S_OUT = types.Array(types.int8, 1, "C")

_CONFIG: Any = numba.config
_RAW_MEMCPY: Any = cgutils.raw_memcpy
_DIRECTORY = prepare()


def kernel(*signature: Any, returns: Any = I64) -> Callable[[F], F]:
    """Compile for exactly these argument types, or load what was compiled before."""

    def decorate(function: F) -> F:
        # numba knows one cache directory for the whole process and asks for it while it decorates: ours is in
        # place for that moment only, so that other numba code of the process keeps its own.
        before = _CONFIG.CACHE_DIR
        if _DIRECTORY is not None:
            _CONFIG.CACHE_DIR = str(_DIRECTORY)
        try:
            compiled: Any = numba.njit(returns(*signature), nogil=True, cache=_DIRECTORY is not None)(
                function
            )
        finally:
            _CONFIG.CACHE_DIR = before
        return compiled  # type: ignore[no-any-return]

    return decorate


def inner(function: F) -> F:
    """A helper that becomes part of the kernels that call it."""
    compiled: Any = numba.njit(nogil=True, forceinline=True)(function)
    return compiled  # type: ignore[no-any-return]


def _load(bits: int, swap: bool) -> Any:
    result: Any = types.uint32 if bits == 32 else types.uint64

    def load(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.gep(data, [arguments[1]])
            pointer = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return builder.bswap(value) if swap else value

        return result(array, types.intp), generate

    return intrinsic(load)


def _store(bits: int) -> Any:
    given: Any = types.uint32 if bits == 32 else types.uint64

    def store(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.gep(data, [arguments[1]])
            pointer = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            builder.store(builder.bswap(arguments[2]), pointer, align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, given), generate

    return intrinsic(store)


load_u32 = _load(32, swap=True)
"""``load_u32(bytes, position)``: big-endian."""
load_u64 = _load(64, swap=True)
load_u64_little = _load(64, swap=False)
"""Little-endian: numba runs on no other machines."""
store_u32 = _store(32)
"""``store_u32(bytes, position, value)``: big-endian."""
store_u64 = _store(64)


def _copy(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        come = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        _RAW_MEMCPY(
            builder,
            builder.gep(to, [arguments[1]]),
            builder.gep(come, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


copy_bytes: Any = intrinsic(_copy)
"""``copy_bytes(target, target_at, source, source_at, length)`` between arrays that do not overlap."""
