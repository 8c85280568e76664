"""What a consumer does in ZooKeeper, cut into steps.

Everything that takes several operations is a generator, which yields between them and where it has to wait.
One thread runs it to its end (``run``), or a caller makes one step after the other (``Stepper``), so that a
simulation can let others come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from minikafka.base.clock import Clock
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


def run(steps: Steps[T], waiter: Waiter) -> T:
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
    def busy(self) -> bool:
        """Whether steps are left."""
        return self._steps is not None

    @property
    def waiting(self) -> bool:
        """Whether the next step has to wait, at this moment."""
        wait = self._wait
        if wait is None or self._clock.monotonic_ms() >= self._wait_end_ms:
            return False
        return wait.done is None or not wait.done(0)

    def begin(self, steps: Steps[object]) -> None:
        """Steps to make from now on; what was left of others is dropped."""
        self.drop()
        self._steps = steps

    def drop(self) -> None:
        """Make no more of them; the one that calls this comes to its end."""
        if self._steps is not None and not self._running:
            self._steps.close()
        self._steps = self._wait = None

    def step(self) -> bool:
        """Make the next step, if it need not wait; whether one was made. Raises what the step raises."""
        if self._steps is None or self.waiting:
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
