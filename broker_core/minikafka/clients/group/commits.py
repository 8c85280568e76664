"""The offset commits of one member: synchronous, asynchronous and automatic."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Committed, Committer, check_commit, commit, commit_request
from minikafka.clients.metrics.consumer import CoordinatorMetrics
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT, OffsetCommitResponse

logger = logging.getLogger("minikafka.clients.group")

Offsets = Mapping[TopicPartition, Committed]
CommitCallback = Callable[[Offsets, MinikafkaError | None], None]
"""Called with the offsets, and the error if they were not committed."""
CommitRejectedCallback = Callable[[int, ErrorCode], None]
"""Called with the generation and the coordinator's error code."""


@dataclass(frozen=True, slots=True)
class _PendingCommit:
    reply: ResponseFuture[OffsetCommitResponse]
    offsets: Offsets
    committer: Committer
    callback: CommitCallback


class CommitRequestManager:
    """Sends commits in order: a synchronous commit waits for those in flight.

    Not thread-safe. ``requested`` holds the offsets that are committed or in flight.
    """

    def __init__(
        self, coordinator: CoordinatorClient, on_rejected: CommitRejectedCallback, metrics: CoordinatorMetrics
    ) -> None:
        self.requested: dict[TopicPartition, int] = {}
        self._coordinator = coordinator
        self._on_rejected = on_rejected
        self._metrics = metrics
        self._pending: deque[_PendingCommit] = deque()

    def uncommitted(self, offsets: Offsets) -> dict[TopicPartition, Committed]:
        """Return the part of ``offsets`` that is neither committed nor in flight."""
        return {tp: pending for tp, pending in offsets.items() if self.requested.get(tp) != pending.offset}

    def commit_sync(self, committer: Committer, offsets: Offsets, deadline: Deadline) -> None:
        """Commit and wait for the response. Raises its error."""
        self.complete(deadline)
        clock = self._coordinator.cluster.clock
        began_ms = clock.monotonic_ms()
        try:
            commit(self._coordinator, committer, offsets, deadline)
        except BrokerError as error:
            self._on_rejected(committer.generation, error.code)
            raise
        self._metrics.record(self._metrics.commits, clock.monotonic_ms() - began_ms)
        self._note_requested(offsets)

    def commit_async(
        self, committer: Committer, offsets: Offsets, callback: CommitCallback, deadline: Deadline
    ) -> None:
        """Commit without waiting, in one attempt; ``complete`` calls ``callback``."""
        request = commit_request(self._coordinator.group_id, committer, offsets)
        try:
            reply = self._coordinator.send(OFFSET_COMMIT, lambda _: request, deadline)
        except MinikafkaError as error:
            callback(offsets, error)
            return
        self._note_requested(offsets)
        self._pending.append(_PendingCommit(reply, offsets, committer, callback))

    def complete(self, deadline: Deadline | None = None) -> None:
        """Call the callbacks of finished commits; with ``deadline`` wait for all commits in flight."""
        while self._pending and (deadline is not None or self._pending[0].reply.done()):
            self._complete_first(self._pending.popleft(), deadline)

    def _complete_first(self, pending: _PendingCommit, deadline: Deadline | None) -> None:
        try:
            if deadline is not None:
                self._coordinator.cluster.wait_any([pending.reply], deadline.remaining_ms())
            response = pending.reply.result(deadline.timeout_ms if deadline else None)
            check_commit(self._coordinator.group_id, response, pending.committer)
        except MinikafkaError as error:
            self._coordinator.forget_if_moved(error)
            for tp in pending.offsets:
                self.requested.pop(tp, None)
            if isinstance(error, BrokerError):
                self._on_rejected(pending.committer.generation, error.code)
            pending.callback(pending.offsets, error)
        else:
            self._metrics.record(self._metrics.commits, pending.reply.latency_ms)
            pending.callback(pending.offsets, None)

    def _note_requested(self, offsets: Offsets) -> None:
        self.requested.update({tp: pending.offset for tp, pending in offsets.items()})


def log_commit_failure(offsets: Offsets, error: MinikafkaError | None) -> None:
    """Log a failed commit. The callback of commits without one."""
    if error is not None:
        first, *others = sorted(offsets)
        which = f"offsets of {first} and {len(others)} more" if others else f"the offset of {first}"
        logger.warning("failed to commit %s: %s", which, error)
