"""``minikafka.commit.group``: a streaming query commits its progress to a consumer group.

    the runner's thread:  begin ─▶ reached, reached, … ─▶ close      never waits for a commit
    the group's thread:   joins the group, commits the newest offsets, retries failed commits

The query is the only member of the group while it runs: in Kafka (``clients.group.sole_member``), or in
ZooKeeper as the only registered consumer, which owns all partitions (``registry.consumers``). The membership
of a killed query ends with its session.

The offsets reached are those that Spark starts its next request from: it asks for the end of a batch once the
previous batch is committed. ``commit()`` reports them one batch later, and never for the last batch.
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
from minikafka.clients.group.sole_member import SESSION_TIMEOUT_MS, SoleMember
from minikafka.clients.network.cluster import ClusterClient
from minikafka.registry.paths import consumer_id
from pyspark_minikafka import cache, report
from pyspark_minikafka.group_options import COMMIT_GROUP, Storage
from pyspark_minikafka.location import Target
from pyspark_minikafka.options import SourceOptions

Positions = Mapping[TopicPartition, int]

_ATTEMPT_MS = 10_000
"""The time limit of one request to a coordinator."""
_LATE_MS = 5_000
"""The time for which a killed owner may be listed after its session timeout."""
_RETRY_MS = 1_000
_CLOSE_S = 1.5
"""Spark gives a query two seconds to stop."""


class Keeper(Protocol):
    """One storage of a group. Called by one thread at a time.

    session_ms: the session timeout of the owner. beat_ms: the heartbeat interval.
    """

    session_ms: int
    beat_ms: int

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Become the group's owner of ``partitions``, again after a lost session. Raise GroupHeld."""

    def commit(self, offsets: Positions) -> None:
        """Commit ``offsets``."""

    def heartbeat(self) -> None:
        """Send a heartbeat."""

    def release(self) -> None:
        """Leave the group and close all connections."""


class InKafka:
    """A group that a broker coordinates."""

    session_ms = SESSION_TIMEOUT_MS
    beat_ms = 3_000

    def __init__(self, cluster: ClusterClient, group: str, owner: str) -> None:
        self._cluster = cluster
        self._member = SoleMember(cluster, group, owner)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self._member.hold(partitions, self._cluster.deadline(self.session_ms + _ATTEMPT_MS))

    def commit(self, offsets: Positions) -> None:
        self._member.commit(offsets, self._cluster.deadline(_ATTEMPT_MS))

    def heartbeat(self) -> None:
        self._member.heartbeat(self._cluster.deadline(_ATTEMPT_MS))

    def release(self) -> None:
        self._member.release(self._cluster.deadline(_RETRY_MS))


class InZooKeeper:
    """A group of Kafka's old consumers, in ZooKeeper."""

    session_ms = 6_000
    beat_ms = 2_000

    def __init__(self, connect: str, group: str, owner: str) -> None:
        from minikafka.registry.consumers import SoleConsumer
        from minikafka.registry.zookeeper import ZooKeeperStore

        self._store = ZooKeeperStore(connect, self.session_ms, make_chroot=False)
        self._consumer = SoleConsumer(self._store, group, owner, SystemClock().now_ms)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.hold(partitions)

    def commit(self, offsets: Positions) -> None:
        self._consumer.commit(offsets)

    def heartbeat(self) -> None:
        pass  # kazoo keeps the session; ``hold`` sees when it is another one

    def release(self) -> None:
        try:
            self._consumer.release()
        finally:
            self._store.close()


