"""The filesystem in memory: the same port as ``RealFiles``, with power cuts and injected faults.

Two things are modelled separately, as on a real machine:

- **Contents.** Every file has the bytes that programs see (the page cache) and the bytes on the disk.
  ``File.sync`` brings the disk up to date, page by page.
- **Names.** Every directory has the names that programs see and the names on the disk. ``Files.sync_dir``
  brings the disk up to date. A file that was synced but whose name was not is lost in a power cut.

``kill_process`` closes every open file and lock, and loses nothing: the page cache outlives a process.
``power_cut`` does the same and then keeps only the synced state. With a random source it keeps more than
that, as a disk may have written some of the rest already: each unsynced page is written, not written, torn at
a sector, or (where the file had grown) filled with random bytes; the length may be any between the synced and
the newest one; of the changes of each directory a prefix, in their order, is kept. ``losses`` counts each
kind of loss.

Journals (ext4, XFS) keep one order of names over a whole filesystem, even without a ``sync_dir``. Here only
the changes of one directory keep their order: one directory may lose changes that are older than those that
another keeps.

Every call that changes something is recorded in ``operations``, in order, so that a test can check that "the
response came after the fsync": it adds its own events with ``note``.
"""

from __future__ import annotations

import errno as errno_module
import functools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from minikafka.base.clock import ManualClock
from minikafka.base.errors import DirectoryLocked, StorageError
from minikafka.base.files import Buffer, DiskSpace, File, Lock

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_NAME_MAX_BYTES = 255

Losses = Counter[str]
"""The number of losses by kind."""


class RandomSource(Protocol):
    """The source of random numbers of a power cut, such as ``random.Random(seed)``."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to, not including, ``stop``."""

    def randbytes(self, n: int, /) -> bytes:
        """Return ``n`` bytes."""


class FileOperation(NamedTuple):
    """A change, or an event of a test. ``position`` and ``length`` are in bytes, 0 if they do not apply."""

    kind: str
    """write, truncate, sync, create, rename, remove, make_dir, sync_dir, lock, unlock, or a test's event."""
    path: str
    position: int = 0
    length: int = 0


