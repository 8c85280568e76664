"""The releases of Apache Kafka that the tests run: where their jars are, and how a program is started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from minikafka.embedded.java import find_java

JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PATIENCE_S = 120

QUIET = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.SimpleLayout
"""
"""What to log, and where to, in the terms of the logger that both releases have."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a program."""

    out: str
    err: str


def folder_of(variable: str, jar: str) -> Path:
    """The folder with ``jar``, a pattern, that ``variable`` names; skips the test where there is none."""
    folder = os.environ.get(variable)
    if not folder or not list(Path(folder).glob(jar)):
        pytest.skip(f"{variable} does not name a folder with {jar} and what it needs")
    return Path(folder)


def version_in(folder: Path, jar: str) -> str:
    """The version in the name of the jar."""
    return max(folder.glob(jar)).stem.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class Release:
    """One release: ``variable`` of the environment names the folder with its jars."""

    number: str
    variable: str
    broker_jar: str
    """Its name, or a pattern of it."""
    magics: tuple[int, ...]
    """The formats that it understands."""
    has_zookeeper: bool = True

    def __str__(self) -> str:
        return self.number

    def libs(self) -> Path:
        """The folder with the jars; skips the test where nobody gave one."""
        return folder_of(self.variable, self.broker_jar)

    @property
    def version(self) -> str:
        """The number of the release that is in the folder."""
        return version_in(self.libs(), self.broker_jar)

    def run(self, *arguments: str, succeeds: bool = True) -> Printed:
        """Run a program of the release, to its end; it must succeed, or fail."""
        command = [find_java().path, *JVM, "-cp", f"{self.libs()}/*", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=java_environment()
        )
        assert (done.returncode == 0) is succeeds, done.stderr + done.stdout
        return Printed(done.stdout, done.stderr)

    def dump_log_segments(self, files: Iterable[Path], *options: str) -> Printed:
        """Return the output of ``DumpLogSegments`` for ``files``."""
        paths = ",".join(str(path) for path in files)
        return self.run("kafka.tools.DumpLogSegments", *options, "--files", paths)


def java_environment() -> dict[str, str]:
    """The environment without what the JVM would say on stderr that it took from there; texts are UTF-8."""
    kept = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    return kept | {"LC_ALL": "C.UTF-8"}


KAFKA_0_10 = Release("0.10.1.1", "MINIKAFKA_KAFKA_LIBS", "kafka_2.11-0.10.1.1.jar", (0, 1))
KAFKA_3_9 = Release("3.9.1", "MINIKAFKA_KAFKA3_LIBS", "kafka_2.13-3.9.1.jar", (0, 1, 2))
KAFKA_4 = Release("4", "MINIKAFKA_KAFKA4_BROKER_LIBS", "kafka_2.13-4.*.jar", (2,), has_zookeeper=False)
RELEASES = (KAFKA_0_10, KAFKA_3_9)
"""Those whose files and tools are compared with ours."""
