"""The transaction indexes of a real Kafka 3.9.1: ours are the same bytes, and it reads with ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minikafka.base.files import RealFiles
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import wait_until
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.recovery.log_loader import LoadHints
from minikafka.log.tools.verify import list_directory, verify_partitions
from minikafka.log.transactions import aborted_steps
from minikafka.records.columns import decode
from minikafka.records.scan.isolation import without_aborted
from tests.interop.releases import KAFKA_3_9
from tests.interop.test_transactions_against_kafka import as_librdkafka_reads, interleaved, settled
from tests.support.kafka_broker import KafkaBroker, await_free_id, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TP = TopicPartition("t", 0)
PATIENCE_S = 30.0
CONFIG = LogConfig(segment_bytes=1200)
Rows = list[tuple[int, bytes]]


def indexes(path: Path) -> dict[str, bytes]:
    """The transaction indexes that have an entry."""
    found = {file.name: file.read_bytes() for file in sorted(path.glob("*.txnindex"))}
    return {name: data for name, data in found.items() if data}


def opened(path: Path, *, clean: bool) -> Log:
    return Log.open(RealFiles(), str(path), CONFIG, Layout.APACHE, LoadHints(clean=clean))


def committed(log: Log) -> Rows:
    """Every committed record, in parts of a few batches."""
    rows: Rows = []
    offset = 0
    while offset < log.end_offset:
        read = log.read(offset, 700, partial=False)
        assert read.slice is not None
        steps = aborted_steps(log, read)
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            data = memoryview(read.slice.read())
            columns = decode(without_aborted(data, stop.value), offset, log.end_offset)
        rows += zip(columns.offsets.tolist(), columns.value_array().to_pylist(), strict=True)
        offset = decode(data, offset, log.end_offset).next_offset
    return rows


def without_indexes(path: Path) -> None:
    for file in path.glob("*.txnindex"):
        file.unlink()


def written(kafka: KafkaBroker) -> Rows:
    """Write transactions over many segments; return the committed records as librdkafka reads them."""
    with ClusterClient(kafka.bootstrap) as cluster:
        Admin(cluster).create_topic(NewTopic(TP.topic, 1, configs={"segment.bytes": "1200"}))
        values = interleaved(kafka, TP, 12)
        settled(cluster, TP)
    rows = as_librdkafka_reads(kafka, TP, 0)
    assert sorted(value for _, value in rows) == sorted(values)
    return rows


def test_indexes_are_kafkas_and_serve_kafka(tmp_path: Path) -> None:
    with running(KAFKA_3_9, tmp_path, data=tmp_path / "data") as kafka:
        rows = written(kafka)
        kafka.stop()
        path = tmp_path / "data" / f"{TP.topic}-0"
        expected = indexes(path)
        assert len(expected) > 3
        report = list(verify_partitions(RealFiles(), list_directory(RealFiles(), str(tmp_path / "data"))))
        assert [finding.text for one in report for finding in one.findings if not finding.note] == []

        used, rebuilt = tmp_path / "used", tmp_path / "rebuilt"
        for copy in (used, rebuilt):
            shutil.copytree(path, copy)
        log = opened(used, clean=True)
        assert committed(log) == rows
        log.close()
        assert indexes(used) == expected
        without_indexes(used)
        assert committed(opened(used, clean=True)) == rows

        without_indexes(rebuilt)
        for snapshot in rebuilt.glob("*.snapshot"):
            snapshot.unlink()
        log = opened(rebuilt, clean=False)
        assert committed(log) == rows
        log.close()
        assert indexes(rebuilt) == expected
        assert len(list(rebuilt.glob("*.txnindex"))) > len(expected)

        shutil.rmtree(path)
        shutil.copytree(rebuilt, path)
        await_free_id(kafka.zookeeper)
        kafka.start()
        with ClusterClient(kafka.bootstrap) as cluster:
            assert wait_until(lambda: Admin(cluster).offsets({TP: -1})[TP] == log.end_offset, PATIENCE_S)
        assert as_librdkafka_reads(kafka, TP, 0) == rows
