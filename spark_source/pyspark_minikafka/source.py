"""What Spark registers: the data source named ``minikafka``.

This module is imported wherever Spark looks for sources, so it imports the standard library and PySpark
only. All else is imported when the source is used, and a dependency that is missing is named then.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_minikafka.workers import forget_importers

if TYPE_CHECKING:
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
        return importlib.import_module(f"pyspark_minikafka.{name}")
    except ImportError as problem:
        raise MissingDependency(
            f"the data source {NAME} cannot be used: {problem}. Install it with its dependencies "
            f"(pip install 'minikafka[spark]') for the Python that Spark runs, {sys.executable}, on the "
            "driver and every executor, or set PYSPARK_PYTHON to one that has them"
        ) from problem
    finally:
        forget_importers()


class MinikafkaSource(DataSource):
    """Reads and writes topics of a Kafka cluster, or of the embedded broker when no servers are named."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The fixed columns. Called by ``load()``, so wrong options are refused there."""
        options = _module("options")
        parsed = options.source_options(self.options, options.Mode.LOAD)
        _module("report").warn(parsed.warnings)
        _module("batch")  # what an executor needs is missed here, on the driver, and not in a task
        schema: StructType = _module("schema").source_schema(parsed.include_headers)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        reader: DataSourceReader = _module("batch").reader(self.options, schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        reader: DataSourceStreamReader = _module("stream").reader(self.options, schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer: DataSourceWriter = _module("writer").batch_writer(self.options, schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # `overwrite` is the output mode complete, which the peer takes as well: each batch is appended.
        writer: DataSourceStreamWriter = _module("writer").stream_writer(self.options, schema)
        return writer
