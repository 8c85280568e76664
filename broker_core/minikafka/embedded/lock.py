"""The lock of a cluster on its data directory.

It is a ``flock`` on a file that contains the holder's process id. Every process of the cluster inherits the
descriptor, so the directory is free only when the last of them has ended. If the holder is dead, ``hold``
waits for that moment; if the holder is alive, it fails at once.
"""

from __future__ import annotations

import fcntl
import os
import platform
import struct
import time

from minikafka.base.cache_dirs import Holder, open_lock, read_holder, write_holder
from minikafka.base.errors import DirectoryLocked
from minikafka.embedded.owners import has_open, process_info
from minikafka.log.layout import LOCK_FILE

_LINUX = platform.system() == "Linux"
_FLOCK = struct.Struct("@hhqqi0q" if _LINUX else "@qqihh0q")
"""``struct flock``: type, whence, start, length, process; elsewhere type and whence come last."""
_TYPE = 0 if _LINUX else 3
_LOCK_QUERY = _FLOCK.pack(*((fcntl.F_RDLCK, 0, 0, 0, 0) if _LINUX else (0, 0, 0, fcntl.F_RDLCK, 0)))
"""The argument of F_GETLK: a shared lock of the whole file. The system returns a conflicting lock."""
PATIENCE_S = 5.0
"""The time that processes of a dead holder may take to end."""


def hold(path: str) -> int:
    """Lock the file ``path`` and return its descriptor. The lock is released when all copies are closed.

    Raises DirectoryLocked if a living process holds it, or the children of a dead one do not end.
    """
    descriptor = open_lock(path)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = read_holder(descriptor)
            lives = owner.pid is not None and process_info(owner.pid) is not None
            if lives or time.monotonic() > deadline_s:
                os.close(descriptor)
                raise DirectoryLocked(
                    f"{os.path.dirname(path)} is in use by {owner}: "
                    "stop that process or choose another data directory"
                    if lives or owner.pid is None
                    else f"{os.path.dirname(path)} was in use by {owner}, which was killed; its child "
                    "processes are still ending: try again in a moment, or choose another data directory"
                ) from None
            time.sleep(0.02)
    write_holder(descriptor)
    return descriptor


def holder(path: str) -> Holder | None:
    """Return the living process that holds the file ``path``, if there is one. Nothing is changed. No lock is
    taken if the system can tell without: a broker that starts at that moment would find the file locked.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        owner, about = read_holder(descriptor), os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if owner.pid is None or process_info(owner.pid) is None:
        return None
    opened = has_open(owner.pid, os.path.basename(path), about)
    if opened is None:
        opened = _is_locked(path)
    return owner if opened else None


def is_kept_open(path: str, pid: int) -> bool:
    """Return True if a process has the lock file open: its holder, or a process that the holder started."""
    try:
        about = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    opened = has_open(pid, os.path.basename(path), about)
    return _is_locked(path) if opened is None else opened


def _is_locked(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_in_use(directory: str) -> bool:
    """Return True if a broker of minikafka or of Kafka holds the lock of a data directory.

    Works as ``holder``. Return False for a lock file that this user may not read.
    """
    path = os.path.join(directory, LOCK_FILE)
    return holder(path) is not None or _is_locked_by_java(path)


def _is_locked_by_java(path: str) -> bool:
    """Return True for a POSIX lock, as Java takes. The file names no process, and ``flock`` ignores it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _LOCK_QUERY)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(found)[_TYPE] != fcntl.F_UNLCK)


def wait_until_free(path: str) -> None:
    """Wait until no process holds the file ``path``, if it exists. Raises as ``hold``."""
    if os.path.exists(path):
        os.close(hold(path))
