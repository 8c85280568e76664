"""Connections with brokers in memory for clients of several threads, in real time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from minikafka.base.errors import NetworkError
from minikafka.wire.frame_parts import Part, join
from tests.support.broker_harness import FIRST_PORT, BrokerHarness
from tests.support.recorded_exchange import RecordedExchange


class _Pending(RecordedExchange):
    def __init__(self) -> None:
        super().__init__()
        self.settled = threading.Event()
        self.error = ""

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        super().respond(parts)
        if parts:
            self.settled.set()

    def close(self, reason: str) -> None:
        self.error = self.error or reason
        self.settled.set()

    def done(self) -> bool:
        return self.settled.is_set()

    def result(self, timeout_ms: int | None = None) -> memoryview:
        self.settled.wait(None if timeout_ms is None else timeout_ms / 1000)
        if self.error or not self.response:
            raise NetworkError(self.error or "no response in time")
        return self.frame


class _Connection:
    def __init__(self, connector: ThreadedConnector, broker_id: int) -> None:
        self.peer = f"broker {broker_id}"
        self.closed = False
        self.session_end_ms: int | None = None
        self._connector = connector
        self._broker_id = broker_id
        self._pending: list[_Pending] = []

    def request(self, parts: Sequence[Part], max_response_bytes: int | None = None) -> _Pending:
        pending = _Pending()
        with self._connector.lock:
            if self.closed:
                raise NetworkError("closed")
            self._pending.append(pending)
            frame = memoryview(bytearray(join(parts)))
            brokers: Any = self._connector.brokers
            brokers.respond(self._broker_id, pending, frame)
        return pending

    def send(self, parts: Sequence[Part]) -> None:
        raise NotImplementedError

    def close(self, drain_ms: int = 0) -> None:
        with self._connector.lock:
            self.closed = True
            for pending in self._pending:
                if not pending.done():
                    pending.close("closed by this side")

    def abort(self) -> None:
        self.close()


class ThreadedConnector:
    """Serves every request at once, in turn; a request without an answer waits until the end."""

    def __init__(self, brokers: BrokerHarness) -> None:
        self.brokers = brokers
        self.lock = threading.RLock()

    def connect(self, host: str, port: int) -> _Connection:
        return _Connection(self, port - FIRST_PORT)

    def wait_any(self, pending: Sequence[Any], timeout_ms: int) -> bool:
        raise NotImplementedError
