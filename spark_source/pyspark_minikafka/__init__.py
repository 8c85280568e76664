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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectQuery
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_minikafka.monitoring.listener import LagListener
    from pyspark_minikafka.monitoring.query_progress import QueryProgress

if sys.executable:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

try:
    from pyspark_minikafka.source import MinikafkaSource as DefaultSource
    from pyspark_minikafka.source import register
except ImportError:
    # No PySpark, or one older than 4.0: Spark does not look for the source, and the import must still work.
    __all__ = ["shim_path"]
else:
    __all__ = ["DefaultSource", "log_progress", "progress", "register", "shim_path"]


def shim_path() -> str:
    """Return the path of a jar for the class path of a Scala application or of ``spark-sql``; PySpark needs
    none.

    The jar is compiled on the first call, for the installed Spark, into the user's cache.
    """
    from pyspark_minikafka import shim

    return shim.shim_path()


def progress(query: StreamingQuery | ConnectQuery, *options: Mapping[str, Any]) -> QueryProgress:
    """Return the progress of a streaming query: for each partition its offsets and lag, and Spark's rates.
    ``print`` shows a table.

    Without ``options``, the lag is that at the start of the last batch, as Spark reports it. With the options
    of the query's reader (one mapping, or one for each minikafka source, in their order), the brokers are
    asked for the present lag, in records and in time. Raises MinikafkaError if they do not answer, and
    ConfigErrors for invalid options.
    """
    from pyspark_minikafka.monitoring import lag

    return lag.progress(query, *options)


def log_progress(spark: SparkSession, *options: Mapping[str, Any], every_s: float = 60) -> LagListener:
    """Log a line about each query that reads minikafka, every ``every_s`` seconds and when it ends: topics,
    rows per second, lag, and the partition that is most behind.

    Options as of ``progress``. Returns the listener, for ``spark.streams.removeListener``.
    """
    from pyspark_minikafka.monitoring import listener

    return listener.log_progress(spark, *options, every_s=every_s)
