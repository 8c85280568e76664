"""The logs of a data directory's processes, in the order of time and through rotation."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.embedded.log_files import ClusterLogs, LogEntry
from minikafka.embedded.supervisor import RotatingLog

DAY = "2026-11-27T"


def text(second: int, message: str = "flushed", level: str = "INFO") -> str:
    return f"{DAY}18:00:{second:02d}.000Z {level} {message} (minikafka.server)"


def as_json(second: int, **fields: object) -> str:
    line = {"ts": f"{DAY}18:00:{second:02d}.000Z", "level": "INFO", "logger": "minikafka.server", "msg": "m"}
    return json.dumps({**line, **fields})


class LogDirectory:
    """A data directory with logs, written as the supervisors of its processes write them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "logs").mkdir(parents=True)
        self._logs: dict[str, RotatingLog] = {}

    def write(self, source: str, *lines: str, end: str = "\n", max_bytes: int = 1 << 20) -> None:
        path = str(self.path / "logs" / f"{source}.log")
        log = self._logs.setdefault(source, RotatingLog(path, max_bytes, 3))
        for line in lines:
            log.write(f"{line}{end}".encode())

    def close(self) -> None:
        for log in self._logs.values():
            os.close(log._descriptor)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    made = LogDirectory(tmp_path / "data")
    yield made
    made.close()


def lines(entries: Iterator[LogEntry]) -> list[str]:
    return [entry.line for entry in entries]


def test_logs_are_merged_by_time(directory: LogDirectory) -> None:
    directory.write("broker-0", text(1, "a"), text(4, "d"))
    directory.write("broker-1", as_json(2, msg="b"), as_json(5, msg="e"))
    directory.write("zookeeper", f"{DAY}18:00:03.000Z WARN QuorumPeerMain c")
    with ClusterLogs(directory.path) as logs:
        found = list(logs.entries())
    assert [(entry.source, entry.to_json()["msg"]) for entry in found] == [
        ("broker-0", "a"),
        ("broker-1", "b"),
        ("zookeeper", "c"),
        ("broker-0", "d"),
        ("broker-1", "e"),
    ]


def test_older_files_are_read_first(directory: LogDirectory) -> None:
    for second in range(30):
        directory.write("broker-0", text(second, f"line {second}"), max_bytes=450)
    assert len(list((directory.path / "logs").iterdir())) == 4
    with ClusterLogs(directory.path) as logs:
        found = lines(logs.entries())
    kept = [text(second, f"line {second}") for second in range(30)]
    assert found == kept[-len(found) :]
    assert len(found) > 20


def test_new_lines_are_found_through_several_rotations(directory: LogDirectory) -> None:
    directory.write("broker-0", text(0), max_bytes=300)
    found = []
    with ClusterLogs(directory.path) as logs:
        for second in range(1, 40):
            directory.write("broker-0", text(second, f"line {second}"))
            if second % 5 == 0:
                found += lines(logs.entries())
        found += lines(logs.entries())
    assert found == [text(0), *(text(second, f"line {second}") for second in range(1, 40))]


def test_a_half_written_line_waits_for_its_end(directory: LogDirectory) -> None:
    whole = text(1, "a long line")
    with_half = whole[:20]
    directory.write("broker-0", with_half, end="")
    with ClusterLogs(directory.path) as logs:
        assert lines(logs.entries()) == []
        directory.write("broker-0", whole[20:])
        assert lines(logs.entries()) == [whole]


def test_log_of_a_new_broker_is_found(directory: LogDirectory) -> None:
    directory.write("broker-0", text(1))
    with ClusterLogs(directory.path) as logs:
        list(logs.entries())
        directory.write("broker-1", text(2, "new"))
        (entry,) = logs.entries()
    assert entry.source == "broker-1"


def test_a_file_that_was_removed_is_read_when_it_is_back(directory: LogDirectory) -> None:
    directory.write("broker-0", text(1))
    with ClusterLogs(directory.path) as logs:
        list(logs.entries())
        (directory.path / "logs" / "broker-0.log").unlink()
        assert list(logs.entries()) == []
        directory.write("broker-0", text(2, "back"))
        assert lines(logs.entries()) == [text(2, "back")]


def test_a_traceback_belongs_to_its_line(directory: LogDirectory) -> None:
    stack = ("java.io.IOException: closed", "\tat a.B.c(B.java:1)", "Caused by: d")
    directory.write("broker-0", text(1, "failed", "ERROR"), "  Traceback (most recent call last):", "  E: x")
    directory.write("broker-1", as_json(2, level="ERROR", traceback="Traceback:\nE: x"))
    directory.write("zookeeper", f"{DAY}18:00:03.000Z ERROR Cnxn failed", *stack)
    with ClusterLogs(directory.path) as logs:
        broker, in_json, zookeeper = logs.entries()
    assert broker.more == ["  Traceback (most recent call last):", "  E: x"]
    assert broker.to_json()["traceback"] == "Traceback (most recent call last):\nE: x"
    assert in_json.more == ["  Traceback:", "  E: x"]
    assert zookeeper.more == list(stack)
    assert [entry.level for entry in (broker, in_json, zookeeper)] == [logging.ERROR] * 3


def test_lines_without_a_time_stay_behind_the_line_before(directory: LogDirectory) -> None:
    directory.write(
        "broker-0", text(2), "ready 127.0.0.1:9092 zookeeper a cluster b", "Fatal Python error: x"
    )
    directory.write("broker-1", text(1), text(3))
    with ClusterLogs(directory.path) as logs:
        found = list(logs.entries())
    assert [entry.source for entry in found] == ["broker-1", *["broker-0"] * 3, "broker-1"]
    assert [entry.level for entry in found[2:4]] == [logging.INFO, logging.ERROR]
    assert found[3].to_json() == {"source": "broker-0", "msg": "Fatal Python error: x"}


def test_a_file_keeps_its_order_though_a_counted_line_has_an_earlier_time(directory: LogDirectory) -> None:
    directory.write("broker-0", text(5, "a"), text(2, "b (repeated 3 times in 30 s)"), text(6, "c"))
    with ClusterLogs(directory.path) as logs:
        found = lines(logs.entries())
    assert found == [text(5, "a"), text(2, "b (repeated 3 times in 30 s)"), text(6, "c")]


@pytest.mark.parametrize(
    "line", ['{"ts":1}', '{"ts":"x","level":"INFO","msg":"m"}', "{", "[]", f"{DAY}99:00:00.000Z INFO x (l)"]
)
def test_damaged_lines_are_shown_as_they_are(directory: LogDirectory, line: str) -> None:
    directory.write("broker-0", line)
    with ClusterLogs(directory.path) as logs:
        assert lines(logs.entries()) == [line]


def test_a_directory_without_logs_is_an_error_that_names_what_is_there(directory: LogDirectory) -> None:
    with pytest.raises(ConfigError, match=r"has no log in .*/logs; `minikafka ps` lists"):
        ClusterLogs(directory.path)
    directory.write("broker-0", text(1))
    with pytest.raises(ConfigError, match=r"has no log of broker-3 in .*; it has those of broker-0"):
        ClusterLogs(directory.path, {"broker-3"})


def test_a_log_that_cannot_be_rotated_keeps_its_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    log = RotatingLog(str(path), 10, 3)
    log.write(b"12345678\n")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        log.write(b"lost\n")
        os.fstat(log._descriptor)  # another file would get its number
    log.write(b"later\n")
    assert path.read_bytes() == b"later\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"12345678\n"
