"""The embedded broker of a data directory: shared by Spark sessions and commands, stopped after the last one.

``local_files`` describes how processes find it, ``daemon`` the process that runs it. ``ensure`` writes the
caller's owner file and looks for the daemon, both under the starting lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from minikafka.base.cache_dirs import read_regular
from minikafka.base.errors import MinikafkaError
from minikafka.embedded import lock
from minikafka.embedded.local_files import EmbeddedDirectory, LocalCluster, listed_clusters
from minikafka.embedded.owners import Owner, find_owner, host_boot_id, is_alive
from minikafka.embedded.process import STOP_TIMEOUT_S, StartProgress, tail, wait_until
from minikafka.embedded.strays import StrayBroker, stray_brokers

START_TIMEOUT_S = 360.0
"""The longest time without progress until the broker is ready. It is longer than the daemon's own time-outs,
so that the daemon gives up first and reports the reason."""
PROGRESS_POLL_S = 0.5

_LOG_MAX_BYTES = 1 << 20
_SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "SPARK_AUTH_SOCKET", "_PYSPARK_DRIVER_CONN_INFO_PATH")
"""Prefixes of variables in which Spark passes secrets to its workers. The daemon must not keep them."""


def ensure(
    data_dir: str,
    owners: Sequence[Owner] | None = None,
    on_progress: Callable[[str], None] = lambda state: None,
) -> LocalCluster:
    """Return the embedded broker of ``data_dir``, started if needed. It runs while an owner lives.

    owners: by default the calling session, see ``find_owner``. on_progress: called with the progress of a
    long start. Raises MinikafkaError with the cause if it cannot be started.
    """
    directory = EmbeddedDirectory(data_dir)
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
def _starting_lock(directory: EmbeddedDirectory, on_progress: Callable[[str], None]) -> Iterator[bool]:
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
    return EmbeddedDirectory(data_dir).cluster()


def wait_for_end(data_dir: str, timeout_s: float, on_wait: Callable[[], None]) -> None:
    """If the embedded broker of ``data_dir`` is stopping because no owner is left, wait for its end.

    ``on_wait`` is called once if there is something to wait for.
    """
    directory = EmbeddedDirectory(data_dir)
    if directory.ending():
        on_wait()
        wait_until(lambda: not directory.ending(), timeout_s, every_s=0.05)


def list_running() -> list[LocalCluster]:
    """Return all running clusters of this user on this host, by data directory."""
    found = {cluster.data_dir: cluster for cluster in listed_clusters() if is_alive(cluster.owner)}
    return [found[data_dir] for data_dir in sorted(found)]


def list_strays() -> list[StrayBroker]:
    """Return the brokers started by hand in directories of this user's clusters, running or ended."""
    directories = {cluster.data_dir for cluster in listed_clusters()}
    return [stray for data_dir in sorted(directories) for stray in stray_brokers(data_dir)]


def stop(data_dir: str) -> None:
    """Stop the cluster of ``data_dir`` cleanly, whoever runs it. Raises MinikafkaError if there is none."""
    directory = EmbeddedDirectory(data_dir)
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
    daemon = cluster.owner
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
    directory = EmbeddedDirectory(data_dir)
    directory.make()
    with directory.serve() as free:
        if not free:
            raise MinikafkaError(f"a cluster already runs in {directory.data_dir}; `minikafka stop` stops it")
        with directory.publish(bootstrap_servers, zookeeper_connect, cluster_id) as cluster:
            yield cluster


def _start(directory: EmbeddedDirectory, on_progress: Callable[[str], None]) -> LocalCluster:
    """Start the daemon and wait until it is ready. Requires the starting lock."""
    for left_behind in (directory.failure, directory.address, directory.progress):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left_behind)
    if os.path.exists(directory.log) and os.path.getsize(directory.log) > _LOG_MAX_BYTES:
        os.replace(directory.log, directory.log + ".1")
    with open(directory.log, "ab") as output:
        launcher = subprocess.run(
            [sys.executable, "-m", "minikafka.embedded.daemon", directory.data_dir],
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


def _newest_log_tail(directory: EmbeddedDirectory) -> str:
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
