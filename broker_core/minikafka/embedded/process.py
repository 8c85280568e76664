"""Child processes that end with this process, even after ``kill -9``, and leave no zombie.

A small supervisor process is between this process and the child; ``supervisor`` explains why and how. This
process keeps the write end of a pipe that the supervisor watches. A daemon thread per child waits for it, so
that it is reaped when it ends, even if no caller waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from minikafka.base.cache_dirs import make_private
from minikafka.base.errors import MinikafkaError
from minikafka.base.reports import parse_report
from minikafka.embedded.owners import Owner, is_alive
from minikafka.net import service_manager

_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_SUPERVISOR_PATIENCE_S = 5.0
"""The time that the supervisor may take to end after the child's grace period."""
_REPORTS_PATIENCE_S = 1.0
"""The time to read the last reports of an ended child: a process that it started may keep the pipe open."""

STOP_TIMEOUT_S = 60.0
"""The longest time that a cluster or a broker may take to stop."""
LOG_MAX_BYTES, LOG_KEEP = 10 << 20, 3
"""The size at which a process's log is rotated, and the number of older files that are kept."""
QUIET_S = 8.0
"""The longest time without a progress line: a large kernel may take that long on a busy machine."""
STARTING = "starting ZooKeeper and the broker"
"""The progress line of a daemon that has not reported yet."""


class ProcessFailed(MinikafkaError):
    """A child process ended or was not ready in time. The message has the end of its log."""


