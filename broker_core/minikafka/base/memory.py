"""Large blocks of memory that return to the system as soon as they are freed; when garbage is collected.

Memory from an allocator stays with the process when smaller blocks lie between the freed ones. A separate
mapping does not; and a page of it uses no memory before something is written to it.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MAPPED_BYTES = 1 << 20
"""Blocks above this size get their own mapping. Creating one takes a few microseconds."""

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)

COLLECTED_AFTER = 700, 10, 700
"""Python's thresholds for its three generations: a full collection runs after some 5 million new objects that
stay alive, not after 70,000. Young objects are collected as often as before.
"""


def collect_rarely() -> None:
    """Make full garbage collections rare in this process, which serves many connections.

    A full collection stops all threads until it has visited every object: half a second when a request of
    100,000 names has just been decoded, and ten such collections ran while it was. Garbage is freed without
    them, except objects that refer to each other.
    """
    gc.set_threshold(*COLLECTED_AFTER)


def without_collection(create: Callable[[], T]) -> T:
    """Return ``create()``, many new objects without cycles, which are not searched for garbage meanwhile.

    Python searches after every 700 new objects, and moves those that live on to older generations, so that
    searches of all objects follow. If another thread disables the garbage collector meanwhile, it is enabled
    again at the end.
    """
    enabled = gc.isenabled()
    try:
        if enabled:  # if it is not, another thread may be in here, and enable it before this one disables it
            gc.disable()
        return create()
    finally:
        if enabled:
            gc.enable()


def allocate(size_bytes: int) -> bytearray | mmap.mmap:
    """Allocate ``size_bytes`` zeros, which live as long as a view of them.

    Raises MemoryError if that fails.
    """
    if size_bytes <= MAPPED_BYTES:
        return bytearray(size_bytes)
    try:
        return mmap.mmap(-1, size_bytes, flags=_FLAGS)
    except OSError as error:
        raise MemoryError(f"failed to allocate {size_bytes} bytes: {error}") from None
