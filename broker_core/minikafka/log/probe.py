"""A test that a disk accepts writes."""

from __future__ import annotations

import contextlib
import os

from minikafka.base.errors import StorageError
from minikafka.base.files import TEMPORARY_SUFFIX, Files

_PROBE_BYTES = 65_536
"""More than the room in the last blocks of files on a full disk."""


def can_write(files: Files, directory: str) -> bool:
    """Return whether a small file in ``directory`` can be created, written, flushed and removed."""
    path = os.path.join(directory, f"probe{TEMPORARY_SUFFIX}")
    with contextlib.suppress(StorageError, FileNotFoundError):
        file = files.open(path, create=True)
        try:
            file.write_at(0, bytes(_PROBE_BYTES))
            file.sync()
            return True
        finally:
            file.close()
            files.remove(path)
    return False
