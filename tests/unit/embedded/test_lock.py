from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.errors import DirectoryLocked
from minikafka.embedded import lock


def test_a_directory_that_a_living_process_holds_is_refused_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = lock.hold(path)
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        lock.hold(path)
    os.close(held)


def test_it_is_free_again_when_the_holder_gave_it_back(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    os.close(lock.hold(path))
    os.close(lock.hold(path))


def test_lock_is_waited_for_while_a_child_holds_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    # A holder that dies at once and leaves a child which has the descriptor and lives a little longer.
    code = (
        "import os, subprocess, sys; from minikafka.embedded import lock; fd = lock.hold(sys.argv[1]); "
        "subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0, pass_fds=[fd]); os._exit(0)"
    )
    read, write = os.pipe()
    subprocess.run([sys.executable, "-c", code, path], stdin=read, check=True)
    os.close(read)
    with open(path, "rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(write)  # ends the child's input, and so the child
    os.close(lock.hold(path))


def no_locks(*_: object) -> None:
    raise AssertionError("a lock is taken")


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="the system does not list the files that a process has open"
)
def test_finding_the_holder_takes_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / ".lock")
    held = lock.hold(path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = lock.holder(path)
    os.close(held)
    assert found is not None
    assert found.pid == os.getpid()
    assert lock.holder(path) is None  # this process lives, as one that got a dead broker's id would
    Path(path).write_text("999999999\n")
    assert lock.holder(path) is None


def test_holder_is_found_without_a_list_of_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "has_open", lambda *_: None)
    path = str(tmp_path / ".lock")
    held = lock.hold(path)
    found = lock.holder(path)
    os.close(held)
    assert found is not None
    assert lock.holder(path) is None


def test_children_of_a_dead_holder_that_do_not_end_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.05)
    path = tmp_path / ".lock"
    path.write_text("0\n")  # no process has this id: os.kill(0, 0) would mean our own group
    with open(path, "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        path.write_text("999999999\n")
        with pytest.raises(DirectoryLocked, match="in use by process 999999999"):
            lock.hold(str(path))
