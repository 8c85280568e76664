package minikafka.spark

import java.util.{Map => JavaMap, Optional}

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._
import scala.util.{Failure, Success, Try}

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.SparkException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  AcceptsLatestSeenOffset, MicroBatchStream, Offset, ReadAllAvailable, ReadLimit, ReportsSourceMetrics,
  SupportsAdmissionControl, SupportsTriggerAvailableNow
}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

private object MinikafkaStream extends Logging {
  private val Late = "Python worker failed to connect back"
  private val Tries = 3
  private val Waits = "minikafka:waits="

  /** Starts a stream, and retries if its Python process does not connect within Spark's limit of ten seconds,
    * which is too short on a busy machine, for example when many queries start at once.
    */
  @tailrec
  def started(stream: => MicroBatchStream, tries: Int = Tries): MicroBatchStream =
    Try(stream) match {
      case Success(running) => running
      case Failure(problem: SparkException) if tries > 1 && problem.getMessage.contains(Late) =>
        logWarning(s"$Late within Spark's limit of ten seconds; the machine is busy, starting another worker")
        started(stream, tries - 1)
      case Failure(problem) => throw problem
    }

  /** Adds limits to Spark's stream for Python sources if Spark does not have them (before 4.2), and in every
    * Spark the name and the metrics of `MinikafkaStream`.
    */
  def reporting(stream: MicroBatchStream, options: CaseInsensitiveStringMap): MicroBatchStream = stream match {
    case limited: MicroBatchStream with SupportsTriggerAvailableNow => new LimitedStream(limited, options)
    case other: SupportsAdmissionControl => other
    case plain => new AskingStream(plain, options)
  }

  /** Returns partition -> offset of the JSON of an offset; none of the keys that are no topics. */
  private def positions(offset: Offset): Map[(String, String), Long] = Try {
    val keys = new ObjectMapper().readTree(offset.json).properties.asScala
    val topics = keys.filterNot(_.getKey.startsWith("minikafka:"))
    topics.flatMap(topic => topic.getValue.properties.asScala.map { partition =>
      (topic.getKey, partition.getKey) -> partition.getValue.asLong
    }).toMap
  }.getOrElse(Map.empty)

  /** Returns the metrics of a query that waits for open transactions. */
  private def waitMetrics(newest: Offset): Map[String, String] = Try {
    val keys = new ObjectMapper().readTree(newest.json).properties.asScala.map(_.getKey)
    // topic:partition:offset:producer:id:milliseconds
    val waits = keys.filter(_.startsWith(Waits)).flatMap(_.stripPrefix(Waits).split(";")).map(_.split(":")).toSeq
    if (waits.isEmpty) Map.empty[String, String]
    else Map(
      "partitionsWaitingForTransactions" -> waits.size.toString,
      "maxTransactionWaitMs" -> waits.map(_.last.toLong).max.toString,
      "transactionProducerIds" -> waits.map(_(3)).distinct.mkString(","))
  }.getOrElse(Map.empty)

  /** Returns the metrics of Spark's own Kafka source, under its names. */
  def metrics(end: Offset, newest: Offset): Map[String, String] = {
    val ends = positions(newest)
    val behind = positions(end).toSeq.map { case (partition, offset) =>
      math.max(0L, ends.getOrElse(partition, offset) - offset)
    }
    if (behind.isEmpty) Map.empty
    else waitMetrics(newest) ++ Map(
      "minOffsetsBehindLatest" -> behind.min.toString,
      "maxOffsetsBehindLatest" -> behind.max.toString,
      "avgOffsetsBehindLatest" -> (behind.sum.toDouble / behind.size).toString)
  }
}

/** A stream whose name in a query's progress has the topics, and whose metrics say how far it is behind. */
private abstract class MinikafkaStream(python: MicroBatchStream, options: CaseInsensitiveStringMap)
    extends MicroBatchStream with SupportsTriggerAvailableNow with AcceptsLatestSeenOffset
    with ReportsSourceMetrics {

  @volatile private var newest: Option[Offset] = None

  /** Returns the ends of the logs, null if they are not known. */
  protected def findNewest(): Offset

  override def reportLatestOffset(): Offset = {
    newest = Option(findNewest())
    newest.orNull
  }

  override def metrics(latestConsumedOffset: Optional[Offset]): JavaMap[String, String] =
    latestConsumedOffset.toScala.zip(newest)
      .map { case (end, last) => MinikafkaStream.metrics(end, last) }.getOrElse(Map.empty[String, String]).asJava

  override def setLatestSeenOffset(offset: Offset): Unit = python match {
    case stream: AcceptsLatestSeenOffset => stream.setLatestSeenOffset(offset)
    case _ =>
  }

  override def latestOffset(): Offset =
    throw new UnsupportedOperationException("latestOffset() is not supported; use latestOffset(start, limit)")

  override def initialOffset(): Offset = python.initialOffset()
  override def deserializeOffset(json: String): Offset = python.deserializeOffset(json)
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    python.planInputPartitions(start, end)
  override def createReaderFactory(): PartitionReaderFactory = python.createReaderFactory()
  override def commit(end: Offset): Unit = python.commit(end)
  override def stop(): Unit = python.stop()

  /** Returns the name of the source in a query's progress. */
  override def toString: String = MinikafkaScan.describe(options)
}

/** A stream of Spark 4.2 and later, which has limited batches and the trigger AvailableNow. */
private class LimitedStream(
    python: MicroBatchStream with SupportsTriggerAvailableNow, options: CaseInsensitiveStringMap)
    extends MinikafkaStream(python, options) {

  override def prepareForTriggerAvailableNow(): Unit = python.prepareForTriggerAvailableNow()
  override def latestOffset(start: Offset, limit: ReadLimit): Offset = python.latestOffset(start, limit)
  override def getDefaultReadLimit: ReadLimit = python.getDefaultReadLimit
  override protected def findNewest(): Offset = python.reportLatestOffset()
}

/** A stream of Spark 4.0 and 4.1 with limited batches and the trigger AvailableNow.
  *
  * Spark's own stream asks Python for the latest offset and passes no start and no limit. It does pass the
  * offsets of `commit`, so a question is sent there first, as an "offset" with the one key `minikafka:ask`,
  * which cannot be a topic; the next `latestOffset()` returns the answer. All arithmetic is done in Python, by
  * the same code as on later Sparks.
  */
private class AskingStream(python: MicroBatchStream, options: CaseInsensitiveStringMap)
    extends MinikafkaStream(python, options) {

  override def prepareForTriggerAvailableNow(): Unit = ask(""""what":"prepare"""")

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val everything = limit.isInstanceOf[ReadAllAvailable]
    ask(s""""what":"next","start":${start.json},"everything":$everything""")
  }

  override protected def findNewest(): Offset = {
    val newest = ask(""""what":"newest"""")
    if (newest.json == "null") null else newest
  }

  /** Python applies the limit of its own options; the value only shows that there is one. */
  override def getDefaultReadLimit: ReadLimit =
    number("maxOffsetsPerTrigger").map(ReadLimit.maxRows)
      .orElse(number("minOffsetsPerTrigger").map(ReadLimit.minRows(_, 0)))
      .getOrElse(ReadLimit.allAvailable())

  private def ask(question: String): Offset = {
    python.commit(python.deserializeOffset(s"""{"minikafka:ask":{$question}}"""))
    python.latestOffset()
  }

  private def number(option: String): Option[Long] = Option(options.get(option)).map(_.trim.toLong)
}
