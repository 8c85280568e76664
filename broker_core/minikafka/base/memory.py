"""Large pieces of memory, which the system gets back at once when they are let go.

What an allocator takes for pieces of all sizes stays with the process where smaller pieces lie between. A
mapping of its own does not; and a page of it takes no memory before something is written there.
"""

from __future__ import annotations

import gc
import mmap

MAPPED_BYTES = 1 << 20
"""Pieces above this size get a mapping of their own: making one takes a few microseconds."""

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)

COLLECTED_AFTER = 700, 10, 700
"""Python's thresholds of its three generations: a full collection comes after some 5 million new objects that
stay, not after 70,000. Young objects are looked at as often as ever.
"""


def collect_rarely() -> None:
    """Let full collections of garbage be rare in this process: for one that serves many.

    They stop all threads for as long as it takes to look at everything, half a second where a request of
    100,000 names has just been decoded, and came ten times while it was. What is garbage goes without them,
    but for objects that hold each other.
    """
    gc.set_threshold(*COLLECTED_AFTER)


def allocate(size_bytes: int) -> bytearray | mmap.mmap:
    """So many zeros, which live as long as a view of them does. MemoryError when there is no room."""
    if size_bytes <= MAPPED_BYTES:
        return bytearray(size_bytes)
    try:
        return mmap.mmap(-1, size_bytes, flags=_FLAGS)
    except OSError as error:
        raise MemoryError(f"{size_bytes} bytes cannot be had: {error}") from None
