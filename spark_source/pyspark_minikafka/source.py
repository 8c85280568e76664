"""The data source ``minikafka``, as Spark registers it.

This module is imported wherever Spark looks for sources, so it imports the standard library and PySpark
only. All else is imported when the source is used, and a dependency that is missing is named then.
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
    """A package that the source needs is not there in the Python that Spark runs."""


def _module(name: str) -> Any:
    """``pyspark_minikafka.<name>``; MissingDependency says what to install, and where."""
    try:
        with workers.task():
            return importlib.import_module(f"pyspark_minikafka.{name}")
    except ImportError as problem:
        raise MissingDependency(
            f"the data source {NAME} cannot be used: {problem}. Install it with its dependencies "
            f"(pip install 'minikafka[spark]', in a clone pip install '.[spark]') for the Python that Spark "
            f"runs, {sys.executable}, on the "
            "driver and every executor, or set PYSPARK_PYTHON to one that has them"
        ) from problem


class SourceClass(ABCMeta):
    """The type of the source's class, by which the pickler finds ``_as_it_travels``."""


def _as_it_travels(source: SourceClass) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
    """The source's class as its name, with a function that looks for it where it arrives.

    A client of Spark Connect registers the class with a server that may not have this package. What it
    brings is the name alone, so that the server's own release is used; the function, which travels as code
    because it stands in another one, says what to do when there is none.
    """

    def found(module: str, name: str) -> Any:
        import importlib
        import sys

        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as problem:
            raise ImportError(
                f"the data source minikafka is registered, but Spark's Python, {sys.executable}, does not "
                f"have it ({problem}). Registering brings no code: install minikafka for that Python, on the "
                "Spark Connect server and on every executor, or start the server with PYSPARK_PYTHON set to "
                "one that has it (see docs/guides/spark-on-a-cluster.md)"
            ) from problem

    return found, (source.__module__, source.__qualname__)


copyreg.pickle(SourceClass, _as_it_travels)


class MinikafkaSource(DataSource, metaclass=SourceClass):
    """Reads and writes topics of a Kafka cluster, or of the embedded broker when no servers are named."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @workers.plainly()
    def schema(self) -> StructType:
        """The fixed columns. Called by ``load()``, so wrong options are refused there."""
        _module("catalog").refuse_new_table(self.options)
        options = _module("options")
        parsed = options.source_options(self.options, options.Mode.LOAD)
        _module("report").warn(parsed.warnings)
        _module("batch")  # what an executor needs is missed here, on the driver, and not in a task
        schema: StructType = _module("schema").source_schema(parsed.include_headers)
        return schema

    @workers.plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        _module("catalog").refuse_without_options(self.options)
        reader: DataSourceReader = _module("batch").reader(self.options, schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        # A refusal is raised by the reader, see ``RefusedReader``; what is raised here keeps its traceback,
        # in which alone the cause stands.
        reader: DataSourceStreamReader = _module("stream").reader(self.options, schema)
        return reader

    @workers.plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _module("catalog").refuse_without_options(self.options)
        writer: DataSourceWriter = _module("writer").batch_writer(self.options, schema, overwrite)
        return writer

    @workers.plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # `overwrite` is the output mode complete, which the peer takes as well: each batch is appended.
        _module("catalog").refuse_without_options(self.options)
        writer: DataSourceStreamWriter = _module("writer").stream_writer(self.options, schema)
        return writer


def register(spark: SparkSession) -> None:
    """Make the format known to a session, where Spark does not find it by itself.

    That is a client's of Spark Connect when the package came to the server as an artifact. Where Spark has
    found it, 4.0 refuses to register it, and nothing is to be done.
    """
    try:
        spark.dataSource.register(MinikafkaSource)
    except AnalysisException as problem:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(problem):
            raise
