"""Transactions of the Java clients of Kafka 3.9.1 (``java/Transactions.java``)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from minikafka.embedded.java import find_java
from tests.interop.releases import JVM, KAFKA_3_9, java_environment

HERE = Path(__file__).parent
PATIENCE_S = 90.0


def java(program: str, *arguments: str) -> list[str]:
    """The command of a Java program of this folder, with the clients of 3.9.1."""
    source = str(HERE / "java" / f"{program}.java")
    return [find_java().path, *JVM, "-cp", f"{KAFKA_3_9.libs()}/*", source, *arguments]


def outcomes(bootstrap: str, topic: str, *commands: str) -> list[str]:
    """Run commands by the Java clients, and return a line for each (see ``Transactions.java``)."""
    done = subprocess.run(
        java("Transactions", bootstrap, topic, *commands),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=java_environment(),
        check=True,
    )
    return done.stdout.splitlines()
