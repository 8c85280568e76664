"""Compile the shim: ``python scala_shim/build.py [JAR]``, by default ``build/minikafka-shim.jar``.

With the Scala compiler and the classes of the PySpark that this Python has, or of SPARK_HOME. Who has the
package installed calls ``pyspark_minikafka.shim_path()`` instead, which keeps the jar.
"""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "spark_source"), str(PROJECT / "broker_core")]

from minikafka.base.errors import MinikafkaError  # noqa: E402
from pyspark_minikafka import shim  # noqa: E402


def main(jar: Path = PROJECT / "build" / shim.JAR) -> None:
    """Compile to ``jar`` and print where it is."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    try:
        shim.compile_jar(jar, shim.find_spark_jars())
    except MinikafkaError as problem:
        sys.exit(f"build.py: {problem}")
    sys.stdout.write(f"{jar}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
