"""Write, read and stream 100 rows with the options on stdin, and print how many came back.

python spark_login.py TOPIC DIRECTORY < OPTIONS.json
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

topic, directory = sys.argv[1:]
options = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
rows = spark.range(100).selectExpr("cast(id as string) as value")
rows.write.format("minikafka").mode("append").options(**options).option("topic", topic).save()
read = spark.read.format("minikafka").options(**options).option("subscribe", topic).load().count()
stream = spark.readStream.format("minikafka").options(**options, startingOffsets="earliest")
query = (
    stream.option("subscribe", topic)
    .load()
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{directory}/rows")
)
query.awaitTermination()
sys.stdout.write(json.dumps([read, spark.read.parquet(f"{directory}/rows").count()]) + "\n")
