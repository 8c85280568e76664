"""``minikafka logs``: what brokers and ZooKeeper have logged, chosen, followed and escaped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

NOW = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
OLD = "2026-01-01T00:00:00.000Z"
JSON_LINE = (
    f'{{"ts":"{NOW}","level":"WARNING","logger":"minikafka.net","msg":"closed\\u001b[2J","host":"10.0.0.1"}}'
)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "broker-0.log").write_text(f"{OLD} INFO started \x1b[2J (minikafka.server)\n")
    (logs / "broker-1.log").write_text(f"{JSON_LINE}\n")
    (logs / "zookeeper.log").write_text(f"{OLD} ERROR Cnxn gone\n")
    return tmp_path


def test_lines_name_their_process_and_no_terminal_acts_on_them(data_dir: Path, cli: CommandLine) -> None:
    assert cli.run("logs", str(data_dir)) == 0
    assert cli.lines == [
        f"broker-0  | {OLD} INFO started \\x1b[2J (minikafka.server)",
        f"zookeeper | {OLD} ERROR Cnxn gone",
        f"broker-1  | {NOW} WARNING closed\\x1b[2J (minikafka.net)",
    ]


def test_json_has_the_same_fields_for_both_forms(data_dir: Path, cli: CommandLine) -> None:
    assert cli.run("logs", str(data_dir), "--format", "json") == 0
    started, gone, closed = cli.rows
    assert (started["source"], started["logger"]) == ("broker-0", "minikafka.server")
    assert (gone["level"], gone["logger"], gone["msg"]) == ("ERROR", "Cnxn", "gone")
    assert (closed["host"], closed["msg"]) == ("10.0.0.1", "closed\x1b[2J")
    assert "\x1b" not in cli.out


@pytest.mark.parametrize(
    ("options", "sources"),
    [
        (("--broker", "1", "--broker", "0"), ["broker-0", "broker-1"]),
        (("--level", "error"), ["zookeeper"]),
        (("--level", "WARN"), ["zookeeper", "broker-1"]),
        (("--since", "1h"), ["broker-1"]),
        (("--since", "2026-01-01T00:00:00.001Z"), ["broker-1"]),
        (("--tail", "2"), ["zookeeper", "broker-1"]),
        (("--tail", "0"), []),
    ],
)
def test_lines_are_chosen(
    data_dir: Path, cli: CommandLine, options: tuple[str, ...], sources: list[str]
) -> None:
    assert cli.run("logs", str(data_dir), *options, "--format=json") == 0
    assert [row["source"] for row in cli.rows] == sources


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--level", "loud"), "--level='loud': must be debug, info, warning or error"),
        (("--since", "soon"), "or how long ago (1h, 1h30m, PT1H)"),
        (("--since", "2100-01-01"), "--since='2100-01-01': is in the future; it is "),
        (("--broker", "x"), "--broker='x': must be a whole number"),
        (("--broker", "7"), "has no log of broker-7"),
        (("--format", "xml"), "--format='xml': must be text or json"),
        (("--tail", "-1"), "--tail='-1': must be a whole number"),
    ],
)
def test_bad_options_are_one_line(
    data_dir: Path, cli: CommandLine, options: tuple[str, ...], message: str
) -> None:
    assert cli.run("logs", str(data_dir), *options) == 2
    assert message in cli.err
    assert len(cli.err.splitlines()) == 1


@pytest.mark.process
def test_follow_prints_new_lines_until_ctrl_c(data_dir: Path) -> None:
    command = [sys.executable, "-m", "minikafka", "logs", str(data_dir), "--follow", "--broker=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "started" in process.stdout.readline()
        with (data_dir / "logs" / "broker-0.log").open("a") as log:
            log.write(f"{NOW} INFO stopped (minikafka.server)\n")
        assert "stopped" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, "", "")
