"""Machine code of kernels, loaded and called.

A kernel is a C function that gives an int64. For an array it takes the address and the number of items, for
an integer the integer. Calls let go of the interpreter's lock, as every call through ctypes does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]

from minikafka.records.kernels.signatures import Argument

_C_LIBRARY = ("memcpy", "memmove", "memset")
"""What machine code may call by itself."""


@dataclass(frozen=True, slots=True)
class Code:
    """One compiled kernel: an object file in the machine's own format, and the function's name in it.

    externals: what the file has from elsewhere, besides the C library. numba reports errors with it; kernels
    make none.
    """

    symbol: str
    externals: tuple[str, ...]
    data: bytes


class Loader:
    """Code in this process's memory, for as long as the loader lives."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)

    def load(self, codes: Mapping[str, Code]) -> dict[str, int]:
        """Name to address."""
        for code in codes.values():
            _provide([*_C_LIBRARY, *code.externals])
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
        self._engine.finalize_object()
        return {name: self._engine.get_function_address(code.symbol) for name, code in codes.items()}


def _provide(names: Iterable[str]) -> None:
    """Give LLVM an address for each name: when one is missing it resolves none, and says nothing.

    Names are LLVM's for the whole process. What is there is left alone: a numba that the process imported
    has the same names. What cannot be found is never called.
    """
    process = ctypes.CDLL(None)
    for name in names:
        if not binding.address_of_symbol(name):
            found = getattr(process, name, None) or process.abort
            binding.add_symbol(name, ctypes.cast(found, ctypes.c_void_p).value)


class Kernel:
    """A kernel as Python calls it. TypeError for an argument that its machine code does not expect."""

    __slots__ = ("__name__", "_arguments", "_function")

    def __init__(self, name: str, arguments: Sequence[Argument], address: int) -> None:
        self.__name__ = name
        self._arguments = tuple(arguments)
        kinds: list[Any] = []
        for argument in arguments:
            kinds += [ctypes.c_int64] if argument is None else [ctypes.c_void_p, ctypes.c_int64]
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)

    def __call__(self, *given: Any) -> int:
        words: list[int] = []
        for argument, value in zip(self._arguments, given, strict=True):
            if argument is None:
                words.append(int(value))
                continue
            flags = value.flags
            if (
                value.dtype != argument.dtype
                or value.ndim != 1
                or not flags.c_contiguous
                or not (flags.writeable or not argument.written)
            ):
                raise TypeError(f"{self.__name__} does not take {value.dtype}{list(value.shape)}: {flags}")
            words.append(value.__array_interface__["data"][0])
            words.append(value.size)
        result: int = self._function(*words)
        return result
