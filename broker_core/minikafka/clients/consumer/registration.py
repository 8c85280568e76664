"""A consumer's registration in its group (``/consumers/G/ids/ID``), and the lease that depends on it.

Owners in ZooKeeper are ephemeral: ZooKeeper removes them when it has not heard from the session for the
session timeout, and then other consumers may own the partitions. A process that is paused or cut off learns
of this late. So its iterators return messages only while the lease is valid: ZooKeeper has answered, in this
session, a request that was sent less than nine tenths of the session timeout ago.
"""

from __future__ import annotations

import logging
import platform
import threading
import uuid
from collections.abc import Callable

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationError, CoordinationLost, NodeExists, SessionExpired
from minikafka.clients.consumer.assignment import TopicCount, make_registration
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.runtime import Steps, Wait
from minikafka.registry import paths
from minikafka.registry.store import Store


class Lease:
    """The lease of one consumer. Not valid before the first ``grant`` or ``renew``. Thread-safe."""

    def __init__(self, clock: Clock, session_timeout_ms: int) -> None:
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._length_ms = session_timeout_ms * 9 // 10
        self._lock = threading.Lock()
        self._session_id = 0
        self._end_ms = -1
        self.interval_ms = max(1, session_timeout_ms // 3)
        """The interval of renewals."""

    @property
    def is_valid(self) -> bool:
        """True if no other consumer can own what this consumer owned at the last renewal."""
        return self._clock.monotonic_ms() < self._end_ms

    def grant(self, session_id: int, asked_at_ms: int, granted_ms: int | None = None) -> None:
        """Start the lease of a new session, when nothing of an earlier session is left.

        ``granted_ms`` is the session timeout that ZooKeeper grants, if it is less than the requested one.
        """
        with self._lock:
            self._session_id = session_id
            self._length_ms = min(granted_ms or self._session_timeout_ms, self._session_timeout_ms) * 9 // 10
            self._end_ms = asked_at_ms + self._length_ms

    def renew(self, session_id: int = 0, asked_at_ms: int | None = None) -> bool:
        """Renew the lease: ZooKeeper has answered, in this session, a request sent at ``asked_at_ms``
        (default: now).

        Return whether the session is the lease's: an answer in a later session says that the earlier one is
        gone, and renews nothing.
        """
        with self._lock:
            if session_id != self._session_id:
                return False
            asked_at_ms = self._clock.monotonic_ms() if asked_at_ms is None else asked_at_ms
            self._end_ms = max(self._end_ms, asked_at_ms + self._length_ms)
            return True

    def revoke(self) -> None:
        """End the lease, as the session has expired: it stays invalid until ZooKeeper answers in the lease's
        session.

        If the report is late, the lease's session is already a newer one.
        """
        with self._lock:
            self._end_ms = -1


logger = logging.getLogger("minikafka.clients.consumer")


def make_consumer_id(config: ConsumerConfig, clock: Clock) -> str:
    """Return the consumer's id: its group and ``consumer.id``, or a unique generated name."""
    if config.consumer_id is not None:
        return f"{config.group_id}_{config.consumer_id}"
    return paths.consumer_id(config.group_id, platform.node(), clock.now_ms(), uuid.uuid4().hex)


class GroupRegistration:
    """The registration of ``consumer_id`` in ``/consumers/G/ids/ID``.

    ``on_lost`` is called when the znode is found to be gone.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        store: Store,
        clock: Clock,
        on_lost: Callable[[], None],
    ) -> None:
        self.path = paths.consumer_id_path(config.group_id, consumer_id)
        self.session_id = 0
        """The session that created the znode; 0 before."""
        self.topic_count: TopicCount | None = None
        """The subscription to register."""
        self.lease = Lease(clock, min(config.zookeeper_session_timeout_ms, store.session_timeout_ms))
        self._config = config
        self._consumer_id = consumer_id
        self._store = store
        self._clock = clock
        self._on_lost = on_lost
        self._stopped = False

    def register(self) -> Steps[None]:
        """Register in the present session, and start the lease.

        Waits for another consumer of the same name, such as one that was killed a moment ago, for as long as
        its session may last. Raises NodeExists if it is still there after that.
        """
        assert self.topic_count is not None
        data = make_registration(self.topic_count, self._clock.now_ms()).to_json()
        end_ms = self._clock.monotonic_ms() + 2 * self._config.zookeeper_session_timeout_ms
        while True:
            if self._stopped:
                raise CoordinationLost(f"{self._consumer_id} is shut down")
            asked_at_ms, session_id = self._clock.monotonic_ms(), self._store.session_id
            try:
                self._store.create(self.path, data, ephemeral=True, make_parents=True)
            except NodeExists:
                stat = self._store.exists(self.path)
                if stat is not None and stat.ephemeral_owner != session_id:
                    if self._clock.monotonic_ms() >= end_ms:
                        raise NodeExists(
                            f"{self.path} exists: another consumer is registered with this consumer.id"
                        ) from None
                    yield Wait(self._config.rebalance_backoff_ms)
                    continue
            if self._store.session_id == session_id:
                break
            yield None
        self.session_id = session_id
        self.lease.grant(session_id, asked_at_ms, self._store.session_timeout_ms)

    def stop(self) -> None:
        """End the wait for another consumer of the same name: ``register`` raises CoordinationLost."""
        self._stopped = True

    def forget(self) -> None:
        """Have the next rebalance register anew."""
        self.session_id = 0

    def renew(self) -> bool:
        """Query ZooKeeper for this consumer's znode, and renew the lease. Return whether the lease is valid
        now.
        """
        asked_at_ms = self._clock.monotonic_ms()
        try:
            stat = self._store.exists(self.path)
        except CoordinationError as error:
            logger.debug("%s: %s", self._consumer_id, error)
            return self.lease.is_valid
        if stat is None or not self.lease.renew(stat.ephemeral_owner, asked_at_ms):
            self._on_lost()
        return self.lease.is_valid

    def renew_if_registered(self) -> None:
        """``renew``, once the consumer is registered."""
        if self.session_id:
            self.renew()

    def check_lease(self) -> None:
        """Raise SessionExpired or CoordinationLost if other consumers may own this consumer's partitions by
        now.
        """
        if self.lease.is_valid or self.renew():
            return
        if self._store.session_id != self.session_id:
            raise SessionExpired(
                f"the ZooKeeper session of {self._consumer_id} expired: nothing is committed"
            )
        raise CoordinationLost(
            f"no answer of ZooKeeper for {self._consumer_id} within its lease: other consumers may own its "
            "partitions, nothing is committed"
        )
