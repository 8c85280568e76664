"""The shared embedded broker of a data directory: real daemons, with processes in place of sessions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.embedded import local, local_files, lock
from minikafka.embedded.local import ensure, list_running, running
from minikafka.embedded.local_files import LocalCluster
from minikafka.embedded.owners import Owner, host_boot_id, is_alive, owner_of, process_info
from minikafka.embedded.process import wait_until
from minikafka.net.ports import can_connect

PATIENCE_S = 30.0
STOPS_WITHIN_S = 2.0
"""The promised longest time from the last owner's death."""

Session = subprocess.Popen[bytes]
Start = Callable[[], Session]


@pytest.fixture(autouse=True)
def own_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of running clusters of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "minikafka" / "running"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[str]:
    """A data directory; what runs there is stopped at the end."""
    directory = tmp_path / "data"
    yield str(directory)
    cluster = running(str(directory))
    if cluster is not None:
        local.stop(str(directory))


@pytest.fixture
def session() -> Iterator[Start]:
    """Start processes that stand for Spark sessions."""
    started: list[Session] = []

    def make() -> Session:
        started.append(subprocess.Popen(["sleep", "600"]))
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.wait()


def owner(process: Session) -> Owner:
    found = owner_of(process.pid)
    assert found is not None
    return found


def join(data_dir: str, process: Session) -> LocalCluster:
    return ensure(data_dir, [owner(process)])


def end(process: Session) -> None:
    process.kill()
    process.wait()


def serves(cluster: LocalCluster) -> bool:
    host, _, port = cluster.bootstrap_servers.partition(":")
    return can_connect(host, int(port))


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = [pid]
    for above in found:
        found += [child for child, parent in parents.items() if parent == above]
    return found


def broker_of(cluster: LocalCluster) -> int:
    """Return the broker's process id."""
    supervised = [pid for pid in family(cluster.pid) if pid not in family(java_of(cluster))]
    return supervised[-1]


def java_of(cluster: LocalCluster) -> int:
    """Return ZooKeeper's process id."""
    infos = {pid: process_info(pid) for pid in family(cluster.pid)}
    return next(pid for pid, info in infos.items() if info is not None and info.name == "java")


def all_gone(pids: list[int]) -> bool:
    return wait_until(lambda: all(process_info(pid) is None for pid in pids), PATIENCE_S)


# Starting and sharing


def test_the_first_session_starts_it(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session())
    assert serves(cluster)
    assert cluster.data_dir == os.path.realpath(data_dir)
    assert re.fullmatch(r"[\w-]{22}", cluster.cluster_id)
    assert cluster.boot_id == host_boot_id()
    host, _, port = cluster.zookeeper_connect.partition(":")
    assert can_connect(host, int(port))


def test_a_second_session_shares_it_and_keeps_it(data_dir: str, session: Start) -> None:
    first, second = session(), session()
    cluster = join(data_dir, first)
    assert join(data_dir, second) == cluster
    end(first)
    # The daemon removes the dead session's file when it has looked.
    files = Path(data_dir, ".embedded", "owners")
    assert wait_until(lambda: len(list(files.iterdir())) == 1, PATIENCE_S)
    assert serves(cluster)
    assert running(data_dir) == cluster


def test_it_stops_soon_after_its_last_owner_was_killed(data_dir: str, session: Start) -> None:
    first, second = session(), session()
    cluster = join(data_dir, first)
    join(data_dir, second)
    pids = family(cluster.pid)
    assert len(pids) >= 5  # the daemon, and supervisor and child for broker and ZooKeeper
    end(first)
    second.kill()
    killed_s = time.monotonic()
    second.wait()
    assert all_gone(pids)
    # Twice the promise, as other work may have the processor.
    assert time.monotonic() - killed_s < 2 * STOPS_WITHIN_S
    assert running(data_dir) is None
    assert not Path(data_dir, ".embedded", "address.json").exists()
    assert list(Path(data_dir).glob("broker-*/.kafka_cleanshutdown")) != []


