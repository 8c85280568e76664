"""Checksums by carry-less multiplication, if the processor has it: sixteen bytes in about six cycles.

The state is a polynomial of 128 bits. To append sixteen bytes, it is multiplied by x^128 modulo the
checksum's polynomial, each half by its own constant (``checksums.folding_constants``), and the bytes are
added. At the end, Barrett's reduction turns the 128 bits into 32. See Intel's paper "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction". numba does not have this instruction, so the code is built
in LLVM, where ``<2 x i64>`` is a register.
"""

from __future__ import annotations

import platform
from typing import Any

import numba
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minikafka.records.kernels.targets import compiled_for

_CGUTILS: Any = cgutils
_CONFIG: Any = numba.config
_INT32 = ir.IntType(32)
_LONG = ir.IntType(64)
_WIDE = ir.IntType(128)
_PAIR = ir.VectorType(_LONG, 2)
_WORDS = ir.VectorType(_INT32, 4)
_LOW_WORD = ir.Constant(_PAIR, [0xFFFFFFFF, 0])


def _available() -> bool:
    """Return True if the processor for which numba compiles is known to have the instruction."""
    target = compiled_for()
    if target is not None:
        return "pclmul" in target.extra_features
    if platform.machine() not in ("x86_64", "AMD64") or _CONFIG.CPU_NAME or _CONFIG.CPU_FEATURES:
        return False
    return bool(binding.get_host_cpu_features().get("pclmul"))


AVAILABLE = _available()


def _times(builder: Any, a: Any, b: Any, halves: int) -> Any:
    """Build the carry-less product of two halves: 0x00 both low, 0x11 both high, 0x10 low a and high b."""
    kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)])
    multiply = _CGUTILS.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
    return builder.call(multiply, [a, b, ir.IntType(8)(halves)])


def _shuffled(builder: Any, pair: Any, kind: Any, places: list[int]) -> Any:
    """Build the parts of a register (as a vector of ``kind``) at ``places``; those past the last are 0."""
    mask = ir.Constant(ir.VectorType(_INT32, len(places)), places)
    moved = builder.shuffle_vector(builder.bitcast(pair, kind), ir.Constant(kind, [0] * len(places)), mask)
    return builder.bitcast(moved, _PAIR)


def _reduced(builder: Any, state: Any, by_128: Any, by_64: Any, barrett: Any) -> Any:
    """Build the reduction of 128 bits to 32."""
    # 128 bits to 96, to 64, and then Barrett's reduction.
    state = builder.xor(_times(builder, state, by_128, 0x10), _shuffled(builder, state, _PAIR, [1, 2]))
    low = builder.and_(state, _LOW_WORD)
    state = builder.xor(_times(builder, low, by_64, 0x00), _shuffled(builder, state, _WORDS, [1, 2, 3, 4]))
    quotient = _times(builder, builder.and_(state, _LOW_WORD), barrett, 0x10)
    product = _times(builder, builder.and_(quotient, _LOW_WORD), barrett, 0x00)
    words = builder.bitcast(builder.xor(state, product), _WORDS)
    return builder.extract_element(words, _INT32(1))


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, start, end, crc, tables, constants_at = arguments
    data = context.make_array(signature.args[0])(context, builder, array).data
    words = context.make_array(signature.args[4])(context, builder, tables).data

    def load(position: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(data, [position]), _WIDE.as_pointer()), align=1)

    def constants(index: int) -> Any:
        place = builder.gep(words, [builder.add(constants_at, _LONG(4 * index))])
        return builder.load(builder.bitcast(place, _PAIR.as_pointer()), align=4)

    # Leading zeros change nothing, so the message is padded in front to whole blocks: the first block has 1
    # to 16 bytes, at its end. A part of ``crc``, which is added to the first four bytes, may go to the next
    # block.
    first = builder.add(builder.and_(builder.sub(builder.sub(end, start), _LONG(1)), _LONG(15)), _LONG(1))
    padding = builder.zext(builder.mul(builder.sub(_LONG(16), first), _LONG(8)), _WIDE)
    block = builder.shl(builder.xor(load(start), builder.zext(crc, _WIDE)), padding)
    in_first = builder.select(
        builder.icmp_unsigned("<", first, _LONG(4)), builder.mul(first, _LONG(8)), _LONG(32)
    )
    rest = builder.zext(builder.lshr(builder.zext(crc, _LONG), in_first), _WIDE)

    state = _CGUTILS.alloca_once_value(builder, builder.bitcast(block, _PAIR))
    added = _CGUTILS.alloca_once_value(builder, rest)
    by_128 = constants(0)
    with _CGUTILS.for_range_slice(builder, builder.add(start, first), end, _LONG(16)) as (position, _):
        block = builder.bitcast(builder.xor(load(position), builder.load(added)), _PAIR)
        before = builder.load(state)
        halves = [_times(builder, before, by_128, both) for both in (0x00, 0x11)]
        builder.store(builder.xor(builder.xor(*halves), block), state)
        builder.store(_WIDE(0), added)
    return _reduced(builder, builder.load(state), by_128, constants(1), constants(2))


def _folded(
    typing_context: Any, data: Any, start: Any, end: Any, crc: Any, tables: Any, constants_at: Any
) -> Any:
    result: Any = types.uint32
    return result(data, types.intp, types.intp, types.uint32, tables, types.intp), _generate


folded: Any = intrinsic(_folded)
"""``folded(bytes, start, end, crc, tables, constants_at)``: continue the inverted checksum ``crc`` of the
preceding bytes over ``bytes[start:end]``, which has at least 16 bytes. Only if AVAILABLE."""
