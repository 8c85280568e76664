"""The same format from Scala and SQL: with and without the shim's jar, with and without the Python package.

What needs a Java virtual machine of its own asks all that it has to ask in one; the rest is asked of the
session that all tests share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_minikafka
from minikafka.embedded import local
from pyspark_minikafka import shim
from tests.spark.conftest import ROOT, Kafka, child_environment
from tests.support.processes import kill_family, run_to_end, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 300
JARS = shim.find_spark_jars()
QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}


def run(command: Sequence[str], cwd: Path, **environment: str) -> str:
    """The output of a program of Spark's."""
    spark = {"SPARK_HOME": str(JARS.parent), "PYSPARK_PYTHON": sys.executable}
    spark["SPARK_LOCAL_DIRS"] = str(cwd / "spark")
    return run_to_end(command, cwd, PATIENCE_S, **(spark | environment))


def spark_program(name: str, *arguments: str) -> list[str]:
    """The command of one of the programs in Spark's ``bin``, with few messages."""
    settings = [word for key, value in QUIET.items() for word in ("--conf", f"{key}={value}")]
    return [str(JARS.parent / "bin" / name), "--master", "local[2]", *settings, *arguments]


def values(kafka: Kafka, spark: SparkSession, topic: str) -> list[str]:
    rows = spark.read.format("minikafka").option("kafka.bootstrap.servers", kafka.servers)
    found = rows.option("subscribe", topic).load().select("value").collect()
    return sorted(bytes(row.value).decode() for row in found)


# From Scala.

PROBE = """
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.Trigger

object Probe {
  def main(arguments: Array[String]): Unit = {
    val Array(servers, from, to) = arguments
    val spark = SparkSession.builder().getOrCreate()
    import spark.implicits._
    val cluster = Map("kafka.bootstrap.servers" -> servers)

    Seq("a", "b").toDF("value").write.format("minikafka")
      .options(cluster + ("topic" -> from)).mode("append").save()
    val rows = spark.read.format("minikafka").options(cluster + ("subscribe" -> from)).load()
    println("read: " + rows.selectExpr("cast(value AS string)").as[String].collect().sorted.mkString(" "))

    spark.readStream.format("minikafka")
      .options(cluster ++ Map("subscribe" -> from, "startingOffsets" -> "earliest")).load()
      .selectExpr("upper(cast(value AS string)) AS value")
      .writeStream.format("minikafka").options(cluster + ("topic" -> to))
      .option("checkpointLocation", "checkpoint").trigger(Trigger.AvailableNow()).start().awaitTermination()

    println("provider: " + org.apache.spark.sql.execution.datasources.DataSource
      .lookupDataSource("minikafka", spark.sessionState.conf).getName)
    spark.stop()
  }
}
"""


@pytest.mark.long
def test_scala_without_jar_reads_and_writes_batches_and_streams(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "Probe.scala").write_text(PROBE)
    shim.compile_scala([tmp_path / "Probe.scala"], tmp_path / "classes", JARS)
    shim.write_jar(tmp_path / "probe.jar", tmp_path / "classes")
    source, sink = kafka.topic(), kafka.topic()
    program = ["--class", "Probe", str(tmp_path / "probe.jar"), kafka.servers, source, sink]
    said = run(spark_program("spark-submit", *program), tmp_path)
    assert "read: a b\n" in said
    assert "provider: org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2\n" in said
    assert values(kafka, spark, sink) == ["A", "B"]


@pytest.mark.long
def test_the_scala_example_reads_and_writes_with_typed_options(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    said = run([sys.executable, "-m", "examples.scala", kafka.servers], tmp_path)
    assert "|     AA|      98.0|" in said
    assert "late: 2\n" in said
    assert values(kafka, spark, "late") == ["184", "75"]


# From PySpark, where the jar is not needed and may be there.

SESSION = """
    import json, sys
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def refused(do):
        try:
            do()
        except PySparkException as problem:
            return [problem.getCondition(), str(problem)]
        return None
"""


SCRIPTS = """
    for line in sys.stdin:
        source, sys.argv[2:] = json.loads(line)
        exec(source, {**globals(), "spark": spark.newSession()})
        print("done", flush=True)
"""


def with_the_jar(cwd: Path) -> str:
    """Settings of a session that has the jar."""
    warehouse = {"spark.sql.warehouse.dir": str(cwd / "warehouse")}
    return json.dumps({**QUIET, **warehouse, "spark.jars": pyspark_minikafka.shim_path()})


def in_pyspark(source: str, cwd: Path, *arguments: str, **environment: str) -> Any:
    """Run a script with its own session and the jar, and return its JSON output."""
    code = textwrap.dedent(SESSION) + textwrap.dedent(source)
    said = run([sys.executable, "-c", code, with_the_jar(cwd), *arguments], cwd, **environment)
    return json.loads(said.splitlines()[-1])


class JarSession:
    """A process with the jar in which scripts run one after the other, each in a session of its own."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def run(self, source: str, *arguments: str) -> Any:
        """Run the script and return its JSON output; its arguments are ``sys.argv[2:]``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([textwrap.dedent(source), arguments]) + "\n")
        self._process.stdin.flush()
        said = ""
        for line in self._process.stdout:
            if line == "done\n":
                return json.loads(said)
            said = line
        raise AssertionError(self._errors.read_text()[-6_000:])