@dataclass(slots=True)
class _Content:
    """A file's bytes: as programs see them, as the disk has them, and the pages in which these may differ."""

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    modified_ms: int = 0
    page_bytes: int = PAGE_BYTES

    def write(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if position > len(self.seen):
            self.resize(position)
        self.seen[position:end] = data
        if end > position:
            self.dirty.update(range(position // self.page_bytes, (end - 1) // self.page_bytes + 1))

    def resize(self, size: int) -> None:
        old = len(self.seen)
        if size < old:
            del self.seen[size:]
            self.dirty.add(size // self.page_bytes)
        elif size > old:
            self.seen.extend(bytes(size - old))
            self.dirty.update(range(old // self.page_bytes, (size - 1) // self.page_bytes + 1))

    def sync(self) -> None:
        self._disk_size(len(self.seen))
        for page in self.dirty:
            begin = page * self.page_bytes
            self.disk[begin : begin + self.page_bytes] = self.seen[begin : begin + self.page_bytes]
        self.dirty.clear()

    def lose_unsynced(self, random: RandomSource | None, sector_bytes: int, losses: Losses) -> None:
        """Apply a power cut: programs see the disk's bytes from now on."""
        if random is not None:
            self._write_some(random, sector_bytes, losses)
        self.seen = bytearray(self.disk)
        self.dirty.clear()

    def _write_some(self, random: RandomSource, sector_bytes: int, losses: Losses) -> None:
        low, high = sorted((len(self.disk), len(self.seen)))
        old_size = len(self.disk)
        self._disk_size(random.randrange(high - low + 1) + low)
        losses["a length in between"] += low < len(self.disk) < high
        for page in sorted(self.dirty):
            begin = page * self.page_bytes
            end = min(begin + self.page_bytes, len(self.disk), len(self.seen))
            fate = random.random()
            if begin >= end or fate < 0.4:
                losses["a block not written"] += 1
                continue
            if fate < 0.8:
                self.disk[begin:end] = self.seen[begin:end]
                losses["a block written before its sync"] += 1
            elif fate < 0.9 or end <= old_size:
                torn = min(end, begin + sector_bytes * random.randrange(self.page_bytes // sector_bytes))
                self.disk[begin:torn] = self.seen[begin:torn]
                losses["a block torn"] += 1
            else:
                # The length grew before the block was written, so old bytes of the disk show through.
                begin = max(begin, old_size)
                self.disk[begin:end] = random.randbytes(end - begin)
                losses["a block of random bytes"] += 1

    def _disk_size(self, size: int) -> None:
        if size < len(self.disk):
            del self.disk[size:]
        else:
            self.disk.extend(bytes(size - len(self.disk)))


_Change = tuple[str, "_Node | None"]
"""A name and the node that it refers to from now on (None: the name is removed)."""


@dataclass(slots=True)
class _Directory:
    """A directory's names: as programs see them, as the disk has them, and the steps between them (a rename
    is one step).
    """

    seen: dict[str, _Node] = field(default_factory=dict)
    disk: dict[str, _Node] = field(default_factory=dict)
    steps: list[tuple[_Change, ...]] = field(default_factory=list)

    def change(self, *changes: _Change) -> None:
        self._apply(self.seen, changes)
        self.steps.append(changes)

    def sync(self) -> None:
        self.disk = dict(self.seen)
        self.steps.clear()

    def lose_unsynced(self, random: RandomSource | None, sector_bytes: int, losses: Losses) -> None:
        kept = 0 if random is None else random.randrange(len(self.steps) + 1)
        for step in self.steps[:kept]:
            self._apply(self.disk, step)
        losses["a name's change lost"] += len(self.steps) - kept
        losses["a name's change kept before its sync"] += kept
        self.seen = dict(self.disk)
        self.steps.clear()
        for node in self.seen.values():
            node.lose_unsynced(random, sector_bytes, losses)

    @staticmethod
    def _apply(names: dict[str, _Node], changes: tuple[_Change, ...]) -> None:
        for name, node in changes:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


_Node = _Content | _Directory


@dataclass(slots=True)
class _Fault:
    kind: str
    errno: int
    match: str
    after_bytes: int


class MemoryFile:
    """An open file of ``MemoryFiles``."""

    def __init__(self, files: MemoryFiles, path: str, content: _Content, read_only: bool) -> None:
        self.path = path
        self._files = files
        self._content = content
        self._read_only = read_only
        self._life = files.life
        self._open = True

    def size(self) -> int:
        self._check("read the size of")
        return len(self._content.seen)

    def read_at(self, position: int, size: int) -> bytes:
        self._check("read")
        self._files.meet_fault("read", self.path)
        return bytes(self._content.seen[position : position + size])

    def write_at(self, position: int, data: Buffer) -> None:
        self._check("write", writing=True)
        view = memoryview(data).cast("B")
        room, error = self._files.room_for(self.path, self._content, position, len(view))
        if room or error is None:
            self._content.write(position, view[:room])
            self._content.modified_ms = self._files.clock.now_ms()
            self._files.note("write", self.path, position, room)
        if error is not None:
            raise StorageError(f"cannot write {self.path}: {os.strerror(error)}")

    def truncate(self, size: int) -> None:
        self._check("truncate", writing=True)
        self._files.meet_fault("truncate", self.path)
        if size != len(self._content.seen):
            self._content.resize(size)
            self._content.modified_ms = self._files.clock.now_ms()
        self._files.note("truncate", self.path, size)

    def sync(self) -> None:
        self._check("flush")
        try:
            self._files.meet_fault("sync", self.path)
        except StorageError:
            # As on Linux: after a failed fsync the pages count as clean, so the next fsync skips them.
            self._content.dirty.clear()
            raise
        self._content.sync()
        self._files.note("sync", self.path)

    def modified_ms(self) -> int:
        self._check("read the time of")
        return self._content.modified_ms

    def set_modified_ms(self, time_ms: int) -> None:
        self._check("set the time of")
        self._content.modified_ms = time_ms

    def is_in_place(self) -> bool:
        return self._files.is_file_at(self.path, self._content)

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        self._open = False

    def _check(self, doing: str, *, writing: bool = False) -> None:
        problem = None
        if self._life != self._files.life:
            problem = "the process that opened it has ended"
        elif not self._open:
            problem = os.strerror(errno_module.EBADF)
        elif writing and self._read_only:
            problem = "it was opened for reading only"
        if problem is not None:
            raise StorageError(f"cannot {doing} {self.path}: {problem}")


class MemoryLock:
    """A lock on a path of ``MemoryFiles``."""

    def __init__(self, in_place: Callable[[], bool], release: Callable[[], None]) -> None:
        self.is_in_place = in_place
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        if self._release is not None:
            release, self._release = self._release, None
            release()


LARGE_DISK_BYTES = 1 << 40
"""The size that a disk without a limit has."""


class MemoryFiles:
    """A filesystem in memory. ``capacity_bytes`` limits the size of all files together (None: no limit).

    Small pages and sectors let a power cut tear small files too.
    """

    def __init__(
        self,
        *,
        clock: ManualClock | None = None,
        capacity_bytes: int | None = None,
        page_bytes: int = PAGE_BYTES,
        sector_bytes: int = SECTOR_BYTES,
    ) -> None:
        self.clock = clock or ManualClock()
        self.capacity_bytes = capacity_bytes
        self.page_bytes = page_bytes
        self.sector_bytes = sector_bytes
        self.operations: list[FileOperation] = []
        self.losses: Losses = Counter()
        """The losses of all power cuts so far."""
        self.life = 0
        """The number of times that the process ended. A file opened in an earlier life cannot be used."""
        self._root = _Directory()
        self._locks: dict[str, tuple[int, _Node | None]] = {}
        """Path -> the life in which it was locked, and the locked file."""
        self._faults: list[_Fault] = []

    # Controls for tests.

    def note(self, kind: str, path: str = "", position: int = 0, length: int = 0) -> None:
        """Add a test's own event to ``operations``."""
        self.operations.append(FileOperation(kind, path, position, length))

    def fail_next_write(
        self, errno: int = errno_module.ENOSPC, after_bytes: int = 0, *, match: str = ""
    ) -> None:
        """Make the next write to a path that contains ``match`` fail after ``after_bytes`` of its bytes."""
        self._faults.append(_Fault("write", errno, match, after_bytes))

    def fail_next_sync(self, errno: int = errno_module.EIO, *, match: str = "") -> None:
        """Make the next ``sync`` or ``sync_dir`` of a path with ``match`` in it fail and lose its pages."""
        self._faults.append(_Fault("sync", errno, match, 0))

    def fail_next_truncate(self, errno: int = errno_module.EIO, *, match: str = "") -> None:
        """Make the next ``truncate`` of a path that contains ``match`` fail."""
        self._faults.append(_Fault("truncate", errno, match, 0))

    def fail_next_read(self, errno: int = errno_module.EIO, *, match: str = "") -> None:
        """Make the next ``read_at`` of a path that contains ``match`` fail."""
        self._faults.append(_Fault("read", errno, match, 0))

    def fail_next_rename(self, errno: int = errno_module.EIO, *, match: str = "") -> None:
        """Make the next ``rename`` of a path that contains ``match`` fail without an effect."""
        self._faults.append(_Fault("rename", errno, match, 0))

    def fail_next_open(self, errno: int = errno_module.EIO, *, match: str = "") -> None:
        """Make the next ``open`` of a path that contains ``match`` fail."""
        self._faults.append(_Fault("open", errno, match, 0))

    def clear_faults(self) -> None:
        """Remove the faults that have not occurred yet."""
        self._faults.clear()

    def kill_process(self) -> None:
        """Close all open files and locks. Everything written stays, synced or not."""
        self.life += 1
        self._locks.clear()
        self._faults.clear()

    def power_cut(self, random: RandomSource | None = None) -> None:
        """Lose everything that was not synced, or a part of it with ``random``."""
        self.kill_process()
        self.losses["all that was not synced"] += random is None
        self._root.lose_unsynced(random, self.sector_bytes, self.losses)

    def used_bytes(self) -> int:
        """Return the size of all files together."""
        return self._used(self._root)

    # The port.

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        self.meet_fault("open", path)
        parent, name = self._parent_of(path)
        node = parent.seen.get(name)
        if isinstance(node, _Directory):
            raise StorageError(f"cannot open {path}: {os.strerror(errno_module.EISDIR)}")
        if node is None:
            if not create:
                raise _missing(path)
            node = _Content(modified_ms=self.clock.now_ms(), page_bytes=self.page_bytes)
            parent.change((name, node))
            self.note("create", path)
        return MemoryFile(self, path, node, read_only)

    def map(self, path: str) -> memoryview:
        file = self.open(path, read_only=True)
        return memoryview(file.read_at(0, file.size()))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).seen)

    def make_dirs(self, path: str) -> None:
        directory = self._root
        for name in _names(path):
            _check_name(name, path)
            node = directory.seen.get(name)
            if node is None:
                node = _Directory()
                directory.change((name, node))
                self.note("make_dir", path)
            if not isinstance(node, _Directory):
                raise StorageError(f"cannot make directory {path}: {os.strerror(errno_module.EEXIST)}")
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.meet_fault("rename", old)
        old_parent, old_name = self._parent_of(old)
        new_parent, new_name = self._parent_of(new)
        node = old_parent.seen.get(old_name)
        if node is None:
            raise _missing(old)
        target = new_parent.seen.get(new_name)
        if isinstance(target, _Directory) and target.seen:
            raise StorageError(f"cannot rename {old}: {os.strerror(errno_module.ENOTEMPTY)}")
        if old_parent is new_parent:
            old_parent.change((old_name, None), (new_name, node))
        else:
            new_parent.change((new_name, node))
            old_parent.change((old_name, None))
        self.note("rename", new)

    def remove(self, path: str) -> None:
        parent, name = self._parent_of(path)
        node = parent.seen.get(name)
        if node is None:
            raise _missing(path)
        if isinstance(node, _Directory):
            raise StorageError(f"cannot remove {path}: {os.strerror(errno_module.EISDIR)}")
        parent.change((name, None))
        self.note("remove", path)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, node in list(directory.seen.items()):
            child = os.path.join(path, name)
            if isinstance(node, _Directory):
                self.remove_tree(child)
            else:
                self.remove(child)
        parent, name = self._parent_of(path)
        parent.change((name, None))
        self.note("remove", path)

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.meet_fault("sync", path)
        directory.sync()
        self.note("sync_dir", path)

    def disk_space(self, path: str) -> DiskSpace:
        if not self.is_dir(path):
            raise FileNotFoundError(path)
        total_bytes = LARGE_DISK_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(total_bytes, max(0, total_bytes - self.used_bytes()))

    def lock(self, path: str) -> Lock:
        self.open(path, create=True).close()
        file, held = self._find(path), self._locks.get(path)
        if held is not None and held[1] is file:
            raise DirectoryLocked(
                f"{os.path.dirname(path) or '.'} is in use: another process holds {path}; "
                "stop that process or choose another directory"
            )
        hold = self._locks[path] = self.life, file
        self.note("lock", path)

        def release() -> None:
            if self._locks.get(path) is hold:
                del self._locks[path]
                self.note("unlock", path)

        return MemoryLock(lambda: self.is_file_at(path, file), release)

    # For open files.

    def meet_fault(self, kind: str, path: str) -> None:
        """Raise StorageError if a fault of this kind is set for this path."""
        fault = self._take_fault(kind, path)
        if fault is not None:
            doing = {"sync": "flush"}.get(kind, kind)
            raise StorageError(f"cannot {doing} {path}: {os.strerror(fault.errno)}")

    def is_file_at(self, path: str, node: _Node | None) -> bool:
        """Return True if ``path`` names this file."""
        return node is not None and self._find(path) is node

    def room_for(self, path: str, content: _Content, position: int, length: int) -> tuple[int, int | None]:
        """Return how many of ``length`` bytes a write succeeds in writing, and the errno with which it then
        fails (or None).
        """
        fault = self._take_fault("write", path)
        if fault is not None:
            return min(fault.after_bytes, length), fault.errno
        if self.capacity_bytes is not None:
            growth = position + length - len(content.seen)
            free = max(0, self.capacity_bytes - self.used_bytes())
            if growth > free:
                return max(0, length - (growth - free)), errno_module.ENOSPC
        return length, None

    def _take_fault(self, kind: str, path: str) -> _Fault | None:
        for number, fault in enumerate(self._faults):
            if fault.kind == kind and fault.match in path:
                return self._faults.pop(number)
        return None

    def _used(self, directory: _Directory) -> int:
        nodes = directory.seen.values()
        return sum(self._used(node) if isinstance(node, _Directory) else len(node.seen) for node in nodes)

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _names(path):
            if not isinstance(node, _Directory) or name not in node.seen:
                return None
            node = node.seen[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise _missing(path)
        if not isinstance(node, _Directory):
            raise StorageError(f"cannot list {path}: {os.strerror(errno_module.ENOTDIR)}")
        return node

    def _parent_of(self, path: str) -> tuple[_Directory, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        _check_name(name, path)
        node = self._find(head)
        if node is None:
            raise _missing(path)
        if not isinstance(node, _Directory):
            raise StorageError(f"cannot open {path}: {os.strerror(errno_module.ENOTDIR)}")
        return node, name


@functools.lru_cache(4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _check_name(name: str, path: str) -> None:
    if len(name.encode()) > _NAME_MAX_BYTES:
        raise StorageError(f"cannot use {path}: {os.strerror(errno_module.ENAMETOOLONG)}")


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno_module.ENOENT, os.strerror(errno_module.ENOENT), path)
