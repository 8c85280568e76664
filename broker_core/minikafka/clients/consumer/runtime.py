"""The runtime of a consumer: operations in steps, a scheduler, and threads that can be shut down.

An operation that needs several round trips to ZooKeeper is a generator: it yields between round trips, and
yields a ``Wait`` to wait. Either one thread runs it to its end (``run_steps``), or a caller makes one step at
a time (``Stepper``), so that a simulation can interleave consumers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.clock import Clock
from minikafka.clients.network.retry import Waiter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Continue after ``milliseconds``, or once ``done`` returns True."""

    milliseconds: int
    done: Callable[[int], bool] | None = None
    """Waits for its condition, up to the given number of milliseconds, and returns whether it holds."""


Steps = Generator[Wait | None, None, T]
"""An operation in steps, with a result."""


def run_steps(steps: Steps[T], waiter: Waiter) -> T:
    """Make all steps on this thread, and return their result."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if wait is None:
            continue
        if wait.done is not None:
            wait.done(wait.milliseconds)
        else:
            waiter.wait(wait.milliseconds)


class Stepper:
    """Makes one step at a time. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: Steps[object] | None = None
        self._wait: Wait | None = None
        self._wait_end_ms = 0
        self._running = False

    @property
    def is_busy(self) -> bool:
        """True if steps are left."""
        return self._steps is not None

    @property
    def is_waiting(self) -> bool:
        """True if the next step has to wait at this moment."""
        wait = self._wait
        if wait is None or self._clock.monotonic_ms() >= self._wait_end_ms:
            return False
        return wait.done is None or not wait.done(0)

    def start(self, steps: Steps[object]) -> None:
        """Start ``steps``, and drop the rest of earlier ones."""
        self.cancel()
        self._steps = steps

    def cancel(self) -> None:
        """Drop the remaining steps. A step that calls this runs to its own end."""
        if self._steps is not None and not self._running:
            self._steps.close()
        self._steps = self._wait = None

    def step(self) -> bool:
        """Make the next step unless it has to wait. Return whether a step was made. Raises the errors of the
        step.
        """
        if self._steps is None or self.is_waiting:
            return False
        steps, self._wait, self._running = self._steps, None, True
        try:
            wait = next(steps)
        except BaseException as end:
            self._steps = None
            if not isinstance(end, StopIteration):
                raise
            return True
        finally:
            self._running = False
        if self._steps is not steps:
            steps.close()
        elif wait is not None:
            self._wait, self._wait_end_ms = wait, self._clock.monotonic_ms() + wait.milliseconds
        return True


logger = logging.getLogger("minikafka.clients.consumer")


@dataclass(slots=True)
class _PeriodicTask:
    name: str
    action: Callable[[], None]
    period_ms: int
    due_ms: int
    thread: threading.Thread | None = None


class Scheduler:
    """Runs periodic tasks, each on its own thread, or in ``step``. Tasks handle their errors; any other
    exception is logged, and the task runs again when it is due.
    """

    def __init__(self, clock: Clock, *, threads: bool) -> None:
        self._clock = clock
        self._threads = threads
        self._stopped = threading.Event()
        self._tasks: list[_PeriodicTask] = []

    def schedule(self, name: str, action: Callable[[], None], period_ms: int) -> None:
        """Add a task; it first runs after one period."""
        task = _PeriodicTask(name, action, period_ms, self._clock.monotonic_ms() + period_ms)
        self._tasks.append(task)
        if self._threads:
            task.thread = threading.Thread(target=self._run, args=(task,), name=name, daemon=True)
            task.thread.start()

    def step(self) -> None:
        """Run the tasks that are due. Only without threads."""
        now_ms = self._clock.monotonic_ms()
        for task in self._tasks:
            if task.due_ms <= now_ms and not self._stopped.is_set():
                task.due_ms = now_ms + task.period_ms
                task.action()

    def shutdown(self) -> None:
        """Start no more tasks, and wait for those that other threads are running."""
        self._stopped.set()
        for task in self._tasks:
            if task.thread is not None and task.thread is not threading.current_thread():
                task.thread.join()

    def _run(self, task: _PeriodicTask) -> None:
        while not self._stopped.wait(task.period_ms / 1000):
            try:
                task.action()
            except Exception:
                # The thread must not end: commits and lease renewals would stop without a sign.
                logger.exception("unexpected error in task %s; it runs again when due", task.name)


_BACK_OFF_AFTER_ERROR_SECONDS = 1.0


class ShutdownableThread:
    """Calls ``do_work`` repeatedly (``kafka.utils.ShutdownableThread``).

    Without ``start`` there is no thread: then the caller calls ``do_work``, which never waits.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._woken = threading.Event()

    @property
    def is_running(self) -> bool:
        """True if no shutdown was initiated."""
        return not self._stopped.is_set()

    def do_work(self) -> None:
        """Do one round of work."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a daemon thread."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End the current wait for work, or the next one."""
        self._woken.set()

    def wait_for_work(self, milliseconds: int) -> None:
        """Wait until ``wake`` or shutdown."""
        if self._thread is not None:
            self._woken.wait(milliseconds / 1000)
            self._woken.clear()

    def back_off(self, milliseconds: int) -> None:
        """Wait for that time, or until shutdown."""
        if self._thread is not None:
            self._stopped.wait(milliseconds / 1000)

    def initiate_shutdown(self) -> None:
        """Let the thread end soon."""
        self._stopped.set()
        self._woken.set()

    def await_shutdown(self, milliseconds: int) -> bool:
        """Return whether the thread has ended within that time. On the thread itself, return False
        at once.
        """
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(milliseconds / 1000)
        return not thread.is_alive()

    def _run(self) -> None:
        while self.is_running:
            try:
                self.do_work()
            except Exception:
                # The thread must not end: the only sign would be missing messages.
                logger.exception("unexpected error in thread %s; it continues", self.name)
                self._stopped.wait(_BACK_OFF_AFTER_ERROR_SECONDS)
