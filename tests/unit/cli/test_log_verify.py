"""``minikafka log verify``: a whole data directory."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.files import RealFiles
from minikafka.embedded.lock import is_in_use
from tests.support.command_line import CommandLine
from tests.support.logs import DATA

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "log-dir" / "data", tmp_path / "data"))


def verify(cli: CommandLine, *arguments: str) -> tuple[int, str, str]:
    status = cli.run("log", "verify", *arguments)
    return status, cli.out, cli.err


def test_a_right_directory_gives_a_line_a_partition(cli: CommandLine, data_dir: Path) -> None:
    status, out, err = verify(cli, str(data_dir))
    assert (status, err) == (0, "")
    header, first, *_ = lines = out.splitlines()
    assert len(lines) == 5
    titles = "TOPIC  PARTITION  START OFFSET  END OFFSET  SEGMENTS  RECORDS  BYTES  PROBLEMS"
    assert header == titles
    assert first.split() == ["alpha", "0", "0", "250", "5", "250", "17061", "0"]


def test_json_has_the_same_in_a_line_a_partition(cli: CommandLine, data_dir: Path) -> None:
    _, out, _ = verify(cli, str(data_dir), "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[2] == {
        "topic": "beta",
        "partition": 0,
        "start_offset": 397,
        "end_offset": 600,
        "segments": 3,
        "records": 203,
        "bytes": 11469,
        "problems": 0,
    }


def test_what_is_wrong_is_told_and_counted(cli: CommandLine, data_dir: Path) -> None:
    segment = data_dir / "alpha-0" / "00000000000000000054.log"
    with segment.open("r+b") as file:
        file.seek(30)
        file.write(b"\xff\xff")
    status, out, err = verify(cli, str(data_dir), "--format", "json")
    assert status == 1
    assert json.loads(out.splitlines()[0])["problems"] == 1
    assert err.startswith(f"minikafka: {segment}: ")
    assert "from position 0 are damaged" in err
    assert err.count("\n") == 1


def test_notes_change_no_status(cli: CommandLine, data_dir: Path) -> None:
    left = data_dir / "alpha-0" / "00000000000000000054.log.deleted"
    left.write_bytes(b"")
    assert verify(cli, str(data_dir))[::2] == (
        0,
        f"minikafka: note: {left}: a deleted file waiting for removal\n",
    )


def test_a_directory_without_logs_is_bad_input(cli: CommandLine, tmp_path: Path) -> None:
    reasons = {tmp_path: "no logs of a broker found", tmp_path / "absent": "there is no such directory"}
    for path, reason in reasons.items():
        status, out, err = verify(cli, str(path))
        assert (status, out) == (2, "")
        assert f"DATA_DIR='{path}': {reason}; expected a directory of log.dirs" in err


def test_a_directory_in_use_is_told_and_checked_all_the_same(cli: CommandLine, data_dir: Path) -> None:
    newest = data_dir / "alpha-0" / "00000000000000000222.log"
    with newest.open("ab") as file:
        file.write(b"\0\0\0")
    lock = RealFiles().lock(str(data_dir / ".lock"))
    status, out, err = verify(cli, str(data_dir))
    assert status == 0
    assert len(out.splitlines()) == 5
    assert f"{data_dir} is in use: a broker may be writing to it" in err
    assert f"{newest}: 3 bytes at its end are being written" in err
    lock.release()
    assert verify(cli, str(data_dir))[0] == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell who has a file open")
def test_looking_for_a_lock_takes_none_that_a_starting_broker_would_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = RealFiles().lock(str(tmp_path / ".lock"))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    assert is_in_use(str(tmp_path))
    held.release()
    assert not is_in_use(str(tmp_path))


def no_locks(*_: object) -> None:
    raise AssertionError("a lock is taken")


def test_looking_for_a_lock_makes_no_file(tmp_path: Path) -> None:
    assert not is_in_use(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_looking_for_a_lock_leaves_it_free(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    assert not is_in_use(str(tmp_path))
    RealFiles().lock(str(lock)).release()


@pytest.mark.process
def test_the_lock_of_a_java_process_is_seen(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_in_use(str(tmp_path))
        holder.communicate()
    assert not is_in_use(str(tmp_path))
