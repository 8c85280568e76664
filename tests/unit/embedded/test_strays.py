"""Brokers that were started by hand, told by the locks on their logs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import DirectoryLocked
from minikafka.base.files import RealFiles
from minikafka.base.places import tell_address
from minikafka.embedded import lock, strays
from minikafka.embedded.strays import StrayBroker, stray_brokers


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """One of which broker 1 has its logs elsewhere."""
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "else where").mkdir()
    (tmp_path / "broker-0.properties").write_text(f"log.dirs={tmp_path}/broker-0\n")
    (tmp_path / "broker-1.properties").write_text(f"log.dirs={tmp_path}/broker-1,{tmp_path}/else where\n")
    (tmp_path / "broker-x.properties").write_text("")
    return tmp_path


@pytest.fixture
def held(data_dir: Path) -> Iterator[Path]:
    """The lock of broker 1, which this process holds."""
    path = data_dir / "else where" / ".lock"
    hold = RealFiles().lock(str(path))
    yield path
    hold.release()


def test_a_broker_is_told_by_its_lock_and_the_address_in_it(data_dir: Path, held: Path) -> None:
    assert stray_brokers(data_dir) == [StrayBroker(str(data_dir), 1, os.getpid(), "")]
    tell_address(held, "127.0.0.1:9093")
    assert stray_brokers(data_dir) == [StrayBroker(str(data_dir), 1, os.getpid(), "127.0.0.1:9093")]
    with pytest.raises(DirectoryLocked, match=rf"process {os.getpid()} at 127.0.0.1:9093.*still runs"):
        strays.check_none(data_dir)


def test_a_lock_that_nobody_holds_is_no_broker(data_dir: Path) -> None:
    path = data_dir / "broker-0" / ".lock"
    path.write_text(f"{os.getpid()}\n127.0.0.1:9092\n")
    assert stray_brokers(data_dir) == []
    strays.check_none(data_dir)


@pytest.mark.usefixtures("held")
def test_a_broker_of_the_process_that_runs_the_cluster_is_no_stray(data_dir: Path) -> None:
    descriptor = lock.hold(str(data_dir / ".lock"))
    assert stray_brokers(data_dir) == []
    os.close(descriptor)


@pytest.mark.process
def test_a_second_process_is_refused_with_the_one_that_holds_the_logs(held: Path) -> None:
    tell_address(held, "127.0.0.1:9093")
    code = "import sys; from minikafka.base.files import RealFiles; RealFiles().lock(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, held], capture_output=True, text=True, check=False)
    assert f"is in use: process {os.getpid()} at 127.0.0.1:9093 holds {held}; stop that" in done.stderr
