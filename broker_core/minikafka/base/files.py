"""The filesystem as a port: the operations that logs and the other files of a data directory need.

``RealFiles`` is the machine's. ``minikafka.base.memory_files`` has the in-memory one, with power cuts and
injected faults. Every failure is a ``StorageError`` that names the path; a missing file is
``FileNotFoundError``, which callers handle.

Durability: data is safe after ``File.sync``; a new name, a rename or a removal is safe after
``Files.sync_dir`` of its directory. ``replace_file`` does all of it in the right order.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import shutil
from collections.abc import Iterator
from typing import Protocol

from minikafka.base.cache_dirs import read_holder, write_holder
from minikafka.base.errors import DirectoryLocked, StorageError, TooManyFiles
from minikafka.base.values import fast_value

Buffer = bytes | bytearray | memoryview
"""Bytes that are passed without copying."""

TEMPORARY_SUFFIX = ".tmp"
"""The suffix of the file that ``replace_file`` writes first. A crash may leave that file behind."""
_PRIVATE_MODE = 0o600
"""The mode of files with secrets, and of lock files: a process that can open a lock file can hold it."""
_PRIVATE_DIRECTORY_MODE = 0o700
"""The mode of new directories: other users cannot read the records. Existing ones keep their rights."""
_LASTING_NUMBERS = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"}
)
"""Filesystems in which an open file keeps its inode number."""
_MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")
"""An escaped character of a path in mountinfo."""


class File(Protocol):
    """An open file. Positions and sizes are in bytes.

    ``sync`` may run concurrently with reads and appends.
    """

    path: str

    def size(self) -> int:
        """Return the current length."""

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to ``size`` bytes from ``position``; fewer at the end of the file."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``. After a StorageError a part of it may have been written."""

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to ``size``."""

    def sync(self) -> None:
        """Return once everything written so far survives a power cut (fsync)."""

    def modified_ms(self) -> int:
        """Return the time of the last modification, in ms since the epoch."""

    def set_modified_ms(self, time_ms: int) -> None:
        """Set the time of the last modification."""

    def is_in_place(self) -> bool:
        """Return True if the file is still at its path; False if there is no file or another one.

        True also if that cannot be determined: the disk fails, or the filesystem changes inode numbers, as
        some network filesystems do.
        """

    def descriptor(self) -> int | None:
        """Return a descriptor for ``sendfile``, or None if there is none (in memory)."""

    def close(self) -> None:
        """Close; a second call does nothing."""


class Lock(Protocol):
    """An exclusive lock on a path. It is released at the latest when the process ends."""

    def is_in_place(self) -> bool:
        """Return True if other processes find this lock: False if the lock file was removed or replaced.

        As ``File.is_in_place``, True also if that cannot be determined.
        """

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


@fast_value
class DiskSpace:
    """The size of the disk that has a directory."""

    total_bytes: int
    usable_bytes: int
    """Free for this user."""


class Files(Protocol):
    """A filesystem."""

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        """Open for reading and writing; ``create`` makes a missing file. ``private``: for this user only."""

    def map(self, path: str) -> memoryview:
        """Map all bytes of a file for reading. They are loaded when they are used. The file must not be
        shortened meanwhile; it can be removed.
        """

    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory."""

    def is_dir(self, path: str) -> bool:
        """Return True if there is a directory."""

    def list_dir(self, path: str) -> list[str]:
        """Return the names (not paths) in a directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Create the directory and its parents, where they are missing, with access for this user only."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing ``new``."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it."""

    def sync_dir(self, path: str) -> None:
        """Return once the names in the directory survive a power cut."""

    def disk_space(self, path: str) -> DiskSpace:
        """Return the size of the disk with the directory ``path``."""

    def lock(self, path: str) -> Lock:
        """Lock the file ``path``, created for this user only.

        Raises DirectoryLocked if another process holds it.
        """


