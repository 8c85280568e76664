"""One request of a client without a connection: what its handler does with it is noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.net.interfaces import RequestMeter
from minikafka.net.request_times import RequestTimes
from minikafka.security.principals import ANONYMOUS, KafkaPrincipal
from minikafka.wire.frame_parts import Part, join


class RecordedExchange:
    """See ``net.interfaces.Exchange``. ``calls``: the calls in order; ``fails``: no response can be sent."""

    client_host = "host"
    listener = "PLAINTEXT"

    def __init__(self, *, fails: bool = False) -> None:
        self.memory: dict[str, Any] = {}
        self.principal: KafkaPrincipal = ANONYMOUS
        self.meter: RequestMeter | None = None
        self.times = RequestTimes()
        self.peer_certificate: bytes | None = None
        self.calls: list[tuple[Any, ...]] = []
        self.response: Sequence[Part] | None = None
        self.kept = False
        self.is_abandoned = False
        self.closed = ""
        """The reason of a close."""
        self._fails = fails

    @property
    def answered(self) -> bool:
        return self.response is not None

    @property
    def parked(self) -> bool:
        return ("park",) in self.calls

    @property
    def frame(self) -> memoryview:
        """The response as it arrives."""
        return memoryview(bytearray(join(self.response or ())))

    def authenticated(self) -> None:
        self.calls.append(("authenticated",))

    def park(self) -> None:
        self.calls.append(("park",))

    def keep_counted(self, kept: bool = True) -> None:
        self.calls.append(("keep_counted", kept))
        self.kept = kept

    def respond(self, parts: Sequence[Part], pause_ms: int = 0) -> None:
        self.calls.append(("respond", parts, pause_ms))
        self.response = parts
        if self._fails:
            raise ValueError("cannot be sent")

    def close(self, reason: str, response: Sequence[Part] = (), delay_ms: int = 0) -> None:
        """Note the call; ``response`` is taken as the response if there is one."""
        self.calls.append(
            ("close", reason, response, delay_ms) if response or delay_ms else ("close", reason)
        )
        self.closed = reason
        self.response = response or self.response
