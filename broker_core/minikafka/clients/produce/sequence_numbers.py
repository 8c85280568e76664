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
from minikafka.clients.produce.batch import Batch, Stamp
from minikafka.clients.produce.config import BatchingConfig

_SEQUENCES = 1 << 31
_CHAIN_ENDS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""After these no number of the chain will do."""


@dataclass(slots=True)
class _Chain:
    producer_id: int
    producer_epoch: int
    next_sequence: int = 0


class Numbering:
    """The numbers of one producer's batches. Called under the producer's lock; times are monotonic ms."""

    def __init__(self, config: BatchingConfig) -> None:
        self.refusal: MinikafkaError | None = None
        """Why nothing can be sent: idempotence is demanded and the brokers do not have it."""
        self._demanded = config.idempotence is True
        self._on = config.may_be_idempotent
        self._id: tuple[int, int] | None = None
        """Id and epoch for the partitions that begin a chain."""
        self._chains: dict[TopicPartition, _Chain] = {}
        self._asking = False
        self._ask_again_ms: int | None = None
        self._retry_backoff_ms = config.retry_backoff_ms

    def ready(self, batch: Batch) -> bool:
        """Whether ``batch`` may leave: it has numbers or needs none, or there is an id for it."""
        return (
            not self._on
            or self._id is not None
            or batch.stamp is not None
            or batch.is_classic
            or batch.topic_partition in self._chains
        )

    def ask(self, now_ms: int) -> bool:
        """Whether an id is to be asked for now. If so ``named`` or ``unnamed`` must follow."""
        if self._asking or (self._ask_again_ms is not None and now_ms < self._ask_again_ms):
            return False
        self._asking = True
        return True

    def next_ask_ms(self, now_ms: int) -> int | None:
        """Milliseconds until an id may be asked for again; None where nothing waits for that."""
        if self._ask_again_ms is None or self._ask_again_ms <= now_ms:
            return None
        return self._ask_again_ms - now_ms

    def named(self, producer_id: int, producer_epoch: int) -> None:
        """A broker has given an id."""
        self._asking, self._ask_again_ms = False, None
        self._id = producer_id, producer_epoch

    def unnamed(self, error: MinikafkaError, now_ms: int) -> bool:
        """No id was given. What may pass is asked again; else it goes without (True), or not at all."""
        self._asking = False
        if not isinstance(error, BrokerError) or error.is_retriable:
            self._ask_again_ms = now_ms + self._retry_backoff_ms
        elif self._demanded:
            self.refusal = BrokerError(
                error.code,
                "enable.idempotence is true, which needs brokers of Kafka 0.11 or newer that give this "
                f"client a producer id: {error}",
            )
        else:
            self._on = False
        return not self._on

    def number(self, batch: Batch) -> None:
        """Give ``batch``, which is ready and about to leave, the next numbers of its partition."""
        if not self._on or batch.stamp is not None or batch.is_classic:
            return
        tp = batch.topic_partition
        chain = self._chains.get(tp)
        if chain is None:
            assert self._id is not None
            chain = self._chains[tp] = _Chain(*self._id)
        batch.stamp = Stamp(chain.producer_id, chain.producer_epoch, chain.next_sequence)
        chain.next_sequence = (chain.next_sequence + batch.sequences) % _SEQUENCES

    def take_back(self, batch: Batch) -> None:
        """``batch`` is surely not in the log, and will not be sent as it is: its numbers are free."""
        chain = self._chain(batch)
        if chain is not None and batch.stamp is not None:
            chain.next_sequence = batch.stamp.base_sequence
        batch.stamp = None

    def given_up(self, batch: Batch, error: MinikafkaError) -> None:
        """``batch`` has failed for good."""
        unusable = isinstance(error, BrokerError) and error.code in _CHAIN_ENDS
        if unusable or batch.in_doubt:
            self.begin_anew(batch)
        else:
            self.take_back(batch)

    def begin_anew(self, batch: Batch) -> None:
        """The partition of ``batch`` goes on under another id, and so does ``batch`` if it is sent again."""
        if self._chain(batch) is not None:
            del self._chains[batch.topic_partition]
        if batch.stamp is not None and self._id == batch.stamp[:2]:
            self._id = None
        batch.stamp = None

    def _chain(self, batch: Batch) -> _Chain | None:
        """The one that ``batch`` has its numbers from."""
        chain = self._chains.get(batch.topic_partition)
        if chain is None or batch.stamp is None or chain.producer_id != batch.stamp.producer_id:
            return None
        return chain
