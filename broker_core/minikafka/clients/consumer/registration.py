"""A consumer's registration in its group (``/consumers/G/ids/ID``), and the lease that depends on it.

Owners in ZooKeeper are ephemeral: ZooKeeper removes them after a session timeout without a request of the
session, and then other consumers may own the partitions. A process that is paused or disconnected detects
this late. So its iterators return messages only while the lease is valid: ZooKeeper has answered, in this
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
from minikafka.registry.consumer_session import ConsumerSession
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

    def grant(self, session_id: int, sent_ms: int, granted_ms: int | None = None) -> None:
        """Start the lease of a new session. Call this after everything of earlier sessions has ended.

        ``sent_ms`` is the time of the request that ZooKeeper answered. ``granted_ms`` is the session timeout
        that ZooKeeper grants; the lease uses it if it is shorter than the requested one.
        """
        with self._lock:
            self._session_id = session_id
            self._length_ms = min(granted_ms or self._session_timeout_ms, self._session_timeout_ms) * 9 // 10
            self._end_ms = sent_ms + self._length_ms

    def renew(self, session_id: int = 0, sent_ms: int | None = None) -> bool:
        """Renew the lease: ZooKeeper has answered, in session ``session_id``, a request sent at ``sent_ms``
        (default: now).

        Return False, and renew nothing, if that is not the session of the lease: an answer in a later session
        shows that the lease's session has ended.
        """
        with self._lock:
            if session_id != self._session_id:
                return False
            sent_ms = self._clock.monotonic_ms() if sent_ms is None else sent_ms
            self._end_ms = max(self._end_ms, sent_ms + self._length_ms)
            return True

    def revoke(self) -> None:
        """End the lease after a session has expired. It stays invalid until ZooKeeper answers in the lease's
        session.

        That may be a newer session than the expired one, if the event is late.
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

    ``on_lost`` is called when the znode turns out to be deleted.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        store: Store,
        clock: Clock,
        on_lost: Callable[[], None],
    ) -> None:
        self.group = config.group_id
        self.consumer_id = consumer_id
        self.session = ConsumerSession(store, config.group_id, consumer_id)
        """The registration's znode, and the owned partitions."""
        self.topic_count: TopicCount | None = None
        """The subscription to register."""
        self.lease = Lease(clock, min(config.zookeeper_session_timeout_ms, store.session_timeout_ms))
        self._config = config
        self._store = store
        self._clock = clock
        self._on_lost = on_lost
        self._stopped = False

    @property
    def session_id(self) -> int:
        """The session that created the znode; 0 before the registration."""
        return self.session.session_id

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
                raise CoordinationLost(f"{self.consumer_id} is shut down")
            sent_ms = self._clock.monotonic_ms()
            try:
                if self.session.register(data):
                    break
                yield None
            except NodeExists:
                if self._clock.monotonic_ms() >= end_ms:
                    raise
                yield Wait(self._config.rebalance_backoff_ms)
        self.lease.grant(self.session_id, sent_ms, self._store.session_timeout_ms)

    def stop(self) -> None:
        """End the wait for another consumer of the same name: ``register`` raises CoordinationLost."""
        self._stopped = True

    def forget(self) -> None:
        """Make the next rebalance register again."""
        self.session.session_id = 0

    def renew(self) -> bool:
        """Query ZooKeeper for this consumer's znode, and renew the lease. Return whether the lease is valid
        now.
        """
        sent_ms = self._clock.monotonic_ms()
        try:
            stat = self._store.exists(self.session.path)
        except CoordinationError as error:
            logger.debug("%s: %s", self.consumer_id, error)
            return self.lease.is_valid
        if stat is None or not self.lease.renew(stat.ephemeral_owner, sent_ms):
            self._on_lost()
        return self.lease.is_valid

    def renew_if_registered(self) -> None:
        """Renew the lease, if the consumer is registered."""
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
                f"{self.consumer_id}: the ZooKeeper session has expired, nothing is committed"
            )
        raise CoordinationLost(
            f"{self.consumer_id}: no response from ZooKeeper within the lease: other consumers may own the "
            "partitions, nothing is committed"
        )
