"""Compilation of kernels to machine code by numba, and the few primitives that numba does not have: unaligned
big-endian access, access by address, memcpy, prefetching. It is imported only to compile: numba takes half a
second and 60 MB.

The primitives do not check bounds and do not support negative positions: their callers check the range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numba
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minikafka.records.kernels.native import NEVER_CALLED, Code
from minikafka.records.kernels.signatures import Argument
from minikafka.records.kernels.targets import compiled_for

F = TypeVar("F", bound=Callable[..., Any])

_CGUTILS: Any = cgutils
_NUMBA: Any = numba
_TYPES: Any = types


def _retarget(triple: str) -> None:
    """Let numba compile for another machine than this one, in a process that compiles nothing else.

    numba has settings for the processor, but takes the triple (and from it the layout of data) from LLVM.
    """
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    for module in (binding, binding.targets):
        module.get_process_triple = module.get_default_triple = lambda: triple


_target = compiled_for()
if _target is not None:
    _retarget(_target.triple)


def inner(function: F) -> F:
    """Compile a helper that is inlined into the kernels that call it."""
    # A call would pass each array as seven words and count its references.
    compiled: Any = numba.njit(forceinline=True, error_model="numpy")(function)
    return compiled  # type: ignore[no-any-return]


def compiled(function: Callable[..., Any], arguments: Sequence[Argument]) -> Code:
    """Compile a C function that makes arrays of its arguments (see ``native``) and calls ``function``."""
    passed: list[str] = []
    names: dict[str, Any] = {"function": inner(function), "carray": _NUMBA.carray, "pointer": _pointer}
    for i, argument in enumerate(arguments):
        if argument is None:
            passed.append(f"words[{2 * i}]")
        else:
            names[f"kind{i}"] = argument.dtype
            passed.append(f"carray(pointer(words[{2 * i}]), (words[{2 * i + 1}],), kind{i})")
    name = function.__name__
    # numba does not support a variable number of arguments.
    exec(f"def {name}(words):\n    return function({', '.join(passed)})", names)  # noqa: S102
    words = _TYPES.CPointer(_TYPES.int64)
    made = _NUMBA.cfunc(_TYPES.int64(words), error_model="numpy")(names[name])
    _, kind, (data, _) = made._library.serialize_using_object_code()
    assert kind == "object", kind
    module = binding.parse_assembly(made._library.get_llvm_str())
    symbols = (*module.functions, *module.global_variables)
    declared = {symbol.name for symbol in symbols if symbol.is_declaration}
    unknown = {name for name in declared if not name.startswith("llvm.")} - set(NEVER_CALLED)
    assert not unknown, f"{name} needs {unknown}, which only numba has"
    return Code(made.native_name, data)


def _load(bits: int, swap: bool) -> Any:
    result: Any = {8: types.int64, 32: types.uint32, 64: types.uint64}[bits]

    def load(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            pointer = builder.gep(data, [arguments[1]])
            pointer = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            if bits == 8:
                return builder.zext(value, ir.IntType(64))
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


def _copy(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        come = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        _CGUTILS.raw_memcpy(
            builder, builder.gep(to, [arguments[1]]), builder.gep(come, [arguments[3]]), arguments[4], 1
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


def _fetch(typing_context: Any, array: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        fetch = _CGUTILS.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # Arguments: read, highest locality, data cache.
        builder.call(fetch, [pointer, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def _peek(result: Any, stored: ir.Type) -> Any:
    def peek(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            value = builder.load(pointer, align=1)
            if stored == ir.IntType(8):
                return builder.zext(value, ir.IntType(64))
            return builder.sext(value, ir.IntType(64)) if stored == ir.IntType(32) else value

        return result(_TYPES.int64), generate

    return intrinsic(peek)


def _poke(given: Any, stored: ir.Type) -> Any:
    def poke(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            narrow = isinstance(stored, ir.IntType) and stored.width < 64
            builder.store(builder.trunc(arguments[1], stored) if narrow else arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return _TYPES.void(_TYPES.int64, given), generate

    return intrinsic(poke)


def _address(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return _TYPES.int64(array), generate


def _copy_memory(typing_context: Any, target: Any, source: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, come = (builder.inttoptr(given, ir.IntType(8).as_pointer()) for given in arguments[:2])
        _CGUTILS.raw_memcpy(builder, to, come, arguments[2], 1)
        return context.get_dummy_value()

    return _TYPES.void(_TYPES.int64, _TYPES.int64, _TYPES.int64), generate


def _to_pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return _TYPES.voidptr(_TYPES.int64), generate


_pointer: Any = intrinsic(_to_pointer)
load_u8 = _load(8, swap=False)
load_u32 = _load(32, swap=True)
load_u64 = _load(64, swap=True)
load_u64_little = _load(64, swap=False)
store_u32 = _store(32)
store_u64 = _store(64)
copy_bytes: Any = intrinsic(_copy)
fetch_early: Any = intrinsic(_fetch)
peek_u8 = _peek(_TYPES.int64, ir.IntType(8))
peek_i32 = _peek(_TYPES.int64, ir.IntType(32))
peek_i64 = _peek(_TYPES.int64, ir.IntType(64))
peek_f32 = _peek(_TYPES.float32, ir.FloatType())
peek_f64 = _peek(_TYPES.float64, ir.DoubleType())
poke_u8 = _poke(_TYPES.int64, ir.IntType(8))
poke_i32 = _poke(_TYPES.int64, ir.IntType(32))
poke_i64 = _poke(_TYPES.int64, ir.IntType(64))
poke_f32 = _poke(_TYPES.float32, ir.FloatType())
poke_f64 = _poke(_TYPES.float64, ir.DoubleType())
address_of: Any = intrinsic(_address)
copy_memory: Any = intrinsic(_copy_memory)