def test_two_processes_at_once_get_one_broker(data_dir: str, session: Start) -> None:
    code = (
        "import sys, time\n"
        "from minikafka.embedded.local import ensure\n"
        "print(ensure(sys.argv[1]).to_json().decode(), end='', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, data_dir]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        answers = [LocalCluster.from_json(process.stdout.readline()) for process in both if process.stdout]
        assert answers[0] is not None
        assert answers[0] == answers[1]
        assert len([pid for pid in family(answers[0].pid) if pid != answers[0].pid]) == 4
    finally:
        for process in both:
            process.communicate()
    assert all_gone([answers[0].pid])


def test_session_that_joins_during_the_stop_gets_a_new_broker(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session_one := session())
    end(session_one)
    # From before the daemon sees that its owner died until after it has stopped.
    for pause_s in (0.0, 0.3, 0.6):
        following = session()
        wait_until(lambda: False, pause_s)
        cluster = join(data_dir, following)
        assert serves(cluster)
        end(following)


def test_daemon_is_no_child_of_its_session(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session())
    assert os.getsid(cluster.pid) != os.getsid(0)
    info = process_info(cluster.pid)
    assert info is not None
    assert info.parent != os.getpid()


def test_data_and_cluster_id_are_kept(data_dir: str, session: Start) -> None:
    first = join(data_dir, session())
    local.stop(data_dir)
    again = join(data_dir, session())
    assert again.cluster_id == first.cluster_id
    assert again.pid != first.pid


def test_it_keeps_none_of_sparks_secrets(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux":
        pytest.skip("the environment of a process is read from /proc")
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "for-a-worker-only")
    cluster = join(data_dir, session())
    for pid in family(cluster.pid):
        assert b"for-a-worker-only" not in Path(f"/proc/{pid}/environ").read_bytes()


# After crashes


def test_a_killed_daemon_is_replaced(data_dir: str, session: Start) -> None:
    process = session()
    first = join(data_dir, process)
    pids = family(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    assert wait_until(lambda: running(data_dir) is None, PATIENCE_S)
    assert Path(data_dir, ".embedded", "address.json").exists()  # stale, and known to be
    again = join(data_dir, process)
    assert again.pid != first.pid
    assert again.cluster_id == first.cluster_id
    assert serves(again)
    assert all_gone(pids)


def test_it_stops_when_its_broker_crashes_and_the_next_starts(data_dir: str, session: Start) -> None:
    process = session()
    first = join(data_dir, process)
    pids = family(first.pid)
    os.kill(broker_of(first), signal.SIGKILL)
    assert all_gone(pids)
    assert "its broker ended with exit code -9" in Path(data_dir, "logs", "embedded.log").read_text()
    assert serves(join(data_dir, process))


def test_a_crashed_zookeeper_comes_back(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session())
    java = java_of(cluster)
    os.kill(java, signal.SIGKILL)
    host, _, port = cluster.zookeeper_connect.partition(":")
    assert wait_until(lambda: process_info(java) is None and can_connect(host, int(port)), PATIENCE_S)
    assert serves(cluster)


def test_it_stops_when_its_directory_is_removed(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session())
    pids = family(cluster.pid)
    shutil.rmtree(data_dir, ignore_errors=True)
    assert all_gone(pids)


# Failures


def test_failed_start_raises_its_cause(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = session()
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MinikafkaError, match="Java 17 or newer is needed"):
        join(data_dir, process)
    assert running(data_dir) is None


def test_after_a_failed_start_another_one_succeeds(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = session()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        patch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(MinikafkaError):
            join(data_dir, process)
    assert serves(join(data_dir, process))


def test_daemon_that_cannot_start_is_reported_with_its_log(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(MinikafkaError, match=r"ended during its start; its logs in .*logs are empty"):
        join(data_dir, session())


SLOW = """
import json, os, sys, time
from pathlib import Path
from minikafka.embedded.local_files import EmbeddedDirectory

directory = EmbeddedDirectory(sys.argv[-1])
lock = directory.serve()
lock.__enter__()
if os.fork():
    os._exit(0)
Path(directory.log).with_name("broker-0.log").write_text("the broker is slow\\n")
for done in range(3):
    state = {"type": "starting", "state": f"broker 0: compiling its kernels: {done} of 17"}
    Path(directory.progress).write_text(json.dumps(state))
    time.sleep(0.5)
time.sleep(600)
"""


def test_stalled_start_is_given_up_with_its_progress_and_log(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "python"
    (tmp_path / "slow.py").write_text(SLOW)
    slow.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/slow.py" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(local, "START_TIMEOUT_S", 2.0)
    monkeypatch.setattr(local, "PROGRESS_POLL_S", 0.05)
    messages: list[str] = []
    try:
        with pytest.raises(MinikafkaError) as failure:
            ensure(data_dir, [owner(session())], messages.append)
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if str(tmp_path / "slow.py") in (process.info["cmdline"] or []):
                process.kill()
    assert messages == [f"broker 0: compiling its kernels: {done} of 17" for done in range(3)]
    text = str(failure.value)
    assert "made no progress for 2 s (broker 0: compiling its kernels: 2 of 17)" in text
    assert "broker-0.log:\nthe broker is slow" in text


def test_a_data_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        MinikafkaError, match=f"cannot use the data directory {tmp_path}/file/data: Not a directory"
    ):
        ensure(str(tmp_path / "file" / "data"))


def test_the_broker_of_another_host_is_refused(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = session()
    join(data_dir, process)
    with monkeypatch.context() as patch:
        patch.setattr(local, "host_boot_id", lambda: "another host")
        with pytest.raises(MinikafkaError, match=r"^the cluster of .* runs on another host"):
            join(data_dir, process)


# Listing and stopping


def test_it_is_listed_while_it_runs(data_dir: str, session: Start, own_listing: Path) -> None:
    assert list_running() == []
    cluster = join(data_dir, session())
    assert list_running() == [cluster]
    local.stop(data_dir)
    assert list_running() == []
    assert list(own_listing.iterdir()) == []


def test_stop_returns_when_all_processes_have_ended(data_dir: str, session: Start) -> None:
    cluster = join(data_dir, session())
    pids = family(cluster.pid)
    local.stop(data_dir)
    assert running(data_dir) is None
    assert not is_alive(Owner(cluster.pid, cluster.started))
    assert all_gone(pids)


def test_stopping_nothing_is_an_error(data_dir: str) -> None:
    with pytest.raises(MinikafkaError, match=r"^no cluster runs in .*; `minikafka ps` lists"):
        local.stop(data_dir)


def test_stop_names_the_process_that_holds_the_cluster_lock(data_dir: str) -> None:
    Path(data_dir).mkdir(parents=True, exist_ok=True)
    held = lock.hold(os.path.join(data_dir, ".lock"))
    try:
        with pytest.raises(
            MinikafkaError,
            match=f"^process {os.getpid()} is starting, stopping or privately running the cluster",
        ):
            local.stop(data_dir)
    finally:
        os.close(held)
    with pytest.raises(MinikafkaError, match=r"^no cluster runs in"):
        local.stop(data_dir)


def test_stop_that_times_out_names_the_process_and_its_logs(
    data_dir: str, session: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = session()
    monkeypatch.setattr(local_files, "owner_of", lambda pid: owner(deaf))
    monkeypatch.setattr(local, "STOP_TIMEOUT_S", 0.0)
    with local.announce(data_dir, "h:1", "h:2", "id"):
        words = rf"^timed out stopping process {deaf.pid} \(data directory .*\); see .*{os.sep}logs$"
        with pytest.raises(MinikafkaError, match=words):
            local.stop(data_dir)


def test_listing_without_a_home_is_in_a_private_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-directory").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-directory"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with local.announce(str(tmp_path / "data"), "h:1", "h:2", "id") as cluster:
        assert list_running() == [cluster]
        assert (tmp_path / f"minikafka-{os.getuid()}").stat().st_mode & 0o077 == 0


# Clusters of other processes


def test_wait_for_end_waits_for_a_broker_without_owners(data_dir: str, session: Start) -> None:
    calls: list[bool] = []
    process = session()
    cluster = join(data_dir, process)
    local.wait_for_end(data_dir, PATIENCE_S, lambda: calls.append(serves(cluster)))
    assert calls == [], "an owner is alive"
    end(process)
    local.wait_for_end(data_dir, PATIENCE_S, lambda: calls.append(True))
    assert calls == [True]
    assert not serves(cluster)
    local.wait_for_end(data_dir, PATIENCE_S, lambda: calls.append(True))
    assert calls == [True]


def test_wait_for_end_ignores_an_announced_cluster(data_dir: str) -> None:
    calls: list[bool] = []
    with local.announce(data_dir, "127.0.0.1:1", "127.0.0.1:2", "id"):
        local.wait_for_end(data_dir, PATIENCE_S, lambda: calls.append(True))
    assert calls == []


def test_an_announced_cluster_is_shared(tmp_path: Path, data_dir: str, session: Start) -> None:
    with local.announce(data_dir, "h:1", "h:2", "id") as cluster:
        assert join(data_dir, session()) == cluster
        assert list_running() == [cluster]
        assert running(data_dir) == cluster
    assert running(data_dir) is None
    assert list_running() == []


def test_two_cannot_be_announced_in_one_directory(data_dir: str) -> None:
    with (
        local.announce(data_dir, "h:1", "h:2", "id"),
        pytest.raises(MinikafkaError, match=r"^a cluster already runs in .*; `minikafka stop"),
        local.announce(data_dir, "h:3", "h:4", "id"),
    ):
        pass