def _without_systemd(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child, which must not report itself as the service that this process is."""
    return {name: value for name, value in environment.items() if name != service_manager.VARIABLE}


class ChildProcess:
    """A child process, which runs from construction on.

    command: program and arguments. name: for messages and threads. log: file for its output, appended to,
    rotated at ``log_max_bytes`` with ``log_keep`` old ones. grace_s: from SIGTERM to SIGKILL in ``stop``;
    orphan_grace_s: the same when this process dies. keep_open: descriptors that the supervisor and the child
    inherit, such as a lock. on_exit: called with the exit code on the waiting thread when the child has
    ended, also after ``stop``.

    A Python child of this project sends reports (``base.reports``). Its output is for people only.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        log: str,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        grace_s: float = 10.0,
        orphan_grace_s: float = 3.0,
        keep_open: Sequence[int] = (),
        log_max_bytes: int = LOG_MAX_BYTES,
        log_keep: int = LOG_KEEP,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._grace_s = grace_s
        self._on_exit = on_exit
        self._state = threading.Condition()
        self._pid: int | None = None
        self._report: dict[str, object] | None = None
        self._last: dict[str, dict[str, object]] = {}
        self._exit_code: int | None = None
        make_private(os.path.dirname(log) or ".")
        read_lifeline, self._lifeline = os.pipe()
        self._status, write_status = os.pipe()
        read_reports, write_reports = os.pipe()
        options = {
            "lifeline": read_lifeline,
            "status": write_status,
            "parent": os.getpid(),
            "log": os.path.abspath(log),
            "log_max_bytes": log_max_bytes,
            "log_keep": log_keep,
            "reports": write_reports,
            "grace_s": grace_s,
            "orphan_grace_s": orphan_grace_s,
        }
        try:
            with open(log, "ab") as output:
                # In its own session: only this process gets Ctrl-C and the hang-up of a terminal, and it
                # decides the order in which its children stop.
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", _SUPERVISOR, json.dumps(options), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_without_systemd(os.environ if environment is None else environment),
                    cwd=directory,
                    pass_fds=(read_lifeline, write_status, write_reports, *keep_open),
                    start_new_session=True,
                )
        except OSError as error:
            for descriptor in (self._lifeline, self._status, read_reports):
                os.close(descriptor)
            raise ProcessFailed(f"failed to start {name}: {error}") from error
        finally:
            for descriptor in (read_lifeline, write_status, write_reports):
                os.close(descriptor)
        listener = f"minikafka-{name}-reports"
        self._listener = threading.Thread(
            target=self._listen, args=(read_reports,), name=listener, daemon=True
        )
        self._listener.start()
        self._thread = threading.Thread(target=self._wait, name=f"minikafka-{name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The child's process id. Raises ProcessFailed if it could not be started."""
        with self._state:
            self._state.wait_for(lambda: self._pid is not None or self._exit_code is not None)
            if self._pid is None:
                raise ProcessFailed(f"failed to start {self.name}{self._log_tail()}")
            return self._pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -N when signal N killed it."""
        with self._state:
            return self._exit_code

    @property
    def report(self) -> dict[str, object] | None:
        """The last report of the child; None if it has sent none."""
        with self._state:
            return self._report

    def last_report(self, kind: str) -> dict[str, object] | None:
        """Return the last report of this type; None if there is none."""
        with self._state:
            return self._last.get(kind)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until it has ended and return the exit code; None after ``timeout_s``."""
        with self._state:
            self._state.wait_for(lambda: self._exit_code is not None, timeout_s)
            return self._exit_code

    def wait_for_report(self, kind: str, timeout_s: float) -> dict[str, object]:
        """Wait for a report of this type and return the last one.

        Raises ProcessFailed if the child ends without it, or after ``timeout_s``; then it still runs.
        """
        with self._state:
            self._state.wait_for(lambda: kind in self._last or self._exit_code is not None, timeout_s)
            if kind in self._last:
                return self._last[kind]
            raise self.failure(f"sent no report of type {kind!r} within {timeout_s:g} s")

    def failure(self, what: str) -> ProcessFailed:
        """Return an error with the exit code if it has ended, else with ``what``, and the end of the log."""
        with self._state:
            code = self._exit_code
        ended = what if code is None else f"ended with exit code {code}"
        return ProcessFailed(f"{self.name} {ended}{self._log_tail()}")

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL after the grace period, unless it has ended; return the exit code."""
        self._signal(signal.SIGTERM)
        if self.wait(self._grace_s + _SUPERVISOR_PATIENCE_S) is None:
            self._supervisor.kill()  # on Linux the child dies with it
        self._thread.join()
        code = self.exit_code
        return -signal.SIGKILL if code is None else code

    def kill(self) -> int:
        """Send SIGKILL at once, as in a crash; return the exit code."""
        self._signal(signal.SIGUSR1)
        self._thread.join()
        code = self.exit_code
        return -signal.SIGKILL if code is None else code

    def _signal(self, number: int) -> None:
        # Until the pid is reported the supervisor has no handlers, and a signal would kill it without its
        # child.
        with self._state:
            self._state.wait_for(lambda: self._pid is not None or self._exit_code is not None)
            if self._exit_code is None:
                self._supervisor.send_signal(number)

    def _listen(self, reports: int) -> None:
        """Read the child's reports until it and all processes that it started have ended."""
        with open(reports, "rb") as lines:
            for line in lines:
                found = parse_report(line)
                if found is not None:
                    with self._state:
                        self._report = self._last[str(found["type"])] = found
                        self._state.notify_all()

    def _wait(self) -> None:
        """Read the supervisor's status lines, then wait for its end."""
        exit_code = None
        with open(self._status, "rb") as lines:
            for line in lines:
                with self._state:
                    match parse_report(line):
                        case {"type": "started", "pid": int(pid)}:
                            self._pid = pid
                        case {"type": "exited", "code": int(code)}:
                            exit_code = code
                    self._state.notify_all()
        supervisor_code = self._supervisor.wait()
        self._listener.join(_REPORTS_PATIENCE_S)
        os.close(self._lifeline)
        with self._state:
            self._exit_code = supervisor_code if exit_code is None else exit_code
            self._state.notify_all()
        if self._on_exit is not None:
            self._on_exit(self._exit_code)

    def _log_tail(self) -> str:
        text = tail(self.log)
        return f"; the end of {self.log}:\n{text}" if text else f" and wrote nothing to {self.log}"


def tail(path: str) -> str:
    """Return the last 15 lines of a text file, without frames of Java stacks; "" if it does not exist."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 32768))
        text = file.read().decode("utf-8", "replace").splitlines()
        # Java's own format; this only shortens the text for people.
        return "\n".join([line for line in text if not line.startswith(("\tat ", "\t... "))][-15:])
    return ""


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.01) -> bool:
    """Poll ``condition`` until it holds; return False after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)
    return True


def terminate(owner: Owner) -> bool:
    """Send SIGTERM to a process and wait for its end; False if it still runs after STOP_TIMEOUT_S."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(owner.pid, signal.SIGTERM)
    return wait_until(lambda: not is_alive(owner), STOP_TIMEOUT_S)


class StartProgress:
    """Reports the progress of a start, and now and then that it still runs, so that it does not look hung.

    state: returns the current step; "" for none. timeout_s: the longest time without a change of state.
    known: the state before this start, which is not reported.
    """

    def __init__(
        self,
        state: Callable[[], str],
        on_progress: Callable[[str], None],
        timeout_s: float,
        *,
        known: str = "",
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._on_progress = on_progress
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._began_s = self._reported_s = self._changed_s = clock_s()
        self.last = known

    @property
    def is_timed_out(self) -> bool:
        """True if the state has not changed within the time-out."""
        return self._clock_s() - self._changed_s >= self._timeout_s

    def poll(self) -> None:
        """Report a new state, or that the start still runs."""
        state, now_s = self._state(), self._clock_s()
        if state not in {"", self.last}:
            self.last, self._changed_s, self._reported_s = state, now_s, now_s
            self._on_progress(state)
        elif now_s - self._reported_s >= QUIET_S:
            self._reported_s = now_s
            self._on_progress(f"{self.last or STARTING}: still running after {now_s - self._began_s:.0f} s")
