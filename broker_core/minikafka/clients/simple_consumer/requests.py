"""What is asked of one partition, or of several together."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.ids import TopicPartition
from minikafka.wire.classic import Fetch as FetchRequest

__all__ = ["CONSUMER", "FetchRequest", "FetchRequestBuilder", "MultiFetchRequest"]

CONSUMER = -1
"""``replica_id`` of everybody who is not a broker."""


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches, answered in their order (``FetchRequest`` of text 004 and the release, which holds
    many partitions; a list of them in the earlier texts).

    max_wait_ms, min_bytes: the broker waits for so many bytes of all partitions together, but no longer.
        Where it does they go out as one request, in which a partition stands once; otherwise each for itself,
        one behind the other.
    replica_id: -1 for a consumer, the id of a follower's broker, -2 for who may see what is not committed.
    version: the version of Fetch to send; None: the newest that both sides know.
    """

    fetches: tuple[FetchRequest, ...]
    max_wait_ms: int = 0
    min_bytes: int = 0
    replica_id: int = CONSUMER
    version: int | None = None

    def __post_init__(self) -> None:
        if self.max_wait_ms < 0 or self.min_bytes < 0:
            raise ValueError(
                f"max_wait_ms {self.max_wait_ms} and min_bytes {self.min_bytes} must be 0 or more"
            )
        places = [TopicPartition(one.topic, one.partition) for one in self.fetches]
        twice = next((one for number, one in enumerate(places) if one in places[:number]), None)
        if self.waits and twice is not None:
            raise ValueError(f"{twice} stands twice in a request that waits: ask for it once")

    @property
    def waits(self) -> bool:
        """Whether the broker may keep it until there is something."""
        return self.max_wait_ms > 0 and self.min_bytes > 0


class FetchRequestBuilder:
    """Makes a MultiFetchRequest step by step (``FetchRequestBuilder`` of the release).

    The client's id and the correlation id are the consumer's own.
    """

    def __init__(self) -> None:
        self._fetches: list[FetchRequest] = []
        self._max_wait_ms = 0
        self._min_bytes = 0
        self._replica_id = CONSUMER
        self._version: int | None = None

    def add_fetch(self, topic: str, partition: int, offset: int, fetch_size: int) -> FetchRequestBuilder:
        """From ``offset`` on, at most ``fetch_size`` bytes."""
        self._fetches.append(FetchRequest(topic, partition, offset, fetch_size))
        return self

    def max_wait(self, milliseconds: int) -> FetchRequestBuilder:
        """Wait for ``min_bytes`` no longer than that."""
        self._max_wait_ms = milliseconds
        return self

    def min_bytes(self, count: int) -> FetchRequestBuilder:
        """Answer when there are so many bytes, or ``max_wait`` is over."""
        self._min_bytes = count
        return self

    def replica_id(self, replica_id: int) -> FetchRequestBuilder:
        """As another than a consumer."""
        self._replica_id = replica_id
        return self

    def request_version(self, version: int) -> FetchRequestBuilder:
        """In that version of Fetch."""
        self._version = version
        return self

    def build(self) -> MultiFetchRequest:
        """The request so far. ValueError for what cannot be."""
        return MultiFetchRequest(
            tuple(self._fetches), self._max_wait_ms, self._min_bytes, self._replica_id, self._version
        )
