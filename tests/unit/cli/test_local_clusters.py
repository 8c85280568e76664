"""``ps`` and ``stop`` where a data directory was removed under its cluster; ``up`` where one is ending."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.embedded import local, owners
from minikafka.embedded.local_files import LocalCluster
from tests.support.command_line import CommandLine


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that runs until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.process
def test_cluster_with_removed_directory_is_listed_and_stopped(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    directory = tmp_path / "removed"
    owner = owners.owner_of(process.pid)
    assert owner is not None
    listed = LocalCluster(
        "127.0.0.1:5", "127.0.0.1:6", "id", owners.host_boot_id(), str(directory), owner.pid, owner.started
    )
    monkeypatch.setattr(local, "list_running", lambda: [listed])
    assert cli.run("ps") == 0
    assert str(directory) in cli.out
    assert cli.run("stop", str(directory)) == 0
    assert (cli.out, cli.err) == (f"stopped {directory}, which had been removed\n", "")
    assert process.wait() == -signal.SIGTERM
    assert not directory.exists()


@pytest.mark.process
def test_up_names_the_cluster_of_this_user_that_has_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        there = LocalCluster(f"127.0.0.1:5,127.0.0.1:{port}", "z", "id", "boot", "/other", 77, "then")
        monkeypatch.setattr(local, "list_running", lambda: [there])
        assert cli.run("up", "--data-dir", str(tmp_path / "d"), "--port", str(port)) == 2
    assert f"the cluster of /other (process 77) listens on 127.0.0.1:{port};" in cli.err


@pytest.mark.process
def test_up_waits_for_a_cluster_that_a_command_had_started_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "d"
    command = [sys.executable, "-m", "minikafka.cli.main"]
    subprocess.run([*command, "topic", "create", "t", "--data-dir", str(directory)], check=True)
    up = subprocess.Popen(
        [*command, "up", "--data-dir", str(directory), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    ready = up.stdout.readline()
    up.send_signal(signal.SIGTERM)
    _, printed = up.communicate(timeout=60)
    assert ready.startswith("ready 127.0.0.1:"), printed
    line = f"minikafka: waiting for the unused cluster of {directory} to stop\n"
    assert printed in {line, ""}, "it may have ended before"
    assert up.returncode == 0
