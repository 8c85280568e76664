"""A verifier of transactions that answers at once, or when a test says so."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.server.transactions.add_partitions_verifier import Done


class HeldVerifier:
    """``Broker.verify_transaction`` of a test. ``held``: nothing is answered before ``answer``."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self.result = ErrorCode.NONE
        """The result for each partition, if nothing is held."""
        self.asked: list[tuple[str, ProducerIdAndEpoch, list[TopicPartition]]] = []
        self.waiting: list[tuple[Sequence[TopicPartition], Done]] = []

    def __call__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        done: Done,
    ) -> None:
        self.asked.append((transactional_id, producer, list(partitions)))
        if self.held:
            self.waiting.append((partitions, done))
        else:
            done(dict.fromkeys(partitions, self.result))

    def answer(self, result: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest verification that waits."""
        partitions, done = self.waiting.pop(0)
        done(dict.fromkeys(partitions, result))
