"""``kafka.producer.KeyedMessage``; what the texts before 0.8 call ``ProducerData``."""

from __future__ import annotations

from typing import Any, NamedTuple


class KeyedMessage(NamedTuple):
    """A message for a topic. ``key`` is stored with it and decides its partition; where ``part_key`` is
    given, that one decides, and is not stored.

    ``message`` and ``key`` are what the producer's encoders take; bytes, or None, by default. (A tuple: one
    is made for each message, and a thousand are taken apart at once.)
    """

    topic: str
    message: Any
    key: Any = None
    part_key: Any = None

    @property
    def partition_key(self) -> Any:
        """What decides the partition; None: any will do."""
        return self.key if self.part_key is None else self.part_key

    @property
    def has_key(self) -> bool:
        """Whether a key is stored with it."""
        return self.key is not None
