"""TxnOffsetCommit: store offsets that a group commits in a producer's transaction.

Versions: 2 adds the leader epoch, 3 the consumer's generation and ids: one that has left the group is refused
(KIP-447). From version 4 on producers know TRANSACTION_ABORTABLE; until version 1 they do not know
COORDINATOR_LOAD_IN_PROGRESS, and get COORDINATOR_NOT_AVAILABLE.

Unknown partitions and too long metadata fail on their own; the rest is one commit. Before the first commit
of a transaction the transaction coordinator is asked whether the group's partition of the offsets topic is in
it, as for produced batches. The response is sent when every in-sync replica has the offsets. They are visible
once the transaction is committed. A broker that serves no transactions answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.groups.events import MemberIdentity
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue
from minikafka.log.producers.producer_state import OPEN_TRANSACTION, Guard, VerificationGuard
from minikafka.server.context import RequestContext
from minikafka.server.coordination.partition_writer import NO_SEQUENCE
from minikafka.server.groups.checked_commits import checked_commits
from minikafka.server.groups.group_coordinator import FAILED_COMMIT, GroupCoordinator
from minikafka.server.transactions.add_partitions_verifier import error_for_producer
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_ABORTABLE_SINCE = 4
_LOADING_SINCE = 2
"""The first versions with TRANSACTION_ABORTABLE, and with COORDINATOR_LOAD_IN_PROGRESS."""

_FAILED_VERIFICATION = {**FAILED_COMMIT, ErrorCode.NETWORK_EXCEPTION: ErrorCode.GROUP_LOAD_IN_PROGRESS}
"""Error of a verification -> the error for a commit, which clients can handle."""

_Done = Callable[[ErrorCode], None]


def handle(coordinator: GroupCoordinator, context: RequestContext, request: TxnOffsetCommitRequest) -> Steps:
    """Serve one TxnOffsetCommit request."""
    broker = coordinator.broker
    now_ms = broker.clock.now_ms()

    def value(part: TxnOffsetCommitRequestPartition) -> OffsetCommitValue:
        metadata = part.committed_metadata or ""
        return OffsetCommitValue(
            part.committed_offset, part.committed_leader_epoch, metadata, now_ms, NEVER_MS
        )

    checked = yield from checked_commits(broker, request.topics, value)
    commits = checked.commits

    def reply(error: ErrorCode) -> Steps:
        if checked.step_bytes:
            yield checked.step_bytes
        code = _for_version(error, context.version)
        context.reply(_response(request, {**dict.fromkeys(commits, code), **checked.errors}))

    def done(error: ErrorCode) -> None:
        begin_here(broker.pool, context.exchange, broker.clock, reply(error))

    if not commits:
        done(ErrorCode.NONE)
    else:
        _commit(coordinator, request, commits, done)


def _commit(
    coordinator: GroupCoordinator,
    request: TxnOffsetCommitRequest,
    commits: dict[TopicPartition, OffsetCommitValue],
    done: _Done,
) -> None:
    """Commit, after the transaction coordinator has verified the transaction."""
    broker = coordinator.broker
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    member = MemberIdentity(request.member_id, request.group_instance_id)
    partition = coordinator.partition_of(request.group_id)

    def commit(guard: Guard) -> None:
        coordinator.txn_commit(
            request.group_id, member, request.generation_id, *producer, commits, done, guard
        )

    def start() -> VerificationGuard:
        return broker.partition(partition).start_transaction_verification(
            *producer, NO_SEQUENCE, broker.clock.now_ms()
        )

    verify = broker.verify_transaction
    if verify is None or not request.group_id:
        done(ErrorCode.UNSUPPORTED_VERSION if verify is None else ErrorCode.INVALID_GROUP_ID)
        return
    if not broker.config.verify_transactions:
        commit(None)
        return
    try:
        guard = broker.run(start)
    except BrokerError as error:
        done(_FAILED_VERIFICATION.get(error.code, error.code))
        return

    def verified(results: Mapping[TopicPartition, ErrorCode]) -> None:
        result = results[partition]
        if result is ErrorCode.NONE:
            commit(guard)
        else:
            done(_FAILED_VERIFICATION.get(result, result))

    if guard is OPEN_TRANSACTION:
        commit(guard)
    else:
        verify(request.transactional_id, producer, [partition], verified)


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as clients of that version know it."""
    error = error_for_producer(error, knows_abortable=version >= _ABORTABLE_SINCE)
    if error is ErrorCode.GROUP_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    return error


def _response(
    request: TxnOffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(
                        part.partition_index, errors[TopicPartition(topic.name, part.partition_index)]
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
