"""Reads, writes and streams with Unix domain sockets between the JVM and its Python workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.conftest import Kafka
from tests.support.processes import run_to_end

pytestmark = pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Unix domain sockets came with Spark 4.1")

PROGRAM = """
import json, os, sys
import pyspark_minikafka
from pyspark.sql import SparkSession

servers, topic, copy = sys.argv[1:]
settings = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false", "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.local.dir": os.getcwd(),
}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
seen = {}

def read(topic, **more):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, **more}
    return spark.read.format("minikafka").options(**options).load()

def ids(frame):
    return list(frame.selectExpr("count(*)", "sum(cast(cast(value AS string) AS int))").collect()[0])

def unix(rows):
    return [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()]

seen["workers"] = spark.sparkContext.parallelize([0], 1).mapPartitions(unix).collect()
frame = spark.range(0, 10_000, 1, 2).selectExpr("cast(id AS string) AS value")
target = {"kafka.bootstrap.servers": servers}
frame.write.format("minikafka").mode("append").options(topic=topic, **target).save()
seen["read"] = ids(read(topic))
seen["again, in a worker that has read"] = ids(read(topic, **{"minikafka.columns": "value"}))

stream = spark.readStream.format("minikafka").options(subscribe=topic, startingOffsets="earliest", **target)
stream = stream.load().select("value").writeStream.format("minikafka").options(topic=copy, **target)
stream = stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
stream.start().awaitTermination()
seen["copied"] = ids(read(copy))

try:
    read(topic, startingOffsets=json.dumps({topic: {"0": 999_999}})).collect()
except Exception as problem:
    seen["refused"] = "Traceback" in str(problem)
print(json.dumps(seen))
"""


def test_unix_sockets_carry_reads_writes_and_streams(kafka: Kafka, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, kafka.servers, kafka.topic(), kafka.topic()]
    said = run_to_end(command, tmp_path, timeout_s=300)
    everything = [10_000, 49_995_000]
    assert json.loads(said) == {
        "workers": ["true"],
        "read": everything,
        "again, in a worker that has read": everything,
        "copied": everything,
        "refused": False,
    }
