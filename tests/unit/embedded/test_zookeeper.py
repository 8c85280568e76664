"""The embedded ZooKeeper, run from PySpark's jars."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from minikafka.base.errors import ConfigError, DirectoryLocked, NoNode
from minikafka.embedded import zookeeper
from minikafka.embedded.owners import process_info
from minikafka.embedded.process import ProcessFailed, wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper, find_jars
from minikafka.net.ports import can_bind, can_connect, ephemeral_ports, zookeeper_mode
from minikafka.registry.zookeeper import ZooKeeperStore

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that tests only read from."""
    with EmbeddedZooKeeper(str(tmp_path_factory.mktemp("shared"))) as running:
        yield running


def word(port: int, command: bytes) -> str:
    """The answer to one of ZooKeeper's four-letter words."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(command)
        while data := connection.recv(4096):
            answer += data
    return answer.decode()


def test_it_serves_once_start_returns(shared: EmbeddedZooKeeper) -> None:
    assert zookeeper_mode("127.0.0.1", shared.port) == "standalone"
    store = ZooKeeperStore(shared.connect)
    store.create("/a", b"data")
    assert store.read("/a")[0] == b"data"
    store.close()


def test_lines_about_commands_during_the_start_are_those_of_a_class_it_has() -> None:
    # The error itself needs a command within a millisecond of the start.
    name = zookeeper._COMMANDS_LOGGER.replace(".", "/") + ".class"
    (jar,) = [jar for jar in find_jars() if re.fullmatch(r"zookeeper-\d[\d.]*\.jar", Path(jar).name)]
    with ZipFile(jar) as classes:
        code = classes.read(name)
    messages = set(re.findall(rb"Error closing [a-zA-Z ]+", code))
    assert messages == {b"Error closing a command socket ", b"Error closing PrintWriter "}
    assert any(zookeeper._COMMANDS_LOGGER in option for option in zookeeper._JVM_OPTIONS)


def test_a_second_start_does_nothing(shared: EmbeddedZooKeeper) -> None:
    process = shared.process
    assert shared.start() == shared.connect
    assert shared.process is process


@pytest.mark.parametrize("command", [b"srvr", b"ruok", b"stat", b"mntr"])
def test_it_answers_the_words_that_tools_use(shared: EmbeddedZooKeeper, command: bytes) -> None:
    assert "not in the whitelist" not in word(shared.port, command)


def test_it_answers_no_other_word(shared: EmbeddedZooKeeper) -> None:
    assert "not in the whitelist" in word(shared.port, b"envi")


def test_it_serves_this_host_only(shared: EmbeddedZooKeeper) -> None:
    # All of 127/8 is this host, and a server of all addresses would answer there too.
    assert can_connect("127.0.0.1", shared.port)
    assert not can_connect("127.0.0.2", shared.port)


def test_a_session_of_half_a_second_expires(shared: EmbeddedZooKeeper) -> None:
    code = (
        "import os, signal, sys\n"
        "from minikafka.registry.zookeeper import ZooKeeperStore\n"
        "store = ZooKeeperStore(sys.argv[1], 500, connect_timeout_ms=10_000)\n"
        "store.create('/short', ephemeral=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, shared.connect], check=False, timeout=30)
    store = ZooKeeperStore(shared.connect)
    assert wait_until(lambda: store.exists("/short") is None, 10)
    store.close()


def test_its_java_is_small(shared: EmbeddedZooKeeper) -> None:
    assert shared.process is not None
    if sys.platform != "linux":
        pytest.skip("resident memory is read from /proc")
    status = Path(f"/proc/{shared.process.pid}/status").read_text()
    resident_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    assert resident_kb < 140_000


def test_two_of_them_take_two_ports(shared: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with EmbeddedZooKeeper(str(tmp_path)) as other:
        assert other.port != shared.port


def test_a_restart_keeps_data_and_port(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        port = running.port
        store = ZooKeeperStore(running.connect)
        store.create("/a", b"kept")
        store.close()
    assert not can_connect("127.0.0.1", port)
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        assert running.port == port
        store = ZooKeeperStore(running.connect)
        assert store.read("/a")[0] == b"kept"
        store.close()


def test_acknowledged_changes_survive_a_kill(tmp_path: Path) -> None:
    running = EmbeddedZooKeeper(str(tmp_path))
    running.start()
    store = ZooKeeperStore(running.connect)
    for number in range(20):
        store.create(f"/{number}", b"kept")
    running.stop()  # kills it
    store.close()
    with running:
        store = ZooKeeperStore(running.connect)
        assert len(store.children("/")) == 21  # and ZooKeeper's own
        store.close()


def test_last_port_in_use_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        port = running.port
    with socket.create_server(("127.0.0.1", port)), EmbeddedZooKeeper(str(tmp_path)) as running:
        assert running.port != port
    assert f"port {port} of ZooKeeper in " in caplog.text


def test_it_serves_outside_the_ports_that_connections_get(shared: EmbeddedZooKeeper) -> None:
    assert shared.port not in ephemeral_ports()


def test_one_that_died_comes_back_on_its_port_or_not_at_all(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        port = running.port
        assert not running.ended
        assert running.process is not None
        running.process.kill()
        assert running.ended
        with socket.create_server(("127.0.0.1", port)):
            with pytest.raises(ConfigError, match=f"{port}: is in use"):
                running.restart()
            assert (running.ended, running.port) == (True, port)
        running.restart()
        assert (running.ended, running.port) == (False, port)
        assert zookeeper_mode("127.0.0.1", port) == "standalone"


def test_a_wanted_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}: is in use on 127.0.0.1"):
            EmbeddedZooKeeper(str(tmp_path), port).start()


def test_two_on_one_directory_are_refused(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        with pytest.raises(DirectoryLocked, match=str(os.getpid())):
            EmbeddedZooKeeper(str(tmp_path)).start()
        assert zookeeper_mode("127.0.0.1", running.port) == "standalone"


def test_a_failed_start_leaves_the_directory_free(tmp_path: Path) -> None:
    (tmp_path / "zookeeper" / "data").mkdir(parents=True)
    obstacle = tmp_path / "zookeeper" / "data" / "version-2"
    obstacle.write_text("not a directory")
    with pytest.raises(ProcessFailed, match=r"(?s)zookeeper ended with exit code .*version-2"):
        EmbeddedZooKeeper(str(tmp_path)).start()
    obstacle.unlink()
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        assert zookeeper_mode("127.0.0.1", running.port) == "standalone"


def test_any_letters_may_stand_in_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    directory = tmp_path / "dätä dir\\x ✓"
    with EmbeddedZooKeeper(str(directory)) as running:
        store = ZooKeeperStore(running.connect)
        store.create("/a")
        store.close()
    assert list((directory / "zookeeper" / "data" / "version-2").glob("log.*"))


def test_settings_for_the_users_own_java_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-agentlib:of-the-user")
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        assert zookeeper_mode("127.0.0.1", running.port) == "standalone"


def test_its_directory_stays_small(tmp_path: Path) -> None:
    for _ in range(5):
        with EmbeddedZooKeeper(str(tmp_path)) as running:
            store = ZooKeeperStore(running.connect)
            store.create("/a_", sequential=True)
            store.close()
    files = [path for path in (tmp_path / "zookeeper").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4 << 20
    # Purged at every start, and hourly: the last start purged before it wrote its own.
    assert len([path for path in files if path.name.startswith("snapshot.")]) <= 4


def test_zookeeper_ends_with_a_killed_parent_and_restarts(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from minikafka.embedded.zookeeper import EmbeddedZooKeeper\n"
        "running = EmbeddedZooKeeper(sys.argv[1]); running.start()\n"
        "print(running.port, running.process.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        assert zookeeper_mode("127.0.0.1", port) == "standalone"
    finally:
        parent.kill()
        parent.communicate()
    with EmbeddedZooKeeper(str(tmp_path)) as running:
        assert running.port == port
    assert wait_until(lambda: process_info(pid) is None, PATIENCE_S)
    assert can_bind("127.0.0.1", port)


def test_missing_jars_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[spark\]', or give --zookeeper HOST:PORT"):
        find_jars({})


def test_the_jars_of_spark_home_do_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for name in (
        "zookeeper-3.9.5.jar",
        "zookeeper-jute-3.9.5.jar",
        "curator-client-5.jar",
        "zookeeper-x.txt",
    ):
        (tmp_path / "jars" / name).touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = find_jars({"SPARK_HOME": str(tmp_path)})
    assert [os.path.basename(path) for path in found] == ["zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar"]


def test_pyspark_is_found_without_importing_it() -> None:
    code = (
        "import sys; from minikafka.embedded.zookeeper import find_jars; "
        "print(len(find_jars()), 'pyspark' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, imported = answer.stdout.split()
    assert int(count) >= len(zookeeper._JARS)
    assert imported == "False"


def test_a_missing_znode_is_missing(shared: EmbeddedZooKeeper) -> None:
    store = ZooKeeperStore(shared.connect)
    with pytest.raises(NoNode):
        store.read("/missing")
    store.close()
