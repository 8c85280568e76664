"""Archive the classes that a Spark session loads, so that the JVMs of the tests start with half the work.

    archive_spark_classes.py ARCHIVE

Run with the environment's interpreter. The archive is one of Java's class data sharing (JEP 350): a JVM that
is given one which does not fit its Java or its jars goes on without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
END_S = 300


def use(spark: SparkSession, directory: str) -> None:
    """Load what most queries need: aggregates, joins, SQL, Python functions and streams."""
    rows = spark.range(100).selectExpr("id % 3 AS k", "cast(id AS string) AS v")
    counts = rows.groupBy("k").count()
    rows.join(counts, "k").orderBy("v").collect()
    rows.mapInArrow(lambda batches: batches, "k long, v string").collect()
    rows.createOrReplaceTempView("rows")
    spark.sql("SELECT k, max(v) FROM rows GROUP BY k").show()
    stream = spark.readStream.format("rate").load().groupBy("value").count().writeStream
    stream = stream.format("memory").queryName("counts").outputMode("complete")
    query = stream.option("checkpointLocation", directory).trigger(once=True).start()
    query.awaitTermination(END_S)


def main(archive: str) -> int:
    os.environ["JDK_JAVA_OPTIONS"] = f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={archive}.new -Xlog:disable"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as directory:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF")
        builder = builder.config("spark.local.dir", directory).config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.sql.warehouse.dir", directory)
        spark = builder.getOrCreate()
        use(spark, f"{directory}/checkpoint")
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_S)
    Path(f"{archive}.new").rename(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
