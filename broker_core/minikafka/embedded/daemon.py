"""The daemon of an embedded broker: the process that runs ZooKeeper and the brokers of a data directory.

It is not a child of the process that starts it: Spark ends idle Python workers, a plain child gets their
SIGHUP, and a second session may outlive the first. So it runs in its own session, and watches its owners (see
``owners``). When it finds no live owner, it takes the starting lock, checks again, withdraws its address, and
only then releases the lock and stops. So no caller gets the address of a daemon that is about to stop.

It checks its owners four times a second, and stopping broker and ZooKeeper takes about a second. It runs as
many brokers as the directory has. It also stops when the last of them ends (the next ``local.ensure`` starts
new ones) and when its data directory has been removed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from minikafka.base.errors import MinikafkaError
from minikafka.base.files import RealFiles, replace_file
from minikafka.base.log_lines import LOG_FORMAT, LogFormat
from minikafka.embedded.data_directory import log_format
from minikafka.embedded.live_brokers import LiveBrokers
from minikafka.embedded.local_files import DAEMON, EmbeddedDirectory
from minikafka.server.event_log import log_to_stderr

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

POLL_S = 0.25
"""The interval at which it checks its owners."""

_log = logging.getLogger("minikafka.embedded")


class Daemon:
    """The process that runs ZooKeeper and the broker for their owners."""

    def __init__(self, data_dir: str, log_format: LogFormat = LogFormat.TEXT) -> None:
        """log_format: of its brokers' logs."""
        self._directory = EmbeddedDirectory(data_dir)
        self._log_format = log_format
        self._wake = threading.Event()
        self._ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
        """The number and exit code of each broker that has ended."""
        self._exit_code = 0
        """The exit code of the broker that ended last."""
        self._reason = ""
        """The reason why it stops; "" while it runs."""

    def run(self) -> int:
        """Start, serve until there is a reason to stop, stop; return the exit status."""
        signal.signal(signal.SIGTERM, self._on_signal)
        from minikafka.embedded.cluster import Cluster

        cluster = Cluster(
            data_dir=self._directory.data_dir,
            config={LOG_FORMAT: self._log_format.value} if self._log_format is LogFormat.JSON else {},
            on_exit=self._on_exit,
        )
        with contextlib.closing(cluster):
            try:
                cluster.start(self._report_progress)
            except MinikafkaError as error:
                _log.error("failed to start: %s", error)
                replace_file(RealFiles(), self._directory.failure, str(error).encode("utf-8"))
                return 2
            self._serve(cluster)
            _log.info("stopping: %s", self._reason)
        return 0

    def _report_progress(self, state: str) -> None:
        """Write the progress of the start for the starting process."""
        _log.info("%s", state)
        data = json.dumps({"type": "starting", "state": state}).encode("utf-8")
        replace_file(RealFiles(), self._directory.progress, data, sync=False)

    def _serve(self, cluster: Cluster) -> None:
        with contextlib.ExitStack() as address:
            address.enter_context(
                self._directory.publish(
                    cluster.bootstrap_servers, cluster.zookeeper_connect, cluster.cluster_id
                )
            )
            registered = address.enter_context(contextlib.closing(cluster.registered_brokers()))
            brokers = LiveBrokers(range(cluster.count), registered.read)
            _log.info("serving %s with ZooKeeper %s", cluster.bootstrap_servers, cluster.zookeeper_connect)
            while not self._ending():
                self._wake.wait(POLL_S)
                self._check_owners(address.close)
                if not self._ending():
                    cluster.restart_zookeeper(lambda text: _log.warning("%s", text))
                    self._check_brokers(brokers)

    def _ending(self) -> bool:
        return bool(self._reason)

    def _check_owners(self, withdraw: Callable[[], None]) -> None:
        try:
            if self._reason or self._directory.living_owners():
                return
            with self._directory.starting(0) as held:
                # A process that is joining has the lock: check again later.
                if held and not self._directory.living_owners():
                    withdraw()
                    self._end("no session uses it any more")
        except FileNotFoundError:
            self._end("its data directory was removed")

    def _check_brokers(self, brokers: LiveBrokers) -> None:
        """End when no broker is alive, neither a child process nor one that was restarted by hand."""
        self._wake.clear()
        while not self._ended.empty():
            number, self._exit_code = self._ended.get()
            brokers.own.discard(number)
            if brokers.own:
                _log.warning(
                    "broker %d ended with exit code %d; the other brokers still run", number, self._exit_code
                )
        if not brokers.own:
            brokers.refresh()
            if not brokers.count and brokers.known:
                self._end(f"its broker ended with exit code {self._exit_code}")

    def _on_exit(self, number: int, exit_code: int) -> None:
        self._ended.put((number, exit_code))
        self._wake.set()

    def _on_signal(self, number: int, frame: object) -> None:
        # No event is set here: the interrupted thread may hold the event's lock.
        self._reason = self._reason or "received SIGTERM"

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._wake.set()


def main(arguments: Sequence[str]) -> int:
    """Become the daemon of the data directory ``arguments[0]``. The started process itself ends at once.

    Exit status: 3 if there is a daemon already.
    """
    lines = log_to_stderr()
    directory = EmbeddedDirectory(arguments[0])
    form = log_format(Path(directory.data_dir))
    lines.use(form)
    with directory.serve(DAEMON) as free:
        if not free:
            return 3
        if os.fork():
            # The starter waits for this process, not for the daemon, which init will reap. The daemon has
            # the lock too.
            os._exit(0)
        try:
            return Daemon(directory.data_dir, form).run()
        except FileNotFoundError:
            return 1  # the data directory was removed during the start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
