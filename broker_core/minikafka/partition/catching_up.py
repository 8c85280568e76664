"""How long a consumer that has something left to read is kept waiting for something new.

Clients have one fetch in flight for each broker, and do not name in it the partitions of which they still
hold messages. One that has read some partitions to their end, and others not, then waits for those that have
nothing; it uses up what it holds of the others in no time, and cannot ask for more until the wait is over.
So it is told soon that there is nothing: each time it waits as long again as it has been asking in vain,
``FIRST_PATIENCE_MS`` at least. The waits double, and a client that does not come back (it has paused the
partition, lost it, or is slow) has cost a handful of empty answers when it waits as long as it asked to.
"""

from __future__ import annotations

from collections.abc import Container

from minikafka.base.ids import TopicPartition

FIRST_PATIENCE_MS = 5


class CatchingUp:
    """What the consumers of one connection were given a part of, and have not asked for since.

    At most the partitions that they have named.
    """

    __slots__ = ("_asking_since_ms", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: set[TopicPartition] = set()
        self._asking_since_ms: int | None = None

    def given(self, partition: TopicPartition, more: bool) -> None:
        """A fetch that named ``partition`` is answered; whether there is ``more`` than it is given."""
        if more:
            self._unfinished.add(partition)
            self._asking_since_ms = None
        else:
            self._unfinished.discard(partition)

    def patience_ms(self, named: Container[TopicPartition], max_wait_ms: int, now_ms: int) -> int:
        """How long a fetch of the partitions ``named``, which have not enough, may wait at most.

        ``max_wait_ms`` is what it asked for, ``now_ms`` monotonic. Who has waited so long altogether, and not
        come back for the rest, is not catching up: that is forgotten.
        """
        if all(partition in named for partition in self._unfinished):
            return max_wait_ms
        if self._asking_since_ms is None:
            self._asking_since_ms = now_ms
        patience_ms = max(FIRST_PATIENCE_MS, now_ms - self._asking_since_ms)
        if patience_ms < max_wait_ms:
            return patience_ms
        self._unfinished.clear()
        return max_wait_ms
