"""The health of a broker, as probes of schedulers ask for it.

Live: its threads turn; a broker that is not is to be killed. Ready: it serves clients. Under-replicated
partitions make no broker unready: another restart would make that worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.server.assembly import RunningBroker

CORE_TIMEOUT_S = 5.0
"""The longest time to wait for the core's lock. No step takes more than a fraction of it."""


class BrokerState(IntEnum):
    """The states of a broker, with Kafka's numbers. While logs are recovered it is starting."""

    STARTING = 1
    RUNNING_AS_BROKER = 3
    SHUTTING_DOWN = 7


class Health:
    """The state of a broker, from before its start to its end. Any thread may use it."""

    def __init__(self) -> None:
        self._running: RunningBroker | None = None
        self._is_stopping = False

    def started(self, running: RunningBroker) -> None:
        """Record that the broker has started; it may not serve yet."""
        self._running = running

    def stopping(self) -> None:
        """Record that the broker begins to stop."""
        self._is_stopping = True

    @property
    def state(self) -> BrokerState:
        """The state now."""
        if self._is_stopping:
            return BrokerState.SHUTTING_DOWN
        if self._running is not None and self._running.serving.is_set():
            return BrokerState.RUNNING_AS_BROKER
        return BrokerState.STARTING

    def live(self) -> Mapping[str, str]:
        """Return each check of liveness with its complaint, "" for none. May take ``CORE_TIMEOUT_S``."""
        running = self._running
        if running is None:
            return {"process": ""}
        turns = running.broker.turns(CORE_TIMEOUT_S)
        core = "" if turns else f"its lock was not free for {CORE_TIMEOUT_S:g} s"
        ended = running.stopped_threads()
        return {"process": "", "core": core, "threads": ended and f"ended: {ended}"}

    def ready(self) -> Mapping[str, str]:
        """Return each check of readiness with its complaint, "" for none."""
        running, state = self._running, self.state
        checks = {"state": "" if state is BrokerState.RUNNING_AS_BROKER else state.name.lower()}
        if running is not None:
            broker = running.broker
            checks["zookeeper"] = "" if broker.zk_client.connected else "no session"
            checks["controller"] = "" if broker.metadata_cache.controller_id >= 0 else "not known"
        return checks
