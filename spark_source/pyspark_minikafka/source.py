"""The data source ``minikafka``, as Spark registers it.

This module is imported wherever Spark looks for sources, so it imports the standard library and PySpark
only. All else is imported when the source is used; a missing dependency is reported then.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from pyspark_minikafka import workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

NAME = "minikafka"


class MissingDependency(ImportError):
    """A package that the source needs is missing in the Python that Spark runs."""


def _module(name: str) -> Any:
    """Import ``pyspark_minikafka.<name>``. Raise MissingDependency, which says what to install and where."""
    try:
        with workers.task():
            return importlib.import_module(f"pyspark_minikafka.{name}")
    except ImportError as problem:
        raise MissingDependency(
            f"cannot load the data source {NAME}: {problem}. Install it with its dependencies (pip install "
            f"'minikafka[spark]', in a clone pip install '.[spark]') for the Python that Spark runs, "
            f"{sys.executable}, on the driver and every executor, or set PYSPARK_PYTHON to one that has them"
        ) from problem


class SourceClass(ABCMeta):
    """The metaclass of the source, for which ``_reduce_by_name`` is registered with the pickler."""


def _reduce_by_name(source: SourceClass) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
    """Reduce the source's class to its name, and a function that looks it up in the receiving process.

    A client of Spark Connect registers the class with a server that may not have this package. Only the name
    is sent, so the server's own release is used. The nested function is pickled as code; it reports what to
    install when the server has no release.
    """

    def found(module: str, name: str) -> Any:
        import importlib
        import sys

        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as problem:
            raise ImportError(
                f"the data source minikafka is registered, but not installed in Spark's Python, "
                f"{sys.executable} ({problem}). Registering sends no code: install minikafka for that "
                "Python, on the Spark Connect server and on every executor, or start the server with "
                "PYSPARK_PYTHON set to one that has it (see docs/guides/spark-on-a-cluster.md)"
            ) from problem

    return found, (source.__module__, source.__qualname__)


copyreg.pickle(SourceClass, _reduce_by_name)


class MinikafkaSource(DataSource, metaclass=SourceClass):
    """Reads and writes topics of a Kafka cluster, or of the embedded broker when no servers are named."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @workers.readable_errors()
    def schema(self) -> StructType:
        """Return the columns of a read. Called by ``load()``, so invalid options are refused there."""
        _module("catalog").refuse_new_table(self.options)
        options = _module("options.options")
        parsed = options.source_options(self.options, options.Mode.LOAD)
        _module("report").warn(parsed.warnings)
        _module("location").check_login(parsed.location, parsed.connection)
        _module("reading.batch")  # a dependency of the tasks that is missing is reported here, on the driver
        schema: StructType = _module("schema").source_schema(parsed.columns, parsed.formats)
        return schema

    @workers.readable_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        _module("catalog").refuse_without_options(self.options)
        reader: DataSourceReader = _module("reading.batch").reader(self.options, schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        # Invalid options are raised by the reader, see ``RefusedReader``. Errors raised here keep their
        # traceback: only it contains the cause.
        reader: DataSourceStreamReader = _module("reading.stream").reader(self.options, schema)
        return reader

    @workers.readable_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _module("catalog").refuse_without_options(self.options)
        writer: DataSourceWriter = _module("writing.writer").batch_writer(self.options, schema, overwrite)
        return writer

    @workers.readable_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # ``overwrite`` is the output mode complete: Spark's connector accepts it too and appends each batch.
        _module("catalog").refuse_without_options(self.options)
        writer: DataSourceStreamWriter = _module("writing.writer").stream_writer(self.options, schema)
        return writer


def register(spark: SparkSession) -> None:
    """Register the format with a session in which Spark does not find it by itself.

    That is the session of a Spark Connect client whose server received the package as an artifact. If Spark
    has found the format, 4.0 refuses to register it; that is ignored.
    """
    try:
        spark.dataSource.register(MinikafkaSource)
    except AnalysisException as problem:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(problem):
            raise
