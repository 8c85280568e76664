"""The embedded broker of a data directory, shared by the Spark sessions and commands that use it, and gone
with them.

It is no child of any of them: Spark ends idle Python workers, a plain child gets their SIGHUP, and a second
session may outlive the first. So it is a daemon in its own session, and it watches its owners (see
``owners``) itself:

    D/.embedded/starting.lock   held while somebody starts, joins or stops it; always for a short time
    D/.embedded/serving.lock    held by the daemon for its life: the truth about whether there is one; it says
                                "daemon", unless a cluster that others only share is announced
    D/.embedded/address.json    where it serves, while it does; replaced atomically
    D/.embedded/progress.json   what the start that is under way does now, in the field ``state``
    D/.embedded/failure.txt     why the last start failed
    D/.embedded/owners/         one file for each owner, named by process id and start
    D/logs/embedded.log         what the daemon says; broker and ZooKeeper have logs beside it

A broker that was started again by hand (``minikafka broker D/broker-N.properties``) does not end with the
cluster (see ``strays``), and a start beside it is refused.

A per-user directory (``~/.cache/minikafka/running``, or a private one below the temporary directory where
that cannot be written) has a copy of every address file, for ``minikafka ps``.

``ensure`` writes the caller's owner file and looks for the daemon, both under the starting lock; the daemon,
when it finds no owner alive, takes the same lock, looks again, withdraws its address and only then gives the
lock back and stops. So nobody is given an address that is about to go. What a crash leaves behind does no
harm: locks go with their process, an address without the serving lock is void, owners are compared with the
start of their process.

The daemon looks for its owners four times a second, and stopping broker and ZooKeeper takes about a second.
It runs as many brokers as the directory has, and also stops when the last of them ends (the next ``ensure``
starts others) and when its data directory has been removed.
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
"""How often the daemon looks for its owners."""
START_TIMEOUT_S = 360.0
"""From one sign of progress to the next, or to a broker that serves: more than the daemon gives any of its
steps, so that it is the daemon that gives up and says why."""
LOOK_S = 0.5
STOP_TIMEOUT_S = 60.0

_DAEMON = b"daemon\n"
"""What the lock of one that ends with its owners says."""
_LOG_MAX_BYTES = 1 << 20
_SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "SPARK_AUTH_SOCKET", "_PYSPARK_DRIVER_CONN_INFO_PATH")
"""What Spark tells its workers in the environment, by the start of the name, and no daemon should keep."""

_log = logging.getLogger("minikafka.embedded")


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """An embedded broker that serves."""

    bootstrap_servers: str
    """HOST:PORT, on this host only."""
    zookeeper_connect: str
    cluster_id: str
    boot_id: str
    """``host_boot_id()`` of the host that it serves."""
    data_dir: str
    """Absolute."""
    pid: int
    """The process that it lives and dies with."""
    started: str
    """When that process started, see ``owners.Owner``."""

    def to_json(self) -> bytes:
        """One line for an address file."""
        return json.dumps(asdict(self)).encode("utf-8") + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> LocalCluster | None:
        """The cluster of an address file; None when ``data`` is none."""
        try:
            fields = json.loads(data)
            return cls(**{name: fields[name] for name in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError):
            return None


class _Directory:
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
        """Hold the starting lock; False when it was not free in time."""
        with _lock_file(os.path.join(self.own, "starting.lock"), timeout_s) as descriptor:
            yield descriptor is not None

    def state(self) -> str:
        """What the daemon that starts says that it does; "" where it says nothing."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads(read_regular(self.progress))["state"])
        return ""

    def serving(self) -> bool:
        """Whether a daemon lives."""
        try:
            with _lock_file(os.path.join(self.own, "serving.lock"), 0) as descriptor:
                return descriptor is None
        except FileNotFoundError:
            return False

    def ending(self) -> bool:
        """Whether a daemon lives and none of its owners: it stops, or is about to. Nothing is changed."""
        try:
            daemon = read_regular(Path(self.own, "serving.lock")) == _DAEMON
            return daemon and self.serving() and not any(map(_living_owner, list(os.scandir(self.owners))))
        except OSError:
            return False  # no daemon was ever there, or a file went meanwhile

    def cluster(self) -> LocalCluster | None:
        """Where it serves; None when it does not, whatever a dead one has left."""
        try:
            found = LocalCluster.from_json(read_regular(self.address))
        except OSError:
            return None
        if found is None or not self.serving():
            return None
        # A new daemon that does not serve yet holds the lock beside the address of a dead one.
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
        """The owners that live; files of dead ones are removed. Raises FileNotFoundError without the
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
    """The owner whose file this is, if it lives. FileNotFoundError for one that has gone."""
    try:
        fields = json.loads(read_regular(entry.path))
        owner = Owner(fields["pid"], fields["started"])
        return owner if fields["boot_id"] == host_boot_id() and is_alive(owner) else None
    except (ValueError, KeyError, TypeError):
        return None  # nothing that we wrote


def ensure(
    data_dir: str,
    owners: Sequence[Owner] | None = None,
    on_progress: Callable[[str], None] = lambda state: None,
) -> LocalCluster:
    """The embedded broker of ``data_dir``, started when none serves, for as long as one of ``owners`` lives.

    owners: default is the session that calls, see ``find_owner``. on_progress: told how far a start is that
    takes long. Raises MinikafkaError, with the cause, when
    it cannot be started.
    """
    directory = _Directory(data_dir)
    directory.make()
    with _starting_lock(directory, on_progress) as held:
        if not held:
            doing = f" ({state})" if (state := directory.state()) else ""
            raise MinikafkaError(
                f"another process has been starting the broker of {directory.data_dir} for too long{doing}"
            )
        for owner in [find_owner()] if owners is None else owners:
            directory.add_owner(owner)
        # One that is stopping has withdrawn its address, and keeps the serving lock until it has stopped.
        wait_until(lambda: directory.cluster() is not None or not directory.serving(), STOP_TIMEOUT_S)
        cluster = directory.cluster() or _start(directory, on_progress)
    if cluster.boot_id != host_boot_id():
        raise MinikafkaError(
            f"the cluster of {directory.data_dir} runs on another host and serves only that one; "
            "use another data directory, or brokers that all hosts can reach, in kafka.bootstrap.servers"
        )
    return cluster


@contextlib.contextmanager
def _starting_lock(directory: _Directory, on_progress: Callable[[str], None]) -> Iterator[bool]:
    """Hold the starting lock; False when who has it makes no progress."""
    progress = StartProgress(directory.state, on_progress, START_TIMEOUT_S, known=directory.state())
    while True:
        with directory.starting(LOOK_S) as held:
            if held or progress.is_timed_out:
                yield held
                return
        progress.poll()


def running(data_dir: str) -> LocalCluster | None:
    """The cluster of ``data_dir``, whoever runs it, if it serves; nothing is started."""
    return _Directory(data_dir).cluster()


def wait_for_end(data_dir: str, timeout_s: float, on_wait: Callable[[], None]) -> None:
    """Wait while the embedded broker of ``data_dir`` stops, which nobody uses any more; not for any other.

    ``on_wait`` is called once where there is something to wait for.
    """
    directory = _Directory(data_dir)
    if directory.ending():
        on_wait()
        wait_until(lambda: not directory.ending(), timeout_s, every_s=0.05)


def list_running() -> list[LocalCluster]:
    """All clusters of this user on this host, by data directory."""
    found = {one.data_dir: one for one in _announced_clusters() if is_alive(Owner(one.pid, one.started))}
    return [found[data_dir] for data_dir in sorted(found)]


def list_strays() -> list[StrayBroker]:
    """The brokers that were started by hand in directories of this user's clusters, also after their end."""
    directories = {one.data_dir for one in _announced_clusters()}
    return [stray for data_dir in sorted(directories) for stray in stray_brokers(data_dir)]


