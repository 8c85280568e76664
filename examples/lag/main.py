"""Shows the lag of a running streaming query from outside, with ``minikafka group describe``.

    python -m examples.lag [--data-dir D]     or     python examples/lag/main.py [--data-dir D]

A query reads 500 orders in batches (of 250 each, from Spark 4.2 on). It names a consumer group in
``minikafka.commit.group``, so that the tool, which knows nothing of Spark, shows the group's lag, and the
query as its member. ``kafka-consumer-groups.sh`` shows the same. Exit status 0 when the lag went down to 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # Run as a file: let `examples` be found, as with `python -m`.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession

import pyspark_minikafka  # noqa: F401  # first: Spark then looks for sources with this very Python
from minikafka.base.errors import BrokerError
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.producer import KeyedMessage, Producer
from minikafka.embedded import local

GROUP = "dashboard"
ORDERS = 500
PATIENCE_S = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Return the exit status."""
    parser = argparse.ArgumentParser(prog="lag", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="default: a temporary one")
    given = parser.parse_args(arguments).data_dir
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = str((given or Path(scratch) / "data").absolute())
        builder = SparkSession.builder.appName("lag").master("local[2]")
        for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
            builder = builder.config(name, "false")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            return watch(session, data_dir)
        finally:
            session.stop()
            if given is None:
                local.stop(data_dir)


def watch(spark: SparkSession, data_dir: str) -> int:
    """Produce the orders, read them with a query, and show the lag of its group meanwhile."""
    address = local.ensure(data_dir)
    with ClusterClient(address.bootstrap_servers) as cluster:
        topic = f"orders-{int(time.time())}"
        Admin(cluster).create_topic(NewTopic(topic, partitions=2))
        properties = {
            "metadata.broker.list": address.bootstrap_servers,
            "serializer.class": "kafka.serializer.StringEncoder",
        }
        with Producer(properties) as producer:
            producer.send([KeyedMessage(topic, "an order", str(number)) for number in range(ORDERS)])

        query = (
            spark.readStream.format("minikafka")
            .option("minikafka.data.dir", data_dir)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 250)
            .option("minikafka.commit.group", GROUP)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", os.path.join(data_dir, "checkpoints", topic))
            .trigger(processingTime="3 seconds")
            .start()
        )
        try:
            shown = None
            deadline = time.monotonic() + PATIENCE_S
            while (left := lag(cluster, topic)) != 0 and time.monotonic() < deadline:
                if left is not None and left != shown and shown in (None, ORDERS):
                    describe(data_dir)
                    shown = left
                time.sleep(0.5)
            describe(data_dir)
        finally:
            query.stop()
    print("the query has caught up" if left == 0 else f"the lag is still {left}")
    return 0 if left == 0 else 1


def lag(cluster: ClusterClient, topic: str) -> int | None:
    """Return the number of orders that the group has not read; None while it is unknown."""
    groups = GroupAdmin(cluster)
    try:
        found = [
            partition.lag
            for partition in groups.lags(groups.describe(GROUP))
            if partition.topic_partition.topic == topic
        ]
    except BrokerError:
        return None
    known = [lag for lag in found if lag is not None]
    return sum(known) if known and len(known) == len(found) else None


def describe(data_dir: str) -> None:
    """Print the command line's description of the group."""
    command = [sys.executable, "-m", "minikafka.cli.main", "group", "describe", GROUP, "--data-dir", data_dir]
    print(f"$ minikafka group describe {GROUP} --data-dir {data_dir}", flush=True)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
