"""Another broker of the cluster, as this one talks to it: one connection, one request under way at a time.

A ``InterBrokerConnection`` goes on in steps that never wait, but to connect: a thread waits between them, the
simulation lets time pass.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from minikafka.base.clock import Clock
from minikafka.base.errors import NetworkError, RemoteWireError
from minikafka.base.ids import BrokerAddress
from minikafka.net.interfaces import Connection, Connector, PendingResponse
from minikafka.wire.api import Api
from minikafka.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from minikafka.wire.framing import RequestHeader, split_response

_log = logging.getLogger(__name__)

_LOOK_MS = 1_000
"""How often a thread looks whether it is to end, while nothing comes."""


class Peer:
    """One broker at one address. For one thread at a time."""

    def __init__(self, address: BrokerAddress, connector: Connector, client_id: str) -> None:
        self.address = address
        self.connector = connector
        self._client_id = client_id
        self._connection: Connection | None = None
        self._pending: PendingResponse | None = None
        self._asked: tuple[Api[Any, Any], int] = API_VERSIONS, 0
        self._correlation_id = 0
        self._newest: Mapping[int, int] = {}

    @property
    def pending(self) -> PendingResponse | None:
        """The answer that is awaited; None where nothing was asked."""
        return self._pending

    @property
    def negotiated(self) -> bool:
        """Whether the versions that it speaks are known, over the connection that is there."""
        return bool(self._newest) and self._connection is not None and not self._connection.closed

    def version(self, api: Api[Any, Any]) -> int:
        """The newest version of ``api`` that both sides have; to be asked once ``negotiated``."""
        return min(self._newest.get(api.key, 0), api.max_version)

    def negotiate(self) -> None:
        """Ask what it speaks; ``answer`` gives the ApiVersionsResponse."""
        self.send(API_VERSIONS, 0, ApiVersionsRequest())

    def send(self, api: Api[Any, Any], version: int, request: Any) -> None:
        """Send a request; connects where there is no connection. NetworkError."""
        if self._connection is None or self._connection.closed:
            self.close()
            self._connection = self.connector.connect(self.address.host, self.address.port)
        self._correlation_id += 1
        header = RequestHeader(int(api.key), version, self._correlation_id, self._client_id)
        parts = [header.encode(), *api.encode_request(version, request)]
        self._asked = api, version
        self._pending = self._connection.request(parts)

    def answered(self) -> bool:
        """Whether ``answer`` gives the response, or raises, at once."""
        return self._pending is not None and self._pending.done()

    def answer(self, timeout_ms: int | None = None) -> Any:
        """The response to what was sent, waited for; NetworkError, RemoteWireError: the connection is
        closed then.
        """
        pending, self._pending = self._pending, None
        assert pending is not None, "nothing was sent"
        api, version = self._asked
        try:
            correlation_id, body = split_response(pending.result(timeout_ms))
            if correlation_id != self._correlation_id:
                raise RemoteWireError(f"answer {correlation_id} came in the place of {self._correlation_id}")
            response = api.decode_response(version, body)
        except (NetworkError, RemoteWireError):
            self.close()
            raise
        if api is API_VERSIONS:
            self._newest = {one.api_key: one.max_version for one in response.api_keys}
        return response

    def close(self) -> None:
        """End the connection; the next request makes another."""
        self._pending = None
        self._newest = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class InterBrokerConnection(ABC):
    """What this broker has to say to another one, request by request."""

    def __init__(self, peer: Peer, clock: Clock, timeout_ms: int) -> None:
        """An answer that has not come ``timeout_ms`` after the request never will: the connection ends."""
        self.peer = peer
        self.clock = clock
        self._timeout_ms = timeout_ms
        self._asked_ms = 0
        self._not_before_ms = 0
        self._complaint = ""
        self._stopping = False
        self._wake = threading.Event()

    @abstractmethod
    def ask(self) -> bool:
        """Send the next request; False where there is none. NetworkError where it cannot be sent."""

    @abstractmethod
    def take(self, response: Any) -> None:
        """Take the answer to what was sent."""

    @abstractmethod
    def failed(self, reason: str) -> int:
        """There is no answer, and perhaps no connection; how long to wait before the next try, in ms."""

    def next_ms(self) -> int | None:
        """When ``ask`` has something to send again (monotonic); None when nobody knows."""
        return None

    def step(self) -> bool:
        """Send what there is to say, or take an answer; whether there was anything to do."""
        if self.peer.pending is None:
            self._asked_ms = self.clock.monotonic_ms()
            if self._asked_ms < self._not_before_ms:
                return False
            try:
                return self.ask()
            except NetworkError as error:
                self._fail(str(error))
                return True
        if not self.peer.answered():
            if self.clock.monotonic_ms() < self._asked_ms + self._timeout_ms:
                return False
            self._fail(f"no answer within {self._timeout_ms} ms")
            return True
        try:
            response = self.peer.answer()
        except (NetworkError, RemoteWireError) as error:
            self._fail(str(error))
            return True
        if self._complaint:
            _log.info("%s answers again", self.peer.address)
        self._complaint = ""
        self.take(response)
        return True

    def _fail(self, reason: str) -> None:
        self.peer.close()
        self._not_before_ms = self.clock.monotonic_ms() + self.failed(reason)
        if self._complaint != reason:
            self._complaint = reason
            _log.warning("%s cannot be reached, it is tried again: %s", self.peer.address, reason)

    def wake(self) -> None:
        """There is something new to say."""
        self._wake.set()

    def run(self) -> None:
        """Steps on the calling thread, until ``stop``."""
        while not self._stopping:
            try:
                if self.step():
                    continue
            except Exception:  # noqa: BLE001 - one failure must not end the thread
                _log.exception("the conversation with %s failed; it goes on", self.peer.address)
                self._fail("an error of our own")
            self._wait()
        self.peer.close()

    def _wait(self) -> None:
        if self.peer.pending is not None:
            self.peer.connector.wait_any([self.peer.pending], _LOOK_MS)
            return
        now_ms, next_ms = self.clock.monotonic_ms(), self.next_ms()
        due = [at - now_ms for at in (self._not_before_ms, next_ms) if at is not None and at > now_ms]
        self._wake.wait(min([_LOOK_MS, *due]) / 1000)
        self._wake.clear()

    def stop(self) -> None:
        """Let ``run`` end soon."""
        self._stopping = True
        self._wake.set()
