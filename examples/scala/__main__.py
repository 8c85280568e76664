"""``python -m examples.scala [HOST:PORT]``: compile ``Delays.scala`` and hand it to ``spark-submit``.

What sbt and ``spark-submit --jars`` would do, with what PySpark ships: its Scala compiler, and the jar of
``pyspark_minikafka.shim_path()`` on the class path of both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark_minikafka  # sets PYSPARK_PYTHON: Spark looks for the source with this very Python
from pyspark_minikafka import shim


def main(arguments: Sequence[str]) -> int:
    """The exit status of the program."""
    the_shim, jars = pyspark_minikafka.shim_path(), shim.find_spark_jars()
    spark = jars.parent
    with tempfile.TemporaryDirectory() as scratch:
        classes, program = Path(scratch) / "classes", Path(scratch) / "delays.jar"
        shim.compile_scala([Path(__file__).with_name("Delays.scala")], classes, jars, the_shim)
        shim.write_jar(program, classes)
        command = [str(spark / "bin" / "spark-submit"), "--master", "local[2]", "--class", "examples.Delays"]
        command += ["--jars", the_shim, str(program), *arguments]
        return subprocess.call(command, env={**os.environ, "SPARK_HOME": str(spark)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
