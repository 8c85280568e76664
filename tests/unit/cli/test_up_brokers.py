"""``minikafka up`` with several brokers."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from minikafka.cli.commands import run
from minikafka.cli.up import broker_count_notes
from minikafka.embedded import lock
from minikafka.embedded.process import wait_until
from minikafka.net.ports import can_bind
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "minikafka.cli.main"]
DEADLINE_S = 60
STOP_S = 10
"""What a stop may take on a busy machine: less than a single broker that waits for others to take over."""


def start(directory: Path, *options: str) -> tuple[subprocess.Popen[str], list[str]]:
    """The process, and the addresses that it serves."""
    process = subprocess.Popen(
        [
            *COMMAND,
            "up",
            "--data-dir",
            str(directory),
            *(() if "--port" in options else ("--port", "0")),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("ready "):
        process.kill()
        pytest.fail(process.communicate()[1])
    return process, line.split()[1].split(",")


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ask it to stop, see that it takes no time, and give what it said."""
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, time.monotonic() - began_s < STOP_S) == (0, True)
    return said


def brokers(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The brokers' processes, by number. To be asked while all of them live."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        command = child.cmdline()
        if command[1:3] == ["-m", "minikafka.server"]:
            found[int(Path(command[3]).stem.removeprefix("broker-"))] = child
    return found


def rows(cli: CommandLine, *arguments: str) -> list[dict[str, object]]:
    status = cli.run(*arguments, "--format", "json")
    assert status == 0, cli.err
    return cli.rows


def test_brokers_die_one_by_one_and_the_others_go_on_until_none_is_left(
    tmp_path: Path, cli: CommandLine
) -> None:
    process, addresses = start(tmp_path / "d", "--brokers", "3")
    try:
        assert len(set(addresses)) == 3
        living = brokers(process)
        to = ("--bootstrap", ",".join(addresses))
        assert cli.run("topic", "create", "t", "--replicas", "3", *to) == 0
        assert cli.run("group", "reset", "g", "--to-latest", "--topic", "t", "--execute", *to) == 0
        (offsets, *_) = rows(cli, "topic", "describe", "__consumer_offsets", *to)
        assert sorted(offsets["replicas"]) == [0, 1, 2]  # type: ignore[call-overload]
        (found,) = rows(cli, "topic", "describe", "t", *to)
        leader = int(str(found["leader"]))
        living.pop(leader).kill()
        assert wait_until(
            lambda: rows(cli, "topic", "describe", "t", *to)[0]["leader"] not in {leader, None}, DEADLINE_S
        )
        assert process.poll() is None
        for broker in living.values():
            broker.kill()
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (1, "")
    printed = err.splitlines()
    assert printed[0].startswith(f"minikafka: broker {leader} was killed by signal 9, 2 left; its log is in ")
    command = f"minikafka broker {tmp_path / 'd'}/broker-{leader}.properties"
    listener = f"listeners=PLAINTEXT://{addresses[leader]}"
    assert printed[0].endswith(f"; start it again with `{command} --set {listener}`")
    again = f"minikafka up --data-dir {tmp_path / 'd'} --port 0 --brokers 3"
    assert printed[-1].endswith(f"; start the cluster again with `{again}`")
    assert [line.partition("; ")[0].partition(", ")[2] for line in printed] == [
        "2 left",
        "1 left",
        "it was the last one",
    ]


def test_a_broker_that_ends_says_why(tmp_path: Path) -> None:
    process, _ = start(tmp_path / "d")
    try:
        shutil.rmtree(tmp_path / "d" / "broker-0")
        err = process.communicate(timeout=DEADLINE_S)[1]
    finally:
        process.kill()
        process.communicate()
    assert f"{tmp_path / 'd' / 'broker-0'} was removed or emptied while in use: stopping this broker" in err
    assert "broker 0 ended with status 1 (" in err


def test_partitions_that_start_empty_are_reported(tmp_path: Path) -> None:
    for after in range(2):
        process, addresses = start(tmp_path / "d")
        try:
            if after:
                assert process.stderr is not None
                warning = process.stderr.readline()
            else:
                assert run(["topic", "create", "t", "--bootstrap", addresses[0]]) == 0
            stop(process)
        finally:
            process.kill()
            process.communicate()
        shutil.rmtree(tmp_path / "d" / "broker-0")
    assert warning.startswith("minikafka: broker 0: partitions led by this broker had no log in ")
    assert warning.endswith("put them back before anything is written: t-0\n")


def test_up_stops_at_once_and_restarts_with_all_brokers_or_more(tmp_path: Path, cli: CommandLine) -> None:
    directory = tmp_path / "d"
    process, addresses = start(directory, "--brokers", "2")
    assert (
        cli.run("topic", "create", "t", "--partitions", "4", "--replicas", "2", "--bootstrap", addresses[0])
        == 0
    )
    assert stop(process) == ("", "")
    assert all((directory / f"broker-{number}" / ".kafka_cleanshutdown").exists() for number in range(2))
    assert cli.run("up", "--data-dir", str(directory), "--port", "0", "--brokers", "1") == 2
    assert "has brokers 0 and 1, and would be started without broker 1: use 2" in cli.err
    process, addresses = start(directory)
    try:
        assert len(addresses) == 2

        def has_leaders() -> bool:
            found = rows(cli, "topic", "describe", "t", "--bootstrap", addresses[1])
            return all(row["leader"] in {0, 1} for row in found)

        assert wait_until(has_leaders, DEADLINE_S)
    finally:
        out, err = stop(process)
    assert (out, err) == ("", f"minikafka: {directory} has brokers 0 and 1; starting all of them\n")


def test_what_is_killed_is_served_at_once_by_the_next_on_the_same_ports(
    tmp_path: Path, cli: CommandLine
) -> None:
    candidates = range(random.randrange(20_000, 30_000), 32_000, 3)
    ports = next(port for port in candidates if all(can_bind("127.0.0.1", port + n) for n in range(3)))
    options = ("--brokers", "3", "--port", str(ports))
    process, addresses = start(tmp_path / "d", *options)
    assert addresses == [f"127.0.0.1:{ports + number}" for number in range(3)]
    assert cli.run("topic", "create", "t", "--replicas", "3", "--bootstrap", addresses[0]) == 0
    process.kill()
    again, its_addresses = start(tmp_path / "d", *options)
    try:
        assert its_addresses == addresses

        def is_led() -> bool:
            return rows(cli, "topic", "describe", "t", "--bootstrap", addresses[0])[0]["leader"] is not None

        assert wait_until(is_led, DEADLINE_S)
    finally:
        stop(again)
        process.communicate()


def test_all_ports_are_looked_at_before_anything_is_made(tmp_path: Path, cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 1
        options = ("--brokers", "2", "--port", str(port))
        assert cli.run("up", "--data-dir", str(tmp_path / "d"), *options) == 2
    assert (
        f"another process listens on 127.0.0.1:{port + 1} (the brokers need {port} to {port + 1})" in cli.err
    )
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("setting", ["listeners=PLAINTEXT://:0", "log.dirs=/nowhere"])
def test_what_only_one_broker_can_have_is_refused(tmp_path: Path, cli: CommandLine, setting: str) -> None:
    assert cli.run("up", "--data-dir", str(tmp_path / "d"), "--brokers", "2", "--set", setting) == 2
    assert "cannot be the same for 2 brokers" in cli.err


def test_new_brokers_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-0" / "meta.properties").touch()
    assert list(broker_count_notes(tmp_path, 1, 1)) == []
    (printed,) = broker_count_notes(tmp_path, 3, 3)
    assert printed.startswith(f"brokers 1 and 2 of {tmp_path} are new and get only partitions of new topics")


def test_up_watches_brokers_restarted_by_its_printed_commands(tmp_path: Path) -> None:
    process, addresses = start(tmp_path / "d", "--brokers", "2")
    again: list[subprocess.Popen[str]] = []
    assert process.stderr is not None
    try:
        for number, broker in sorted(brokers(process).items()):
            broker.kill()
            line = process.stderr.readline()
            assert f"broker {number} was killed by signal 9, 1 left" in line
            command = shlex.split(re.search(r"start it again with `minikafka (.*)`", line)[1])  # type: ignore[index]
            again.append(
                subprocess.Popen(
                    [*COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            )
            assert again[-1].stdout is not None
            assert again[-1].stdout.readline().startswith(f"ready {addresses[number]} ")
            line = process.stderr.readline()
            assert f"broker {number} was started elsewhere, at {addresses[number]};" in line
        assert run(["topic", "create", "t", "--replicas", "2", "--bootstrap", ",".join(addresses)]) == 0
        assert process.poll() is None
        again[0].kill()
        assert "broker 0 (started elsewhere) ended, 1 left; start it" in process.stderr.readline()
        again[1].kill()
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1
        assert err == (
            "minikafka: broker 1 (started elsewhere) ended, it was the last one; start the cluster again "
            f"with `minikafka up --data-dir {tmp_path / 'd'} --port 0 --brokers 2`\n"
        )
    finally:
        for child in (process, *again):
            child.kill()
            child.communicate()


def test_broker_outliving_killed_up_is_listed_and_stopped(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "d"
    process, addresses = start(directory, "--brokers", "2")
    assert process.stderr is not None
    again = None
    try:
        brokers(process)[1].kill()
        command = shlex.split(re.search(r"`minikafka (.*)`", process.stderr.readline())[1])  # type: ignore[index]
        again = subprocess.Popen(
            [*COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert again.stdout is not None
        assert again.stdout.readline().startswith("ready ")
        process.kill()
        process.communicate()
        lock.wait_until_free(str(directory / ".lock"))
        (row,) = rows(cli, "ps")
        assert (row["data_dir"], row["bootstrap"], row["pid"], row["broker"], row["cluster"]) == (
            str(directory),
            addresses[1],
            again.pid,
            1,
            None,
        )
        assert cli.run("ps") == 0
        named = f"broker 1 of {directory} (process {again.pid} at {addresses[1]})"
        assert f"minikafka: {named} was started by hand and outlives its cluster; " in cli.err
        assert cli.run("up", "--data-dir", str(directory), "--port", "0") == 2
        assert cli.err == (
            f"minikafka: {named}, started by hand, still runs: `minikafka stop {directory}` stops it; "
            "then start the cluster\n"
        )
        assert cli.run("stop", str(directory)) == 0
        assert cli.out == f"stopped {named}, which was started by hand\n"
        assert again.wait(DEADLINE_S) == 0
        assert rows(cli, "ps") == []
    finally:
        for child in filter(None, (process, again)):
            child.kill()
            child.communicate()


def test_a_stop_names_the_brokers_that_were_started_elsewhere(tmp_path: Path) -> None:
    process, addresses = start(tmp_path / "d", "--brokers", "2")
    broker = tmp_path / "d" / "broker-1.properties"
    assert process.stderr is not None
    again = None
    try:
        brokers(process)[1].kill()
        process.stderr.readline()
        listener = f"listeners=PLAINTEXT://{addresses[1]}"
        again = subprocess.Popen(
            [*COMMAND, "broker", str(broker), "--set", listener],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert "was started elsewhere" in process.stderr.readline()
        log = (tmp_path / "d" / "logs" / "broker-1.log").read_text()
        assert log.count(" starting minikafka ") == 2
        _, err = stop(process)
        assert err == (
            f"minikafka: broker 1 at {addresses[1]}, started elsewhere, is still running without its "
            f"ZooKeeper; stop it with `minikafka stop {tmp_path / 'd'}`\n"
        )
    finally:
        for child in filter(None, (process, again)):
            child.kill()
            child.communicate()
