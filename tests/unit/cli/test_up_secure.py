"""``minikafka up --secure``: what it prints is all that each kind of client needs."""

from __future__ import annotations

import json
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.config.property_files import read_properties
from minikafka.cli.up import how_to_connect
from minikafka.embedded.process import wait_until
from minikafka.embedded.strays import stray_brokers
from tests.support.command_line import CommandLine
from tests.support.python_clients import confluent_kafka, kafka

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

COMMAND = [sys.executable, "-m", "minikafka"]
TOPIC, MESSAGE = "orders", "a first order"
PATIENCE_S = 60


class Up:
    """A running ``minikafka up``, and what it has printed."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._errors = (directory.parent / "stderr").open("w+")
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--data-dir", str(directory), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert wait_until(lambda: "kafka-python:" in self.errors, PATIENCE_S), self.line + self.errors
        self.servers = self.line.split()[1]

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def printed(self, client: str) -> str:
        """Return what is printed for a client."""
        return next(line for line in self.errors.splitlines() if line.startswith(f"  {client}:")).split(
            ":", 1
        )[1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_S)
        self._errors.close()


def command(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a printed command line."""
    words = shlex.split(line)
    assert words[0] == "minikafka"
    return subprocess.run([*COMMAND, *words[1:]], capture_output=True, text=True, timeout=PATIENCE_S, **more)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up") / "my data", "--secure")
    try:
        created = command(running.printed("minikafka").replace("topic list", f"topic create {TOPIC}"))
        assert created.stdout == f"created {TOPIC} with 1 partition\n", created.stderr
        line = running.printed("minikafka").replace("topic list", f"produce {TOPIC}")
        command(line, input=MESSAGE + "\n")
        yield running
    finally:
        running.end()


def test_ready_line_stays_as_it_is(up: Up) -> None:
    assert re.fullmatch(r"ready 127\.0\.0\.1:\d+ zookeeper 127\.0\.0\.1:\d+ cluster [\w-]{22}\n", up.line)


def test_commands_log_in_by_the_printed_lines(up: Up) -> None:
    lines = up.errors.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  minikafka:"))
    for line in (lines[first].split(":", 1)[1], lines[first + 1]):
        consumed = command(line.replace("topic list", f"consume {TOPIC} --from beginning --max 1"))
        assert MESSAGE in consumed.stdout, consumed.stderr


def test_kafka_python_logs_in_by_the_printed_line(up: Up) -> None:
    line = up.printed("kafka-python").strip().replace('"TOPIC"', f'"{TOPIC}", auto_offset_reset="earliest"')
    consumer = eval(line, {"KafkaConsumer": kafka.KafkaConsumer, "json": json, "Path": Path})  # noqa: S307 - our own output
    try:
        assert next(consumer).value == MESSAGE.encode()
    finally:
        consumer.close()


def test_librdkafka_logs_in_by_the_printed_file(up: Up) -> None:
    words = shlex.split(up.printed("librdkafka"))
    given = read_properties(words[words.index("-F") + 1], "file")
    servers = words[words.index("-b") + 1]
    own = {"group.id": "g", "auto.offset.reset": "earliest", "bootstrap.servers": servers}
    consumer = confluent_kafka.Consumer({**given, **own})
    try:
        consumer.subscribe([TOPIC])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == MESSAGE.encode()
    finally:
        consumer.close()


def test_client_without_login_is_refused_with_its_line(up: Up, cli: CommandLine) -> None:
    assert cli.run("topic", "list", "--bootstrap", up.servers) == 1
    assert "set security.protocol to SSL or SASL_SSL" in cli.err
    assert len(cli.err.splitlines()) == 1


def test_no_password_is_printed_or_logged(up: Up) -> None:
    folder = next(Path(word) for word in shlex.split(up.printed("librdkafka")) if "/security/" in word).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    data_dir = folder.parent
    assert stat.S_IMODE((data_dir / "broker-0.properties").stat().st_mode) == 0o600
    zookeeper = read_properties(str(data_dir / "zookeeper" / "client.properties"), "file")
    secrets = {
        *read_properties(str(folder / "users.properties"), "file").values(),
        zookeeper["zookeeper.digest.credentials"].partition(":")[2],
    }
    texts = [up.line, up.errors, *(log.read_text() for log in (data_dir / "logs").iterdir())]
    assert [secret for secret in secrets if any(secret in text for text in texts)] == []


def test_it_can_be_repeated_after_a_kill(tmp_path: Path, cli: CommandLine) -> None:
    directory = tmp_path / "d"
    first = Up(directory, "--secure", "--brokers", "2")
    line = first.printed("minikafka").replace("topic list", f"topic create {TOPIC} --replicas 2")
    assert command(line).returncode == 0
    first.end(signal.SIGKILL)
    assert wait_until(lambda: stray_brokers(directory) == [], PATIENCE_S)
    again = Up(directory)
    try:
        assert "is secured" in again.errors
        assert cli.run("topic", "list", "--data-dir", str(directory), "--format", "json") == 0
        assert [row["topic"] for row in cli.rows] == [TOPIC]
        assert cli.run("topic", "list", "--bootstrap", again.servers) == 1
    finally:
        again.end()


def test_plain_listeners_are_refused(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "security").mkdir()
    plain = ("--set", "listeners=PLAINTEXT://127.0.0.1:0")
    assert cli.run("up", "--data-dir", str(tmp_path), *plain) == 2
    assert "must have the protocol SASL_SSL" in cli.err
    file = tmp_path / "broker-0.properties"
    file.write_text("zookeeper.connect=127.0.0.1:1\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    assert cli.run("broker", str(file)) == 2
    assert "must have the protocol SASL_SSL" in cli.err


def test_printed_lines_quote_what_shells_read(tmp_path: Path) -> None:
    lines = list(how_to_connect(tmp_path / 'it\'s "mine"', "h:1"))
    (librdkafka,) = (line for line in lines if line.startswith("  librdkafka:"))
    assert str(tmp_path / 'it\'s "mine"' / "security" / "librdkafka.properties") in shlex.split(librdkafka)


def test_guide_shows_what_is_printed() -> None:
    page = Path(__file__).parents[3] / "docs" / "guides" / "secure-a-cluster.md"
    shown = page.read_text(encoding="utf-8").splitlines()
    printed = how_to_connect(Path("/data/minikafka-data"), "127.0.0.1:9092")
    assert [line for line in printed if line not in shown] == []
