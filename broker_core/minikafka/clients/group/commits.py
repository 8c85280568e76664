"""The commits of one member: waited for, under way, and those that are made by themselves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import Author, Committed, check_commit, commit, commit_request
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.retry import Deadline
from minikafka.wire.apis.offset_commit import OFFSET_COMMIT, OffsetCommitResponse

logger = logging.getLogger("minikafka.clients.group")

Offsets = Mapping[TopicPartition, Committed]
CommitCallback = Callable[[Offsets, MinikafkaError | None], None]
"""Is given what was to be committed, and why it was not."""
Refused = Callable[[int, ErrorCode], None]
"""Is told the generation, and what the coordinator says of it."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    reply: ResponseFuture[OffsetCommitResponse]
    offsets: Offsets
    author: Author
    callback: CommitCallback


class GroupCommits:
    """Keeps commits in their order: one that is waited for comes after those that are under way.

    Not thread-safe. ``told`` holds the offsets that the coordinator has, or is being told.
    """

    def __init__(self, coordinator: CoordinatorClient, refused: Refused) -> None:
        self.told: dict[TopicPartition, int] = {}
        self._coordinator = coordinator
        self._refused = refused
        self._under_way: deque[_UnderWay] = deque()

    def news(self, offsets: Offsets) -> dict[TopicPartition, Committed]:
        """Those of ``offsets`` that the coordinator has not been told."""
        return {tp: one for tp, one in offsets.items() if self.told.get(tp) != one.offset}

    def sync(self, author: Author, offsets: Offsets, deadline: Deadline) -> None:
        """Commit and wait until it is done. Raises what went wrong."""
        self.settle(deadline)
        try:
            commit(self._coordinator, author, offsets, deadline)
        except BrokerError as error:
            self._refused(author.generation, error.code)
            raise
        self._tell(offsets)

    def begin(self, author: Author, offsets: Offsets, callback: CommitCallback, deadline: Deadline) -> None:
        """Commit without waiting, in one attempt; ``settle`` calls ``callback``."""
        request = commit_request(self._coordinator.group_id, author, offsets)
        try:
            reply = self._coordinator.send(OFFSET_COMMIT, lambda _: request, deadline)
        except MinikafkaError as error:
            callback(offsets, error)
            return
        self._tell(offsets)
        self._under_way.append(_UnderWay(reply, offsets, author, callback))

    def settle(self, deadline: Deadline | None = None) -> None:
        """Call back for what is done; with ``deadline`` wait for all that is under way."""
        while self._under_way and (deadline is not None or self._under_way[0].reply.done()):
            self._settle_one(self._under_way.popleft(), deadline)

    def _settle_one(self, one: _UnderWay, deadline: Deadline | None) -> None:
        try:
            if deadline is not None:
                self._coordinator.cluster.wait_any([one.reply], deadline.remaining_ms())
            response = one.reply.result(max(1, deadline.remaining_ms()) if deadline else None)
            check_commit(self._coordinator.group_id, response, one.author)
        except MinikafkaError as error:
            self._coordinator.judge(error)
            for tp in one.offsets:
                self.told.pop(tp, None)
            if isinstance(error, BrokerError):
                self._refused(one.author.generation, error.code)
            one.callback(one.offsets, error)
        else:
            one.callback(one.offsets, None)

    def _tell(self, offsets: Offsets) -> None:
        self.told.update({tp: one.offset for tp, one in offsets.items()})


def log_failure(offsets: Offsets, error: MinikafkaError | None) -> None:
    """The callback of those who bring none."""
    if error is not None:
        first, *others = sorted(offsets)
        which = f"offsets of {first} and {len(others)} more were" if others else f"offset of {first} was"
        logger.warning("the %s not committed: %s", which, error)
