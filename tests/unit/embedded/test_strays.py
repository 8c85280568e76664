"""Brokers that were started by hand, found by the locks on their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.cache_dirs import write_address
from minikafka.base.errors import DirectoryLocked
from minikafka.base.files import RealFiles
from minikafka.cli.commands import run
from minikafka.embedded import local, lock, strays
from minikafka.embedded.strays import StrayBroker, stray_brokers


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory whose broker 1 has its logs elsewhere."""
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "else where").mkdir()
    (tmp_path / "broker-0.properties").write_text(f"log.dirs={tmp_path}/broker-0\n")
    (tmp_path / "broker-1.properties").write_text(f"log.dirs={tmp_path}/broker-1,{tmp_path}/else where\n")
    (tmp_path / "broker-x.properties").write_text("")
    return tmp_path


@pytest.fixture
def held(data_dir: Path) -> Iterator[Path]:
    """The lock of broker 1, held by this process."""
    path = data_dir / "else where" / ".lock"
    hold = RealFiles().lock(str(path))
    yield path
    hold.release()


def test_stray_broker_is_found_by_its_lock_with_its_address(data_dir: Path, held: Path) -> None:
    assert stray_brokers(data_dir) == [StrayBroker(str(data_dir), 1, os.getpid(), "")]
    write_address(held, "127.0.0.1:9093")
    assert stray_brokers(data_dir) == [StrayBroker(str(data_dir), 1, os.getpid(), "127.0.0.1:9093")]
    with pytest.raises(DirectoryLocked, match=rf"process {os.getpid()} at 127.0.0.1:9093.*still runs"):
        strays.check_no_strays(data_dir)


def test_unheld_lock_is_no_broker(data_dir: Path) -> None:
    path = data_dir / "broker-0" / ".lock"
    path.write_text(f"{os.getpid()}\n127.0.0.1:9092\n")
    assert stray_brokers(data_dir) == []
    strays.check_no_strays(data_dir)


@pytest.mark.usefixtures("held")
def test_a_broker_of_the_process_that_runs_the_cluster_is_no_stray(data_dir: Path) -> None:
    descriptor = lock.hold(str(data_dir / ".lock"))
    assert stray_brokers(data_dir) == []
    os.close(descriptor)


@pytest.fixture
def orphan(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Broker 0 of a cluster whose own process was killed; it still has the cluster's lock open."""
    code = f"""
import os, subprocess, sys
from minikafka.embedded import lock
os.set_inheritable(lock.hold({str(data_dir / ".lock")!r}), True)
broker = '''
import signal
from minikafka.base.files import RealFiles
held = RealFiles().lock({str(data_dir / "broker-0" / ".lock")!r})
print("held", flush=True)
signal.pause()
'''
subprocess.Popen([sys.executable, "-c", broker], close_fds=False)
"""
    cluster = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert cluster.stdout is not None
    assert cluster.stdout.readline() == b"held\n"
    cluster.wait()
    yield cluster
    for stray in stray_brokers(data_dir):
        os.kill(stray.pid, signal.SIGKILL)
    cluster.stdout.close()


@pytest.mark.process
@pytest.mark.usefixtures("orphan")
def test_broker_of_a_killed_cluster_is_about_to_end(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.0)
    (broker,) = stray_brokers(data_dir)
    assert (broker.number, broker.ending) == (0, True)
    assert broker.status == "is about to end by itself: its cluster was killed"
    with pytest.raises(
        DirectoryLocked, match=r"broker 0 of .* is about to end by itself: .* try again in a moment"
    ):
        strays.check_no_strays(data_dir)
    with pytest.raises(
        DirectoryLocked, match=r"process \d+, which was killed; its child processes are still end"
    ):
        lock.wait_until_free(str(data_dir / ".lock"))


@pytest.mark.process
@pytest.mark.usefixtures("orphan")
def test_ps_and_stop_say_that_the_cluster_was_killed(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "list_strays", lambda: stray_brokers(data_dir))
    assert run(["ps"]) == 0
    (broker,) = stray_brokers(data_dir)
    assert (
        capfd.readouterr().err == f"minikafka: {broker} is about to end by itself: its cluster was killed\n"
    )
    assert run(["stop", str(data_dir)]) == 0
    assert capfd.readouterr().out == f"stopped {broker}, whose cluster had been killed\n"


@pytest.mark.process
def test_second_process_is_refused_with_the_holder(held: Path) -> None:
    write_address(held, "127.0.0.1:9093")
    code = "import sys; from minikafka.base.files import RealFiles; RealFiles().lock(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, held], capture_output=True, text=True, check=False)
    assert f"is in use: process {os.getpid()} at 127.0.0.1:9093 holds {held}; stop that" in done.stderr
