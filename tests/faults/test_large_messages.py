"""The memory that a Spark task needs where small bytes hold large messages ("Large records" in the guides).

The task runs in a process of its own, which hands its rows on as a worker of Spark does, and tells the most
memory that it had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.records.format.compression import Codec

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

MESSAGES = 12
VALUE_BYTES = 100 << 20
MOST_BYTES = 8 * VALUE_BYTES + (200 << 20)

TASK = """
import json, os, resource, sys
import pyarrow as pa
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.reading.task_reader import read
from pyspark_minikafka.planning.tasks import ReadTask

servers, topic, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = source_options({"subscribe": topic, "kafka.bootstrap.servers": servers}, Mode.BATCH)
task = ReadTask([OffsetRange(TopicPartition(topic, 0), 0, messages)], Target(servers), 0)
rows = value_bytes = 0
stream = None
with open(os.devnull, "wb") as jvm:
    for batch in read(task, options):
        stream = stream or pa.ipc.new_stream(jvm, batch.schema)
        stream.write_batch(batch)
        rows += batch.num_rows
        value_bytes += sum(value.as_buffer().size for value in batch.column("value"))
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"rows": rows, "value_bytes": value_bytes, "most": most}))
"""


def test_a_task_stays_within_eight_times_the_largest_message(
    minikafka_cluster: Cluster, minikafka_topic: str
) -> None:
    servers = minikafka_cluster.bootstrap_servers
    config = BatchingConfig(
        compression=Codec.ZSTD, acks=-1, max_request_bytes=2 * VALUE_BYTES, buffer_bytes=3 * VALUE_BYTES
    )
    value = bytes(VALUE_BYTES)
    with Client(servers) as client, BatchingProducer(client, config) as producer:
        for _ in range(MESSAGES):
            producer.send(minikafka_topic, value, partition=0).result()
    command = [sys.executable, "-c", textwrap.dedent(TASK), servers, minikafka_topic, str(MESSAGES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    told = json.loads(done.stdout)
    assert (told["rows"], told["value_bytes"]) == (MESSAGES, MESSAGES * VALUE_BYTES)
    assert told["most"] <= MOST_BYTES, told
