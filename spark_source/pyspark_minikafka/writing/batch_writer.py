"""The writer of ``df.write`` and the result of a task, as Spark pickles them.

Spark commits a write in a worker of its own, which gets the writer and the results and needs nothing of them.
So this module imports little, and a writer keeps its settings pickled until a task sends rows: otherwise the
first write of a session would wait for all imports of a write once more.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_minikafka import workers

if TYPE_CHECKING:
    import pyarrow as pa


class Written(WriterCommitMessage):
    """The result of a write task: rows, and bytes as encoded."""

    def __init__(self, rows: int, sent_bytes: int) -> None:
        self.rows = rows
        self.sent_bytes = sent_bytes

    def __repr__(self) -> str:
        return f"Written(rows={self.rows}, sent_bytes={self.sent_bytes})"


class RowSender(Protocol):
    """The settings of a write, with which a task sends its rows (``writer.Sink``)."""

    def send(self, batches: Iterator[pa.RecordBatch]) -> Written: ...
    def commit(self, messages: Sequence[object], batch_id: int) -> None: ...
    def abort(self, messages: Sequence[object]) -> None: ...


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame."""

    def __init__(self, sink: RowSender, *, is_exactly_once: bool = False) -> None:
        self._sink = pickle.dumps(sink)
        self._is_exactly_once = is_exactly_once

    @property
    def sink(self) -> RowSender:
        """The settings of the write."""
        sink: RowSender = pickle.loads(self._sink)  # noqa: S301  # of the driver, like this object
        return sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.sink.send(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows that were staged. Otherwise there is nothing to do for the rows: clean up the
        worker, which Spark uses again.
        """
        if self._is_exactly_once:
            self.sink.commit(messages, 0)
        workers.forget_importers()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the rows that were staged."""
        if self._is_exactly_once:
            self.sink.abort(messages)
