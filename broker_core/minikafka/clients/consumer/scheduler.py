"""What a consumer does every so often: a thread for each task, or whenever somebody steps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from minikafka.base.clock import Clock

logger = logging.getLogger("minikafka.clients.consumer")


@dataclass(slots=True)
class _Task:
    name: str
    action: Callable[[], None]
    period_ms: int
    due_ms: int
    thread: threading.Thread | None = None


class Scheduler:
    """Tasks with a period. They see to their errors themselves. What one raises all the same is logged, and
    it is done again when it is due.
    """

    def __init__(self, clock: Clock, *, threads: bool) -> None:
        self._clock = clock
        self._threads = threads
        self._stopped = threading.Event()
        self._tasks: list[_Task] = []

    def schedule(self, name: str, action: Callable[[], None], period_ms: int) -> None:
        """Do it for the first time after one period."""
        task = _Task(name, action, period_ms, self._clock.monotonic_ms() + period_ms)
        self._tasks.append(task)
        if self._threads:
            task.thread = threading.Thread(target=self._run, args=(task,), name=name, daemon=True)
            task.thread.start()

    def step(self) -> None:
        """Do what is due. Only where there are no threads."""
        now_ms = self._clock.monotonic_ms()
        for task in self._tasks:
            if task.due_ms <= now_ms and not self._stopped.is_set():
                task.due_ms = now_ms + task.period_ms
                task.action()

    def shutdown(self) -> None:
        """Begin nothing any more, and wait for what is being done by other threads."""
        self._stopped.set()
        for task in self._tasks:
            if task.thread is not None and task.thread is not threading.current_thread():
                task.thread.join()

    def _run(self, task: _Task) -> None:
        while not self._stopped.wait(task.period_ms / 1000):
            try:
                task.action()
            except Exception:
                # A thread that is gone would be missed by nobody: no commit, no lease any more.
                logger.exception("%s failed, and goes on", task.name)
