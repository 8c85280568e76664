"""The data source ``minikafka`` of Apache Spark, in Python: ``spark.read.format("minikafka")``.

Spark finds it by itself: it imports every top-level module named ``pyspark_*`` and registers its
``DefaultSource``. One exception in any of them silently hides every Python source, so this module imports
nothing but the standard library and ``pyspark.sql.datasource`` (in ``source``), and never raises. Missing
dependencies are reported when the source is used.

Spark looks with the Python that it starts, which is ``python3`` on PATH unless PYSPARK_PYTHON says
otherwise. Importing this module before the session is made sets PYSPARK_PYTHON to the running interpreter
when it is unset.
"""

from __future__ import annotations

import os
import sys

if sys.executable:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

try:
    from pyspark_minikafka.source import MinikafkaSource as DefaultSource
    from pyspark_minikafka.source import register
except ImportError:
    # No PySpark, or one older than 4.0: Spark does not look for the source, and the import must still work.
    __all__ = ["shim_path"]
else:
    __all__ = ["DefaultSource", "register", "shim_path"]


def shim_path() -> str:
    """Return the path of a jar for the class path of a Scala application or of ``spark-sql``; PySpark needs
    none.

    The jar is compiled on the first call, for the installed Spark, into the user's cache.
    """
    from pyspark_minikafka import shim

    return shim.shim_path()
