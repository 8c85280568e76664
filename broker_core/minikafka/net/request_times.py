"""The times of a request in the broker.

The stages are those of Kafka's ``RequestMetrics``. A request that is served on the thread that received it
waits in no queue; one of the work pool, or one that waits for memory, does.

    RequestQueueTimeMs   received, until a thread begins to serve it
    LocalTimeMs          until its handler has done its part
    RemoteTimeMs         until its response is there: time in the purgatory, for replicas or for new data
    ResponseQueueTimeMs  until the processor begins to send the response
    ResponseSendTimeMs   until it is sent
    ThrottleTimeMs       the pause of the connection after it
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from minikafka.wire.framing import RequestHeader


class RequestTimes:
    """The times of one request, in nanoseconds of ``perf_counter_ns``; 0: it has not come so far.

    The names of the fields are those of Kafka's ``RequestChannel.Request``.
    """

    __slots__ = (
        "api_local_complete_ns",
        "dequeue_ns",
        "errors",
        "from_follower",
        "header",
        "request_bytes",
        "response_bytes",
        "response_complete_ns",
        "response_dequeue_ns",
        "start_ns",
        "throttle_ms",
    )

    counts_errors: ClassVar[bool] = True
    """False if no observer reads ``errors``: nobody looks them up then."""

    def __init__(self, request_bytes: int = 0) -> None:
        self.start_ns = perf_counter_ns()
        self.dequeue_ns = self.api_local_complete_ns = self.response_complete_ns = 0
        self.request_bytes = request_bytes
        self.header: RequestHeader | None = None
        """None: the request could not be decoded, or it is of the classic protocol."""
        self.from_follower = False
        """True for a fetch of a follower."""
        self.errors: Sequence[int] = ()
        """The error codes in the response, without 0."""

    def dequeued(self) -> None:
        """Record that a thread begins to serve the request, which has waited."""
        self.dequeue_ns = perf_counter_ns()

    def local_complete(self) -> None:
        """Record that the handler has done its part. A later call counts if there is no response yet."""
        if not self.response_complete_ns:
            self.api_local_complete_ns = perf_counter_ns()

    def begin_response(self, response_bytes: int, throttle_ms: int) -> None:
        """Record that the processor begins to send the response, and the pause that follows.

        Only then the fields of the response are set.
        """
        self.response_dequeue_ns = perf_counter_ns()
        self.response_bytes, self.throttle_ms = response_bytes, throttle_ms

    @property
    def queue_ns(self) -> int:
        """The time before a thread began to serve the request."""
        return self.dequeue_ns - self.start_ns if self.dequeue_ns else 0

    @property
    def local_ns(self) -> int:
        """The time of the handler."""
        begin_ns = self.dequeue_ns or self.start_ns
        return (self.api_local_complete_ns or self.response_complete_ns) - begin_ns

    @property
    def remote_ns(self) -> int:
        """The time of waiting after the handler."""
        local_complete_ns = self.api_local_complete_ns
        return self.response_complete_ns - local_complete_ns if local_complete_ns else 0

    @property
    def response_queue_ns(self) -> int:
        """The time of the response before the processor sent it."""
        return self.response_dequeue_ns - self.response_complete_ns
