"""Loading and calling of the kernels' machine code.

A kernel is a C function that takes the address of its arguments and returns an int64. An argument has two
int64: the address and the number of items of an array; or an integer, and 0. Calls release the interpreter's
lock, as every call through ctypes does.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]
from numpy.typing import NDArray

from minikafka.records.kernels.arrays import INT64_MAX, INT64_MIN
from minikafka.records.kernels.signatures import Argument

_address_at: Any = ctypes.c_void_p.from_address
_ADDRESS_AT = object.__basicsize__
"""The offset of the items' address in an array object: its first own field, a part of numpy's binary
interface that its C macros read. Access through Python's attributes takes ten times as long.
"""

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
"""The functions with which numba's code reports errors, which kernels never do. (``compiler`` checks that the
list is complete.)"""


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled kernel: an object file in the machine's format, and the function's name in it."""

    symbol: str
    data: bytes


class Loader:
    """Loads code into this process's memory, for the lifetime of the loader."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        # If one name has no address, LLVM silently resolves none. So they are defined, for this loader only:
        # a numba that the process has imported has the same names.
        stubs = [f'define void @"{name}"() {{ unreachable }}' for name in NEVER_CALLED]
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly("\n".join(stubs)), machine)

    def load(self, codes: Mapping[str, Code]) -> dict[str, int]:
        """Load code, and return the address of each kernel by name."""
        for code in codes.values():
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
        self._engine.finalize_object()
        return {name: self._engine.get_function_address(code.symbol) for name, code in codes.items()}


class Kernel:
    """A kernel that can be called from Python. TypeError for an argument that its code does not expect."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Argument], address: int) -> None:
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.arguments = tuple(
            None if argument is None else (argument.dtype, argument.flags) for argument in arguments
        )
        self._pack = struct.Struct(f"={2 * len(arguments)}q").pack
        self.function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def __call__(self, *given: Any) -> int:
        """Call the kernel with positional arguments, in the order of its source."""
        result: int = self.function(self._pack(*self.words(self.arguments, given)))
        return result

    def prepared(self, *given: Any) -> Call:
        """Return a call that can be repeated, in a tenth of the time of a first call with many arrays."""
        return Call(self, given)

    def words(self, arguments: Sequence[Any], given: Sequence[Any]) -> list[int]:
        """Return the words of these arguments."""
        words: list[int] = []
        for argument, value in zip(arguments, given, strict=True):
            if argument is None:
                words += (_int64(value), 0)
                continue
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{self.__name__}: expected an array, got {value!r:.100}")
            dtype, needs = argument
            if value.dtype != dtype or value.ndim != 1 or value.flags.num & needs != needs:
                raise TypeError(
                    f"{self.__name__}: unexpected array {value.dtype}{list(value.shape)}: {value.flags}"
                )
            words.append(_address_at(id(value) + _ADDRESS_AT).value or 0)
            words.append(value.size)
        return words


class Call:
    """A call of a kernel with arrays that the caller keeps, and does not resize, as long as it calls."""

    def __init__(self, kernel: Kernel, given: Sequence[Any]) -> None:
        self._kernel = kernel
        self._function = kernel.function
        words = kernel.words(kernel.arguments, given)
        self._words = (ctypes.c_int64 * len(words))(*words)
        self._address = ctypes.addressof(self._words)

    def __call__(self) -> int:
        """Call the kernel."""
        result: int = self._function(self._address)
        return result

    def replace(self, index: int, array: NDArray[Any]) -> None:
        """Pass another array as the argument with this index from now on."""
        words = self._kernel.words(self._kernel.arguments[index : index + 1], (array,))
        self._words[2 * index], self._words[2 * index + 1] = words


def _int64(value: Any) -> int:
    number = operator.index(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise OverflowError(f"{number} does not fit 64 bits")
    return number
