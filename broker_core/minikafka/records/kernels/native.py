"""Machine code of kernels, loaded and called.

A kernel is a C function that gives an int64. For an array it takes the address and the number of items, for
an integer the integer. Calls let go of the interpreter's lock, as every call through ctypes does.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]

from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN
from minikafka.records.kernels.signatures import Argument

_address_at: Any = ctypes.c_void_p.from_address
_ADDRESS_AT = object.__basicsize__
"""Where an array object holds the address of its items: in its first own field, a part of numpy's binary
interface that its C macros read. The ways through Python's attributes take ten times as long."""

NEVER_CALLED = (
    "NRT_MemInfo_call_dtor",
    "PyErr_Clear",
    "PyErr_SetNone",
    "PyErr_SetString",
    "PyErr_WriteUnraisable",
    "PyExc_StopIteration",
    "PyExc_SystemError",
    "PyUnicode_FromString",
    "Py_DecRef",
    "numba_gil_ensure",
    "numba_gil_release",
)
"""What numba's code reports errors with: kernels make none. (``compiler`` sees to it that this is all.)"""


@dataclass(frozen=True, slots=True)
class Code:
    """One compiled kernel: an object file in the machine's own format, and the function's name in it."""

    symbol: str
    data: bytes


class Loader:
    """Code in this process's memory, for as long as the loader lives."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        # When one name has no address LLVM resolves none, and says nothing; so they are defined, for this
        # loader alone: a numba that the process imported has the same names.
        stubs = [f'define void @"{name}"() {{ unreachable }}' for name in NEVER_CALLED]
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly("\n".join(stubs)), machine)

    def load(self, codes: Mapping[str, Code]) -> dict[str, int]:
        """Name to address."""
        for code in codes.values():
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
        self._engine.finalize_object()
        return {name: self._engine.get_function_address(code.symbol) for name, code in codes.items()}


class Kernel:
    """A kernel as Python calls it. TypeError for an argument that its machine code does not expect."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Argument], address: int) -> None:
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self._arguments = tuple(None if one is None else (one.dtype, one.flags) for one in arguments)
        kinds: list[Any] = []
        for argument in arguments:
            kinds += [ctypes.c_int64] if argument is None else [ctypes.c_void_p, ctypes.c_int64]
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)

    def __call__(self, *given: Any) -> int:
        """Arguments by position, as the kernel's source has them."""
        words: list[int | None] = []
        for argument, value in zip(self._arguments, given, strict=True):
            if argument is None:
                words.append(_int64(value))
                continue
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{self.__name__} takes an array, not {value!r:.100}")
            dtype, needs = argument
            if value.dtype != dtype or value.ndim != 1 or value.flags.num & needs != needs:
                raise TypeError(
                    f"{self.__name__} does not take {value.dtype}{list(value.shape)}: {value.flags}"
                )
            words.append(_address_at(id(value) + _ADDRESS_AT).value)
            words.append(value.size)
        result: int = self._function(*words)
        return result


def _int64(value: Any) -> int:
    number = operator.index(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise OverflowError(f"{number} does not fit 64 bits")
    return number
