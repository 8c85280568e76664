"""The machinery under a consumer: tasks in steps, a scheduler, threads that can be shut down, and a log of
repeated failures.

An operation that needs several round trips to ZooKeeper is a generator: it yields between round trips and
where it has to wait. One thread runs it to its end (``run_steps``), or a caller makes one step at a time
(``Stepper``), so that a simulation can interleave consumers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import BrokerError, MinikafkaError
from minikafka.clients.network.retry import Waiter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on after so many milliseconds, or once ``done`` says so."""

    milliseconds: int
    done: Callable[[int], bool] | None = None
    """Waits for what is to come, for at most so many milliseconds, and says whether it came."""


Steps = Generator[Wait | None, None, T]
"""Steps with a result."""


def run_steps(steps: Steps[T], waiter: Waiter) -> T:
    """Make all steps, on this thread."""
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
    """Makes one step when it is asked to. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: Steps[object] | None = None
        self._wait: Wait | None = None
        self._wait_end_ms = 0
        self._running = False

    @property
    def is_busy(self) -> bool:
        """Whether steps are left."""
        return self._steps is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the next step has to wait, at this moment."""
        wait = self._wait
        if wait is None or self._clock.monotonic_ms() >= self._wait_end_ms:
            return False
        return wait.done is None or not wait.done(0)

    def start(self, steps: Steps[object]) -> None:
        """Steps to make from now on; what was left of others is dropped."""
        self.cancel()
        self._steps = steps

    def cancel(self) -> None:
        """Make no more of them; the one that calls this comes to its end."""
        if self._steps is not None and not self._running:
            self._steps.close()
        self._steps = self._wait = None

    def step(self) -> bool:
        """Make the next step, if it need not wait; whether one was made. Raises what the step raises."""
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


_BACK_OFF_AFTER_ERROR_SECONDS = 1.0


class ShutdownableThread:
    """Calls ``do_work`` again and again (``kafka.utils.ShutdownableThread``).

    Without ``start`` nothing runs by itself: whoever calls ``do_work`` then never waits in it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._woken = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether it was not told to stop."""
        return not self._stopped.is_set()

    def do_work(self) -> None:
        """One turn."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin, on a thread of its own that ends with the process."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End the wait for something to do, the present or the next one."""
        self._woken.set()

    def wait_for_work(self, milliseconds: int) -> None:
        """Wait until ``wake``, or the end."""
        if self._thread is not None:
            self._woken.wait(milliseconds / 1000)
            self._woken.clear()

    def back_off(self, milliseconds: int) -> None:
        """Wait until the time has passed, or the end."""
        if self._thread is not None:
            self._stopped.wait(milliseconds / 1000)

    def initiate_shutdown(self) -> None:
        """Let it end soon."""
        self._stopped.set()
        self._woken.set()

    def await_shutdown(self, milliseconds: int) -> bool:
        """Whether it has ended within that time. At once, and false, from the thread itself."""
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
                # A thread that is gone would be noticed by nobody but whoever waits for its messages.
                logger.exception("%s failed, and goes on", self.name)
                self._stopped.wait(_BACK_OFF_AFTER_ERROR_SECONDS)


REPEAT_INTERVAL_MS = 30_000
"""How often it is told while it lasts. What was not met for so long has passed meanwhile."""


@dataclass(slots=True)
class _Failure:
    kind: object
    since_ms: int
    logged_ms: int
    last_ms: int
    times: int = 1


class RetryLog:
    """Logs failures that repeat, such as those of a dead broker: the first, then one in each
    ``REPEAT_INTERVAL_MS``, and the recovery. Failures are kept by the place where they occur. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}

    def record_failure(self, where: str, error: MinikafkaError, doing: str = "") -> None:
        """Warn of ``error``, unless one of its kind was told there a short time ago."""
        kind = error.code if isinstance(error, BrokerError) else type(error)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            one = self._failures.get(where)
            if one is None or one.kind != kind or now_ms - one.last_ms > REPEAT_INTERVAL_MS:
                self._failures[where] = _Failure(kind, now_ms, now_ms, now_ms)
                lasts = ""
            else:
                one.last_ms, one.times = now_ms, one.times + 1
                if now_ms - one.logged_ms < REPEAT_INTERVAL_MS:
                    return
                one.logged_ms = now_ms
                lasts = f" ({one.times} times in {(now_ms - one.since_ms) // 1000} s; it is tried again)"
        logger.warning("%s: %s%s%s", where, doing, error, lasts)

    def record_recovery(self, where: str) -> None:
        """It goes well there: a warning if it was met more than once, so that who has read of it knows."""
        if where not in self._failures:
            return
        with self._lock:
            one = self._failures.pop(where, None)
        if one is not None:
            level = logging.WARNING if one.times > 1 else logging.INFO
            lasted_s = (self._clock.monotonic_ms() - one.since_ms) / 1000
            logger.log(level, "%s: it goes on, after %.1f s", where, lasted_s)