@pytest.fixture(scope="module")
def jar_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JarSession]:
    """One for all tests that need no settings of their own."""
    cwd = tmp_path_factory.mktemp("jar")
    code = textwrap.dedent(SESSION) + textwrap.dedent(SCRIPTS)
    given = {**child_environment(), "SPARK_HOME": str(JARS.parent), "PYSPARK_PYTHON": sys.executable}
    with (cwd / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code, with_the_jar(cwd)],
            cwd=cwd,
            env={**given, "SPARK_LOCAL_DIRS": str(cwd / "spark")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield JarSession(process, cwd / "errors.txt")
        finally:
            kill_family(process.pid)
            process.communicate()


def test_jar_without_package_reports_what_to_install(tmp_path: Path) -> None:
    """A Python without site-packages is one where minikafka is not installed."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="$SPARK_HOME/.." exec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    read, registered = in_pyspark(
        """
        from pyspark.sql.datasource import DataSource

        class Another(DataSource):
            @classmethod
            def name(cls):
                return "minikafka"

        read = refused(lambda: spark.read.format("minikafka").option("subscribe", "t").load())
        registered = refused(lambda: spark.dataSource.register(Another))
        print(json.dumps([read, registered]))
        """,
        tmp_path,
        PYSPARK_PYTHON=str(bare),
    )
    assert read[0] == "DATA_SOURCE_NOT_EXIST"
    assert f"The Python that Spark started, {bare}, has no data source minikafka" in read[1]
    assert "pip install 'minikafka[spark]'" in read[1]
    assert registered[0] == "DATA_SOURCE_ALREADY_EXISTS"


def test_with_the_jar_and_the_package_sql_does_what_it_cannot_do_without(
    kafka: Kafka, spark: SparkSession, jar_session: JarSession
) -> None:
    topic = kafka.topic_with(["a"])
    found = jar_session.run(
        """
        import pyspark_minikafka

        servers, topic = sys.argv[2:]
        options = f"(`kafka.bootstrap.servers` '{servers}', subscribe '{topic}', topic '{topic}')"
        values = lambda table: sorted(row[0] for row in spark.sql(
            f"SELECT cast(value AS string) FROM {table}").collect())
        found = {}

        found["registered"] = refused(lambda: spark.dataSource.register(pyspark_minikafka.DefaultSource))
        found["registered, read"] = spark.read.format("minikafka").options(**{
            "kafka.bootstrap.servers": servers, "subscribe": topic}).load().count()

        spark.sql(f"CREATE TEMPORARY VIEW v USING minikafka OPTIONS {options}")
        found["view"] = values("v")
        spark.sql("INSERT INTO v SELECT 'b' AS value")
        spark.sql(f"INSERT INTO v (topic, value) VALUES ('{topic}', 'c')")
        found["view, again"] = values("v")

        spark.sql(f"CREATE TABLE t USING minikafka OPTIONS {options}")
        found["table"] = values("t")
        spark.sql("INSERT INTO t BY NAME SELECT 'd' AS value, 'k' AS key")
        found["table, again"] = values("t")
        found["with"] = values(f"t WITH (startingOffsets '{json.dumps({topic: {'0': 3}})}')")
        found["joined"] = spark.sql("SELECT * FROM t JOIN v USING (offset)").count()

        stream = spark.readStream.option("startingOffsets", "earliest").table("t")
        stream = stream.selectExpr("concat(cast(value AS string), '!') AS value").writeStream
        stream = stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
        stream.toTable("t").awaitTermination()
        found["stream"] = values("t")

        found["overwrite"] = refused(lambda: spark.sql("INSERT OVERWRITE t BY NAME SELECT 'x' AS value"))
        found["no value"] = refused(lambda: spark.sql("INSERT INTO t VALUES ('x')"))
        found["as select"] = refused(lambda: spark.sql(
            f"CREATE TABLE s USING minikafka OPTIONS {options} AS SELECT 'x' AS value"))
        spark.sql(f"CREATE TABLE w (a int) USING minikafka OPTIONS {options}")
        found["columns, read"] = refused(lambda: spark.sql("SELECT * FROM w").collect())
        found["columns, write"] = refused(lambda: spark.sql("INSERT INTO w SELECT 1 AS a"))
        found["tables"] = sorted(row.tableName for row in spark.sql("SHOW TABLES").collect())
        print(json.dumps(found))
        """,
        kafka.servers,
        topic,
    )
    if spark.version < "4.1":
        assert found["registered"][0] == "DATA_SOURCE_ALREADY_EXISTS"
    else:
        assert found["registered"] is None
    assert found["registered, read"] == 1
    assert (found["view"], found["view, again"]) == (["a"], ["a", "b", "c"])
    assert (found["table"], found["table, again"]) == (["a", "b", "c"], ["a", "b", "c", "d"])
    assert found["with"] == ["d"]
    assert found["joined"] == 4
    assert found["stream"] == ["a", "a!", "b", "b!", "c", "c!", "d", "d!"]
    assert "must be append" in found["overwrite"][1]
    assert "the required column value is missing" in found["no value"][1]
    assert "has fixed columns (key BINARY,value BINARY" in found["as select"][1]
    assert "fixed schema" in found["columns, read"][1]
    assert "has fixed columns" in found["columns, write"][1]
    assert found["tables"] == ["t", "v", "w"]
    assert values(kafka, spark, topic) == found["stream"]


def test_a_table_of_selected_columns_takes_rows_of_all(kafka: Kafka, jar_session: JarSession) -> None:
    topic = kafka.topic_with(["a"])
    found = jar_session.run(
        """
        servers, topic = sys.argv[2:]
        spark.sql(f"CREATE TABLE narrow USING minikafka OPTIONS (`kafka.bootstrap.servers` '{servers}', "
            f"subscribe '{topic}', topic '{topic}', `minikafka.columns` 'value,key')")
        spark.sql("INSERT INTO narrow BY NAME SELECT 'k' AS key, 'b' AS value")
        rows = spark.sql("SELECT * FROM narrow").collect()
        print(json.dumps([spark.table("narrow").columns, sorted(row.value.decode() for row in rows)]))
        spark.sql("DROP TABLE narrow")
        """,
        kafka.servers,
        topic,
    )
    assert found == [["value", "key"], ["a", "b"]]


def test_with_the_jar_a_batch_reads_only_the_columns_it_uses(kafka: Kafka, jar_session: JarSession) -> None:
    topic = kafka.topic_with(["a", "b"])
    found = jar_session.run(
        """
        def read(**more):
            options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": sys.argv[3]}
            return spark.read.format("minikafka").options(**options, **more).load()

        def columns(frame):
            plan = frame._jdf.queryExecution().optimizedPlan()
            return list(plan.collectLeaves().head().scan().readSchema().fieldNames())

        frame = read()
        value, where = frame.select("value"), frame.where("offset > 0").selectExpr("length(value)", "topic")
        headers = read(includeHeaders="true").where("headers IS NULL").select("offset")
        selected, pushed = read(**{"minikafka.columns": "value,key"}), read(**{"minikafka.pushdown": "true"})
        count = frame.selectExpr("count(*)")
        json_values = {"minikafka.value.format": "json", "minikafka.value.schema": "n INT"}
        dead = {"minikafka.bad.values": "dead-letter", "minikafka.dead.letter.topic": sys.argv[4]}
        print(json.dumps([
            [columns(value), sorted(row.value.decode() for row in value.collect())],
            [columns(where), [list(row) for row in where.collect()]],
            [columns(headers), sorted(row.offset for row in headers.collect())],
            [columns(selected.select("key")), selected.select("key").count()],
            [len(columns(pushed.select("value"))), pushed.where("offset = 1").select("value").count()],
            [columns(count), count.collect()[0][0]],
            [len(columns(frame)), frame.count()],
            read(**json_values, **dead).count(),  # as many as with the values
        ]))
        """,
        kafka.servers,
        topic,
        kafka.topic(),
    )
    assert found == [
        [["value"], ["a", "b"]],
        [["value", "topic", "offset"], [[1, topic]]],
        [["offset", "headers"], [0, 1]],
        [["key"], 2],
        [7, 1],
        [["partition"], 2],
        [7, 2],
        0,
    ]


def test_jar_limits_available_now_batches_and_closes_windows(kafka: Kafka, jar_session: JarSession) -> None:
    """Also where its sink fails half-way and records come in between, as with Spark's own connector."""
    topic = kafka.topic(2, config={"retention.ms": "-1"})  # the times of its records are long ago
    found = jar_session.run(
        """
        from pyspark.sql import functions as F

        spark.conf.set("spark.sql.shuffle.partitions", "2")
        servers, topic = sys.argv[2:]
        cluster = {"kafka.bootstrap.servers": servers}
        windows, batches = [], []

        def send(first, last):
            every_20_s = spark.range(60 * first + (20 if first else 0), 60 * last + 1, 20, 1)  # in order
            rows = every_20_s.selectExpr("'v' AS value", "timestamp_seconds(1700000040 + id) AS timestamp",
                                         "int(id / 20 % 2) AS partition")
            rows.write.format("minikafka").options(topic=topic, **cluster).mode("append").save()

        def run(fail_in=None):
            def collect(frame, number):
                if number == fail_in:
                    raise ValueError("the sink is away")
                windows.extend(row["count"] for row in frame.collect())

            stream = spark.readStream.format("minikafka").options(subscribe=topic, **cluster)
            stream = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
            counts = stream.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "1 minute"))
            query = counts.count().writeStream.outputMode("append").foreachBatch(collect)
            query = query.option("checkpointLocation", "windows").trigger(availableNow=True).start()
            failed = refused(query.awaitTermination)
            assert (failed is None) == (fail_in is None), failed
            progress = [json.loads(each.json) for each in query.recentProgress]
            batches.extend(each["numInputRows"] for each in progress)
            return progress

        send(0, 160)
        run(fail_in=2)
        half_way = len(windows)
        progress = run()
        first = len(windows)
        send(160, 170)
        run()
        run()
        print(json.dumps({
            "half way": half_way, "first": first, "windows": windows, "batches": batches,
            "sources": [each["sources"][0] for each in progress],
        }))
        """,
        kafka.servers,
        topic,
    )
    assert 0 < found["half way"] < 160
    assert found["first"] == 160
    assert found["windows"] == [3] * 170
    assert [rows for rows in found["batches"] if rows] == [99, 100, 100, 100, 82, 30]
    assert found["sources"][-1]["latestOffset"] == {topic: {"0": 241, "1": 240}}
    assert {source["description"] for source in found["sources"]} == {f"minikafka[subscribe={topic}]"}
    # The first batch of a restart was planned by the last run: Spark does not report where the logs end.
    behind = [source.get("metrics", {}).get("maxOffsetsBehindLatest") for source in found["sources"]]
    assert behind == [None, "41", "0", "0"]


def test_jar_reports_size_for_joins_and_names_topic_in_explain(kafka: Kafka, jar_session: JarSession) -> None:
    small, large = kafka.topic(), kafka.topic(2)
    found = jar_session.run(
        """
        servers, small, large = sys.argv[2:]
        cluster = {"kafka.bootstrap.servers": servers}

        def topic(name, **options):
            return spark.read.format("minikafka").options(subscribe=name, **cluster, **options).load()

        def send(name, rows):
            rows = spark.range(rows).selectExpr("repeat('v', 1000) AS value", "cast(id AS string) AS key")
            rows.write.format("minikafka").options(topic=name, **cluster).mode("append").save()

        def size(frame):
            return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))

        def plan(frame):
            return frame._jdf.queryExecution().executedPlan().toString()

        send(small, 100)
        send(large, 20000)
        joined = topic(small).join(topic(large), "key")
        few = {"endingOffsets": json.dumps({large: {"0": 10, "1": 0}})}
        print(json.dumps({
            "sizes": [size(topic(small)), size(topic(large)), size(topic(large, **few))],
            "plan": plan(joined),
        }))
        """,
        kafka.servers,
        small,
        large,
    )
    assert 100 * 1_000 < found["sizes"][0] < 100 * 1_300
    assert 20_000 * 1_000 < found["sizes"][1] < 20_000 * 1_300
    assert 10 * 1_000 < found["sizes"][2] < 10 * 1_300
    assert "BroadcastHashJoin" in found["plan"]
    assert f"minikafka[subscribe={small}]" in found["plan"]


@pytest.mark.long
def test_with_the_jar_a_stream_whose_worker_is_late_is_started_again(kafka: Kafka, tmp_path: Path) -> None:
    """Spark waits ten seconds for the process of a stream, whatever the machine has to do."""
    topic = kafka.topic_with(["a"])
    busy = tmp_path / "python"
    late = tmp_path / "late"
    busy.write_text(
        f"""#!/bin/sh
case "$*" in
*streaming_source_runner*) mkdir '{late}' 2>/dev/null && exec sleep 12 ;;
esac
exec "{sys.executable}" "$@"
"""
    )
    busy.chmod(0o755)
    rows = in_pyspark(
        """
        servers, topic = sys.argv[2:]
        stream = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", servers)
        stream = stream.options(subscribe=topic, startingOffsets="earliest").load().writeStream
        query = stream.format("memory").queryName("rows").trigger(availableNow=True).start()
        query.awaitTermination()
        print(json.dumps(spark.table("rows").count()))
        """,
        tmp_path,
        kafka.servers,
        topic,
        PYSPARK_PYTHON=str(busy),
    )
    assert rows == 1
    assert late.is_dir()


# From SQL.


@pytest.mark.slow
def test_the_sql_example_needs_nothing_but_spark_sql(tmp_path: Path) -> None:
    script = ROOT / "examples" / "sql_only" / "delays.sql"
    catalog = ["--conf", "spark.sql.catalogImplementation=in-memory", "--jars", pyspark_minikafka.shim_path()]
    try:
        said = run(spark_program("spark-sql", *catalog, "-f", str(script)), tmp_path)
    finally:
        wait_until(lambda: local.running(str(tmp_path / "minikafka-data")) is None, "the broker's end", 30)
    assert (tmp_path / "minikafka-data" / "broker-0").is_dir()  # where spark-sql was started
    assert said.split() == [
        "AA",
        "98.0",
        "DL",
        "75.0",
        "UA",
        "-3.0",
        "WN",
        "7.0",
        "1",
        "AA",
        "184",
        "DL",
        "75",
    ]


def options_of(kafka: Kafka, topic: str) -> str:
    return f"(`kafka.bootstrap.servers` '{kafka.servers}', subscribe '{topic}', topic '{topic}')"


def test_without_the_jar_a_view_reads_and_takes_rows_of_all_its_columns(
    kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.topic_with(["a"])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING minikafka OPTIONS {options_of(kafka, topic)}")
    try:
        assert [row.v for row in spark.sql("SELECT cast(value AS string) AS v FROM seen").collect()] == ["a"]
        spark.sql("INSERT INTO seen SELECT null, encode('b', 'utf-8'), null, 0, null, null, null")
        assert values(kafka, spark, topic) == ["a", "b"]
        assert spark.table("seen").count() == 2
        with pytest.raises(Exception, match="INSERT_COLUMN_ARITY_MISMATCH"):
            spark.sql("INSERT INTO seen SELECT encode('c', 'utf-8') AS value")
        with pytest.raises(Exception, match=r'Cannot safely cast `\w+` "STRING" to "BINARY"'):
            spark.sql("INSERT INTO seen SELECT 'k', 'v', null, 0, null, null, null")
    finally:
        spark.catalog.dropTempView("seen")


def test_without_the_jar_spark_41_fills_the_columns_that_are_not_named(
    kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.topic()
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING minikafka OPTIONS {options_of(kafka, topic)}")
    insert = "INSERT INTO seen BY NAME SELECT encode('b', 'utf-8') AS value"
    try:
        if spark.version < "4.1":
            with pytest.raises(Exception, match="CANNOT_FIND_DATA"):
                spark.sql(insert)
        else:
            spark.sql(insert)
            assert values(kafka, spark, topic) == ["b"]
    finally:
        spark.catalog.dropTempView("seen")


def test_catalog_table_without_jar_is_refused(kafka: Kafka, spark: SparkSession) -> None:
    """Its options would be lost, and its rows go to a cluster in the working directory."""
    here = Path("minikafka-data")
    before = here.exists()
    options = options_of(kafka, kafka.topic())
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    columns += ", timestampType INT"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE lost USING minikafka OPTIONS {options}")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE lost USING minikafka OPTIONS {options} AS SELECT 't' AS topic, 'v' AS value")
    spark.sql(f"CREATE TABLE lost ({columns}) USING minikafka OPTIONS {options}")
    try:
        for statement in (
            "SELECT * FROM lost",
            "INSERT INTO lost SELECT null, null, 't', 0, null, null, null",
        ):
            with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE lost")
    assert here.exists() == before
