"""The whole command line against a real cluster, as its users run it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from minikafka.cli import up as up_module
from minikafka.cli.commands import run
from minikafka.embedded.process import wait_until
from minikafka.net.ports import can_connect, free_port
from tests.support.network import notifications

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "minikafka.cli.main"]
READY = re.compile(r"ready (127\.0\.0\.1:\d+) zookeeper (\S+:\d+\S*) cluster ([\w-]{22})\n")
DEADLINE_S = 30


class Done(NamedTuple):
    """The status and the output of a finished command."""

    status: int
    out: str
    err: str


class Up:
    """A running ``minikafka up``, or ``broker``."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        match = READY.fullmatch(self.line)
        if match is None:
            pytest.fail(f"no ready line but {self.line!r}; {self.end(signal.SIGTERM)}")
        self.address, self.zookeeper, self.cluster_id = match.groups()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Status, and what it said on stdout after the ready line and on stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err

    def broker(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if "minikafka.server" in child.cmdline())


@contextlib.contextmanager
def up(*arguments: str, command: str = "up") -> Iterator[Up]:
    running = Up(command, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up("--data-dir", str(tmp_path_factory.mktemp("up") / "data"), "--port", "0") as running:
        yield running


def minikafka(*arguments: str, stdin: bytes = b"") -> Done:
    """Run a command here, which is quicker than in a process of its own."""
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b"")]
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        status = run(list(arguments))
        for stream in streams[1:]:
            stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])  # type: ignore[attr-defined]
    return Done(status, out, err)


