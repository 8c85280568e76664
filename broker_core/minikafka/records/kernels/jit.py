"""The decorators of the kernels, and the primitives that they use.

If there is machine code (``cache``), it is loaded and numba is not imported: then helpers and primitives are
only names, which are never called. Otherwise (in the child that compiles them, and if no cache is writable)
numba compiles them here. A child that compiles for another machine does not load the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minikafka.base.reports import report
from minikafka.records.kernels import cache
from minikafka.records.kernels.native import Code, Kernel, Loader
from minikafka.records.kernels.signatures import Argument
from minikafka.records.kernels.targets import compiled_for

F = TypeVar("F", bound=Callable[..., Any])

_loader = Loader()
_kept = cache.machine_code()
_addresses = {} if _kept is None else _loader.load(_kept)
_named: set[str] = set()

codes: dict[str, Code] = {} if _kept is None else _kept
"""The machine code of every kernel so far, by name."""

inner: Callable[[F], F]
"""``@inner``: a helper that is inlined into the kernels that call it."""
load_u8: Any = None
"""``load_u8(bytes, position)``: the byte there, as an int64."""
load_u32: Any = None
"""``load_u32(bytes, position)``: big-endian, at any position."""
load_u64: Any = None
load_u64_little: Any = None
"""Little-endian: numba supports no other machines."""
store_u32: Any = None
"""``store_u32(bytes, position, value)``: big-endian."""
store_u64: Any = None
copy_bytes: Any = None
"""``copy_bytes(target, target_at, source, source_at, length)`` between arrays that do not overlap."""
fetch_early: Any = None
"""``fetch_early(array, position)``: prefetch the item into the processor's cache, if it exists."""
peek_u8: Any = None
"""``peek_u8(address)``: the int64 of the byte there; the other ``peek`` and ``poke`` are little-endian."""
peek_i32: Any = None
peek_i64: Any = None
peek_f32: Any = None
peek_f64: Any = None
poke_u8: Any = None
"""``poke_u8(address, int64)``: store the lowest byte."""
poke_i32: Any = None
poke_i64: Any = None
poke_f32: Any = None
poke_f64: Any = None
address_of: Any = None
"""``address_of(array)``: that of its first item."""
copy_memory: Any = None
"""``copy_memory(target, source, length)`` between addresses of memory that does not overlap."""
folded: Any = None
"""See ``folding``; None if FOLDS is false."""
FOLDS = False

if _kept is None:
    from minikafka.records.kernels import compiler, folding

    inner = compiler.inner
    load_u8 = compiler.load_u8
    load_u32, load_u64, load_u64_little = compiler.load_u32, compiler.load_u64, compiler.load_u64_little
    store_u32, store_u64, copy_bytes = compiler.store_u32, compiler.store_u64, compiler.copy_bytes
    fetch_early, address_of, copy_memory = compiler.fetch_early, compiler.address_of, compiler.copy_memory
    peek_u8, peek_i32, peek_i64 = compiler.peek_u8, compiler.peek_i32, compiler.peek_i64
    peek_f32, peek_f64 = compiler.peek_f32, compiler.peek_f64
    poke_u8, poke_i32, poke_i64 = compiler.poke_u8, compiler.poke_i32, compiler.poke_i64
    poke_f32, poke_f64 = compiler.poke_f32, compiler.poke_f64
    folded, FOLDS = folding.folded, folding.AVAILABLE
else:

    def inner(function: F) -> F:
        return function


def kernel(*arguments: Argument) -> Callable[[F], F]:
    """Decorate a kernel: machine code for exactly these arguments, with an int64 as result."""

    def decorate(function: F) -> F:
        name = function.__name__
        if name in _named:
            raise ValueError(f"two kernels are named {name}: the machine code is stored by name")
        _named.add(name)
        if _kept is None:
            codes[name] = compiler.compiled(function, arguments)
            report("compiled", kernel=name)
            if compiled_for() is not None:
                return function
            _addresses.update(_loader.load({name: codes[name]}))
        made: Any = Kernel(function, arguments, _addresses[name])
        return made  # type: ignore[no-any-return]

    return decorate
