"""Directories of this user for what can be made again: compiled kernels, the jar of the Scala shim.

The user's cache comes first, then private directories ``minikafka-UID``: among the temporary ones, and in
memory (a container whose disk is read-only has that). Anybody can make a directory of that name there, and
what lies in it is run: ``is_writable`` takes only one that is this user's, and nobody else's to write.
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

SHARED_MEMORY = Path("/dev/shm")  # of Linux; elsewhere there is none


def candidates(name: str) -> list[Path]:
    """The directories ``name`` to try, best first, whether they are there or not."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = [Path(home) / "minikafka" / name] if os.path.isabs(home) else []
    return [*found, *(directory / name for directory in private_directories())]


def private_directories() -> list[Path]:
    """This user's directory among the temporary ones, where there is a place for them, and in memory."""
    places = [SHARED_MEMORY]
    with contextlib.suppress(FileNotFoundError):
        places.insert(0, Path(tempfile.gettempdir()))
    return [place / f"minikafka-{os.getuid()}" for place in places]


def is_writable(place: Path, directory: Path) -> bool:
    """Whether files can be made in ``directory``, which is made; never in a place that is somebody else's.

    place: the one of the candidates that ``directory`` is in.
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
    """Whether nobody else can have made what lies in ``place``, one of the candidates."""
    if place.parent not in private_directories():
        return True
    try:
        about = place.parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def open_own(path: str | Path) -> BinaryIO:
    """Open a file to read what is run or believed: of this user or root, and nobody else's to write.

    OSError for anything else, also for what is no regular file. Never blocks, not even on a FIFO.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.getuid()) or about.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError(
            errno.EPERM, "not a file of this user's that only this user can write", str(path)
        )
    return open(descriptor, "rb")


def open_lock(path: str | Path) -> int:
    """Open a lock file, which is made for this user alone; the descriptor is not passed on.

    OSError for anything but a regular file, such as somebody's FIFO or a link to another file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
    return descriptor


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock file, read from the file's first two lines."""

    pid: int | None
    """None when the file does not name it."""
    address: str = ""
    """HOST:PORT where that process serves; "" while it does not."""

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
    """Say in a lock file that this process holds it. A full disk is no reason not to hold it."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{address}\n".encode(), 0)


def write_address(path: str | Path, address: str) -> None:
    """Say in the lock file ``path``, which this process holds, where the process serves."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        write_holder(descriptor, address)
        os.close(descriptor)


def read_regular(path: str | Path) -> bytes:
    """All bytes of a regular file. OSError for anything else, such as a FIFO, on which it would wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
        return file.read()


def make_private(directory: str | Path) -> None:
    """Make a directory, and those above it, for this user alone; one that is there keeps its rights."""
    os.makedirs(directory, 0o700, exist_ok=True)


def is_open_to_others(directory: str | Path) -> bool:
    """Whether other users of this host than its owner and group can get at what lies in a directory."""
    place = Path(directory).resolve()
    try:
        if not place.stat().st_mode & 0o007:
            return False
        return all(above.stat().st_mode & 0o001 for above in place.parents)
    except OSError:
        return False