def _announced_clusters() -> Iterator[LocalCluster]:
    """Read the address files of this host, and remove those of clusters of which nothing is left."""
    boot_id = host_boot_id()
    for directory in _announcement_directories():
        for path in directory.glob("*.json"):
            with contextlib.suppress(OSError):
                with open_own(path) as file:
                    cluster = LocalCluster.from_json(file.read())
                if cluster is not None and cluster.boot_id != boot_id:
                    continue  # of another host that shares this directory
                if cluster is not None and (
                    is_alive(Owner(cluster.pid, cluster.started)) or stray_brokers(cluster.data_dir)
                ):
                    yield cluster
                else:
                    path.unlink()


def stop(data_dir: str) -> None:
    """Stop the cluster of ``data_dir`` cleanly, whoever runs it. Raises MinikafkaError when there is none."""
    directory = _Directory(data_dir)
    cluster = directory.cluster()
    if cluster is None:
        busy = lock.holder(os.path.join(directory.data_dir, ".lock"))
        if busy is not None:
            raise MinikafkaError(
                f"{busy} starts or ends the cluster of {directory.data_dir}, or runs it for itself: "
                "try again in a moment, or stop that process"
            )
        raise MinikafkaError(f"no cluster runs in {directory.data_dir}; `minikafka ps` lists those that run")
    daemon = Owner(cluster.pid, cluster.started)
    with directory.starting(START_TIMEOUT_S):
        if is_alive(daemon):
            os.kill(daemon.pid, signal.SIGTERM)
        if not wait_until(lambda: not directory.serving() and not is_alive(daemon), STOP_TIMEOUT_S):
            raise MinikafkaError(
                f"process {daemon.pid}, which serves {directory.data_dir}, does not stop; "
                f"see {os.path.dirname(directory.log)}"
            )


