"""What clients ask of ZooKeeper: jobs of the worker that are done a part at a time, one part of all at once.

The worker is the control path: elections of leaders, opened logs. A request may name thousands of settings
or offsets, each of which costs a round trip to ZooKeeper, and hundreds of clients may ask at once. So at most
one part, of about ``PART_MS``, stands among the worker's jobs; the next one, of another request if there is
one, is submitted behind what came meanwhile. Each connection has one request in work, which bounds the queue;
what goes on although its client does not wait is claimed by the name that it is about.
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
"""How long a part goes on."""

RequestJob = Callable[[Callable[[], bool]], bool]
"""Goes on with a request until the callable that it is given says that its part is over, and does something
in any case; whether all is done. After a lost connection to ZooKeeper it is called again.
"""


class RequestJobs:
    """See the module. Any thread may submit; jobs run on the worker."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: deque[RequestJob] = deque()
        self._scheduled = False
        self._claimed: set[tuple[str, str]] = set()

    def claim(self, what: str, name: str) -> bool:
        """Whether nobody else has claimed this until ``release``: a request whose client does not wait may be
        sent again and again.
        """
        with self._lock:
            if (what, name) in self._claimed:
                return False
            self._claimed.add((what, name))
            return True

    def release(self, what: str, name: str) -> None:
        """What was claimed is done."""
        with self._lock:
            self._claimed.discard((what, name))

    def __len__(self) -> int:
        return len(self._jobs)

    def submit(self, job: RequestJob) -> None:
        """Do ``job``, in turn with the others."""
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
        except Exception:  # noqa: BLE001 - the others have their turn, whatever becomes of this one
            _log.exception("a client's request to ZooKeeper failed")
        with self._lock:
            self._jobs.popleft()
            if not done:
                self._jobs.append(job)
            self._scheduled = bool(self._jobs)
        if self._scheduled:
            self._worker.submit(self._do_part)
