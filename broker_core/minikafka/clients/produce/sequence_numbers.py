"""Who a producer is to the brokers, and which numbers its batches have: what makes a retry harmless.

A broker gives the producer an id with an epoch. The batches of a partition are numbered by their records, 0,
1, 2 … (after 2^31 - 1 comes 0). One that is sent again keeps its numbers, by which the broker knows it.

Chain
    The batches of one partition under one id. As the sender has one batch of a partition under way, no batch
    behind it has numbers yet. A batch that surely is not in the log gives its numbers back to the next one.
    Where nobody knows that of a batch that is given up, the next one may take neither its numbers nor those
    behind them: its partition begins a new chain, under an id that it had not before. Chains of other
    partitions go on as they are. (2.1 has one id for all, and fails what others have to send again.)
Without numbers
    Batches of formats before 2, and everything where ``enable.idempotence`` is not set and the brokers give
    no ids. Once numbered, a batch stays so, but for one whose leader takes only older formats.

Decisions only. Sources: KIP-98, ``TransactionManager.java`` and ``Sender.java`` of 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import ProducerBatch, ProducerSequence
from minikafka.clients.produce.config import BatchingConfig

_SEQUENCES = 1 << 31
_FATAL_CODES = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""After these no number of the chain will do."""


@dataclass(slots=True)
class _PartitionSequence:
    producer_id: int
    producer_epoch: int
    next_sequence: int = 0


class SequenceNumbers:
    """The numbers of one producer's batches. Called under the producer's lock; times are monotonic ms."""

    def __init__(self, config: BatchingConfig) -> None:
        self.fatal_error: MinikafkaError | None = None
        """Why nothing can be sent: idempotence is demanded and the brokers do not have it."""
        self._required = config.idempotence is True
        self._enabled = config.may_be_idempotent
        self._id: tuple[int, int] | None = None
        """Id and epoch for the partitions that begin a chain."""
        self._partitions: dict[TopicPartition, _PartitionSequence] = {}
        self._id_requested = False
        self._next_request_ms: int | None = None
        self._retry_backoff_ms = config.retry_backoff_ms

    def is_ready(self, batch: ProducerBatch) -> bool:
        """Whether ``batch`` may leave: it has numbers or needs none, or there is an id for it."""
        return (
            not self._enabled
            or self._id is not None
            or batch.producer_sequence is not None
            or batch.is_legacy
            or batch.topic_partition in self._partitions
        )

    def begin_id_request(self, now_ms: int) -> bool:
        """Return whether an id must be requested now; ``handle_producer_id`` or
        ``handle_producer_id_error`` must then follow.
        """
        if self._id_requested or (self._next_request_ms is not None and now_ms < self._next_request_ms):
            return False
        self._id_requested = True
        return True

    def next_id_request_ms(self, now_ms: int) -> int | None:
        """Milliseconds until an id may be asked for again; None where nothing waits for that."""
        if self._next_request_ms is None or self._next_request_ms <= now_ms:
            return None
        return self._next_request_ms - now_ms

    def handle_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """A broker has given an id."""
        self._id_requested, self._next_request_ms = False, None
        self._id = producer_id, producer_epoch

    def handle_producer_id_error(self, error: MinikafkaError, now_ms: int) -> bool:
        """No id was given. What may pass is asked again; else it goes without (True), or not at all."""
        self._id_requested = False
        if not isinstance(error, BrokerError) or error.is_retriable:
            self._next_request_ms = now_ms + self._retry_backoff_ms
        elif self._required:
            self.fatal_error = BrokerError(
                error.code,
                "enable.idempotence is true, which needs brokers of Kafka 0.11 or newer that give this "
                f"client a producer id: {error}",
            )
        else:
            self._enabled = False
        return not self._enabled

    def assign(self, batch: ProducerBatch) -> None:
        """Give ``batch``, which is ready and about to leave, the next numbers of its partition."""
        if not self._enabled or batch.producer_sequence is not None or batch.is_legacy:
            return
        tp = batch.topic_partition
        chain = self._partitions.get(tp)
        if chain is None:
            assert self._id is not None
            chain = self._partitions[tp] = _PartitionSequence(*self._id)
        batch.producer_sequence = ProducerSequence(
            chain.producer_id, chain.producer_epoch, chain.next_sequence
        )
        chain.next_sequence = (chain.next_sequence + batch.sequence_count) % _SEQUENCES

    def reclaim(self, batch: ProducerBatch) -> None:
        """``batch`` is surely not in the log, and will not be sent as it is: its numbers are free."""
        chain = self._partition_sequence(batch)
        if chain is not None and batch.producer_sequence is not None:
            chain.next_sequence = batch.producer_sequence.base_sequence
        batch.producer_sequence = None

    def handle_failed_batch(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        """``batch`` has failed for good."""
        unusable = isinstance(error, BrokerError) and error.code in _FATAL_CODES
        if unusable or batch.in_doubt:
            self.reset_partition(batch)
        else:
            self.reclaim(batch)

    def reset_partition(self, batch: ProducerBatch) -> None:
        """The partition of ``batch`` goes on under another id, and so does ``batch`` if it is sent again."""
        if self._partition_sequence(batch) is not None:
            del self._partitions[batch.topic_partition]
        if batch.producer_sequence is not None and self._id == batch.producer_sequence[:2]:
            self._id = None
        batch.producer_sequence = None

    def _partition_sequence(self, batch: ProducerBatch) -> _PartitionSequence | None:
        """The one that ``batch`` has its numbers from."""
        chain = self._partitions.get(batch.topic_partition)
        if (
            chain is None
            or batch.producer_sequence is None
            or chain.producer_id != batch.producer_sequence.producer_id
        ):
            return None
        return chain