@contextlib.contextmanager
def announce(
    data_dir: str, bootstrap_servers: str, zookeeper_connect: str, cluster_id: str
) -> Iterator[LocalCluster]:
    """Let others find and share a cluster that this process runs in ``data_dir``, for the time of the block.

    They do not keep it running. Raises MinikafkaError when another one is announced there.
    """
    directory = _Directory(data_dir)
    directory.make()
    with _lock_file(os.path.join(directory.own, "serving.lock"), 1.0) as descriptor:
        if descriptor is None:
            raise MinikafkaError(f"a cluster runs in {directory.data_dir} already; `minikafka stop` ends it")
        os.ftruncate(descriptor, 0)
        with _published(directory, bootstrap_servers, zookeeper_connect, cluster_id) as cluster:
            yield cluster


@contextlib.contextmanager
def _published(
    directory: _Directory, bootstrap_servers: str, zookeeper_connect: str, cluster_id: str
) -> Iterator[LocalCluster]:
    """Write the address file and its copy; remove them at the end."""
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
        # A broker that was started by hand goes on: the copy lets `ps` find it.
        for path in paths[: 1 if stray_brokers(directory.data_dir) else None]:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _announcement_directories() -> list[Path]:
    """Where copies of address files may be, the better place first. No place of another user's making."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    temporary = Path(tempfile.gettempdir(), f"minikafka-{os.getuid()}", "running")
    for place in (temporary.parent, temporary):
        with contextlib.suppress(OSError):
            if place.lstat().st_uid != os.getuid():
                return [Path(cache, "minikafka", "running")]
    return [Path(cache, "minikafka", "running"), temporary]


@contextlib.contextmanager
def _lock_file(path: str, timeout_s: float) -> Iterator[int | None]:
    """Hold a lock file; None when it was not free in time."""
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


def _start(directory: _Directory, on_progress: Callable[[str], None]) -> LocalCluster:
    """Start the daemon and wait until it serves. Under the starting lock."""
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
            lambda: directory.cluster() is not None or not directory.serving(), LOOK_S, every_s=0.02
        )
        if not settled:
            # Again and again, while a broker compiles, or has gigabytes to check, and gets on with it.
            progress.poll()
    cluster = directory.cluster()
    if cluster is not None:
        return cluster
    with contextlib.suppress(OSError):
        raise MinikafkaError(read_regular(directory.failure).decode("utf-8"))
    ended = settled or launcher.returncode != 0
    how = "ended at once" if ended else f"does not serve {START_TIMEOUT_S:g} s after its last sign of life"
    doing = f" ({progress.last})" if progress.last else ""
    raise MinikafkaError(
        f"the embedded broker of {directory.data_dir} {how}{doing}; {_last_words(directory)}"
    )


def _last_words(directory: _Directory) -> str:
    """The end of the log that was written last: the daemon's says little, the broker's is beside it."""
    logs = Path(directory.log).parent
    found = [(path.stat().st_mtime, str(path)) for path in logs.glob("*.log") if path.stat().st_size]
    newest = max(found)[1] if found else directory.log
    words = tail(newest)
    return f"the end of {newest}:\n{words}" if words else f"its logs in {logs} are empty"


def _environment() -> dict[str, str]:
    """For the daemon: ours, without Spark's secrets, and so that it finds this package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)}
    root = str(Path(__file__).resolve().parents[2])
    if os.path.basename(root) not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), root]))
    return environment