@fast_value
class FileSlice:
    """A part of an open file: ``length`` bytes from ``position``. A fetch sends it without reading it."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        """Read the bytes; fewer if the file has become shorter."""
        return self.file.read_at(self.position, self.length)

    def part(self, position: int, length: int) -> FileSlice:
        """Return a slice of this slice."""
        if position < 0 or length < 0 or position + length > self.length:
            raise ValueError(
                f"{length} bytes at position {position} are outside a slice of {self.length} bytes"
            )
        return FileSlice(self.file, self.position + position, length)


def read_file(files: Files, path: str) -> bytes:
    """Read all bytes of the file at ``path``. Raises FileNotFoundError."""
    with contextlib.closing(files.open(path, read_only=True)) as file:
        return file.read_at(0, file.size())


def replace_file(files: Files, path: str, data: bytes, *, private: bool = False, sync: bool = True) -> None:
    """Write ``path`` so that after a crash it holds the old bytes or the new ones, never a mixture.

    ``private``: at no time can other users read it (mode 0600). Without ``sync`` the guarantee covers a crash
    of the process only, not of the machine.
    """
    temporary = path + TEMPORARY_SUFFIX
    with contextlib.closing(files.open(temporary, create=True, private=private)) as file:
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()
    files.rename(temporary, path)
    if sync:
        files.sync_dir(os.path.dirname(path))


def make_dirs_durably(files: Files, path: str) -> None:
    """Create a directory and its parents, where they are missing, so that they survive a power cut."""
    if files.is_dir(path):
        return
    parent = os.path.dirname(path)
    if parent not in {"", path}:
        make_dirs_durably(files, parent)
    files.make_dirs(path)
    files.sync_dir(parent)


@contextlib.contextmanager
def _storage_errors(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = TooManyFiles if error.errno in {errno.EMFILE, errno.ENFILE} else StorageError
        raise kind(f"{doing} {path}: {error.strerror or error}") from error


def _is_in_place(path: str, descriptor: int) -> bool:
    try:
        there, here = os.stat(path), os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # unknown: the failed call says nothing about the file
    if os.path.samestat(here, there):
        return True
    if here.st_nlink == 0:
        return False
    # Another file, such as a copy, is at the path, provided that inode numbers do not change.
    return here.st_dev != there.st_dev or _filesystem_of(path) not in _LASTING_NUMBERS


def _filesystem_of(path: str) -> str | None:
    """Return the type of the filesystem of a path; None where it is unknown (anywhere but on Linux)."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    below, kinds = os.path.join(os.path.realpath(path), ""), dict[str, str]()
    for line in lines:
        mount, _, filesystem = line.partition(" - ")
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), mount.split(" ")[4])
        if below.startswith(os.path.join(point, "")):
            kinds[point] = filesystem.split(" ")[0]  # of several at one mount point, the last is visible
    return kinds[max(kinds, key=len)] if kinds else None


class RealFile:
    """A file of the machine's filesystem, used with positioned reads and writes only."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    # These do not use ``_storage_errors``: entering a context takes longer than most of these calls.

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._failed("read the size of", error) from error

    def read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            while 0 < len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise self._failed("read", error) from error

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written < len(data):
                view = memoryview(data)
                while written < len(view):
                    written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError as error:
            raise self._failed("write", error) from error

    def _failed(self, doing: str, error: OSError) -> StorageError:
        return StorageError(f"cannot {doing} {self.path}: {error.strerror or error}")

    def truncate(self, size: int) -> None:
        with _storage_errors("cannot truncate", self.path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with _storage_errors("cannot flush", self.path):
            os.fsync(self._descriptor)

    def modified_ms(self) -> int:
        with _storage_errors("cannot read the time of", self.path):
            return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        with _storage_errors("cannot set the time of", self.path):
            os.utime(self._descriptor, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def is_in_place(self) -> bool:
        return _is_in_place(self.path, self._descriptor)

    def descriptor(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        # A deleted segment stays open for the fetches that send from it, and is closed after the last one.
        self.close()


class RealLock:
    """A ``flock`` on a lock file. The kernel releases it when the process dies, however it dies."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def is_in_place(self) -> bool:
        return _is_in_place(self._path, self._descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealFiles:
    """The machine's filesystem."""

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        with _storage_errors("cannot open", path):
            file = RealFile(path, os.open(path, flags, _PRIVATE_MODE if private else 0o644))
            if private:
                # The file may exist: an earlier version left a temporary file at a crash.
                os.fchmod(file.descriptor(), _PRIVATE_MODE)
            return file

    def map(self, path: str) -> memoryview:
        with _storage_errors("cannot map", path), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        with _storage_errors("cannot list", path):
            return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        try:
            os.makedirs(path, _PRIVATE_DIRECTORY_MODE, exist_ok=True)
        except OSError as error:  # also FileNotFoundError: here it means that nothing can be created there
            raise StorageError(f"cannot make directory {path}: {error.strerror or error}") from error

    def rename(self, old: str, new: str) -> None:
        with _storage_errors("cannot rename", old):
            os.replace(old, new)

    def remove(self, path: str) -> None:
        with _storage_errors("cannot remove", path):
            os.remove(path)

    def remove_tree(self, path: str) -> None:
        with _storage_errors("cannot remove", path):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        with _storage_errors("cannot flush directory", path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def disk_space(self, path: str) -> DiskSpace:
        with _storage_errors("cannot find the size of the disk of", path):
            found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> Lock:
        with _storage_errors("cannot open the lock file", path):
            # O_NONBLOCK: do not wait if the path is a FIFO.
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags, _PRIVATE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held_by = read_holder(descriptor)
            holder = "another process" if held_by.pid is None else held_by
            os.close(descriptor)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                raise DirectoryLocked(
                    f"{os.path.dirname(path) or '.'} is in use: {holder} holds {path}; "
                    "stop that process or choose another directory"
                ) from None
            raise StorageError(f"cannot lock {path}: {error.strerror or error}") from error
        write_holder(descriptor)
        return RealLock(path, descriptor)
