"""Spark's own connector beside ours in one session, from the jars in ``MINIKAFKA_SPARK_KAFKA_LIBS``; and with
``MINIKAFKA_SPARK_SHIM=1`` the Scala shim, which gives Spark 4.0 and 4.1 limited batches.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "MINIKAFKA_SPARK_KAFKA_LIBS"
SHIM = "MINIKAFKA_SPARK_SHIM"
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
    """Return the settings of a session for the connector and the shim, as far as their jars exist."""
    jars = [] if missing() else [str(jar) for jar in _jars()]
    if with_shim():
        from pyspark_minikafka import shim_path

        jars.append(shim_path())
    return {"spark.jars": ",".join(jars)} if jars else {}


def with_shim() -> bool:
    """Return True if the shared session has the shim's jar."""
    return os.environ.get(SHIM) == "1"


def has_limits() -> bool:
    """Return True if our batches can be limited in the shared session."""
    from pyspark_minikafka.reading.stream import HAS_LIMITS

    return HAS_LIMITS or with_shim()


def _jars() -> list[Path]:
    folder = os.environ.get(VARIABLE)
    return sorted(Path(folder).glob("*.jar")) if folder else []
