"""Spark's own connector: where its jars are, and the Python with the Spark that it is for."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.releases import java_environment

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class SparkConnector:
    """A version of it. jars: their paths, joined by commas."""

    number: str
    jars: str
    python: str

    def environment(self, *, ours: bool = False) -> dict[str, str]:
        """For a program with it; ``ours``: and with our source."""
        environment = java_environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": self.python}
        environment.pop("PYTHONPATH", None)
        if ours:
            environment["PYTHONPATH"] = f"{ROOT / 'broker_core'}{os.pathsep}{ROOT / 'spark_source'}"
        return environment


def spark_connector() -> SparkConnector:
    """The one that the environment names; skips the test where there is none."""
    folder = os.environ.get("MINIKAFKA_SPARK_KAFKA_LIBS")
    jars = sorted(Path(folder).glob("*.jar")) if folder else []
    number = next((jar.stem.rpartition("-")[2] for jar in jars if "spark-sql-kafka" in jar.name), None)
    if number is None:
        pytest.skip(
            "MINIKAFKA_SPARK_KAFKA_LIBS does not name a folder with spark-sql-kafka-0-10 and what it needs"
        )
    python = os.environ.get("MINIKAFKA_SPARK40_PYTHON", str(ROOT / ".venv-spark40" / "bin" / "python"))
    if not os.path.exists(python):
        pytest.skip(f"{python} does not exist: MINIKAFKA_SPARK40_PYTHON names a Python with PySpark {number}")
    asked = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    spark = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if spark.split(".")[:2] != number.split(".")[:2]:
        pytest.skip(f"the connector is for Spark {number}, and {python} has {spark}")
    return SparkConnector(number, ",".join(map(str, jars)), python)
