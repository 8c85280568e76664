"""Producer ids and the sequence numbers of batches, by which brokers recognize a retry.

A broker gives the producer an id with an epoch. The batches of a partition are numbered by their records, 0,
1, 2 … (after 2^31 - 1 comes 0). A batch that is sent again keeps its numbers, by which the broker
recognizes it.

Sequence of a partition
    The batches of one partition under one id. As the sender has one batch of a partition in flight, the
    batches behind it have no numbers yet. A batch that is certainly not in the log returns its numbers to the
    next one. If that is uncertain when a batch fails, the next one may use neither its numbers nor those
    after them: its partition starts a new sequence, under an id that it has not used before. The sequences of
    other partitions continue. (2.1 has one id for all, and fails batches that others have to send again.)
Without numbers
    Batches of formats before 2, and all batches if ``enable.idempotence`` is not set and the brokers give no
    ids. A numbered batch keeps its numbers, unless its leader supports only older formats.

No I/O. Sources: KIP-98, ``TransactionManager.java`` and ``Sender.java`` of 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce.batch import ProducerBatch, ProducerSequence
from minikafka.clients.produce.config import BatchingConfig

_SEQUENCES = 1 << 31
_FATAL_CODES = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
"""After these errors no number of the sequence is valid."""


@dataclass(slots=True)
class _PartitionSequence:
    producer_id: int
    producer_epoch: int
    next_sequence: int = 0


class SequenceNumbers:
    """The sequence numbers of one producer's batches. Called under its lock; times are monotonic ms."""

    def __init__(self, config: BatchingConfig) -> None:
        self._transactional = False
        """True if the batches belong to transactions."""
        self.fatal_error: MinikafkaError | None = None
        """Set if nothing can be sent: idempotence is required and the brokers do not support it."""
        self._required = config.idempotence is True
        self._enabled = config.may_be_idempotent
        self._id: tuple[int, int] | None = None
        """Id and epoch for partitions that start a sequence."""
        self._partitions: dict[TopicPartition, _PartitionSequence] = {}
        self.id_requested = False
        """True while a request for an id is under way."""
        self._next_request_ms: int | None = None
        self._retry_backoff_ms = config.retry_backoff_ms

    def is_ready(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch`` may be sent: it has numbers or needs none, or there is an id for it."""
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
        if self.id_requested or (self._next_request_ms is not None and now_ms < self._next_request_ms):
            return False
        self.id_requested = True
        return True

    def next_id_request_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until the next request for an id; None if none is planned."""
        if self._next_request_ms is None or self._next_request_ms <= now_ms:
            return None
        return self._next_request_ms - now_ms

    def handle_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Store the id that a broker has given."""
        self.id_requested, self._next_request_ms = False, None
        self._id = producer_id, producer_epoch

    def handle_producer_id_error(self, error: MinikafkaError, now_ms: int) -> bool:
        """Handle a failed request for an id: retry later, fail, or (True) continue without idempotence."""
        self.id_requested = False
        if (
            not isinstance(error, BrokerError)
            or error.is_retriable
            or isinstance(error, AuthenticationFailed)
        ):
            self._next_request_ms = now_ms + self._retry_backoff_ms
        elif self._required:
            self.fatal_error = BrokerError(
                error.code,
                "no producer id: enable.idempotence=true needs Kafka 0.11 or newer and permission to get an "
                f"id: {error}",
            )
        else:
            self._enabled = False
        return not self._enabled

    def assign(self, batch: ProducerBatch) -> None:
        """Give ``batch``, which is ready and about to be sent, the next numbers of its partition."""
        if not self._enabled or batch.producer_sequence is not None or batch.is_legacy:
            return
        tp = batch.topic_partition
        sequence = self._partitions.get(tp)
        if sequence is None:
            assert self._id is not None
            sequence = self._partitions[tp] = _PartitionSequence(*self._id)
        batch.producer_sequence = ProducerSequence(
            sequence.producer_id, sequence.producer_epoch, sequence.next_sequence, self._transactional
        )
        sequence.next_sequence = (sequence.next_sequence + batch.sequence_count) % _SEQUENCES

    def reclaim(self, batch: ProducerBatch) -> None:
        """Free the numbers of ``batch``, which is not in the log and will not be resent unchanged."""
        sequence = self._partition_sequence(batch)
        if sequence is not None and batch.producer_sequence is not None:
            sequence.next_sequence = batch.producer_sequence.base_sequence
        batch.producer_sequence = None

    def handle_failed_batch(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        """Free the numbers of ``batch``, which has failed for good, or start a new sequence."""
        unusable = isinstance(error, BrokerError) and error.code in _FATAL_CODES
        if unusable or batch.may_be_appended:
            self.reset_partition(batch)
        else:
            self.reclaim(batch)

    def reset_partition(self, batch: ProducerBatch) -> None:
        """Continue the partition of ``batch`` under another id, also ``batch`` itself if it is sent again."""
        if self._partition_sequence(batch) is not None:
            del self._partitions[batch.topic_partition]
        if batch.producer_sequence is not None and self._id == batch.producer_sequence[:2]:
            self._id = None
        batch.producer_sequence = None

    def _partition_sequence(self, batch: ProducerBatch) -> _PartitionSequence | None:
        """Return the sequence from which ``batch`` has its numbers, if it is current."""
        sequence = self._partitions.get(batch.topic_partition)
        if (
            sequence is None
            or batch.producer_sequence is None
            or sequence.producer_id != batch.producer_sequence.producer_id
        ):
            return None
        return sequence
