"""Delayed requests: the purgatory that holds them, and the time that a fetch may stay in it.

Text: long poll ("min bytes, max wait") of the fetch request; ``DelayedOperationPurgatory`` of Kafka.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

from minikafka.base.ids import TopicPartition

Ticket = TypeVar("Ticket", bound=Hashable)

MIN_WAIT_MS = 5
_SPARE_DEADLINES = 64


class Purgatory(Generic[Ticket]):
    """Tickets of delayed requests, each filed under every key whose change may complete it.

    The purgatory does not know what a ticket is or how its request is answered. Every operation costs
    O(keys of that ticket) and a logarithm.
    """

    def __init__(self) -> None:
        self._keys: dict[Ticket, dict[Hashable, None]] = {}
        # The inner dict keeps the order of arrival.
        self._by_key: dict[Hashable, dict[Ticket, None]] = {}
        # Deadlines name tickets by number: a ticket may hold a large response, and its deadline, which the
        # client chooses, may be days away when it is removed.
        self._deadlines: list[tuple[int, int]] = []
        self._numbers: dict[Ticket, int] = {}
        self._tickets: dict[int, Ticket] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._keys)

    def tickets(self) -> list[Ticket]:
        """Return all tickets. Any thread may call this."""
        return list(self._keys)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._keys

    def add(self, ticket: Ticket, keys: Iterable[Hashable], deadline_ms: int) -> None:
        """File ``ticket`` until one of ``keys`` completes it or ``deadline_ms`` (monotonic) has come.

        A ticket that is filed already is filed anew.
        """
        self.remove(ticket)
        self._keys[ticket] = {}
        self.watch(ticket, keys)
        self._count += 1
        self._numbers[ticket] = self._count
        self._tickets[self._count] = ticket
        heapq.heappush(self._deadlines, (deadline_ms, self._count))

    def watch(self, ticket: Ticket, keys: Iterable[Hashable]) -> None:
        """File a ticket under further ``keys``. One that is not filed, or not any more, stays so."""
        own = self._keys.get(ticket)
        if own is None:
            return
        for key in keys:
            if key not in own:
                own[key] = None
                self._by_key.setdefault(key, {})[ticket] = None

    def unwatch(self, ticket: Ticket, key: Hashable) -> None:
        """Take a ticket out from under ``key``. It stays filed under its other keys."""
        own = self._keys.get(ticket)
        if own is not None and key in own:
            del own[key]
            self._drop(ticket, key)

    def _drop(self, ticket: Ticket, key: Hashable) -> None:
        tickets = self._by_key.get(key)
        if tickets is not None:
            tickets.pop(ticket, None)
            if not tickets:
                del self._by_key[key]

    def tickets_of(self, key: Hashable) -> list[Ticket]:
        """Return the tickets under ``key``, oldest first. They stay filed until ``remove``."""
        return list(self._by_key.get(key, ()))

    def remove(self, ticket: Ticket) -> bool:
        """Take ``ticket`` out; return False if another caller has completed it."""
        keys = self._keys.pop(ticket, None)
        if keys is None:
            return False
        del self._tickets[self._numbers.pop(ticket)]
        for key in keys:
            self._drop(ticket, key)
        if len(self._deadlines) > 2 * len(self._keys) + _SPARE_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._tickets]
            heapq.heapify(self._deadlines)
        return True

    def take_expired(self, now_ms: int) -> list[Ticket]:
        """Take out and return the tickets whose deadline has passed."""
        due: list[Ticket] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            ticket = self._tickets.get(heapq.heappop(self._deadlines)[1])
            if ticket is not None and self.remove(ticket):
                due.append(ticket)
        return due

    def clear(self) -> list[Ticket]:
        """Take out and return all tickets, oldest first."""
        tickets = list(self._keys)
        for ticket in tickets:
            self.remove(ticket)
        return tickets

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a filed ticket; None if there is none."""
        while self._deadlines and self._deadlines[0][1] not in self._tickets:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None


class PartialReads:
    """Shortens the wait of a consumer that has not fetched the rest of other partitions yet.

    A client has one fetch in flight for each broker, and does not name the partitions of which it still
    buffers messages. If it has read some partitions to their end and others in part, its fetch would wait for
    those that have nothing; it would use up its buffer in no time and could not ask for more before the wait
    ends. So such a fetch is answered early and empty: each time it waits as long again as the client has been
    asking in vain, ``MIN_WAIT_MS`` at least. The waits double, so a client that does not come back (it has
    paused the partition, lost it, or is slow) costs a handful of empty responses.

    The state of one connection; at most the partitions that it has named.
    """

    __slots__ = ("_asking_since_ms", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: set[TopicPartition] = set()
        self._asking_since_ms: int | None = None

    def record_response(self, partition: TopicPartition, has_more: bool) -> None:
        """Record that a fetch of ``partition`` was answered, and whether data remains after the response."""
        if has_more:
            self._unfinished.add(partition)
            self._asking_since_ms = None
        else:
            self._unfinished.discard(partition)

    def max_wait_ms(self, named: Container[TopicPartition], requested_ms: int, now_ms: int) -> int:
        """Return how long a fetch of the partitions ``named``, which have too little data, may wait.

        ``requested_ms`` is the request's own limit, ``now_ms`` monotonic. Once a client has waited that long
        in all without fetching the rest, its unfinished partitions are forgotten.
        """
        if all(partition in named for partition in self._unfinished):
            return requested_ms
        if self._asking_since_ms is None:
            self._asking_since_ms = now_ms
        wait_ms = max(MIN_WAIT_MS, now_ms - self._asking_since_ms)
        if wait_ms < requested_ms:
            return wait_ms
        self._unfinished.clear()
        return requested_ms
