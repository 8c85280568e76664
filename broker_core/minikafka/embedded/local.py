"""The embedded broker of a data directory: shared by Spark sessions and commands, stopped after the last one.

It is not a child of any of them: Spark ends idle Python workers, a plain child gets their SIGHUP, and a
second session may outlive the first. So it is a daemon in its own session, which watches its owners (see
``owners``):

    D/.embedded/starting.lock   held by a process that starts, joins or stops it; always for a short time
    D/.embedded/serving.lock    held by the daemon for its life: it is alive if and only if this is locked;
                                contains "daemon", unless a cluster that others only share is announced
    D/.embedded/address.json    its address while it serves; replaced atomically
    D/.embedded/progress.json   the progress of the current start, in the field ``state``
    D/.embedded/failure.txt     the reason why the last start failed
    D/.embedded/owners/         one file for each owner, named by process id and start time
    D/logs/embedded.log         the daemon's log; broker and ZooKeeper have logs beside it

A broker that was restarted by hand (``minikafka broker D/broker-N.properties``) does not end with the cluster
(see ``strays``), and no cluster is started while it runs.

A per-user directory (``~/.cache/minikafka/running``, or a private one below the temporary directory if that
cannot be written) has a copy of every address file, for ``minikafka ps``.

``ensure`` writes the caller's owner file and looks for the daemon, both under the starting lock. When the
daemon finds no live owner, it takes the same lock, checks again, withdraws its address, and only then
releases the lock and stops. So no caller gets the address of a daemon that is about to stop. Files left by a
crash do no harm: locks end with their process, an address without the serving lock is ignored, and owners are
compared with the start time of their process.

The daemon checks its owners four times a second, and stopping broker and ZooKeeper takes about a second. It
runs as many brokers as the directory has. It also stops when the last of them ends (the next ``ensure``
starts new ones) and when its data directory has been removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from minikafka.base.cache_dirs import make_private, open_lock, open_own, read_regular
from minikafka.base.errors import MinikafkaError
from minikafka.base.files import RealFiles, replace_file
from minikafka.base.printable import log_lines_to_stderr
from minikafka.embedded import lock
from minikafka.embedded.live_brokers import LiveBrokers
from minikafka.embedded.owners import Owner, find_owner, host_boot_id, is_alive, owner_of
from minikafka.embedded.process import StartProgress, tail, wait_until
from minikafka.embedded.strays import StrayBroker, stray_brokers

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

__all__ = [
    "LocalCluster",
    "announce",
    "ensure",
    "host_boot_id",
    "list_running",
    "list_strays",
    "running",
    "stop",
]

POLL_S = 0.25
"""The interval at which the daemon checks its owners."""
START_TIMEOUT_S = 360.0
"""The longest time without progress until the broker is ready. It is longer than the daemon's own time-outs,
so that the daemon gives up first and reports the reason."""
PROGRESS_POLL_S = 0.5
STOP_TIMEOUT_S = 60.0

_DAEMON = b"daemon\n"
"""The content of the serving lock of a daemon, which ends with its owners."""
_LOG_MAX_BYTES = 1 << 20
_SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "SPARK_AUTH_SOCKET", "_PYSPARK_DRIVER_CONN_INFO_PATH")
"""Prefixes of variables in which Spark passes secrets to its workers. The daemon must not keep them."""

_log = logging.getLogger("minikafka.embedded")


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running embedded broker."""

    bootstrap_servers: str
    """HOST:PORT, on this host only."""
    zookeeper_connect: str
    cluster_id: str
    boot_id: str
    """``host_boot_id()`` of the host on which it can be reached."""
    data_dir: str
    """Absolute."""
    pid: int
    """The process that runs it."""
    started: str
    """The start time of that process, see ``owners.Owner``."""

    def to_json(self) -> bytes:
        """Return the line of an address file."""
        return json.dumps(asdict(self)).encode("utf-8") + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> LocalCluster | None:
        """Parse an address file; None if ``data`` is invalid."""
        try:
            fields = json.loads(data)
            return cls(**{name: fields[name] for name in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError):
            return None


class _EmbeddedDirectory:
    """The files of one data directory's embedded broker."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = os.path.realpath(data_dir)
        self.own = os.path.join(self.data_dir, ".embedded")
        self.owners = os.path.join(self.own, "owners")
        self.address = os.path.join(self.own, "address.json")
        self.progress = os.path.join(self.own, "progress.json")
        self.failure = os.path.join(self.own, "failure.txt")
        self.log = os.path.join(self.data_dir, "logs", "embedded.log")

    def make(self) -> None:
        try:
            for directory in (self.data_dir, self.own, self.owners, os.path.dirname(self.log)):
                make_private(directory)
        except OSError as error:
            raise MinikafkaError(
                f"cannot use the data directory {self.data_dir}: {error.strerror}"
            ) from error

    @contextlib.contextmanager
    def starting(self, timeout_s: float) -> Iterator[bool]:
        """Hold the starting lock; yield False if it was not free in time."""
        with _lock_file(os.path.join(self.own, "starting.lock"), timeout_s) as descriptor:
            yield descriptor is not None

    def state(self) -> str:
        """Return the progress of a starting daemon; "" if it has reported none."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads(read_regular(self.progress))["state"])
        return ""

    def serving(self) -> bool:
        """Return True if a daemon is alive."""
        try:
            with _lock_file(os.path.join(self.own, "serving.lock"), 0) as descriptor:
                return descriptor is None
        except FileNotFoundError:
            return False

    def ending(self) -> bool:
        """Return True if a daemon is alive but none of its owners: it will stop. Nothing is changed."""
        try:
            daemon = read_regular(Path(self.own, "serving.lock")) == _DAEMON
            return daemon and self.serving() and not any(map(_living_owner, list(os.scandir(self.owners))))
        except OSError:
            return False  # there never was a daemon, or a file was deleted meanwhile

    def cluster(self) -> LocalCluster | None:
        """Return the running cluster; None if there is none, whatever files a dead one has left."""
        try:
            found = LocalCluster.from_json(read_regular(self.address))
        except OSError:
            return None
        if found is None or not self.serving():
            return None
        # A starting daemon holds the lock while the address of a dead one is still there.
        here = found.boot_id == host_boot_id()
        return found if not here or is_alive(Owner(found.pid, found.started)) else None

    def add_owner(self, owner: Owner) -> None:
        path = os.path.join(
            self.owners, f"{owner.pid}-{hashlib.sha256(owner.started.encode()).hexdigest()[:12]}"
        )
        if not os.path.exists(path):
            fields = {"pid": owner.pid, "started": owner.started, "boot_id": host_boot_id()}
            replace_file(RealFiles(), path, json.dumps(fields).encode("utf-8"))

    def living_owners(self) -> list[Owner]:
        """Return the live owners, and delete the files of dead ones. Raises FileNotFoundError without the
        directory.
        """
        living = []
        for entry in os.scandir(self.owners):
            if entry.name.endswith(".tmp"):
                continue
            owner = _living_owner(entry)
            if owner is None:
                os.unlink(entry.path)
            else:
                living.append(owner)
        return living


def _living_owner(entry: os.DirEntry[str]) -> Owner | None:
    """Return the owner of this file if it is alive. Raises FileNotFoundError if the file was deleted."""
    try:
        fields = json.loads(read_regular(entry.path))
        owner = Owner(fields["pid"], fields["started"])
        return owner if fields["boot_id"] == host_boot_id() and is_alive(owner) else None
    except (ValueError, KeyError, TypeError):
        return None  # not an owner file


def ensure(
    data_dir: str,
    owners: Sequence[Owner] | None = None,
    on_progress: Callable[[str], None] = lambda state: None,
) -> LocalCluster:
    """Return the embedded broker of ``data_dir``, started if needed. It runs while an owner lives.

    owners: by default the calling session, see ``find_owner``. on_progress: called with the progress of a
    long start. Raises MinikafkaError with the cause if it cannot be started.
    """
    directory = _EmbeddedDirectory(data_dir)
    directory.make()
    with _starting_lock(directory, on_progress) as held:
        if not held:
            doing = f" ({state})" if (state := directory.state()) else ""
            raise MinikafkaError(
                f"timed out waiting for another process to start the broker of {directory.data_dir}{doing}"
            )
        for owner in [find_owner()] if owners is None else owners:
            directory.add_owner(owner)
        # A stopping daemon has withdrawn its address, and keeps the serving lock until it has stopped.
        wait_until(lambda: directory.cluster() is not None or not directory.serving(), STOP_TIMEOUT_S)
        cluster = directory.cluster() or _start(directory, on_progress)
    if cluster.boot_id != host_boot_id():
        raise MinikafkaError(
            f"the cluster of {directory.data_dir} runs on another host and serves only that host; "
            "use another data directory, or brokers that all hosts can reach, in kafka.bootstrap.servers"
        )
    return cluster


@contextlib.contextmanager
def _starting_lock(directory: _EmbeddedDirectory, on_progress: Callable[[str], None]) -> Iterator[bool]:
    """Hold the starting lock; yield False if its holder makes no progress."""
    progress = StartProgress(directory.state, on_progress, START_TIMEOUT_S, known=directory.state())
    while True:
        with directory.starting(PROGRESS_POLL_S) as held:
            if held or progress.is_timed_out:
                yield held
                return
        progress.poll()


def running(data_dir: str) -> LocalCluster | None:
    """Return the running cluster of ``data_dir``, whoever runs it, or None. Nothing is started."""
    return _EmbeddedDirectory(data_dir).cluster()


def wait_for_end(data_dir: str, timeout_s: float, on_wait: Callable[[], None]) -> None:
    """If the embedded broker of ``data_dir`` is stopping because no owner is left, wait for its end.

    ``on_wait`` is called once if there is something to wait for.
    """
    directory = _EmbeddedDirectory(data_dir)
    if directory.ending():
        on_wait()
        wait_until(lambda: not directory.ending(), timeout_s, every_s=0.05)


def list_running() -> list[LocalCluster]:
    """Return all running clusters of this user on this host, by data directory."""
    found = {
        cluster.data_dir: cluster
        for cluster in _announced_clusters()
        if is_alive(Owner(cluster.pid, cluster.started))
    }
    return [found[data_dir] for data_dir in sorted(found)]


def list_strays() -> list[StrayBroker]:
    """Return the brokers started by hand in directories of this user's clusters, running or ended."""
    directories = {cluster.data_dir for cluster in _announced_clusters()}
    return [stray for data_dir in sorted(directories) for stray in stray_brokers(data_dir)]


def _announced_clusters() -> Iterator[LocalCluster]:
    """Yield the clusters of this host's address files, and delete files of clusters without any process."""
    boot_id = host_boot_id()
    for directory in _announcement_directories():
        for path in directory.glob("*.json"):
            with contextlib.suppress(OSError):
                with open_own(path) as file:
                    cluster = LocalCluster.from_json(file.read())
                if cluster is not None and cluster.boot_id != boot_id:
                    continue  # from another host that shares this directory
                if cluster is not None and (
                    is_alive(Owner(cluster.pid, cluster.started)) or stray_brokers(cluster.data_dir)
                ):
                    yield cluster
                else:
                    path.unlink()


def stop(data_dir: str) -> None:
    """Stop the cluster of ``data_dir`` cleanly, whoever runs it. Raises MinikafkaError if there is none."""
    directory = _EmbeddedDirectory(data_dir)
    cluster = directory.cluster()
    if cluster is None:
        busy = lock.holder(os.path.join(directory.data_dir, ".lock"))
        if busy is not None:
            raise MinikafkaError(
                f"{busy} is starting, stopping or privately running the cluster of {directory.data_dir}: "
                "try again in a moment, or stop that process"
            )
        raise MinikafkaError(
            f"no cluster runs in {directory.data_dir}; `minikafka ps` lists running clusters"
        )
    daemon = Owner(cluster.pid, cluster.started)
    with directory.starting(START_TIMEOUT_S):
        if is_alive(daemon):
            os.kill(daemon.pid, signal.SIGTERM)
        if not wait_until(lambda: not directory.serving() and not is_alive(daemon), STOP_TIMEOUT_S):
            raise MinikafkaError(
                f"timed out stopping process {daemon.pid} (data directory {directory.data_dir}); "
                f"see {os.path.dirname(directory.log)}"
            )


@contextlib.contextmanager
def announce(
    data_dir: str, bootstrap_servers: str, zookeeper_connect: str, cluster_id: str
) -> Iterator[LocalCluster]:
    """Let other processes find and share a cluster that this process runs in ``data_dir``, within the block.

    They do not keep it running. Raises MinikafkaError if another cluster is announced there.
    """
    directory = _EmbeddedDirectory(data_dir)
    directory.make()
    with _lock_file(os.path.join(directory.own, "serving.lock"), 1.0) as descriptor:
        if descriptor is None:
            raise MinikafkaError(f"a cluster already runs in {directory.data_dir}; `minikafka stop` stops it")
        os.ftruncate(descriptor, 0)
        with _published(directory, bootstrap_servers, zookeeper_connect, cluster_id) as cluster:
            yield cluster


@contextlib.contextmanager
def _published(
    directory: _EmbeddedDirectory, bootstrap_servers: str, zookeeper_connect: str, cluster_id: str
) -> Iterator[LocalCluster]:
    """Write the address file and its copy; delete them at the end of the block."""
    itself = owner_of(os.getpid())
    assert itself is not None
    cluster = LocalCluster(
        bootstrap_servers,
        zookeeper_connect,
        cluster_id,
        host_boot_id(),
        directory.data_dir,
        itself.pid,
        itself.started,
    )
    name = hashlib.sha256(directory.data_dir.encode()).hexdigest()[:16] + ".json"
    paths = [directory.address]
    for listing in _announcement_directories():
        with contextlib.suppress(OSError, MinikafkaError):
            for place in (listing.parent, listing):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(RealFiles(), str(listing / name), cluster.to_json())
            paths.append(str(listing / name))
            break
    replace_file(RealFiles(), directory.address, cluster.to_json())
    try:
        yield cluster
    finally:
        # A broker that was started by hand still runs: the copy lets `ps` find it.
        for path in paths[: 1 if stray_brokers(directory.data_dir) else None]:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _announcement_directories() -> list[Path]:
    """Return the directories for copies of address files, the preferred one first; none of another user's."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    temporary = Path(tempfile.gettempdir(), f"minikafka-{os.getuid()}", "running")
    for place in (temporary.parent, temporary):
        with contextlib.suppress(OSError):
            if place.lstat().st_uid != os.getuid():
                return [Path(cache, "minikafka", "running")]
    return [Path(cache, "minikafka", "running"), temporary]


@contextlib.contextmanager
def _lock_file(path: str, timeout_s: float) -> Iterator[int | None]:
    """Hold a lock file; yield None if it was not free in time."""
    descriptor = open_lock(path)

    def take() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        yield descriptor if wait_until(take, timeout_s) else None
    finally:
        os.close(descriptor)


def _start(directory: _EmbeddedDirectory, on_progress: Callable[[str], None]) -> LocalCluster:
    """Start the daemon and wait until it is ready. Requires the starting lock."""
    for left_behind in (directory.failure, directory.address, directory.progress):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left_behind)
    if os.path.exists(directory.log) and os.path.getsize(directory.log) > _LOG_MAX_BYTES:
        os.replace(directory.log, directory.log + ".1")
    with open(directory.log, "ab") as output:
        launcher = subprocess.run(
            [sys.executable, "-m", "minikafka.embedded.local", directory.data_dir],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(),
            cwd=directory.data_dir,
            start_new_session=True,
            check=False,
        )
    # From here on the daemon holds the serving lock or is dead.
    settled, progress = False, StartProgress(directory.state, on_progress, START_TIMEOUT_S)
    while launcher.returncode == 0 and not settled and not progress.is_timed_out:
        settled = wait_until(
            lambda: directory.cluster() is not None or not directory.serving(), PROGRESS_POLL_S, every_s=0.02
        )
        if not settled:
            progress.poll()  # a broker may compile kernels, or have gigabytes to check
    cluster = directory.cluster()
    if cluster is not None:
        return cluster
    with contextlib.suppress(OSError):
        raise MinikafkaError(read_regular(directory.failure).decode("utf-8"))
    ended = settled or launcher.returncode != 0
    how = "ended during its start" if ended else f"made no progress for {START_TIMEOUT_S:g} s"
    doing = f" ({progress.last})" if progress.last else ""
    raise MinikafkaError(
        f"the embedded broker of {directory.data_dir} {how}{doing}; {_newest_log_tail(directory)}"
    )


def _newest_log_tail(directory: _EmbeddedDirectory) -> str:
    """Return the end of the log that was written last, which may be that of the broker or of ZooKeeper."""
    logs = Path(directory.log).parent
    found = [(path.stat().st_mtime, str(path)) for path in logs.glob("*.log") if path.stat().st_size]
    newest = max(found)[1] if found else directory.log
    text = tail(newest)
    return f"the end of {newest}:\n{text}" if text else f"its logs in {logs} are empty"


def _environment() -> dict[str, str]:
    """Return the daemon's environment: this process's, without Spark's secrets and with this package on the
    path.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)}
    root = str(Path(__file__).resolve().parents[2])
    if os.path.basename(root) not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), root]))
    return environment


class _Daemon:
    """The process that runs ZooKeeper and the broker for their owners."""

    def __init__(self, data_dir: str) -> None:
        self._directory = _EmbeddedDirectory(data_dir)
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

        cluster = Cluster(data_dir=self._directory.data_dir, on_exit=self._on_exit)
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
                _published(
                    self._directory, cluster.bootstrap_servers, cluster.zookeeper_connect, cluster.cluster_id
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
    logging.Formatter.converter = time.gmtime
    log_lines_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    directory = _EmbeddedDirectory(arguments[0])
    # A process that checks whether there is a daemon holds the lock for a moment.
    with _lock_file(os.path.join(directory.own, "serving.lock"), 1.0) as descriptor:
        if descriptor is None:
            return 3
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _DAEMON, 0)
        if os.fork():
            # The starter waits for this process, not for the daemon, which init will reap. The daemon has
            # the lock too.
            os._exit(0)
        try:
            return _Daemon(directory.data_dir).run()
        except FileNotFoundError:
            return 1  # the data directory was removed during the start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