class GroupProgress:
    """The progress of a query in a group. ``begin`` comes first and ``close`` last, both on the caller's
    thread.

    A process that ends without ``close`` is closed at its exit.
    """

    def __init__(self, keeper: Keeper, group: str, clock: Clock | None = None) -> None:
        self._keeper = keeper
        self._group = group
        self._clock = clock or SystemClock()
        self._thread = threading.Thread(target=self._run, name="minikafka-group", daemon=True)
        self._news = threading.Condition()
        self._closing = False
        self._reached: Positions = {}
        self._done: Positions = self._reached
        """The offsets reached at the last commit."""
        self._committed: dict[TopicPartition, int] = {}
        self._complained = False

    def begin(self) -> None:
        """Join the group. Raise ConfigError when another member holds it.

        That member may have been killed, so its session timeout is waited for first.
        """
        patience_ms = self._keeper.session_ms + _LATE_MS
        end_ms = self._clock.monotonic_ms() + patience_ms
        try:
            while True:
                try:
                    self._keeper.hold(())
                    break
                except GroupInUse as held:
                    holders = ", ".join(held.holders)
                    if self._clock.monotonic_ms() >= end_ms:
                        raise ConfigError(
                            COMMIT_GROUP,
                            self._group,
                            f"names a group that is held by {holders}: two would overwrite each other's "
                            "offsets; stop that one, or name another group",
                        ) from None
                    report.warn_once(
                        f"group {self._group!r} is held by {holders}; waiting for at most "
                        f"{patience_ms // 1_000} s, as that may have been killed"
                    )
                    # By chance: two that keep each other away do not come back at the same moment.
                    self._pause_ms(random.randint(100, 600))
        except BaseException:
            with contextlib.suppress(MinikafkaError):
                self._keeper.release()
            raise
        self._thread.start()
        # A SIGTERM that comes while Spark begins to call ``stop`` ends that call before its first line.
        atexit.register(self._close_at_exit)

    def reached(self, positions: Positions) -> None:
        """Record that all records before ``positions`` are done. Called often; returns at once."""
        if positions != self._reached:
            with self._news:
                self._reached = dict(positions)
                self._news.notify()

    def close(self) -> None:
        """Commit the offsets reached, within a short time, and leave the group."""
        atexit.unregister(self._close_at_exit)
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _close_at_exit(self) -> None:
        with undisturbed():
            self.close()

    def _pause_ms(self, milliseconds: int) -> None:
        with self._news:
            self._news.wait_for(lambda: self._closing, milliseconds / 1_000)

    def _run(self) -> None:
        pause_ms = 0
        while True:
            with self._news:
                self._news.wait_for(self._has_work, pause_ms / 1_000)
                reached, closing = self._reached, self._closing
            try:
                if not closing or reached is not self._done:
                    self._tell(reached)
                pause_ms, self._complained = self._keeper.beat_ms, False
            except Exception as problem:  # noqa: BLE001  # an end of this thread would be an end in silence
                self._complain(problem)
                self._pause_ms(_RETRY_MS)
                pause_ms = 0
            if closing:
                with contextlib.suppress(MinikafkaError):
                    self._keeper.release()
                return

    def _has_work(self) -> bool:
        return self._closing or self._reached is not self._done

    def _tell(self, reached: Positions) -> None:
        self._keeper.hold(reached.keys())
        news = {tp: offset for tp, offset in reached.items() if self._committed.get(tp) != offset}
        if news:
            self._keeper.commit(news)
            self._committed = dict(reached)
        else:
            self._keeper.heartbeat()
        self._done = reached

    def _complain(self, problem: Exception) -> None:
        """Warn once until a commit succeeds again. The query continues."""
        if not self._complained:
            self._complained = True
            what = f"group {self._group!r} is not told how far the query is"
            why = str(problem) or type(problem).__name__
            report.warn([f"{what}, which goes on, as do the attempts: {why}"])


def follow(options: SourceOptions, target: Target) -> GroupProgress | None:
    """Start to commit to the group of ``options``. Return None when they name none."""
    group = options.groups.commit
    if group is None:
        return None
    owner = consumer_id(group, platform.node(), SystemClock().now_ms(), uuid.uuid4().hex)
    keeper: Keeper
    if options.groups.storage is Storage.ZOOKEEPER:
        assert target.zookeeper_connect is not None  # or the options were refused
        keeper = InZooKeeper(target.zookeeper_connect, group, owner)
    else:
        keeper = InKafka(cache.reading(target.bootstrap_servers, options.connection), group, owner)
    progress = GroupProgress(keeper, group)
    heed_termination()
    progress.begin()
    return progress


_terminated = False


def heed_termination() -> None:
    """Let SIGTERM unwind this process.

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
def undisturbed() -> Iterator[None]:
    """Run the block without interruption by SIGTERM. A process that a SIGTERM has unwound dies of it
    afterwards.
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
