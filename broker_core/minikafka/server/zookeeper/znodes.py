"""Znodes as values: what cannot be understood is left out, and said once.

Operators write znodes by hand, and nonsense in one of them must not keep a broker from what the others hold.
For the jobs of the worker: every method can be run twice.
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
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complaints: dict[str, str] = {}
        """What was last said about a znode that cannot be understood."""

    def read(self, path: str, parse: Callable[[bytes, str], Value], advice: str = "") -> Value | None:
        """The value in a znode; None when there is none, or one that cannot be understood. ``advice`` is what
        to do about that, behind what is wrong.
        """
        found = self.read_with_stat(path, parse, advice)
        return None if found is None else found[0]

    def read_with_stat(
        self, path: str, parse: Callable[[bytes, str], Value], advice: str = ""
    ) -> tuple[Value, Stat] | None:
        """``read``, with the znode's versions."""
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
        """``read_with_stat`` of what was ``found`` there; None: nothing."""
        if found is None:
            self.forget(path)
            return None
        data, stat = found
        try:
            value = parse(data, path)
        except CoordinationError as error:
            self.complain(path, f"{path} is left out: {error}{advice}")
            return None
        self.forget(path)
        return value, stat

    def complain(self, path: str, complaint: str) -> None:
        """Say what is wrong with a znode, once until something else is."""
        if self._complaints.get(path) != complaint:
            _log.error("%s", complaint)
        self._complaints[path] = complaint

    def is_nonsense(self, path: str) -> bool:
        """Whether the znode could not be understood when it was last read."""
        return path in self._complaints

    def forget(self, path: str) -> None:
        """Nothing is wrong with a znode any more."""
        self._complaints.pop(path, None)

    def make(self, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
        """Create a znode and those above it; False when it is there already."""
        try:
            self._store.create(path, data, ephemeral=ephemeral, make_parents=True)
        except NodeExists:
            return False
        return True

    def remove(self, path: str) -> None:
        """Delete a znode and those below it, where it is there."""
        with contextlib.suppress(NoNode):
            self._store.delete(path, recursive=True)
