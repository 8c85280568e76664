"""Requests that wait for something to happen to a partition or a topic, or for their deadline.

Kafka's purgatory, as a plain table: a ticket is filed under every key whose change may complete it. Nothing
here knows what a ticket is or how it is answered. Texts: long poll ("min bytes, max wait") of the fetch
request.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket", bound=Hashable)

_SPARE_DEADLINES = 64


class Waiting(Generic[Ticket]):
    """Tickets by key and by deadline. Every operation costs O(keys of that ticket) and a logarithm."""

    def __init__(self) -> None:
        self._keys: dict[Ticket, tuple[Hashable, ...]] = {}
        self._by_key: dict[
            Hashable, dict[Ticket, None]
        ] = {}  # a dict, for its order: first come, first served
        self._deadlines: list[tuple[int, int, Ticket]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._keys

    def add(self, ticket: Ticket, keys: Iterable[Hashable], deadline_ms: int) -> None:
        """File ``ticket`` until one of ``keys`` completes it or ``deadline_ms`` (monotonic) has come."""
        self._keys[ticket] = tuple(keys)
        for key in self._keys[ticket]:
            self._by_key.setdefault(key, {})[ticket] = None
        self._count += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._count, ticket))

    def watching(self, key: Hashable) -> list[Ticket]:
        """The tickets under ``key``, oldest first. They stay filed until ``remove``."""
        return list(self._by_key.get(key, ()))

    def remove(self, ticket: Ticket) -> bool:
        """Take ``ticket`` out; False when it was not there any more (somebody else completed it)."""
        keys = self._keys.pop(ticket, None)
        if keys is None:
            return False
        for key in keys:
            tickets = self._by_key.get(key)
            if tickets is not None:
                tickets.pop(ticket, None)
                if not tickets:
                    del self._by_key[key]
        if len(self._deadlines) > 2 * len(self._keys) + _SPARE_DEADLINES:
            # Answered requests must not be kept until a deadline that concerns nobody any more.
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._keys]
            heapq.heapify(self._deadlines)
        return True

    def expired(self, now_ms: int) -> list[Ticket]:
        """Take out and return the tickets whose deadline has come."""
        due: list[Ticket] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            ticket = heapq.heappop(self._deadlines)[2]
            if self.remove(ticket):
                due.append(ticket)
        return due

    def clear(self) -> list[Ticket]:
        """Take out and return all tickets, oldest first."""
        tickets = list(self._keys)
        for ticket in tickets:
            self.remove(ticket)
        return tickets

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of a ticket that still waits; None when nobody waits."""
        while self._deadlines and self._deadlines[0][2] not in self._keys:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
