"""Typed access to znodes; an invalid znode is ignored, and logged once.

Operators write znodes by hand, and an invalid one must not prevent a broker from using the others. For the
jobs of the worker: every method can be run twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from minikafka.base.errors import CoordinationError, NodeExists, NoNode
from minikafka.registry.store import Stat, Store

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class Znodes:
    """Reads znodes as values, and logs each invalid one once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complaints: dict[str, str] = {}
        """The last error that was logged for each invalid znode."""

    def read(self, path: str, parse: Callable[[bytes, str], Value], advice: str = "") -> Value | None:
        """Return the value of a znode; None if it does not exist or is invalid.

        ``advice``, appended to the error in the log, says what to do.
        """
        found = self.read_with_stat(path, parse, advice)
        return None if found is None else found[0]

    def read_with_stat(
        self, path: str, parse: Callable[[bytes, str], Value], advice: str = ""
    ) -> tuple[Value, Stat] | None:
        """Return ``read`` with the znode's stat."""
        found: tuple[bytes, Stat] | None = None
        with contextlib.suppress(NoNode):
            found = self._store.read(path)
        return self.parse(path, found, parse, advice)

    def parse(
        self,
        path: str,
        found: tuple[bytes, Stat] | None,
        parse: Callable[[bytes, str], Value],
        advice: str = "",
    ) -> tuple[Value, Stat] | None:
        """Return ``read_with_stat`` for the data that was ``found``; None: the znode does not exist."""
        if found is None:
            self.forget(path)
            return None
        data, stat = found
        try:
            value = parse(data, path)
        except CoordinationError as error:
            self.complain(path, f"ignored an invalid znode: {error}{advice}")
            return None
        self.forget(path)
        return value, stat

    def complain(self, path: str, complaint: str) -> None:
        """Log an error of a znode, once until the error changes."""
        if self._complaints.get(path) != complaint:
            _log.error("%s", complaint)
        self._complaints[path] = complaint

    def is_nonsense(self, path: str) -> bool:
        """Return True if the znode was invalid when it was last read."""
        return path in self._complaints

    def forget(self, path: str) -> None:
        """Forget the error of a znode."""
        self._complaints.pop(path, None)

    def make(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        """Create a znode and its parents; return False if it exists already."""
        try:
            self._store.create(path, data, ephemeral=ephemeral, make_parents=True)
        except NodeExists:
            return False
        return True

    def remove(self, path: str) -> None:
        """Delete a znode and its children, if it exists."""
        with contextlib.suppress(NoNode):
            self._store.delete(path, recursive=True)
