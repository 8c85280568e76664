"""A thread that does one thing again and again until it is told to stop, and what it waits with."""

from __future__ import annotations

import logging
import threading

_AFTER_A_DEFECT_SECONDS = 1.0

logger = logging.getLogger("minikafka.clients")


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
    def running(self) -> bool:
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
        while self.running:
            try:
                self.do_work()
            except Exception:
                # A thread that is gone would be noticed by nobody but whoever waits for its messages.
                logger.exception("%s failed, and goes on", self.name)
                self._stopped.wait(_AFTER_A_DEFECT_SECONDS)
