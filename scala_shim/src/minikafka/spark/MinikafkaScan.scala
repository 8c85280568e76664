package minikafka.spark

import java.nio.charset.StandardCharsets.ISO_8859_1
import java.util.{HashMap => JavaHashMap, OptionalLong}

import scala.util.Try

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{
  Batch, Scan, Statistics, SupportsPushDownRequiredColumns, SupportsReportStatistics
}
import org.apache.spark.sql.connector.read.streaming.{ContinuousStream, MicroBatchStream}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceV2, PythonInputPartition, PythonScanBuilder
}
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Spark's own scan builder, filters included, with a `MinikafkaScan` around its scan. A batch query reads the
  * columns that it uses.
  */
private class MinikafkaScanBuilder(
    source: PythonDataSourceV2, columns: StructType, options: CaseInsensitiveStringMap)
    extends PythonScanBuilder(source, MinikafkaSource.Name, columns, options)
    with SupportsPushDownRequiredColumns {

  private var used = columns

  /** Keeps all columns where filters that Spark has pushed are part of the plan with them, and where values that
    * are not used decide which rows there are.
    */
  override def pruneColumns(required: StructType): Unit =
    if (!is("minikafka.pushdown", "true") && !is("minikafka.bad.values", "dead-letter"))
      used = MinikafkaScan.prune(columns, required)

  private def is(option: String, value: String) = Option(options.get(option)).exists(_.trim.equalsIgnoreCase(value))

  override def build(): Scan =
    if (used == columns) new MinikafkaScan(super.build(), columns, options)
    else {
      val selecting = MinikafkaScan.selecting(options, used)
      val builder = new PythonScanBuilder(MinikafkaSource.fresh(), MinikafkaSource.Name, used, selecting)
      new MinikafkaScan(builder.build(), used, selecting)
    }
}

/** Spark's scan of a Python source, with the topics in its description, its size, and streams with limits. */
private class MinikafkaScan(python: Scan, columns: StructType, options: CaseInsensitiveStringMap)
    extends Scan with SupportsMetadata with SupportsReportStatistics {

  @volatile private var streams = false

  /** Called mostly for queries with joins. Without a size Spark uses its default. */
  override def estimateStatistics(): Statistics =
    if (streams) MinikafkaScan.Unknown else statistics

  private lazy val statistics: Statistics = MinikafkaScan.estimate(columns, options)

  override def description(): String = MinikafkaScan.describe(options)

  override def getMetaData(): Map[String, String] = {
    val known = python match {
      case spark: SupportsMetadata => spark.getMetaData()
      case _ => Map.empty[String, String]
    }
    known + ("Topics" -> MinikafkaScan.topics(options))
  }

  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = {
    streams = true
    MinikafkaStream.reporting(MinikafkaStream.started(python.toMicroBatchStream(checkpointLocation)), options)
  }

  override def readSchema(): StructType = python.readSchema()
  override def toBatch(): Batch = python.toBatch()
  override def toContinuousStream(checkpointLocation: String): ContinuousStream =
    python.toContinuousStream(checkpointLocation)
  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = python.columnarSupportMode()
}

private object MinikafkaScan {
  private val Answer = "minikafka-estimate:(\\d+):(\\d+):".r.unanchored
  private val Unknown: Statistics = size(OptionalLong.empty, OptionalLong.empty)

  /** Returns the columns of which a query requires at least a part; one if it requires none, as for a count. */
  def prune(columns: StructType, required: StructType): StructType = {
    val kept = columns.filter(column => required.names.contains(column.name))
    if (kept.nonEmpty) StructType(kept)
    else StructType(columns.find(_.name == "partition").orElse(columns.headOption).toSeq)
  }

  /** Returns the options of a read of `columns`, which say whether there are headers. */
  def selecting(options: CaseInsensitiveStringMap, columns: StructType): CaseInsensitiveStringMap = {
    val all = new JavaHashMap[String, String](options)
    all.remove("includeheaders")
    withOption(new CaseInsensitiveStringMap(all), "minikafka.columns", columns.names.mkString(","))
  }

  private def withOption(
      options: CaseInsensitiveStringMap, name: String, value: String): CaseInsensitiveStringMap = {
    val all = new JavaHashMap[String, String](options)
    all.put(name, value)
    new CaseInsensitiveStringMap(all)
  }

  /** Lets Python plan the read again, which returns the size in place of tasks. */
  private def estimate(columns: StructType, options: CaseInsensitiveStringMap): Statistics = Try {
    val asking = withOption(options, "minikafka.estimate", "true")
    val scan = new PythonScanBuilder(MinikafkaSource.fresh(), MinikafkaSource.Name, columns, asking).build()
    scan.toBatch.planInputPartitions() match {
      case Array(PythonInputPartition(_, pickled)) => new String(pickled, ISO_8859_1) match {
        case Answer(rows, bytes) => size(OptionalLong.of(rows.toLong), OptionalLong.of(bytes.toLong.max(1)))
        case _ => Unknown
      }
      case _ => Unknown
    }
  }.getOrElse(Unknown)

  private def size(rows: OptionalLong, bytes: OptionalLong): Statistics = new Statistics {
    override def numRows(): OptionalLong = rows
    override def sizeInBytes(): OptionalLong = bytes
  }

  private val Strategies = Seq("subscribe", "subscribePattern", "assign")

  /** Returns for example `minikafka[subscribe=flights]`. */
  def describe(options: CaseInsensitiveStringMap): String =
    s"${MinikafkaSource.Name}[${topics(options)}]"

  /** Returns the option that selects the topics, with its value. */
  def topics(options: CaseInsensitiveStringMap): String =
    Strategies.flatMap(name => Option(options.get(name)).map(value => s"$name=$value")).mkString(", ")
}
