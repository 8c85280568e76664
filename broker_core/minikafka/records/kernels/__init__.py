"""Loops over bytes, compiled by numba once per machine; after that their machine code is loaded, and numba is
not (it takes half a second and 60 MB to import). LLVM, which loads it, takes 0.1 s, so these modules are
imported at their first use::

    from minikafka.records import kernels
    kernels.read.decode_run(...)

    read      chase positions, decode to columns, search, scan
    write     validate, assign offsets, stamp, encode from columns, convert down
    batches   all that walks through the records of magic 2
    keys      the map of keys to their largest offsets     compact   what stays of a message set
    hashing   the partitions of a column of keys, checksums

Kernels never raise and never allocate: they take arrays and return a code of ``decode_status``. They read
untrusted bytes, so each one proves a length against what is there before it uses it. Each has one explicit
signature (``signatures``); all of them drop the GIL.

    jit       decorators and primitives of the sources     compiler, folding   with numba
    native    machine code, loaded and called              cache               where it is kept
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

_MODULES = ("read", "write", "batches", "keys", "compact", "hashing")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def warm_up() -> None:
    """Load every kernel; a child process compiles them when this machine has not done so yet."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")


def compile_into(directory: str, *modules: str) -> None:
    """The work of a child that compiles (``cache``)."""
    from minikafka.records.kernels import cache, jit

    for name in modules:
        importlib.import_module(f"{__name__}.{name}")
    cache.keep(Path(directory), jit.codes)
