"""Jobs on ZooKeeper for clients' requests, which run on the worker in short parts and take turns.

The worker is the control path: it elects leaders and opens logs. A request may name thousands of configs or
offsets, each of which costs a round trip to ZooKeeper, and hundreds of clients may send such requests at
once. So at most one part, of about ``PART_MS``, is in the worker's queue; the next part, of another request
if there is one, is submitted behind the jobs that came meanwhile. Each connection has one request in
progress, which bounds the queue; work that continues although its client does not wait is claimed by name.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from minikafka.base.clock import Clock
from minikafka.base.errors import CoordinationLost, SessionExpired
from minikafka.server.workers.worker import Worker

_log = logging.getLogger(__name__)

PART_MS = 50
"""The duration of a part."""

RequestJob = Callable[[Callable[[], bool]], bool]
"""Continues a request until the callable argument returns True, after at least one item of work. Returns True
when the request is done. It is called again after a lost connection to ZooKeeper.
"""


class RequestJobs:
    """The queue of clients' jobs on ZooKeeper. Any thread may submit; jobs run on the worker."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: deque[RequestJob] = deque()
        self._scheduled = False
        self._claimed: set[tuple[str, str]] = set()

    def claim(self, what: str, name: str) -> bool:
        """Claim work by name until ``release``; return False if it is claimed already.

        Claims keep the repeated requests of an impatient client from queueing the same work many times.
        """
        with self._lock:
            if (what, name) in self._claimed:
                return False
            self._claimed.add((what, name))
            return True

    def release(self, what: str, name: str) -> None:
        """Release a claim when the work is done."""
        with self._lock:
            self._claimed.discard((what, name))

    def __len__(self) -> int:
        return len(self._jobs)

    def submit(self, job: RequestJob) -> None:
        """Run ``job``, in turn with the others."""
        with self._lock:
            self._jobs.append(job)
            if self._scheduled:
                return
            self._scheduled = True
        self._worker.submit(self._do_part)

    def _do_part(self) -> None:
        until_ms = self._clock.monotonic_ms() + PART_MS
        job, done = self._jobs[0], True
        try:
            done = job(lambda: self._clock.monotonic_ms() >= until_ms)
        except (CoordinationLost, SessionExpired):
            raise  # the worker runs this again
        except Exception:  # noqa: BLE001 - the other jobs must get their turn
            _log.exception("unexpected error in a client's request to ZooKeeper")
        with self._lock:
            self._jobs.popleft()
            if not done:
                self._jobs.append(job)
            self._scheduled = bool(self._jobs)
        if self._scheduled:
            self._worker.submit(self._do_part)
