"""The commits of one member: waited for, under way, and those that are made by themselves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Committed, Committer, check_commit, commit, commit_request
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT, OffsetCommitResponse

logger = logging.getLogger("minikafka.clients.group")

Offsets = Mapping[TopicPartition, Committed]
CommitCallback = Callable[[Offsets, MinikafkaError | None], None]
"""Is given what was to be committed, and why it was not."""
CommitRejectedCallback = Callable[[int, ErrorCode], None]
"""Is told the generation, and what the coordinator says of it."""


@dataclass(frozen=True, slots=True)
class _PendingCommit:
    reply: ResponseFuture[OffsetCommitResponse]
    offsets: Offsets
    committer: Committer
    callback: CommitCallback


class CommitRequestManager:
    """Keeps commits in their order: one that is waited for comes after those that are under way.

    Not thread-safe. ``requested`` holds the offsets that the coordinator has, or is being told.
    """

    def __init__(self, coordinator: CoordinatorClient, on_rejected: CommitRejectedCallback) -> None:
        self.requested: dict[TopicPartition, int] = {}
        self._coordinator = coordinator
        self._on_rejected = on_rejected
        self._pending: deque[_PendingCommit] = deque()

    def uncommitted(self, offsets: Offsets) -> dict[TopicPartition, Committed]:
        """Those of ``offsets`` that the coordinator has not been told."""
        return {tp: pending for tp, pending in offsets.items() if self.requested.get(tp) != pending.offset}

    def commit_sync(self, committer: Committer, offsets: Offsets, deadline: Deadline) -> None:
        """Commit and wait until it is done. Raises what went wrong."""
        self.complete(deadline)
        try:
            commit(self._coordinator, committer, offsets, deadline)
        except BrokerError as error:
            self._on_rejected(committer.generation, error.code)
            raise
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
        """Call back for what is done; with ``deadline`` wait for all that is under way."""
        while self._pending and (deadline is not None or self._pending[0].reply.done()):
            self._complete_first(self._pending.popleft(), deadline)

    def _complete_first(self, pending: _PendingCommit, deadline: Deadline | None) -> None:
        try:
            if deadline is not None:
                self._coordinator.cluster.wait_any([pending.reply], deadline.remaining_ms())
            response = pending.reply.result(max(1, deadline.remaining_ms()) if deadline else None)
            check_commit(self._coordinator.group_id, response, pending.committer)
        except MinikafkaError as error:
            self._coordinator.forget_if_moved(error)
            for tp in pending.offsets:
                self.requested.pop(tp, None)
            if isinstance(error, BrokerError):
                self._on_rejected(pending.committer.generation, error.code)
            pending.callback(pending.offsets, error)
        else:
            pending.callback(pending.offsets, None)

    def _note_requested(self, offsets: Offsets) -> None:
        self.requested.update({tp: pending.offset for tp, pending in offsets.items()})


def log_commit_failure(offsets: Offsets, error: MinikafkaError | None) -> None:
    """The callback of those who bring none."""
    if error is not None:
        first, *others = sorted(offsets)
        which = f"offsets of {first} and {len(others)} more were" if others else f"offset of {first} was"
        logger.warning("the %s not committed: %s", which, error)
