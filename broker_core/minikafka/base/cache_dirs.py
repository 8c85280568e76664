"""Cache directories of this user, for files that can be built again: compiled kernels, the Scala shim's jar.

The user's cache comes first, then private directories ``minikafka-UID`` below the temporary directory and in
shared memory (which a container with a read-only disk has). Any user could create a directory of that name
there, and its content is executed: ``is_writable`` accepts only a directory that belongs to this user and
that no other user can write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SHARED_MEMORY = Path("/dev/shm")  # on Linux only


def candidates(name: str) -> list[Path]:
    """Return the directories ``name`` to try, best first, whether they exist or not."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = [Path(home) / "minikafka" / name] if os.path.isabs(home) else []
    return [*found, *(directory / name for directory in private_directories())]


def private_directories() -> list[Path]:
    """Return this user's directories below the temporary directory (if there is one) and in shared memory."""
    places = [SHARED_MEMORY]
    with contextlib.suppress(FileNotFoundError):
        places.insert(0, Path(tempfile.gettempdir()))
    return [place / f"minikafka-{os.getuid()}" for place in places]


def is_writable(place: Path, directory: Path) -> bool:
    """Create ``directory`` and return True if files can be created in it. False for another user's directory.

    place: the candidate that contains ``directory``.
    """
    try:
        if place.parent in private_directories():
            place.parent.mkdir(mode=0o700, exist_ok=True)
        if not is_trusted(place):
            return False
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def is_trusted(place: Path) -> bool:
    """Return True if no other user can have created the files in ``place``, one of the candidates."""
    if place.parent not in private_directories():
        return True
    try:
        about = place.parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def open_own(path: str | Path) -> BinaryIO:
    """Open a file whose content is executed or trusted.

    It must belong to this user or root, and no other user may be able to write it.

    Raises OSError for any other file, and for anything but a regular file. Never blocks, not even on a FIFO.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.getuid()) or about.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError(
            errno.EPERM, "not a regular file that only this user or root can write", str(path)
        )
    return open(descriptor, "rb")


def open_lock(path: str | Path) -> int:
    """Open a lock file, or create it with access for this user only. Child processes do not inherit it.

    Raises OSError for anything but a regular file, such as a FIFO or a symbolic link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
    return descriptor


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock file, as the file's first two lines say."""

    pid: int | None
    """None if the file does not name it."""
    address: str = ""
    """HOST:PORT where the process serves; empty while it does not."""

    def __str__(self) -> str:
        return f"process {self.pid or 'unknown'}" + (f" at {self.address}" if self.address else "")


def read_holder(descriptor: int) -> Holder:
    """Read the process and the address that ``write_holder`` wrote to a lock file."""
    with contextlib.suppress(OSError):
        pid, _, rest = os.pread(descriptor, 300, 0).decode("utf-8", "replace").partition("\n")
        if pid.isascii() and pid.isdecimal():
            return Holder(int(pid), rest.partition("\n")[0])
    return Holder(None)


def write_holder(descriptor: int, address: str = "") -> None:
    """Write this process and its address to a lock file that it holds. Errors, such as a full disk, are
    ignored.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{address}\n".encode(), 0)


def write_address(path: str | Path, address: str) -> None:
    """Write the address of this process to the lock file ``path`` that it holds. Errors are ignored."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        write_holder(descriptor, address)
        os.close(descriptor)


def read_regular(path: str | Path) -> bytes:
    """Return all bytes of a regular file.

    Raises OSError for anything else, such as a FIFO, which would block.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
        return file.read()


def make_private(directory: str | Path) -> None:
    """Create a directory and its parents with access for this user only; existing ones keep their rights."""
    os.makedirs(directory, 0o700, exist_ok=True)


def is_open_to_others(directory: str | Path) -> bool:
    """Return True if users other than the owner and the group can reach the files in a directory."""
    place = Path(directory).resolve()
    try:
        if not place.stat().st_mode & 0o007:
            return False
        return all(above.stat().st_mode & 0o001 for above in place.parents)
    except OSError:
        return False
