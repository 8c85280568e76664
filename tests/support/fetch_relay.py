"""A relay in front of a broker that keeps what consumers fetch there.

The broker advertises the relay's address, so that clients send their requests through it. Followers' fetches
pass too, and are not kept.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.net.ports import free_port
from minikafka.wire.apis.fetch import FETCH, FetchRequest, FetchResponse
from minikafka.wire.framing import RequestHeader, split_response
from tests.support.plain_sockets import framed, read_frame

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RelayedFetch:
    """A consumer's fetch, and the broker's response once it is there."""

    version: int
    request: FetchRequest
    responses: list[FetchResponse]

    @property
    def named(self) -> int:
        """The number of partitions that the request names."""
        return sum(len(topic.partitions) for topic in self.request.topics)

    @property
    def answered(self) -> int:
        """The number of partitions that the response has."""
        return sum(len(topic.partitions) for response in self.responses for topic in response.topics)

    @property
    def record_bytes(self) -> int:
        """The size of the records in the response."""
        return sum(
            len(part.records or b"")
            for response in self.responses
            for topic in response.topics
            for part in topic.partitions
        )


class FetchRelay:
    """A relay with a port of its own to the broker that listens on ``broker_port``. A context manager."""

    def __init__(self) -> None:
        self.broker_port = free_port()
        self.fetches: list[RelayedFetch] = []
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def listeners(self) -> dict[str, str]:
        """The broker's settings of its listener and of the address that it advertises."""
        port = self._listener.getsockname()[1]
        return {
            "listeners": f"PLAINTEXT://{HOST}:{self.broker_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        }

    @property
    def record_bytes(self) -> int:
        """The size of all records that consumers have fetched."""
        return sum(fetch.record_bytes for fetch in self.fetches)

    def __enter__(self) -> FetchRelay:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="fetch-relay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection((HOST, self.broker_port))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, broker]
                pending: dict[int, RelayedFetch] = {}
                self._start(
                    self._copy, client, broker, lambda frame, kept=pending: self._request(frame, kept)
                )
                self._start(self._copy, broker, client, lambda frame, kept=pending: _response(frame, kept))

    def _copy(self, source: socket.socket, target: socket.socket, look: Callable[[bytes], None]) -> None:
        try:
            while True:
                frame = read_frame(source)
                look(frame)
                target.sendall(framed(frame))
        except (OSError, AssertionError):
            for sock in (source, target):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _request(self, frame: bytes, pending: dict[int, RelayedFetch]) -> None:
        header, body = RequestHeader.decode(frame)
        if header.api_key != FETCH.key:
            return
        request = FETCH.decode_request(header.api_version, body)
        if max(request.replica_id, request.replica_state.replica_id) < 0:
            fetch = pending[header.correlation_id] = RelayedFetch(header.api_version, request, [])
            self.fetches.append(fetch)


def _response(frame: bytes, pending: dict[int, RelayedFetch]) -> None:
    fetch = pending.pop(int.from_bytes(frame[:4], "big"), None)
    if fetch is not None:
        _, body = split_response(frame, FETCH.has_tagged_response_header(fetch.version))
        fetch.responses.append(FETCH.decode_response(fetch.version, body))
