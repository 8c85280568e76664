"""The store over a real ZooKeeper: connecting, threads, logging, a killed predecessor."""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError

from minikafka.base.errors import (
    BadVersion,
    ConfigError,
    CoordinationError,
    CoordinationLost,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import SESSION_TIMEOUT_MAX_MS, EmbeddedZooKeeper
from minikafka.net.ports import free_port
from minikafka.registry.kazoo_clients import translate_errors
from minikafka.registry.store import SessionState, SessionTicket
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.registry.zookeeper_address import parse_connect
from tests.support.raising import raising

PATIENCE_S = 30.0


@pytest.fixture
def connect(zookeeper_address: str) -> str:
    """A connect string with a chroot of this test's own."""
    return f"{zookeeper_address}/{uuid.uuid4().hex}"


@pytest.mark.parametrize(
    ("connect", "hosts", "chroot"),
    [
        ("h:2181", "h:2181", ""),
        ("h", "h", ""),
        ("a:1,b:2/kafka", "a:1,b:2", "/kafka"),
        ("h:1/a/b/", "h:1", "/a/b"),
        ("h:1/", "h:1", ""),
        (" [::1]:2181/x ", "[::1]:2181", "/x"),
    ],
)
def test_a_connect_string_is_split(connect: str, hosts: str, chroot: str) -> None:
    assert parse_connect(connect) == (hosts, chroot)


@pytest.mark.parametrize(
    "connect", ["", "/chroot", "h:x", "h:99999", "h:0", "a:1,,b:2", "h:1/a//b", "h:1/../a"]
)
def test_a_bad_connect_string_is_refused(connect: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_connect(connect)


def test_address_with_a_user_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.digest\.credentials") as refused:
        parse_connect("broker:tiger-7@zk:2181")
    assert "tiger" not in str(refused.value)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (kazoo_errors.NoNodeError(), NoNode),
        (kazoo_errors.NodeExistsError(), NodeExists),
        (kazoo_errors.NotEmptyError(), NotEmpty),
        (kazoo_errors.BadVersionError(), BadVersion),
        (kazoo_errors.SessionExpiredError(), SessionExpired),
        (kazoo_errors.ConnectionLoss(), CoordinationLost),
        (kazoo_errors.ConnectionClosedError(), CoordinationLost),
        (kazoo_errors.OperationTimeoutError(), CoordinationLost),
        (kazoo_errors.SessionMovedError(), CoordinationLost),
        (KazooTimeoutError(), CoordinationLost),
        (kazoo_errors.NoAuthError(), NoAuth),
        (kazoo_errors.NoChildrenForEphemeralsError(), CoordinationError),
        (kazoo_errors.AuthFailedError(), CoordinationError),
    ],
)
def test_every_error_of_kazoo_becomes_one_of_ours(theirs: Exception, ours: type[CoordinationError]) -> None:
    with (
        pytest.raises(CoordinationError, match=r"cannot write /a: \w+") as caught,
        translate_errors("write", "/a"),
    ):
        raise theirs
    assert type(caught.value) is ours


@pytest.mark.process
def test_no_server_is_a_clear_error_in_time() -> None:
    port = free_port()
    with pytest.raises(CoordinationLost, match=rf"127\.0\.0\.1:{port} within 300 ms"):
        ZooKeeperStore(f"127.0.0.1:{port}", connect_timeout_ms=300)


def test_earlier_wait_counts_toward_the_connect_timeout() -> None:
    with pytest.raises(CoordinationLost, match="within 3600000 ms"):
        ZooKeeperStore(f"127.0.0.1:{free_port()}", connect_timeout_ms=3_600_000, waited_ms=3_600_000)


@pytest.mark.process
def test_a_failed_connection_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(CoordinationLost):
        ZooKeeperStore(f"127.0.0.1:{free_port()}", connect_timeout_ms=100)
    assert set(threading.enumerate()) <= before


@pytest.mark.process
def test_closing_ends_every_thread(connect: str) -> None:
    before = set(threading.enumerate())
    store = ZooKeeperStore(connect)
    store.watch_children("/", lambda names: None)
    store.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.process
@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(1_000_000, SESSION_TIMEOUT_MAX_MS), (3_000, 3_000)])
def test_session_timeout_is_the_granted_one(zookeeper_address: str, asked_ms: int, granted_ms: int) -> None:
    with contextlib.closing(ZooKeeperStore(zookeeper_address, asked_ms, connect_timeout_ms=10_000)) as store:
        assert store.session_timeout_ms == granted_ms


@pytest.mark.process
def test_the_chroot_is_made(connect: str, zookeeper_address: str) -> None:
    address, _, name = connect.partition("/")
    store = ZooKeeperStore(f"{address}/{name}/deep/chroot")
    store.create("/a", b"data")
    store.close()
    outside = ZooKeeperStore(zookeeper_address)
    assert outside.read(f"/{name}/deep/chroot/a")[0] == b"data"
    outside.close()


@pytest.mark.process
def test_parents_have_no_data_as_those_of_kafka(connect: str) -> None:
    store = ZooKeeperStore(connect)
    store.create("/a/b", make_parents=True)
    data, _ = store._client.get(store._full("/a"))
    store.close()
    assert data is None


