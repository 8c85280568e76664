"""The files of a data directory's embedded broker, through which processes find, share and stop it::

    D/.embedded/starting.lock   held by a process that starts, joins or stops it; always for a short time
    D/.embedded/serving.lock    held by the daemon for its life: it is alive if and only if this is locked;
                                contains "daemon", unless a cluster that others only share is announced
    D/.embedded/address.json    its address while it serves; replaced atomically
    D/.embedded/progress.json   the progress of the current start, in the field ``state``
    D/.embedded/failure.txt     the reason why the last start failed
    D/.embedded/owners/         one file for each owner, named by process id and start time
    D/logs/embedded.log         the daemon's log; broker and ZooKeeper have logs beside it

Files left by a crash do no harm: locks end with their process, an address without the serving lock is
ignored, and owners are compared with the start time of their process.

A broker that was restarted by hand (``minikafka broker D/broker-N.properties``) does not end with the cluster
(see ``strays``), and no cluster is started while it runs.

A per-user directory (``~/.cache/minikafka/running``, or a private one below the temporary directory if that
cannot be written) has a copy of every address file, for ``minikafka ps``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from minikafka.base.cache_dirs import make_private, open_lock, open_own, read_regular
from minikafka.base.errors import MinikafkaError
from minikafka.base.files import RealFiles, replace_file
from minikafka.embedded.owners import Owner, host_boot_id, is_alive, owner_of
from minikafka.embedded.process import wait_until
from minikafka.embedded.strays import stray_brokers

DAEMON = b"daemon\n"
"""The content of the serving lock of a daemon, which ends with its owners."""


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

    @property
    def owner(self) -> Owner:
        """The identity of that process."""
        return Owner(self.pid, self.started)

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


class EmbeddedDirectory:
    """The files of one data directory's embedded broker."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = os.path.realpath(data_dir)
        self.own = os.path.join(self.data_dir, ".embedded")
        self.owners = os.path.join(self.own, "owners")
        self.serving_lock = os.path.join(self.own, "serving.lock")
        self.address = os.path.join(self.own, "address.json")
        self.progress = os.path.join(self.own, "progress.json")
        self.failure = os.path.join(self.own, "failure.txt")
        self.log = os.path.join(self.data_dir, "logs", "embedded.log")

    def make(self) -> None:
        """Create the directories. Raises MinikafkaError if that fails."""
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
        with lock_file(os.path.join(self.own, "starting.lock"), timeout_s) as descriptor:
            yield descriptor is not None

    def state(self) -> str:
        """Return the progress of a starting daemon; "" if it has reported none."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads(read_regular(self.progress))["state"])
        return ""

    @contextlib.contextmanager
    def serve(self, content: bytes = b"") -> Iterator[bool]:
        """Hold the serving lock, with ``content``; yield False if another process serves."""
        # A process that checks whether there is a daemon holds the lock for a moment.
        with lock_file(self.serving_lock, 1.0) as descriptor:
            if descriptor is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
            yield descriptor is not None

    def serving(self) -> bool:
        """Return True if a daemon is alive."""
        try:
            with lock_file(self.serving_lock, 0) as descriptor:
                return descriptor is None
        except FileNotFoundError:
            return False

    def ending(self) -> bool:
        """Return True if a daemon is alive but none of its owners: it will stop. Nothing is changed."""
        try:
            daemon = read_regular(Path(self.serving_lock)) == DAEMON
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
        return found if not here or is_alive(found.owner) else None

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

    @contextlib.contextmanager
    def publish(
        self, bootstrap_servers: str, zookeeper_connect: str, cluster_id: str
    ) -> Iterator[LocalCluster]:
        """Write the address file and its copy; delete them at the end of the block."""
        itself = owner_of(os.getpid())
        assert itself is not None
        cluster = LocalCluster(
            bootstrap_servers,
            zookeeper_connect,
            cluster_id,
            host_boot_id(),
            self.data_dir,
            itself.pid,
            itself.started,
        )
        name = hashlib.sha256(self.data_dir.encode()).hexdigest()[:16] + ".json"
        paths = [self.address]
        for listing in _listing_directories():
            with contextlib.suppress(OSError, MinikafkaError):
                for place in (listing.parent, listing):
                    place.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(RealFiles(), str(listing / name), cluster.to_json())
                paths.append(str(listing / name))
                break
        replace_file(RealFiles(), self.address, cluster.to_json())
        try:
            yield cluster
        finally:
            # A broker that was started by hand still runs: the copy lets `ps` find it.
            for path in paths[: 1 if stray_brokers(self.data_dir) else None]:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _living_owner(entry: os.DirEntry[str]) -> Owner | None:
    """Return the owner of this file if it is alive. Raises FileNotFoundError if the file was deleted."""
    try:
        fields = json.loads(read_regular(entry.path))
        owner = Owner(fields["pid"], fields["started"])
        return owner if fields["boot_id"] == host_boot_id() and is_alive(owner) else None
    except (ValueError, KeyError, TypeError):
        return None  # not an owner file


def listed_clusters() -> Iterator[LocalCluster]:
    """Yield the clusters of this host's address files, and delete files of clusters without any process."""
    boot_id = host_boot_id()
    for directory in _listing_directories():
        for path in directory.glob("*.json"):
            with contextlib.suppress(OSError):
                with open_own(path) as file:
                    cluster = LocalCluster.from_json(file.read())
                if cluster is not None and cluster.boot_id != boot_id:
                    continue  # from another host that shares this directory
                if cluster is not None and (is_alive(cluster.owner) or stray_brokers(cluster.data_dir)):
                    yield cluster
                else:
                    path.unlink()


def _listing_directories() -> list[Path]:
    """Return the directories for copies of address files, the preferred one first; none of another user's."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    temporary = Path(tempfile.gettempdir(), f"minikafka-{os.getuid()}", "running")
    for place in (temporary.parent, temporary):
        with contextlib.suppress(OSError):
            if place.lstat().st_uid != os.getuid():
                return [Path(cache, "minikafka", "running")]
    return [Path(cache, "minikafka", "running"), temporary]


@contextlib.contextmanager
def lock_file(path: str, timeout_s: float) -> Iterator[int | None]:
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
