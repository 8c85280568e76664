"""``ps`` and ``stop`` where a data directory was removed under its cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.embedded import local, owners


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that runs until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.process
def test_a_cluster_whose_directory_was_removed_is_listed_while_it_runs_and_can_be_stopped(
    tmp_path: Path,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    directory = tmp_path / "removed"
    owner = owners.owner_of(process.pid)
    assert owner is not None
    listed = local.LocalCluster(
        "127.0.0.1:5", "127.0.0.1:6", "id", local.host_boot_id(), str(directory), owner.pid, owner.started
    )
    monkeypatch.setattr(local, "list_running", lambda: [listed])
    assert run(["ps"]) == 0
    assert str(directory) in capfd.readouterr().out
    assert run(["stop", str(directory)]) == 0
    assert capfd.readouterr() == (f"stopped {directory}, which had been removed\n", "")
    assert process.wait() == -signal.SIGTERM
    assert not directory.exists()