@pytest.mark.process
def test_a_store_can_be_closed_by_its_callback(connect: str) -> None:
    store = ZooKeeperStore(connect)
    closed = threading.Event()

    def close(names: list[str] | None) -> None:
        store.close()
        closed.set()

    store.watch_children("/", close)
    assert closed.wait(20)
    assert wait_until(lambda: not store._thread.is_alive(), 20)


@pytest.mark.process
def test_a_failing_callback_is_logged_and_harms_no_other(
    connect: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = ZooKeeperStore(connect)
    seen: list[object] = []
    store.watch_children("/a", raising(ValueError("of the callback")))
    store.watch_children("/a", seen.append)
    assert wait_until(lambda: seen == [None], 20)
    store.close()
    assert "of the callback" in caplog.text


@pytest.mark.process
def test_watches_that_wait_ask_together_and_report_in_order(
    connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ZooKeeperStore(connect)
    busy, go_on = threading.Event(), threading.Event()

    def hold_up(names: list[str] | None) -> None:
        busy.set()
        go_on.wait(20)

    store.watch_children("/", hold_up)
    assert busy.wait(20)
    asked: list[str] = []
    seen: list[tuple[int, int]] = []
    get_async = store._client.get_async

    def noting(path: str, **options: object) -> object:
        asked.append(path)
        return get_async(path, **options)

    monkeypatch.setattr(store._client, "get_async", noting)
    for number in range(200):
        store.watch_data(f"/{number}", lambda data, stat, number=number: seen.append((number, len(asked))))
    go_on.set()
    assert wait_until(lambda: len(seen) == 200, 20)
    store.close()
    # All were requested before the first was answered.
    assert seen[0] == (0, 200)
    assert [number for number, _ in seen] == list(range(200))


@pytest.mark.process
def test_kazoo_says_nothing_by_itself(connect: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="minikafka")
    store = ZooKeeperStore(connect)
    ticket = store.ticket
    other = ZooKeeperStore(connect)
    other.end_session(ticket)
    assert wait_until(lambda: store._connected.is_set() and store.session_id != ticket.session_id, 20)
    store.close()
    other.close()
    with pytest.raises(CoordinationLost):
        ZooKeeperStore(f"127.0.0.1:{free_port()}", connect_timeout_ms=200)
    lines = [record.getMessage() for record in caplog.records]
    assert all(line.startswith("ZooKeeper session at ") for line in lines), lines
    assert [line.rpartition(" ")[2] for line in lines].count("expired") == 1


@pytest.mark.process
def test_blocked_thread_of_kazoo_does_not_hold_up_an_exit(connect: str) -> None:
    script = (
        "import sys, threading\n"
        "from minikafka.registry.zookeeper import ZooKeeperStore\n"
        "store = ZooKeeperStore(sys.argv[1])\n"
        "store._client.handler.callback_queue.put(threading.Event().wait)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, connect], timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0


@pytest.mark.process
def test_a_killed_process_leaves_a_session_that_its_ticket_ends(connect: str) -> None:
    script = (
        "import sys, os, signal\n"
        "from minikafka.registry.zookeeper import ZooKeeperStore\n"
        "store = ZooKeeperStore(sys.argv[1], 30_000)\n"
        "store.create('/brokers/ids/0', b'killed', ephemeral=True, make_parents=True)\n"
        "sys.stdout.buffer.write(store.ticket.to_json())\n"
        "sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, connect], stdout=subprocess.PIPE, timeout=40, check=False
    )
    ticket = SessionTicket.from_json(killed.stdout, "its output")
    store = ZooKeeperStore(connect)
    left = store.exists("/brokers/ids/0")
    assert left is not None
    assert left.ephemeral_owner == ticket.session_id
    assert store.end_session(ticket)
    assert store.exists("/brokers/ids/0") is None
    store.close()


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("emptied", [False, True])
def test_client_recovers_from_a_rolled_back_zookeeper(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, emptied: bool
) -> None:
    states: list[SessionState] = []
    data, copy = tmp_path / "zookeeper", tmp_path / "copy"
    with EmbeddedZooKeeper(str(tmp_path), port=free_port()) as zookeeper:
        store = ZooKeeperStore(zookeeper.connect, 3_000, connect_timeout_ms=20_000)
        with contextlib.closing(store):
            store.on_session(states.append)
            store.create("/kept", ephemeral=True)
            zookeeper.stop()
            shutil.copytree(data, copy)
            zookeeper.start()
            assert wait_until(lambda: SessionState.CONNECTED in states, PATIENCE_S)
            for number in range(100):
                store.create(f"/lost-{number}")
            zookeeper.stop()
            shutil.rmtree(data)
            if not emptied:
                shutil.copytree(copy, data)
            del states[:]
            zookeeper.start()
            assert wait_until(lambda: states[-1:] == [SessionState.CONNECTED], PATIENCE_S)
            assert SessionState.EXPIRED in states
            assert store.exists("/lost-99") is None
            assert wait_until(lambda: store.exists("/kept") is None, PATIENCE_S)
            store.create("/new", ephemeral=True)
    assert "was rolled back" in caplog.text
