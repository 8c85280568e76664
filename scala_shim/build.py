"""Compile the shim: ``python scala_shim/build.py [JAR]``, by default ``build/minikafka-shim.jar``.

It uses the Scala compiler and the classes of the PySpark of this Python, or of SPARK_HOME. With an installed
package, call ``pyspark_minikafka.shim_path()`` instead, which caches the jar.
"""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "spark_source"), str(PROJECT / "broker_core")]

from minikafka.base.errors import MinikafkaError  # noqa: E402
from pyspark_minikafka import shim  # noqa: E402


def main(jar: Path = PROJECT / "build" / shim.JAR) -> None:
    """Compile to ``jar`` and print its path."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    try:
        shim.compile_jar(jar, shim.find_spark_jars())
    except MinikafkaError as problem:
        sys.exit(f"build.py: {problem}")
    sys.stdout.write(f"{jar}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
