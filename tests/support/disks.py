"""Disks in memory that end the process at a change, or note what is read of them."""

from __future__ import annotations

from minikafka.base.files import File
from minikafka.base.memory_files import MemoryFiles

UNLIMITED = 1 << 60


class Killed(BaseException):
    """Ends the process. Not an Exception, so that no handler takes it for an error."""


class KillingFiles(MemoryFiles):
    """A disk whose process dies right after a change: after a number of them, or after a certain one."""

    changes_left = UNLIMITED
    deadly = ("", "")
    """The kind of the change, and the end of its path."""

    def note(self, kind: str, path: str = "", position: int = 0, length: int = 0) -> None:
        super().note(kind, path, position, length)
        self.changes_left -= 1
        if self.changes_left <= 0 or (kind == self.deadly[0] and path.endswith(self.deadly[1])):
            self.changes_left, self.deadly = UNLIMITED, ("", "")
            raise Killed(f"{kind} {path}")


class WatchedReads(MemoryFiles):
    """A disk that notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []
        """Path and size; the opening of a file is one of size 0."""

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        file = super().open(path, create=create, read_only=read_only, private=private)
        read_at = file.read_at
        self.reads.append((path, 0))

        def noted(position: int, size: int) -> bytes:
            self.reads.append((path, size))
            return read_at(position, size)

        file.read_at = noted  # type: ignore[method-assign]
        return file
