"""Where Spark's jars lie, which bring a ZooKeeper and a Scala compiler. PySpark is not imported."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path


def jar_directories(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Of the installed PySpark and of SPARK_HOME, in this order; nobody has looked whether they are there."""
    found = []
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.submodule_search_locations:
        found += [Path(location) / "jars" for location in spec.submodule_search_locations]
    if environment.get("SPARK_HOME"):
        found.append(Path(environment["SPARK_HOME"]) / "jars")
    return found
