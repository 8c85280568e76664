"""Spark's own connector beside ours in one session, from the jars in ``MINIKAFKA_SPARK_KAFKA_LIBS``."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "MINIKAFKA_SPARK_KAFKA_LIBS"
_JAR = "spark-sql-kafka-0-10"


def missing() -> str | None:
    """Why there is no connector of the peer in this run; None when there is one."""
    import pyspark

    found = [jar for jar in _jars() if jar.name.startswith(_JAR)]
    if not found:
        return f"{VARIABLE} does not name a folder with {_JAR} and what it needs"
    number = found[0].stem.rpartition("-")[2]
    if number.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        return f"the connector in {VARIABLE} is for Spark {number}, and this is {pyspark.__version__}"
    return None


def settings() -> dict[str, str]:
    """What a session needs for the connector; nothing where it is missing."""
    return {} if missing() else {"spark.jars": ",".join(map(str, _jars()))}


def _jars() -> list[Path]:
    folder = os.environ.get(VARIABLE)
    return sorted(Path(folder).glob("*.jar")) if folder else []