class _Daemon:
    """The process that runs ZooKeeper and the broker for their owners."""

    def __init__(self, data_dir: str) -> None:
        self._directory = _Directory(data_dir)
        self._wake = threading.Event()
        self._ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
        """Number and exit code of brokers that have ended."""
        self._exit_code = 0
        """Of the broker that ended last."""
        self._reason = ""
        """Why it stops; "" while it does not."""

    def run(self) -> int:
        """Start, serve until there is a reason to stop, stop; return the exit status."""
        signal.signal(signal.SIGTERM, self._on_signal)
        from minikafka.embedded.cluster import Cluster

        cluster = Cluster(data_dir=self._directory.data_dir, on_exit=self._on_exit)
        with contextlib.closing(cluster):
            try:
                cluster.start(self._tell)
            except MinikafkaError as error:
                _log.error("cannot start: %s", error)
                replace_file(RealFiles(), self._directory.failure, str(error).encode("utf-8"))
                return 2
            self._serve(cluster)
            _log.info("stops, as %s", self._reason)
        return 0

    def _tell(self, state: str) -> None:
        """Let the starter know how far it is."""
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
            _log.info("serves %s with ZooKeeper %s", cluster.bootstrap_servers, cluster.zookeeper_connect)
            while not self._ending():
                self._wake.wait(POLL_S)
                self._look_for_owners(address.close)
                if not self._ending():
                    cluster.restart_zookeeper(lambda text: _log.warning("%s", text))
                    self._look_for_brokers(brokers)

    def _ending(self) -> bool:
        return bool(self._reason)

    def _look_for_owners(self, withdraw: Callable[[], None]) -> None:
        try:
            if self._reason or self._directory.living_owners():
                return
            with self._directory.starting(0) as held:
                # Somebody who joins right now has the lock: look again later.
                if held and not self._directory.living_owners():
                    withdraw()
                    self._end("no session is left that uses it")
        except FileNotFoundError:
            self._end("its data directory was removed")

    def _look_for_brokers(self, brokers: LiveBrokers) -> None:
        """End when none lives: of ours, or of those that somebody started again by hand."""
        self._wake.clear()
        while not self._ended.empty():
            number, self._exit_code = self._ended.get()
            brokers.own.discard(number)
            if brokers.own:
                _log.warning("broker %d ended with exit code %d, the others go on", number, self._exit_code)
        if not brokers.own:
            brokers.look()
            if not brokers.count and brokers.known:
                self._end(f"its broker ended with exit code {self._exit_code}")

    def _on_exit(self, number: int, exit_code: int) -> None:
        self._ended.put((number, exit_code))
        self._wake.set()

    def _on_signal(self, number: int, frame: object) -> None:
        # No event is set here: the thread that is interrupted may be the one that holds the event's lock.
        self._reason = self._reason or "it was told to"

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._wake.set()


def main(arguments: Sequence[str]) -> int:
    """Become the daemon of the data directory ``arguments[0]``; the process that was started ends at once.

    Exit status: 3 when there is a daemon already.
    """
    logging.Formatter.converter = time.gmtime
    log_lines_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s")
    directory = _Directory(arguments[0])
    # Whoever asks whether we serve holds the lock for a moment.
    with _lock_file(os.path.join(directory.own, "serving.lock"), 1.0) as descriptor:
        if descriptor is None:
            return 3
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _DAEMON, 0)
        if os.fork():
            # The starter waits for this process, not for the daemon, which init will reap. The lock is the
            # daemon's too.
            os._exit(0)
        try:
            return _Daemon(directory.data_dir).run()
        except FileNotFoundError:
            return 1  # the data directory went while we started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
