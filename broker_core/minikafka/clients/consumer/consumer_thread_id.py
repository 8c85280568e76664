"""A thread of a consumer, as it stands in the owners' znodes (texts: ``ConsumerThreadId``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering


@total_ordering
@dataclass(frozen=True, slots=True)
class ConsumerThreadId:
    """Thread ``thread_id`` of a consumer; its text is ``CONSUMER-N``.

    Ordered by that text, as 0.10.1 does: thread 10 comes before thread 2.
    """

    consumer: str
    """The consumer's id, as it is registered in its group."""
    thread_id: int
    """From 0 on."""

    def __str__(self) -> str:
        return f"{self.consumer}-{self.thread_id}"

    def __lt__(self, other: ConsumerThreadId) -> bool:
        return in_java_order(str(self)) < in_java_order(str(other))

    @classmethod
    def parse(cls, text: str) -> ConsumerThreadId | None:
        """The thread that an owner's znode names; None for a text that names none."""
        consumer, _, number = text.rpartition("-")
        if not consumer or not (number.isascii() and number.isdecimal()):
            return None
        return cls(consumer, int(number))


def in_java_order(text: str) -> bytes:
    """A key that sorts texts as Java's ``String.compareTo`` does: by UTF-16 code units.

    All consumers of a group have to agree on the order, in whatever language they are written.
    """
    return text.encode("utf-16-be", "surrogatepass")
