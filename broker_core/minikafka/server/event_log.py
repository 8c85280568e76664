"""The log of a process that serves: its lines (``base.log_lines``) go to standard error.

A line that repeats is held back and counted. A thread writes it at the end of its interval, and the end of
the process writes all that is held.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType
from typing import TextIO

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.log_lines import JsonFormatter, LineFormatter, LogFormat, RepeatedLines
from minikafka.base.printable import printable


class EventLog(logging.StreamHandler):  # type: ignore[type-arg] # not generic when it runs
    """Writes the log of this process to a stream, standard error by default. Thread-safe.

    A thread runs only while lines are held back.
    """

    def __init__(
        self, repeated: RepeatedLines, stream: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(stream)
        self._repeated = repeated
        self._clock = clock or SystemClock()
        self._identity: dict[str, object] = {}
        self._waiting = False
        self._closing = threading.Event()
        self.setFormatter(LineFormatter())

    def use(self, form: LogFormat) -> None:
        """Write the following lines in this form."""
        self.setFormatter(JsonFormatter(self._identity) if form is LogFormat.JSON else LineFormatter())

    def identify(self, **identity: str | int) -> None:
        """Add fields to every following line of JSON: ``broker_id`` and ``cluster_id``."""
        self._identity.update(identity)

    def write_failure(self, reason: str) -> None:
        """Write the one line that says why the process ends; as text it has no time, as those of commands."""
        if isinstance(self.formatter, JsonFormatter):
            logging.getLogger("minikafka").error("%s", reason)
            return
        self.acquire()
        try:
            self.stream.write(f"minikafka: {printable(reason)}\n")
            self.flush()
        finally:
            self.release()

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record, or hold it back."""
        self.acquire()
        try:
            admitted = self._repeated.admit(record, self._clock.monotonic_ms())
        except Exception:  # noqa: BLE001 - arguments that do not fit the message: logging reports them
            admitted = True
        finally:
            self.release()
        if not admitted:
            if not self._await_due():
                self.write_due(final=True)
            return False
        return bool(super().handle(record))

    def close(self) -> None:
        """Write what is held back."""
        self._closing.set()
        self.write_due(final=True)
        super().close()

    def write_due(self, *, final: bool = False) -> None:
        """Write the lines that end an interval. ``final``: all that are held back."""
        self.acquire()
        try:
            records = self._repeated.due(self._clock.monotonic_ms(), final=final)
        finally:
            self.release()
        for record in records:
            super().handle(record)

    def _await_due(self) -> bool:
        """Let a thread write what is held back. Return False if none can: near the end of the process, or
        when the process has too many threads.
        """
        self.acquire()
        try:
            if self._closing.is_set():
                return False
            if self._waiting:
                return True
            self._waiting = True
        finally:
            self.release()
        try:
            threading.Thread(target=self._write_when_due, name="repeated log lines", daemon=True).start()
        except (RuntimeError, MemoryError):  # the code that logs has no part in it
            self._waiting = False
            return False
        return True

    def _write_when_due(self) -> None:
        while True:
            self.acquire()
            try:
                due_ms = self._repeated.next_due_ms()
                if due_ms is None:
                    self._waiting = False
                    return
            finally:
                self.release()
            if self._closing.wait(max(0, due_ms - self._clock.monotonic_ms()) / 1000):
                return
            self.write_due()


def log_to_stderr(every_line: tuple[str, ...] = (), stream: TextIO | None = None) -> EventLog:
    """Log to standard error, from INFO on. For processes that serve.

    Warnings of Python and exceptions that nobody handles are log lines too. ``every_line``: see
    ``RepeatedLines``. ``stream``: in place of standard error.
    """
    handler = EventLog(RepeatedLines(every_line), stream)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    sys.excepthook = _log_unhandled
    threading.excepthook = _log_unhandled_in_thread
    return handler


def _log_unhandled(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger("minikafka").critical("unhandled exception", exc_info=(kind, error, trace))


def _log_unhandled_in_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_type is not SystemExit:
        name = found.thread.name if found.thread else "an unknown thread"
        logging.getLogger("minikafka").critical(
            "unhandled exception in thread %s",
            name,
            exc_info=(found.exc_type, found.exc_value or found.exc_type(), found.exc_traceback),
        )
