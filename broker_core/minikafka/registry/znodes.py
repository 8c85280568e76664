"""Znodes read as values: one table row for each kind, one rule for invalid data.

Operators and other programs write znodes too, and one that is invalid must not prevent the use of the others.
So ``Znodes`` passes it over, as if it did not exist, with one warning until its problem changes. The warning
names the path, what is wrong, the data, and what to do.

Some callers cannot go on without the value, and use ``read_or_raise`` or ``Kind.decode``, which raise
CoordinationError: those that write a changed value back, and would destroy what they do not understand
(configs, ACLs, partitions, reassignments), and those named at the kinds below.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from minikafka.base.errors import CoordinationError, NodeExists, NoNode
from minikafka.registry.store import Stat, Store

_log = logging.getLogger(__name__)

Value = TypeVar("Value")
Key = TypeVar("Key")

_problems: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()
"""Store -> path -> the problem that was logged for it last."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Value]):
    """A kind of znode."""

    path: str
    """Its path, with a capital letter for each variable part."""
    holds: str
    """A phrase for people: what the znode holds."""
    source: str
    """The release whose data is written, and others that are read."""
    decode: Callable[[bytes, str], Value]
    """Returns the value of a znode's data. Raises CoordinationError, with the path, for invalid data."""
    encode: Callable[[Value], bytes]
    """Returns the data of a value."""
    remedy: str
    """The end of the warning: the consequence of an invalid znode, and the action to take."""


class Znodes:
    """Reads the znodes of one store. All objects of a store share what was logged. Thread-safe if it is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._problems = _problems.setdefault(store, {})

    def read(self, path: str, kind: Kind[Value]) -> Value | None:
        """Return the value of a znode; None if it does not exist or is invalid."""
        found = self.read_with_stat(path, kind)
        return None if found is None else found[0]

    def read_with_stat(self, path: str, kind: Kind[Value]) -> tuple[Value, Stat] | None:
        """Return ``read`` with the znode's stat."""
        found: tuple[bytes, Stat] | None = None
        with contextlib.suppress(NoNode):
            found = self._store.read(path)
        return self.parse(path, found, kind)

    def read_all(self, paths: Iterable[str], kind: Kind[Value]) -> dict[str, tuple[Value, Stat]]:
        """Return the values and stats of those znodes that exist and are valid. All are read at once."""
        return self.read_all_with_problems(paths, kind)[0]

    def read_all_with_problems(
        self, paths: Iterable[str], kind: Kind[Value]
    ) -> tuple[dict[str, tuple[Value, Stat]], dict[str, str]]:
        """Return ``read_all``, and the problem of each znode that is invalid."""
        values: dict[str, tuple[Value, Stat]] = {}
        problems: dict[str, str] = {}
        wanted = list(paths)
        found = self._store.read_all(wanted)
        for path in wanted:
            value = self._parse(path, found.get(path), kind)
            if isinstance(value, str):
                problems[path] = value
            elif value is not None:
                values[path] = value
        return values, problems

    def parse(
        self, path: str, found: tuple[bytes, Stat] | None, kind: Kind[Value]
    ) -> tuple[Value, Stat] | None:
        """Return ``read_with_stat`` for the data that was ``found``; None: the znode does not exist."""
        value = self._parse(path, found, kind)
        return None if isinstance(value, str) else value

    def _parse(
        self, path: str, found: tuple[bytes, Stat] | None, kind: Kind[Value]
    ) -> tuple[Value, Stat] | str | None:
        """Return the problem of an invalid znode, after its warning; else as ``parse``."""
        if found is None:
            self.forget(path)
            return None
        data, stat = found
        try:
            value = kind.decode(data, path)
        except CoordinationError as error:
            problem = f"ignored an invalid znode: {error}; {kind.remedy}"
            self.warn(path, problem)
            return problem
        self.forget(path)
        return value, stat

    def warn(self, path: str, problem: str) -> None:
        """Log the problem of a znode, once until it changes."""
        if self._problems.get(path) != problem:
            _log.warning("%s", problem)
        self._problems[path] = problem

    def forget(self, path: str) -> None:
        """Forget the problem of a znode."""
        self._problems.pop(path, None)


def read_or_raise(store: Store, path: str, kind: Kind[Value]) -> tuple[Value, Stat]:
    """Return value and stat of a znode. Raises NoNode, and CoordinationError if it is invalid."""
    data, stat = store.read(path)
    return kind.decode(data, path), stat


def read_values(store: Store, paths: Mapping[str, Key], kind: Kind[Value]) -> dict[Key, Value]:
    """Return the values of those znodes that exist and are valid, by their keys in ``paths``."""
    return {paths[path]: value for path, (value, _) in Znodes(store).read_all(paths, kind).items()}


def children(store: Store, path: str) -> list[str]:
    """Return the names of the children, sorted; none if the znode does not exist."""
    try:
        return store.children(path)
    except NoNode:
        return []


def make(store: Store, path: str, data: bytes = b"", *, ephemeral: bool = False) -> bool:
    """Create a znode and its parents; return False if it exists already."""
    try:
        store.create(path, data, ephemeral=ephemeral, make_parents=True)
    except NodeExists:
        return False
    return True


def remove(store: Store, path: str) -> None:
    """Delete a znode and its children, if it exists."""
    with contextlib.suppress(NoNode):
        store.delete(path, recursive=True)
