"""Directories of this user for what can be made again: compiled kernels, the jar of the Scala shim.

The user's cache comes first, then private directories ``minikafka-UID``: among the temporary ones, and in
memory (a container whose disk is read-only has that). Anybody can make a directory of that name there, and
what lies in it is run: ``writable`` takes only one that is this user's, and nobody else's to write.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # of Linux; elsewhere there is none


def candidates(name: str) -> list[Path]:
    """The directories ``name`` to try, best first, whether they are there or not."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    found = [Path(home) / "minikafka" / name] if os.path.isabs(home) else []
    return [*found, *(private / name for private in _private())]


def _private() -> list[Path]:
    """This user's directory among the temporary ones, where there is a place for them, and in memory."""
    places = [SHARED_MEMORY]
    with contextlib.suppress(FileNotFoundError):
        places.insert(0, Path(tempfile.gettempdir()))
    return [place / f"minikafka-{os.getuid()}" for place in places]


def writable(place: Path, directory: Path) -> bool:
    """Whether files can be made in ``directory``, which is made; never in a place that is somebody else's.

    place: the one of the candidates that ``directory`` is in.
    """
    try:
        if place.parent in _private():
            place.parent.mkdir(mode=0o700, exist_ok=True)
            about = place.parent.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
                return False
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False