def lives(process: psutil.Process) -> bool:
    """Return True if the process runs; a zombie does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ok(*arguments: str, stdin: bytes = b"") -> str:
    done = minikafka(*arguments, stdin=stdin)
    assert done.status == 0, done.err
    return done.out


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def topic_of(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "-", request.node.name)


# Topics, produce, consume.


def test_topics_are_made_listed_described_and_deleted(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, "--partitions", "2", "--config", "flush.messages=1", *to)
    listed = rows(ok("topic", "list", "--format", "json", *to))
    (own,) = (row for row in listed if row["topic"] == topic)
    assert own == {"topic": topic, "partitions": 2, "internal": False, "topic_id": own["topic_id"]}
    described = rows(ok("topic", "describe", topic, "--format", "json", *to))
    assert [(row["partition"], row["leader"], row["end_offset"], row["topic_id"]) for row in described] == [
        (0, 0, 0, own["topic_id"]),
        (1, 0, 0, own["topic_id"]),
    ]
    ok("topic", "delete", topic, *to)
    assert topic not in ok("topic", "list", *to)


def test_a_topic_that_is_not_there_is_a_failure_and_is_not_made(
    cluster: Up, request: pytest.FixtureRequest
) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    for command in (("topic", "describe", topic), ("topic", "delete", topic), ("consume", topic)):
        done = minikafka(*command, *to)
        assert done.status == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in done.err
    assert topic not in ok("topic", "list", *to)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ("--replicas", "3"),
            2,
            "INVALID_REPLICATION_FACTOR: replication factor 3 is larger than the number of live brokers",
        ),
        (("--config", "segment.bytes=little"), 2, "INVALID_CONFIG: segment.bytes='little'"),
        ((), 1, "TOPIC_ALREADY_EXISTS: topic test_a_topic"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    cluster: Up, request: pytest.FixtureRequest, arguments: tuple[str, ...], status: int, words: str
) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    if not arguments:
        ok("topic", "create", topic, *to)
    done = minikafka("topic", "create", topic, *arguments, *to)
    assert done.status == status
    assert words in done.err


def test_a_topic_gets_more_partitions_and_other_settings(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, "--config", "flush.messages=1", *to)
    altered = ok("topic", "alter", topic, "--partitions", "3", "--config", "retention.ms=5", *to)
    assert altered == f"{topic} has 3 partitions, retention.ms=5\n"
    assert len(rows(ok("topic", "describe", topic, "--format", "json", *to))) == 3
    ok("config", "set", "topic", topic, "segment.bytes=100", "--delete", "flush.messages", *to)
    found = rows(ok("config", "get", "topic", topic, "--format", "json", *to))
    own = {row["setting"]: row["value"] for row in found if row["source"] == "topic"}
    assert own == {"retention.ms": "5", "segment.bytes": "100"}
    everything = rows(ok("config", "get", "topic", topic, "--all", "--format", "json", *to))
    assert {row["setting"] for row in everything} > {"flush.messages", "cleanup.policy"}
    for arguments, words in (
        (("--partitions", "2"), "INVALID_PARTITIONS: topic"),
        (
            ("--delete-config", "retention.msec"),
            f"--delete-config='retention.msec': {topic} has no such setting",
        ),
        (("--config", "segment.bytes=little"), "INVALID_CONFIG: segment.bytes='little'"),
    ):
        done = minikafka("topic", "alter", topic, *arguments, *to)
        assert done.status == 2
        assert words in done.err


def test_a_topic_of_the_brokers_own_is_not_deleted(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, *to)
    ok("group", "reset", "g", "--to-latest", "--topic", topic, "--execute", *to)
    done = minikafka("topic", "delete", "__consumer_offsets", *to)
    assert done.status == 2
    assert done.err.startswith("minikafka: NAME='__consumer_offsets': is an internal topic of Kafka")
    ok("group", "describe", "g", *to)


def test_a_broker_tells_its_settings_and_changes_few_while_it_runs(cluster: Up) -> None:
    to = ("--bootstrap", cluster.address)
    table = ok("config", "get", "broker", "0", *to)
    assert table.startswith("SETTING")
    assert "zookeeper.connect" in table
    done = minikafka("config", "set", "broker", "0", "num.io.threads=1", *to)
    assert done.status == 2
    assert "INVALID_REQUEST: num.io.threads: cannot be changed while a broker runs" in done.err


def test_the_cluster_is_described_with_its_brokers(cluster: Up) -> None:
    (found,) = rows(ok("cluster", "describe", "--format", "json", "--bootstrap", cluster.address))
    assert found["cluster"] == cluster.cluster_id
    (broker,) = found["brokers"]  # type: ignore[misc]
    assert (broker["broker"], broker["port"], broker["controller"]) == (0, cluster.port, True)
    table = ok("cluster", "describe", "--bootstrap", cluster.address)
    assert table.startswith(f"cluster {cluster.cluster_id} with ")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_lines_come_back_byte_for_byte(cluster: Up, request: pytest.FixtureRequest, codec: str) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, *to)
    ok("produce", topic, "--codec", codec, *to, stdin="first\n\nžluťoučký\n".encode() + b"\xff\xfe\nlast")
    got = rows(ok("consume", topic, "--max", "5", "--format", "json", *to))
    assert [row["offset"] for row in got] == [0, 1, 2, 3, 4]
    assert [row.get("value", row.get("value_base64")) for row in got] == [
        "first",
        "",
        "žluťoučký",
        "//4=",
        "last",
    ]


def test_keys_choose_the_partition_and_come_back(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, "--partitions", "3", *to)
    lines = b"".join(b"key-%d:value-%d\n" % (number % 7, number) for number in range(70))
    ok("produce", topic, "--key-separator", ":", *to, stdin=lines)
    got = rows(ok("consume", topic, "--max", "70", "--format", "json", *to))
    assert sorted(str(row["value"]) for row in got) == sorted(f"value-{number}" for number in range(70))
    partitions: dict[object, set[object]] = {}
    for row in got:
        partitions.setdefault(row["key"], set()).add(row["partition"])
    assert all(len(numbers) == 1 for numbers in partitions.values())


def test_reading_begins_where_it_is_told(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address, "--format", "json")
    ok("topic", "create", topic, *to)
    ok("produce", topic, *to, stdin=b"".join(b"%d\n" % number for number in range(10)))

    def first(start: str) -> object:
        return rows(ok("consume", topic, "--from", start, "--max", "1", *to))[0]["offset"]

    assert first("beginning") == 0
    assert first("7") == 7
    assert first("2013-01-01") == 0


def test_reading_from_the_end_waits_for_what_comes(cluster: Up, request: pytest.FixtureRequest) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address, "--format", "json")
    ok("topic", "create", topic, *to)
    ok("produce", topic, *to, stdin=b"old\n")
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, "--from", "end", "--max", "1", *to], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    deadline = time.monotonic() + DEADLINE_S
    # Nobody can see whether it has begun to wait: go on until it has had one.
    while process.poll() is None and time.monotonic() < deadline:
        ok("produce", topic, *to, stdin=b"new\n")
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert [row["value"] for row in rows(out)] == ["new"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_reading_without_end_is_stopped_cleanly(
    cluster: Up, request: pytest.FixtureRequest, number: signal.Signals
) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address, "--format", "json")
    ok("produce", topic, *to, stdin=b"one\n")
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, *to], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == "one"
    process.send_signal(number)
    assert process.communicate(timeout=DEADLINE_S) == ("", "")
    assert process.returncode == 0


def test_topic_deleted_during_consume_ends_it_and_stays_deleted(
    cluster: Up, request: pytest.FixtureRequest
) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address)
    ok("topic", "create", topic, *to)
    ok("produce", topic, *to, stdin=b"one\n")
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, *to], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().endswith("one\n")
    ok("topic", "delete", topic, *to)
    assert process.communicate(timeout=DEADLINE_S) == (
        "",
        f"minikafka: topic '{topic}' was deleted while it was read\n",
    )
    assert process.returncode == 1
    assert topic not in ok("topic", "list", *to)


def test_the_environment_names_the_brokers_too(cluster: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", cluster.address)
    ok("topic", "list")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_perf_sends_and_reads_every_message(cluster: Up, request: pytest.FixtureRequest, codec: str) -> None:
    topic, to = topic_of(request), ("--bootstrap", cluster.address, "--format", "json")
    ok("topic", "create", topic, "--partitions", "2", *to)
    sent = rows(ok("perf", "produce", topic, "--records", "25000", "--codec", codec, "--acks", "all", *to))[0]
    assert sent["records"] == 25_000
    read = rows(ok("perf", "consume", topic, *to))[0]
    assert read["records"] == 25_000
    assert rows(ok("perf", "consume", topic, "--records", "100", *to))[0]["records"] == 100


# The life of `up`.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_everything_with_it(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with (
        notifications(tmp_path / "notify") as received,
        up("--data-dir", str(tmp_path / "d"), "--port", "0") as running,
    ):
        children = psutil.Process(running.process.pid).children(recursive=True)
        assert running.end(number) == (0, "", "")
        ready, stopping = f"READY=1\nSTATUS=serving {running.address}", "STOPPING=1\nSTATUS=stopping"
        assert received() == [ready, stopping]
    assert not any(map(lives, children))
    assert (tmp_path / "d" / "broker-0" / ".kafka_cleanshutdown").exists()


def test_more_signals_while_it_stops_change_nothing(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path / "d"), "--port", "0") as running:
        running.process.send_signal(signal.SIGTERM)
        while running.process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                running.process.send_signal(number)
        assert running.process.communicate(timeout=DEADLINE_S) == ("", "")
        assert running.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_without_a_word(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "d"
    process = subprocess.Popen(
        [*COMMAND, "up", "--data-dir", str(directory), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_until((directory / "broker-0.properties").exists, DEADLINE_S)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.communicate(timeout=DEADLINE_S) == ("", "")
    assert process.returncode == 128 + number
    assert wait_until(lambda: not any(map(lives, children)), 5)


def test_when_its_broker_dies_it_says_so_and_ends_with_one(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path / "d"), "--port", "0") as running:
        children = psutil.Process(running.process.pid).children(recursive=True)
        running.broker().kill()
        _, err = running.process.communicate(timeout=DEADLINE_S)
        assert running.process.returncode == 1
    assert "broker 0 was killed by signal 9" in err
    assert not any(map(lives, children))


def test_killed_up_leaves_no_process_and_next_one_serves_data(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path / "d"), "--port", str(free_port()))
    with up(*arguments) as running:
        ok("produce", "t", "--bootstrap", running.address, stdin=b"a\nb\nc\n")
        children = psutil.Process(running.process.pid).children(recursive=True)
        running.process.kill()
        with up(*arguments) as again:
            assert (again.address, again.cluster_id) == (running.address, running.cluster_id)
            got = rows(ok("consume", "t", "--max", "3", "--format", "json", "--bootstrap", again.address))
            assert [row["value"] for row in got] == ["a", "b", "c"]
            assert wait_until(lambda: not any(map(lives, children)), 5)
        running.process.communicate()


def test_a_data_directory_that_was_removed_ends_it(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path / "d"), "--port", "0") as running:
        while (tmp_path / "d").exists():  # ZooKeeper may just be writing
            shutil.rmtree(tmp_path / "d", ignore_errors=True)
        _, err = running.process.communicate(timeout=DEADLINE_S)
        assert running.process.returncode == 1
        assert "was removed" in err


def test_a_second_one_on_the_same_directory_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path / "d"), "--port", "0") as running:
        done = minikafka("up", "--data-dir", str(tmp_path / "d"), "--port", "0")
        assert done.status == 2
        assert str(running.process.pid) in done.err
        assert done.err.count("\n") == 1
        assert can_connect("127.0.0.1", running.port)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "num.partitions=none"), "num.partitions='none'"),
        (("--zookeeper", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_started_is_one_line_and_status_two(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    settings = ("--set", "zookeeper.connection.timeout.ms=500") if "--zookeeper" in arguments else ()
    done = minikafka("up", "--data-dir", str(tmp_path / "d"), "--port", "0", *arguments, *settings)
    assert (done.status, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.err.count("minikafka: ") == 1


def test_a_setting_that_nobody_knows_is_named_before_anything_is_started(tmp_path: Path) -> None:
    done = minikafka(
        *("up", "--data-dir", str(tmp_path / "d"), "--port", "0", "--zookeeper", "127.0.0.1:1"),
        *("--set", "num.partitons=4", "--set", "zookeeper.connection.timeout.ms=500"),
    )
    assert done.err.splitlines()[0].endswith(" num.partitons (did you mean num.partitions?)")


def test_a_taken_port_is_told(tmp_path: Path, cluster: Up) -> None:
    done = minikafka("up", "--data-dir", str(tmp_path / "d"), "--port", str(cluster.port))
    assert done.status == 2
    assert done.err.startswith(f"minikafka: --port='{cluster.port}': ")
    assert "--port 0" in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_waits_for_zookeeper_ends_at_once_when_told_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = tmp_path / "server.properties"
        properties.write_text(
            f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'log'}\n"
            f"zookeeper.connect=127.0.0.1:{silent.getsockname()[1]}\nzookeeper.connection.timeout.ms=600000\n"
        )
        process = subprocess.Popen(
            [*COMMAND, "broker", str(properties)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            silent.settimeout(DEADLINE_S)
            silent.accept()[0].close()  # it asks
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_a_broker_runs_on_a_properties_file_and_says_the_same_line(tmp_path: Path, cluster: Up) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=5\nlisteners=PLAINTEXT://127.0.0.1:9\nlog.dirs={tmp_path / 'log'}\n"
        f"zookeeper.connect={cluster.zookeeper}/five\n"
    )
    listeners = "listeners=PLAINTEXT://127.0.0.1:0"
    with up(str(properties), "--set", listeners, command="broker") as running:
        assert running.zookeeper == f"{cluster.zookeeper}/five"
        assert running.cluster_id != cluster.cluster_id
        ok("topic", "list", "--bootstrap", running.address)
        assert running.end(signal.SIGTERM)[0] == 0


# Data directories in place of addresses.


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.usefixtures("own_cache")
def test_up_is_listed_found_by_its_directory_and_stopped(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    with up("--data-dir", str(directory), "--port", "0") as running:
        listed = rows(ok("ps", "--format", "json"))
        assert [(row["bootstrap"], row["pid"]) for row in listed] == [(running.address, running.process.pid)]
        ok("topic", "create", "t", "--data-dir", str(directory))
        assert "t" in ok("topic", "list", "--bootstrap", running.address)
        to = ("--zookeeper", running.zookeeper)
        ok("group", "reset", "g", "--topic", "t", "--to-latest", "--execute", *to)
        (group,) = rows(ok("group", "list", "--data-dir", str(directory), "--format", "json"))
        assert (group["group"], group["kind"]) == ("g", "zookeeper")
        ok("stop", str(directory))
        assert running.process.communicate(timeout=DEADLINE_S) == ("", "")
        assert running.process.returncode == 0
    assert ok("ps") == ""


@pytest.mark.usefixtures("own_cache")
def test_unserved_directory_is_served_during_a_command(tmp_path: Path) -> None:
    to = ("--data-dir", str(tmp_path / "d"))
    # In a process of its own: the cluster lives as long as that.
    sending = subprocess.run(
        [*COMMAND, "produce", "t", *to], input=b"a\nb\n", capture_output=True, check=True
    )
    assert sending.stdout == b""
    reading = [*COMMAND, "consume", "t", "--max", "2", "--format", "json", *to]
    got = rows(subprocess.run(reading, capture_output=True, check=True, text=True).stdout)
    assert [row["value"] for row in got] == ["a", "b"]
    assert wait_until(lambda: ok("ps") == "", DEADLINE_S)


READING = [
    ("topic", "list"),
    ("topic", "describe", "t"),
    ("topic", "delete", "t"),
    ("consume", "t"),
    ("perf", "consume", "t"),
]


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_whoever_only_reads_begins_no_cluster_in_a_mistyped_directory(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    missing = tmp_path / "mistyped"
    done = minikafka(*command, "--data-dir", str(missing))
    assert (done.status, done.out) == (2, "")
    assert f"in this directory; start one with `minikafka up --data-dir {missing}`" in done.err
    assert done.err.count("\n") == 1
    assert not missing.exists()


@pytest.mark.usefixtures("own_cache")
def test_a_started_cluster_is_told_once_and_one_that_runs_is_not(tmp_path: Path) -> None:
    directory, none = tmp_path / "d", "minikafka: there are no topics\n"
    with up("--data-dir", str(directory), "--port", "0"):
        assert minikafka("topic", "list", "--data-dir", str(directory)).err == none
    listing = [*COMMAND, "topic", "list", "--data-dir", str(directory)]
    listed = subprocess.run(listing, capture_output=True, check=True, text=True)
    assert listed.stderr == f"minikafka: starting a local Kafka cluster in {directory} …\n{none}"


@pytest.mark.usefixtures("own_cache")
def test_stopping_what_does_not_run_is_a_failure(tmp_path: Path) -> None:
    done = minikafka("stop", str(tmp_path))
    assert done.status == 1
    assert done.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_addresses_of_metrics_are_printed_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster: Any = SimpleNamespace(
        metrics_urls=["http://127.0.0.1:9308/metrics"], client_properties={}, data_dir=Path("d")
    )
    monkeypatch.setattr(up_module, "advertised_address_warnings", lambda *_, **__: ())
    up_module.note_addresses(cluster, "127.0.0.1", [9092], {})
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    up_module.note_addresses(cluster, "127.0.0.1", [9092], {})
    assert capsys.readouterr().err == "minikafka: metrics at http://127.0.0.1:9308/metrics\n"
