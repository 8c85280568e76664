"""The transactions of one producer: its state, and the next request to a coordinator.

    UNINITIALIZED ─▶ INITIALIZING ─▶ READY ─▶ IN_TRANSACTION ─▶ COMMITTING ─▶ READY
                          ▲                       │        │          │
                          │                       ▼        ▼          │ a batch has failed
                          └─────────────────── ABORTING ◀─ ABORTABLE_ERROR
    and from everywhere to FATAL_ERROR, which is final.

Invariants
    One request is in flight at a time, and a request is repeated until its outcome is known. A batch is sent
    once the coordinator has its partition in the transaction. The transaction is ended once no batch is left:
    each is acknowledged or has failed, or was dropped before it was sent.
Unsure outcomes
    A request whose response is lost may arrive late, even after its repetition: an EndTxn would then end the
    next transaction, an AddPartitionsToTxn would begin one. So after a lost response, and after a commit that
    timed out, InitProducerId comes before the next transaction, and its new epoch fences what arrives late. A
    transaction that may have begun is aborted before it: InitProducerId would abort it with an epoch that
    nobody gets, and so fence this producer.
    (Kafka's producer does so for failed batches only: KIP-360.) Coordinators before 2.5 give a new epoch too,
    but do not check whether this producer is the newest of its id.
Errors
    A failed batch, and most codes, leave a transaction that can only be aborted; then the producer goes on.
    A batch with numbers that has failed may be in the log, so the next transaction has a new epoch. A fenced
    producer, and one without permission, cannot go on.

No I/O. Sources: KIP-98, KIP-360, KIP-447, ``TransactionManager.java`` and ``Sender.java`` of 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum

from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    MinikafkaError,
    ProducerFenced,
    RemoteWireError,
    TransactionAbortable,
)
from minikafka.base.ids import BrokerAddress, ProducerIdAndEpoch, TopicPartition
from minikafka.clients.group.offsets import GroupMetadata, Offsets
from minikafka.clients.network.retry import Backoff
from minikafka.clients.produce.batch import ProducerBatch
from minikafka.clients.produce.config import TransactionalConfig
from minikafka.clients.produce.requests import TransactionTask
from minikafka.clients.produce.sequence_numbers import SequenceNumbers
from minikafka.clients.produce.transaction_errors import (
    FATAL_CODES,
    FENCED_CODES,
    MOVED_CODES,
    NEW_ID_CODES,
    RETRIED_CODES,
    fencing_reason,
    is_lost,
    operation_hint,
)
from minikafka.clients.produce.transaction_requests import (
    NO_PRODUCER,
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    InitProducerId,
    Operation,
    Outcome,
)
from minikafka.wire.apis.find_coordinator import CoordinatorType

CONCURRENT_BACKOFF_MS = 20
"""The first pause after CONCURRENT_TRANSACTIONS: the end of the last transaction takes a few milliseconds."""


class TransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "init_transactions was not called"
    INITIALIZING = "it waits for its producer id"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "a commit is under way"
    ABORTING = "an abort is under way"
    ABORTABLE_ERROR = "the transaction has failed and must be aborted"
    FATAL_ERROR = "it has failed for good"


_State = TransactionState
_OPEN = frozenset({_State.IN_TRANSACTION, _State.COMMITTING})


class TransactionResult:
    """The result of one call, which may be awaited again if it was not known in time."""

    __slots__ = ("call", "done", "error")

    def __init__(self, call: str) -> None:
        self.call = call
        self.done = False
        self.error: MinikafkaError | None = None

    def complete(self, error: MinikafkaError | None = None) -> None:
        """Set the result, unless it is set."""
        if not self.done:
            self.done, self.error = True, error


class _OffsetCommit:
    """The offsets of one ``send_offsets``."""

    def __init__(self, group: GroupMetadata, offsets: Offsets) -> None:
        self.group = group
        self.offsets = offsets
        self.result = TransactionResult("send_offsets")
        self.is_added = False


class TransactionManager(SequenceNumbers):
    """The transactions of one producer, and its sequence numbers. Called under its lock; times are monotonic
    ms.
    """

    def __init__(self, config: TransactionalConfig) -> None:
        super().__init__(config)
        self._transactional = True
        self.transactional_id = config.transactional_id
        self.state = _State.UNINITIALIZED
        self.task: TransactionTask | None = None
        """The request in flight."""
        self.producer = NO_PRODUCER
        self._timeout_ms = config.transaction_timeout_ms
        self._backoff = config.backoff
        self._concurrent_backoff = Backoff(
            CONCURRENT_BACKOFF_MS, max(CONCURRENT_BACKOFF_MS, config.retry_backoff_ms)
        )
        self._error: MinikafkaError | None = None
        """The error that has ended the transaction, or this producer."""
        self._result: TransactionResult | None = None
        """That of the last call whose end its caller has not seen."""
        self._initialized = TransactionResult("init_transactions")
        self._coordinators: dict[FindCoordinator, BrokerAddress] = {}
        self._failures = 0
        self._not_before_ms: int | None = None
        # The transaction.
        self._partitions_to_add: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._offset_commits: deque[_OffsetCommit] = deque()
        self._is_started = False
        """True if the coordinator has a partition, or offsets, in the transaction."""
        self._is_start_unsure = False
        """True if it may have one, as a response was lost."""
        self._started_ms: int | None = None
        self._needs_epoch = False
        """True if InitProducerId comes before the next transaction."""
        self._is_end_unsure = False
        self._now_ms = 0

    @property
    def coordinator(self) -> BrokerAddress | None:
        """The coordinator of the transactions, if it is known."""
        return self._coordinators.get(FindCoordinator(CoordinatorType.TRANSACTION, self.transactional_id))

    # --- calls of the user

    def initialize(self) -> TransactionResult:
        """Get a producer id, and end what an earlier producer with this transactional id has left open."""
        if self._is_again("init_transactions"):
            return self._initialized
        if self.state is not _State.UNINITIALIZED and self.fatal_error is None:
            raise ValueError(
                f"producer {self.transactional_id!r} has called init_transactions() already: call it once, "
                "and begin() for each transaction"
            )
        self._check(self.state is _State.UNINITIALIZED, "initialize transactions")
        self._initialize()
        self._result = self._initialized
        return self._initialized

    def ready(self) -> TransactionResult:
        """Return the result that is known once a transaction can begin."""
        self._check_no_other("begin a transaction")
        self._check(self.state in (_State.READY, _State.INITIALIZING), "begin a transaction")
        return self._initialized

    def begin(self) -> TransactionResult:
        """Begin a transaction. The coordinator learns of it with the first partition."""
        self._check_no_other("begin a transaction")
        self._check(self.state is _State.READY, "begin a transaction")
        self.state = _State.IN_TRANSACTION
        return self._initialized

    def check_open(self) -> None:
        """Raise the error of a record that is sent outside of a transaction, or in one that has failed."""
        if self.state is not _State.IN_TRANSACTION:
            self._check(False, "send records")

    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> TransactionResult:
        """Commit ``offsets`` with the transaction."""
        self._check(self.state is _State.IN_TRANSACTION, "send offsets")
        commit = _OffsetCommit(group, offsets)
        if offsets:
            self._offset_commits.append(commit)
        else:
            commit.result.complete()
        return commit.result

    def commit(self) -> TransactionResult:
        """End the transaction once all batches are acknowledged; the next call of it may await the end."""
        if self._is_again("commit"):
            assert self._result is not None
            return self._result
        self._check(self.state is _State.IN_TRANSACTION, "commit")
        self.state = _State.COMMITTING
        self._result = TransactionResult("commit")
        return self._result

    def abort(self) -> TransactionResult:
        """End the transaction without its records, once no batch is in flight."""
        if self._is_again("abort"):
            assert self._result is not None
            return self._result
        self._check(self.state in (_State.IN_TRANSACTION, _State.ABORTABLE_ERROR), "abort")
        self.state = _State.ABORTING
        self._drop_requests(self.drop_error())
        self._result = TransactionResult("abort")
        if isinstance(self._error, BrokerError) and self._error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # The coordinator has no transaction of this id, and would refuse EndTxn.
            self._is_started = self._is_start_unsure = False
        return self._result

    def acknowledge(self, result: TransactionResult) -> None:
        """Forget ``result``, whose caller has seen it."""
        if self._result is result:
            self._result = None

    def time_out(self, result: TransactionResult) -> None:
        """Record that a call did not wait for its result."""
        if result.call == "commit" and not result.done:
            self._needs_epoch = True

    # --- batches

    @property
    def drops_batches(self) -> bool:
        """True if batches that were not sent must fail."""
        return self.state in (_State.ABORTING, _State.ABORTABLE_ERROR, _State.FATAL_ERROR)

    def drop_error(self) -> MinikafkaError:
        """Return the error of records that are not sent."""
        if self.fatal_error is not None:
            return self.fatal_error
        if self._error is None:
            return TransactionAbortable(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"not sent: the transaction of producer {self.transactional_id!r} was aborted",
            )
        return self._abortable_error(self._error)

    def is_ready(self, batch: ProducerBatch) -> bool:
        if self.state is _State.FATAL_ERROR:
            return False
        # One with numbers is a retry: its partition is in the transaction.
        return batch.producer_sequence is not None or (
            self.state in _OPEN and batch.topic_partition in self._added
        )

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions of batches that are not ready to the transaction."""
        if self.state in _OPEN:
            self._partitions_to_add.update(dict.fromkeys(tp for tp in partitions if tp not in self._added))

    def handle_failed_batch(self, batch: ProducerBatch, error: MinikafkaError) -> None:
        self._needs_epoch = self._needs_epoch or batch.producer_sequence is not None
        super().handle_failed_batch(batch, error)
        if isinstance(error, TransactionAbortable):
            return  # the batch is dropped: what has failed the transaction was handled
        if isinstance(error, BrokerError) and error.code in FENCED_CODES:
            self._fail(self._fenced_error(str(error)))
        elif isinstance(error, BrokerError) and error.code in FATAL_CODES:
            self._fail(error)
        else:
            self._fail_transaction(error)

    def fail_record(self, error: MinikafkaError) -> None:
        """Leave the open transaction to be aborted, as a record was refused before it was in a batch: a
        commit would silently lack it.
        """
        if self.state is _State.IN_TRANSACTION:
            self._fail_transaction(error)

    def reset_partition(self, batch: ProducerBatch) -> None:
        """Give up the numbers of a partition, until the next epoch."""
        self._partitions.pop(batch.topic_partition, None)
        self._needs_epoch = True
        batch.producer_sequence = None

    def begin_id_request(self, now_ms: int) -> bool:
        return False  # a request for an id is one of the tasks

    def next_id_request_ms(self, now_ms: int) -> int | None:
        if self.task is not None or self._not_before_ms is None or self._not_before_ms <= now_ms:
            return None
        return self._not_before_ms - now_ms

    # --- requests

    def next_task(self, now_ms: int, *, has_batches: bool) -> TransactionTask | None:
        """Return the request that is due, or None. ``handle`` must follow.

        ``has_batches``: some are not acknowledged and have not failed.
        """
        self._now_ms = now_ms
        if self.task is not None or (self._not_before_ms is not None and now_ms < self._not_before_ms):
            return None
        is_ending = self.state in (_State.COMMITTING, _State.ABORTING)
        may_be_started = self._is_started or self._is_start_unsure
        if is_ending and not (has_batches or may_be_started or self._has_requests):
            self._complete_transaction()  # it has no partition: the coordinator does not know of it
        operation = self._next_operation(has_batches)
        if operation is None:
            return None
        search = self._search(operation)
        coordinator = self._coordinators.get(search)
        if coordinator is None:
            self.task = TransactionTask(search)
        else:
            self.task = TransactionTask(operation, coordinator)
            if isinstance(operation, AddPartitions | AddOffsets) and self._started_ms is None:
                self._started_ms = now_ms
        return self.task

    @property
    def _has_requests(self) -> bool:
        return bool(self._partitions_to_add or self._offset_commits)

    def _next_operation(self, has_batches: bool) -> Operation | None:
        if self.state is _State.INITIALIZING:
            return InitProducerId(self.producer)
        if self.state in _OPEN and self._partitions_to_add:
            return AddPartitions(self.producer, tuple(self._partitions_to_add))
        if self.state in _OPEN and self._offset_commits:
            commit = self._offset_commits[0]
            if not commit.is_added:
                return AddOffsets(self.producer, commit.group.group_id)
            return CommitOffsets(self.producer, commit.group, commit.offsets)
        if self.state in (_State.COMMITTING, _State.ABORTING) and not has_batches:
            return EndTransaction(self.producer, committed=self.state is _State.COMMITTING)
        return None

    def _search(self, operation: Operation) -> FindCoordinator:
        """Return the search for the coordinator of an operation."""
        if isinstance(operation, FindCoordinator):
            return operation
        if isinstance(operation, CommitOffsets):
            return FindCoordinator(CoordinatorType.GROUP, operation.group.group_id)
        return FindCoordinator(CoordinatorType.TRANSACTION, self.transactional_id)

    def handle(self, task: TransactionTask, outcome: Outcome, now_ms: int) -> None:
        """Handle the outcome of a request, or its error."""
        if task is not self.task:
            return
        self.task = None
        operation = task.operation
        error = self._error_in(operation, outcome)
        if self.state is _State.FATAL_ERROR:
            return
        if error is not None:
            self._handle_error(operation, error, now_ms)
            return
        self._failures, self._not_before_ms = 0, None
        if isinstance(operation, FindCoordinator):
            assert isinstance(outcome, BrokerAddress)
            self._coordinators[operation] = outcome
        elif isinstance(operation, InitProducerId):
            assert isinstance(outcome, ProducerIdAndEpoch)
            self._begin_epoch(outcome)
        elif isinstance(operation, EndTransaction):
            self._complete_transaction()
        else:
            self._handle_added(operation)

    def _handle_added(self, operation: AddPartitions | AddOffsets | CommitOffsets) -> None:
        self._is_started = True
        if isinstance(operation, AddPartitions):
            for tp in operation.partitions:
                self._partitions_to_add.pop(tp, None)
            self._added.update(operation.partitions)
        elif self._offset_commits:  # else it was aborted meanwhile
            commit = self._offset_commits[0]
            if isinstance(operation, AddOffsets):
                commit.is_added = True
            else:
                self._offset_commits.popleft().result.complete()

    def _error_in(self, operation: Operation, outcome: Outcome) -> MinikafkaError | None:
        """Return the error of an outcome; of several partitions that which decides what follows."""
        if isinstance(outcome, MinikafkaError):
            return outcome
        if not isinstance(outcome, Mapping):
            return None
        wrong = {
            tp: code
            for tp, code in outcome.items()
            if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
        }
        if wrong:
            # A code that ends something comes before one that passes.
            passing = MOVED_CODES | RETRIED_CODES
            tp, code = min(wrong.items(), key=lambda item: item[1] in passing)
            return BrokerError(code, f"{operation} of {tp}")
        asked = operation.partitions if isinstance(operation, AddPartitions) else ()
        asked = tuple(operation.offsets) if isinstance(operation, CommitOffsets) else asked
        missing = [tp for tp in asked if outcome.get(tp) is not ErrorCode.NONE]
        return (
            RemoteWireError(f"no result for {missing[0]} in the response to {operation}") if missing else None
        )

    # --- errors

    def _handle_error(self, operation: Operation, error: MinikafkaError, now_ms: int) -> None:
        code = error.code if isinstance(error, BrokerError) else None
        if is_lost(error) or code in MOVED_CODES or code is ErrorCode.REQUEST_TIMED_OUT:
            # A coordinator that could not store a change in time may have stored it later.
            self._note_unsure(operation)
            self._coordinators.pop(self._search(operation), None)
            self._retry(now_ms, self._backoff)
        elif code in RETRIED_CODES:
            is_concurrent = code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._retry(now_ms, self._concurrent_backoff if is_concurrent else self._backoff)
        elif code in FENCED_CODES:
            self._fail(self._fenced_error(str(operation)))
        elif code in FATAL_CODES or not isinstance(error, BrokerError):
            self._fail(self._described(operation, error))
        elif isinstance(error, AuthenticationFailed):
            self._fail(error)
        elif isinstance(operation, EndTransaction) and self._has_nothing_to_abort(operation, error.code):
            self._needs_epoch = True
            self._complete_transaction()
        elif self._is_abortable(operation, error.code):
            self._needs_epoch = self._needs_epoch or code in NEW_ID_CODES
            self._fail_transaction(self._described(operation, error))
        else:
            if code is ErrorCode.UNKNOWN:
                self._note_unsure(operation)
            self._fail(self._described(operation, error))

    def _has_nothing_to_abort(self, operation: EndTransaction, code: ErrorCode) -> bool:
        never_began = code is ErrorCode.INVALID_TXN_STATE and not self._is_started
        return not operation.committed and (never_began or code in NEW_ID_CODES)

    def _is_abortable(self, operation: Operation, code: ErrorCode) -> bool:
        if isinstance(operation, EndTransaction):
            return operation.committed and (code in NEW_ID_CODES or code is ErrorCode.TRANSACTION_ABORTABLE)
        if isinstance(operation, FindCoordinator):
            return operation.type is CoordinatorType.GROUP
        return not isinstance(operation, InitProducerId) and code is not ErrorCode.INVALID_TXN_STATE

    def _note_unsure(self, operation: Operation) -> None:
        if not isinstance(operation, FindCoordinator | InitProducerId):
            self._needs_epoch = True
            self._is_end_unsure = self._is_end_unsure or isinstance(operation, EndTransaction)
            self._is_start_unsure = self._is_start_unsure or isinstance(operation, AddPartitions | AddOffsets)

    def _retry(self, now_ms: int, backoff: Backoff) -> None:
        self._failures += 1
        self._not_before_ms = now_ms + backoff.delay_ms(self._failures)

    def _fail_transaction(self, error: MinikafkaError) -> None:
        """Leave the transaction to be aborted."""
        if self.state not in _OPEN:
            return
        self._error = error
        if self._result is not None:
            self._result.complete(self._abortable_error(error))
        self.state = _State.ABORTABLE_ERROR
        self._drop_requests(self._abortable_error(error))

    def _fail(self, error: MinikafkaError) -> None:
        """End this producer."""
        if self.state is _State.FATAL_ERROR:
            return
        self.state = _State.FATAL_ERROR
        self._error = self.fatal_error = error
        self._drop_requests(error)
        self._initialized.complete(error)
        if self._result is not None:
            self._result.complete(error)

    def _drop_requests(self, error: MinikafkaError) -> None:
        self._partitions_to_add.clear()
        for commit in self._offset_commits:
            commit.result.complete(error)
        self._offset_commits.clear()

    # --- transitions

    def _initialize(self) -> None:
        self.state = _State.INITIALIZING
        self._initialized = TransactionResult("init_transactions")

    def _begin_epoch(self, producer: ProducerIdAndEpoch) -> None:
        self.producer = producer
        self.handle_producer_id(*producer)
        self._partitions.clear()
        self._needs_epoch = self._is_end_unsure = False
        self.state = _State.READY
        self._initialized.complete()

    def _complete_transaction(self) -> None:
        self._drop_requests(self.drop_error())
        self._added.clear()
        self._is_started = self._is_start_unsure = False
        self._started_ms, self._error = None, None
        if self._needs_epoch:
            self._initialize()
        else:
            self.state = _State.READY
            self._is_end_unsure = False
        if self._result is not None:
            self._result.complete()

    # --- errors of calls, and messages

    def _is_again(self, call: str) -> bool:
        """Return True if the caller of ``call`` has not seen the end of its last one yet."""
        if self._result is not None and self._result.call == call:
            return True
        self._check_no_other(f"call {call}()")
        return False

    def _check_no_other(self, doing: str) -> None:
        if self._result is not None and self.state is not _State.FATAL_ERROR:
            if self.state is _State.ABORTABLE_ERROR:
                self._result = None  # the commit has failed: only an abort can follow
                return
            call = f"{self._result.call}()"
            raise ValueError(
                f"producer {self.transactional_id!r} cannot {doing}: the end of {call} was not awaited; call "
                f"{call} again"
            )

    def _check(self, allowed: bool, doing: str) -> None:
        """Raise the error of a call in a state that does not allow it."""
        if allowed:
            return
        if self.fatal_error is not None:
            raise self.fatal_error
        if self.state is _State.ABORTABLE_ERROR:
            assert self._error is not None
            raise self._abortable_error(self._error)
        advice = "; call init_transactions() first" if self.state is _State.UNINITIALIZED else ""
        raise ValueError(
            f"producer {self.transactional_id!r} cannot {doing}: {self.state.value}{advice}"
            + ("; call begin() first" if self.state is _State.READY else "")
        )

    def _abortable_error(self, cause: MinikafkaError) -> TransactionAbortable:
        if isinstance(cause, TransactionAbortable):
            return cause
        error = TransactionAbortable(
            cause.code if isinstance(cause, BrokerError) else ErrorCode.TRANSACTION_ABORTABLE,
            f"the transaction of producer {self.transactional_id!r} cannot be committed; abort it: {cause}",
        )
        error.__cause__ = cause
        return error

    def _fenced_error(self, doing: str) -> ProducerFenced:
        open_ms = 0 if self._started_ms is None else self._now_ms - self._started_ms
        reason = fencing_reason(open_ms, self._timeout_ms)
        return ProducerFenced(
            ErrorCode.PRODUCER_FENCED,
            f"producer {self.transactional_id!r} (id {self.producer.producer_id}, epoch "
            f"{self.producer.epoch}) was fenced at {doing}: {reason}{self._unsure_text()}",
        )

    def _described(self, operation: Operation, error: MinikafkaError) -> MinikafkaError:
        """Return the error of an operation with what the user can do."""
        if not isinstance(error, BrokerError):
            return error
        hint = operation_hint(operation, error.code, self.transactional_id, self._timeout_ms)
        text = ": ".join(part for part in (error.detail, hint) if part)
        return BrokerError(error.code, f"{text}{self._unsure_text()}")

    def _unsure_text(self) -> str:
        if not self._is_end_unsure or self.state is not _State.COMMITTING:
            return ""
        return "; the outcome of the transaction is unknown: a request to commit it had no clear response"
