"""Loops over bytes, compiled by numba once per machine.

After that, their machine code is loaded without numba (which takes half a second and 60 MB to import). LLVM,
which loads it, takes 0.1 s, so these modules are imported at their first use::

    from minikafka.records import kernels
    kernels.read.decode_run(...)

    read      follow positions, decode to columns, search, scan
    write     validate, assign offsets, stamp, encode from columns, convert down
    batches   everything that iterates over the records of magic 2
    keys      the map of keys to their largest offsets     compact   the filter of compaction
    hashing   the partitions of a column of keys, checksums
    protobuf  fields of messages to columns and back
    avro_read, avro_write   Avro values to columns and back, by programs of ``avro_ops``
    json_read   JSON values to columns, by the tables of ``json_ops``

Kernels never raise and never allocate: they take arrays and return a code of ``decode_status``. They read
untrusted bytes, so each one checks a length against the available bytes before it uses it. Each has one
explicit signature (``signatures``); all of them release the GIL.

    layout    the table of the fields of entries, which everything that looks into entries uses
    values    what the kernels over values share
    jit       decorators and primitives of the sources     compiler, folding   compilation with numba
    native    loading and calling of machine code          cache               cache of machine code
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

_MODULES = (
    "read",
    "write",
    "batches",
    "keys",
    "compact",
    "hashing",
    "protobuf",
    "avro_read",
    "avro_write",
    "json_read",
)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def warm_up() -> None:
    """Load every kernel. Child processes compile them if this machine has not done so yet."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")


def compile_into(directory: str, *modules: str) -> None:
    """Compile modules into a directory, in a child process of ``cache``."""
    from minikafka.records.kernels import cache, jit

    for name in modules:
        importlib.import_module(f"{__name__}.{name}")
    cache.keep(Path(directory), jit.codes)
