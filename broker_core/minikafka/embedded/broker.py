"""A broker in its own process: ``python -m minikafka.server FILE``.

The file is written here, with Kafka's own property names, as ``broker-N.properties`` in the data directory;
the process's output goes to ``logs/broker-N.log`` there. Its reports (``base.reports``) contain the progress
of its start, and that it is ready. It ends with its parent.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.config.property_files import write_properties
from minikafka.embedded import data_directory
from minikafka.embedded.process import ChildProcess, ProcessFailed

READY_TIMEOUT_S = 60.0
"""The longest time without a new report until it is ready: a broker may have gigabytes to check."""
COMPILING_TIMEOUT_S = 330.0
"""The same while kernels are compiled: more than ``kernels.cache`` allows for one on a busy machine."""
PROGRESS_EVERY_S = 2.0
"""The shortest time between two progress messages."""

_POLL_S = 1.0

STOP_GRACE_S = 20.0
"""From SIGTERM to SIGKILL: long enough to flush and close many logs."""


class BrokerFailed(ProcessFailed):
    """A broker did not start. ``exit_code`` is 2 if it refused its configuration, directory or id."""

    def __init__(self, message: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Ready:
    """The address and cluster of a ready broker, from its report of type ``ready``."""

    address: str
    """HOST:PORT, with the port that was bound."""
    cluster_id: str
    metrics: str = ""
    """The addresses of its metrics, separated by commas."""

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self.address.rpartition(":")[2])


def progress_text(report: Mapping[str, object] | None) -> str | None:
    """Return a progress message for a report of a long step of the start; None for other reports."""
    match report:
        case {"type": "compiling", "done": done, "of": of}:
            return f"compiling kernels, once for this machine: {done} of {of}"
        case {"type": "opening", "opened": opened, "of": of, "checked_bytes": int(checked)}:
            return f"opening logs: {opened:,} of {of:,}" + (
                f", {checked >> 20:,} MiB checked" if checked else ""
            )
    return None


def acl_command(principal: str, host: str, zookeeper: str) -> str:
    """Return the command that allows brokers with ``principal`` at ``host`` to be controllers."""
    return (
        f"`minikafka acl add --cluster --operation ClusterAction --allow-principal {shlex.quote(principal)} "
        f"--allow-host {host} --zookeeper {zookeeper}`"
    )


class BrokerProcess:
    """A broker process, which runs from construction on.

    directory: has the properties file and ``logs/``. keep_open: descriptors that the process inherits, such
    as a lock. on_exit: called on another thread with the exit code when the process has ended, also after
    ``stop``.
    """

    def __init__(
        self,
        broker_id: int,
        directory: str,
        properties: Mapping[str, str],
        *,
        keep_open: Sequence[int] = (),
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        self.broker_id = broker_id
        path = str(data_directory.broker_properties_path(Path(directory), broker_id))
        write_properties(path, {"broker.id": str(broker_id), **properties})
        self._zookeeper = properties.get("zookeeper.connect", "HOST:PORT")
        log = os.path.join(directory, "logs", f"broker-{broker_id}.log")
        self._child = ChildProcess(
            [sys.executable, "-m", "minikafka.server", path],
            name=f"broker {broker_id}",
            log=log,
            grace_s=STOP_GRACE_S,
            keep_open=keep_open,
            on_exit=on_exit,
        )

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -N when signal N killed it."""
        return self._child.exit_code

    def wait_ready(
        self, timeout_s: float = READY_TIMEOUT_S, on_progress: Callable[[str], None] = lambda state: None
    ) -> Ready:
        """Wait until it is ready. Raises BrokerFailed with the reason, or with the end of its log.

        It fails too, and still runs, if its login to other brokers is refused.

        ``on_progress`` is called every few seconds during long steps, and if ACLs keep the broker from
        starting. ``timeout_s`` starts again with each report.
        """
        last, deadline = self._child.report, time.monotonic() + timeout_s
        reported, report_at = "", 0.0
        while True:
            left_s = deadline - time.monotonic()
            try:
                ready = self._child.wait_for_report("ready", min(_POLL_S, max(0.0, left_s)))
                self._check_login()
                return Ready(str(ready["address"]), str(ready["cluster_id"]), str(ready.get("metrics", "")))
            except ProcessFailed as failure:
                if self._child.exit_code is not None:
                    raise self._failed(failure) from None
                self._check_login()
                now = self._child.report
                if left_s <= 0 and now == last:
                    raise self._timed_out(timeout_s, last) from None
                if now != last:
                    last = now
                    compiling = now is not None and now["type"] == "compiling"
                    deadline = time.monotonic() + (
                        max(timeout_s, COMPILING_TIMEOUT_S) if compiling else timeout_s
                    )
                text = self._acl_hint() or progress_text(now)
                if text is not None and text != reported and time.monotonic() >= report_at:
                    reported, report_at = text, time.monotonic() + PROGRESS_EVERY_S
                    on_progress(f"broker {self.broker_id}: {text}")

    def _check_login(self) -> None:
        """Raise BrokerFailed if a broker refuses its login: it runs, and the cluster does not work."""
        report = self._child.last_report("login_refused")
        if report is not None:
            problem = f"broker {self.broker_id}: {report['message']} (see {self._child.log})"
            raise BrokerFailed(problem, self._child.exit_code)

    def _acl_hint(self) -> str | None:
        command = self._acl_command(self._zookeeper)
        if command is None:
            return None
        return f"waiting: ACLs deny ClusterAction to its controller; to allow it, run {command}"

    def _acl_command(self, zookeeper: str) -> str | None:
        """Return the command that allows what ACLs denied to the controller; None if nothing was denied."""
        report = self._child.last_report("refused")
        if report is None:
            return None
        return acl_command(str(report["principal"]), str(report["host"]), zookeeper)

    def _timed_out(self, timeout_s: float, last: Mapping[str, object] | None) -> BrokerFailed:
        doing = progress_text(last) or (last and last.get("phase"))
        what = f"was not ready within {timeout_s:g} s" + (f" of its last report: {doing}" if doing else "")
        command = self._acl_command("HOST:PORT")
        if command is None:
            return self._failed(self._child.failure(what))
        return BrokerFailed(
            f"broker {self.broker_id} {what}: ACLs deny ClusterAction to its controller; start without the "
            f"authorizer, run {command} with the address that is printed then, stop, "
            f"and start with the authorizer again (see {self._child.log})",
            None,
        )

    def _failed(self, failure: ProcessFailed) -> BrokerFailed:
        code, reason = self._child.exit_code, self.reason()
        if code is None or reason is None:
            return BrokerFailed(str(failure), code)
        return BrokerFailed(f"broker {self.broker_id}: {reason} (see {self._child.log})", code)

    def stop(self) -> int:
        """Stop it cleanly and return its exit code, 0 for success."""
        return self._child.stop()

    def kill(self) -> int:
        """Send SIGKILL, as in a crash, and return the exit code."""
        return self._child.kill()

    def reason(self) -> str | None:
        """Return the last failure that it reported, the reason for its end; None if there is none."""
        return self._last_message("failed")

    def warning(self) -> str | None:
        """Return its last warning, of records that may be lost or an offline log; None if there is none."""
        return self._last_message("warning")

    def _last_message(self, kind: str) -> str | None:
        report = self._child.last_report(kind)
        return None if report is None else str(report.get("message"))
