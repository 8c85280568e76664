"""The worker of the control path: it runs jobs on ZooKeeper and on logs (opening, deleting) in order.

The order of jobs is the order of their effects on ZooKeeper, which the controller's decisions rely on. After
a lost connection or session the job is run again, before all others, once there is a session; so every job
must allow to be run twice.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from minikafka.base.errors import CoordinationLost, InconsistentClusterId, SessionExpired

_log = logging.getLogger(__name__)

Job = Callable[[], None]

_RETRY_INTERVAL_S = 1.0


class Worker(Protocol):
    """Runs jobs in the order in which they were submitted."""

    def submit(self, job: Job) -> None:
        """Run ``job`` later; any thread may call this."""

    def resume(self) -> None:
        """Run the interrupted job again: there is a session again."""

    def stop(self) -> None:
        """Finish the running job, and start no more."""


class ThreadWorker:
    """A worker with its own thread."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stopping = False
        self._session = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def resume(self) -> None:
        self._session.set()

    def stop(self) -> None:
        self._stopping = True
        self._session.set()
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopping:
            self._session.clear()
            while not _done(job) and not self._stopping:
                self._session.wait(_RETRY_INTERVAL_S)
                self._session.clear()


class InlineWorker:
    """A worker for the single-threaded simulation: jobs run in ``run_until_idle``."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def resume(self) -> None:
        pass

    @property
    def idle(self) -> bool:
        """True if there is no job."""
        return not self._jobs

    def run_until_idle(self) -> int:
        """Run all jobs, also those that jobs submit, until one loses the connection; return their number."""
        count = 0
        while self._jobs and _done(self._jobs[0]):
            self._jobs.popleft()
            count += 1
        return count

    def stop(self) -> None:
        self.run_until_idle()


def _done(job: Job) -> bool:
    try:
        job()
    except (CoordinationLost, SessionExpired) as error:
        _log.warning("waiting for ZooKeeper: %s", error)
        return False
    except InconsistentClusterId as error:
        _log.warning("dropped a job of the control path: %s", error)
    except Exception:  # noqa: BLE001 - one job must not end the worker
        _log.exception("unexpected error in a job of the control path")
    return True
