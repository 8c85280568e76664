"""``minikafka.commit.group``: a streaming query commits its progress to a consumer group.

    the runner's thread:  start ─▶ reached, reached, … ─▶ close      never waits for a commit
    the group's thread:   joins the group, commits the newest offsets, retries failed commits

The query is the only member of the group while it runs: in Kafka (``clients.group.sole_member``), or in
ZooKeeper as the only registered consumer, which owns all partitions (``registry.sole_consumer``). The
membership of a killed query ends with its session.

The offsets reached are the start of Spark's next request: it asks for the end of a batch once the previous
batch is committed. ``commit()`` reports them one batch later, and never for the last batch.
"""

from __future__ import annotations

import atexit
import contextlib
import platform
import random
import signal
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from types import FrameType
from typing import Protocol

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import ConfigError, GroupInUse, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.sole_member import SoleMember
from minikafka.registry.paths import consumer_id
from minikafka.registry.sole_consumer import SoleConsumer
from pyspark_minikafka import cache, report
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.group_options import COMMIT_GROUP, Storage
from pyspark_minikafka.options.options import SourceOptions

Positions = Mapping[TopicPartition, int]

_LATE_MS = 5_000
"""The time for which a killed owner may be listed after its session timeout."""
_RETRY_MS = 1_000
_CLOSE_S = 1.5
"""Spark gives a query two seconds to stop."""


class QueryMember(Protocol):
    """The query's membership in a group, in one of the storages. Called by one thread at a time.

    session_ms: the session timeout of the member. heartbeat_ms: the interval of calls of ``hold``.
    """

    session_ms: int
    heartbeat_ms: int

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Be the group's owner of ``partitions``, also after a lost session, and send a heartbeat if it is
        due. Raise GroupInUse.
        """

    def commit(self, offsets: Positions) -> None:
        """Commit ``offsets``."""

    def release(self) -> None:
        """Leave the group and close all connections."""


class ZooKeeperMember(SoleConsumer):
    """The member of a group of Kafka's old consumers, in ZooKeeper. kazoo keeps its session alive."""

    session_ms = 6_000
    heartbeat_ms = 2_000

    def __init__(self, target: Target, group: str, owner: str) -> None:
        self.store = target.zookeeper_store(self.session_ms)
        super().__init__(self.store, group, owner, SystemClock().now_ms)

    def release(self) -> None:
        try:
            super().release()
        finally:
            self.store.close()


class GroupProgress:
    """The progress of a query in a group. ``start`` is called first and ``close`` last, both by the caller's
    thread.

    If the process ends without ``close``, an exit handler calls it.
    """

    def __init__(self, member: QueryMember, group: str, clock: Clock | None = None) -> None:
        self._member = member
        self._group = group
        self._clock = clock or SystemClock()
        self._thread = threading.Thread(target=self._run, name="minikafka-group", daemon=True)
        self._changed = threading.Condition()
        self._closing = False
        self._reached: Positions = {}
        self._done: Positions = self._reached
        """The offsets reached at the last commit."""
        self._committed: dict[TopicPartition, int] = {}
        self._warned = False

    def start(self) -> None:
        """Join the group. Raise ConfigError when another member holds it.

        That member may have been killed, so its session timeout is waited for first.
        """
        wait_ms = self._member.session_ms + _LATE_MS
        end_ms = self._clock.monotonic_ms() + wait_ms
        try:
            while True:
                try:
                    self._member.hold(())
                    break
                except GroupInUse as held:
                    holders = ", ".join(held.holders)
                    if self._clock.monotonic_ms() >= end_ms:
                        raise ConfigError(
                            COMMIT_GROUP,
                            self._group,
                            f"the group is held by {holders}: two members would overwrite each other's "
                            "offsets; stop that one, or set another group",
                        ) from None
                    report.warn_once(
                        f"group {self._group!r} is held by {holders}; waiting up to {wait_ms // 1_000} s "
                        "in case that member was killed"
                    )
                    # Random: two queries that exclude each other must not retry at the same moment.
                    self._pause_ms(random.randint(100, 600))
        except BaseException:
            with contextlib.suppress(MinikafkaError):
                self._member.release()
            raise
        self._thread.start()
        # A SIGTERM while Spark starts to call ``stop`` ends that call before its first line.
        atexit.register(self._close_at_exit)

    def reached(self, positions: Positions) -> None:
        """Record that all records before ``positions`` are done. Called often; returns at once."""
        if positions != self._reached:
            with self._changed:
                self._reached = dict(positions)
                self._changed.notify()

    def close(self) -> None:
        """Commit the offsets reached and leave the group, within 1.5 s."""
        atexit.unregister(self._close_at_exit)
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _close_at_exit(self) -> None:
        with sigterm_deferred():
            self.close()

    def _pause_ms(self, milliseconds: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, milliseconds / 1_000)

    def _run(self) -> None:
        pause_ms = 0
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, pause_ms / 1_000)
                reached, closing = self._reached, self._closing
            try:
                if not closing or reached is not self._done:
                    self._commit(reached)
                pause_ms, self._warned = self._member.heartbeat_ms, False
            except Exception as problem:  # noqa: BLE001  # otherwise this thread would end silently
                self._warn(problem)
                self._pause_ms(_RETRY_MS)
                pause_ms = 0
            if closing:
                with contextlib.suppress(MinikafkaError):
                    self._member.release()
                return

    def _has_work(self) -> bool:
        return self._closing or self._reached is not self._done

    def _commit(self, reached: Positions) -> None:
        self._member.hold(reached.keys())
        changed = {tp: offset for tp, offset in reached.items() if self._committed.get(tp) != offset}
        if changed:
            self._member.commit(changed)
            self._committed = dict(reached)
        self._done = reached

    def _warn(self, problem: Exception) -> None:
        """Warn once until a commit succeeds again. The query continues."""
        if not self._warned:
            self._warned = True
            what = f"failed to commit the query's progress to group {self._group!r}"
            why = str(problem) or type(problem).__name__
            report.warn([f"{what}; the query continues and the commit is retried: {why}"])


def start_progress(options: SourceOptions, target: Target) -> GroupProgress | None:
    """Start to commit to the group of ``options``. Return None when they name none."""
    group = options.groups.commit
    if group is None:
        return None
    owner = consumer_id(group, platform.node(), SystemClock().now_ms(), uuid.uuid4().hex)
    member: QueryMember
    if options.groups.storage is Storage.ZOOKEEPER:
        member = ZooKeeperMember(target, group, owner)  # without ZooKeeper the options are refused
    else:
        cluster = cache.reading(target.bootstrap_servers, target.connection(options.connection))
        member = SoleMember(cluster, group, owner)
    progress = GroupProgress(member, group)
    install_sigterm_handler()
    progress.start()
    return progress


_terminated = False


def install_sigterm_handler() -> None:
    """Make SIGTERM unwind this process, unless it has another handler.

    Spark ends a query's runner by SIGTERM without ``stop``: the group would be held until its session ends.
    """
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _unwind)


def _unwind(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    raise SystemExit(128 + number)


@contextlib.contextmanager
def sigterm_deferred() -> Iterator[None]:
    """Run the block without interruption by SIGTERM. A process that a SIGTERM has unwound is then ended by
    one.
    """
    if signal.getsignal(signal.SIGTERM) is not _unwind:
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _terminated:
            signal.raise_signal(signal.SIGTERM)
