"""New orders of a topic, as lines of JSON in files: a query that continues from its checkpoint.

before.py SERVERS TOPIC DIRECTORY     with Spark's Kafka source, which needs a jar:
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 before.py …
after.py SERVERS TOPIC DIRECTORY      the same query with ours, which continues from the same checkpoint
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def run(spark: SparkSession, servers: str, topic: str, directory: str) -> None:
    """Take all orders that are there and not yet in ``directory``/orders."""
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    (
        orders.selectExpr("cast(key AS string) AS customer", "cast(value AS string) AS item", "timestamp")
        .writeStream.format("json")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/orders")
        .awaitTermination()
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} SERVERS TOPIC DIRECTORY, as localhost:9092 orders ./orders")
    run(SparkSession.builder.getOrCreate(), *sys.argv[1:])
