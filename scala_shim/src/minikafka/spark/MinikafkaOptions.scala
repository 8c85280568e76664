package minikafka.spark

import java.time.Instant

import scala.concurrent.duration.FiniteDuration

/** One option: its name, and the conversion of a value to the text that Spark passes on. */
final class MinikafkaOption[-T] private[spark] (val name: String, write: T => String) {

  /** The pair of name and text, for `options(Map(…))`. */
  def apply(value: T): (String, String) = name -> write(value)

  override def toString: String = name
}

/** The start or the end of a read. */
final case class Offsets(text: String)

object Offsets {
  val Earliest: Offsets = Offsets("earliest")
  val Latest: Offsets = Offsets("latest")

  /** The committed offsets of a consumer group; only for a start. */
  def group(name: String): Offsets = Offsets("group:" + name)

  /** Topic -> partition -> offset for all partitions that are read; -1 is latest, -2 earliest. */
  def at(offsets: Map[String, Map[Int, Long]]): Offsets = Offsets(Json.ofPartitions(offsets)(_.toString))
}

/** The options of source and sink, typed, with Kafka's own names:
  * {{{
  * import minikafka.spark.MinikafkaOptions._
  * spark.read.format("minikafka").options(Map(Subscribe(Seq("delays")), MinPartitions(8))).load()
  * }}}
  * Values and combinations are checked in Python.
  */
object MinikafkaOptions {
  // The brokers: a cluster, or the directory of the embedded one.
  val BootstrapServers = text("kafka.bootstrap.servers")
  val DataDir = text("minikafka.data.dir")

  // The topics to read: one of the three.
  val Assign = option[Map[String, Seq[Int]]]("assign")(Json.ofTopics(_)(_.mkString("[", ",", "]")))
  val Subscribe = option[Seq[String]]("subscribe")(_.mkString(","))
  val SubscribePattern = text("subscribePattern")

  // The start and the end.
  val StartingOffsets = option[Offsets]("startingOffsets")(_.text)
  val EndingOffsets = option[Offsets]("endingOffsets")(_.text)
  val StartingTimestamp = time("startingTimestamp")
  val EndingTimestamp = time("endingTimestamp")
  val StartingOffsetsByTimestamp = times("startingOffsetsByTimestamp")
  val EndingOffsetsByTimestamp = times("endingOffsetsByTimestamp")
  val StartingOffsetsByTimestampStrategy = text("startingOffsetsByTimestampStrategy")
  val LastRecords = number("minikafka.last.records")
  val LastDuration = duration("minikafka.last.duration")
  val ResumeFrom = text("minikafka.resume.from")
  val ChangedTopics = text("minikafka.changed.topics")

  // The way of reading.
  val FailOnDataLoss = truth("failOnDataLoss")
  val IncludeHeaders = truth("includeHeaders")
  val Columns = option[Seq[String]]("minikafka.columns")(_.mkString(","))
  val MinPartitions = number("minPartitions")
  val MaxRecordsPerPartition = number("maxRecordsPerPartition")
  val Tasks = text("minikafka.tasks")
  val Cores = number("minikafka.cores")
  val MinOffsetsPerTrigger = number("minOffsetsPerTrigger")
  val MaxOffsetsPerTrigger = number("maxOffsetsPerTrigger")
  val MaxTriggerDelay = duration("maxTriggerDelay")
  val PollTimeoutMs = number("kafkaConsumer.pollTimeoutMs")
  val FetchOffsetNumRetries = number("fetchOffset.numRetries")
  val FetchOffsetRetryIntervalMs = number("fetchOffset.retryIntervalMs")
  val LogTasks = truth("minikafka.log.tasks")
  val MetricsAddress = text("minikafka.metrics.address")
  val Pushdown = truth("minikafka.pushdown")
  val SingleBatch = text("minikafka.single.batch")
  val GroupIdPrefix = text("groupIdPrefix")
  val GroupId = text("kafka.group.id")
  val CommitGroup = text("minikafka.commit.group")
  val OffsetsStorage = text("kafka.offsets.storage")
  val ZookeeperConnect = text("kafka.zookeeper.connect")

  // The formats of keys and values.
  val KeyFormat = text("minikafka.key.format")
  val KeySchema = text("minikafka.key.schema")
  val KeySchemaFile = text("minikafka.key.schema.file")
  val KeyMessage = text("minikafka.key.message")
  val ValueFormat = text("minikafka.value.format")
  val ValueSchema = text("minikafka.value.schema")
  val ValueSchemaFile = text("minikafka.value.schema.file")
  val ValueMessage = text("minikafka.value.message")
  val BadValues = text("minikafka.bad.values")
  val DeadLetterTopic = text("minikafka.dead.letter.topic")

  // The schema registry.
  val SchemaRegistryUrl = text("minikafka.schema.registry.url")
  val SchemaRegistryBasicAuthCredentialsSource = text("minikafka.schema.registry.basic.auth.credentials.source")
  val SchemaRegistryBasicAuthUserInfo = text("minikafka.schema.registry.basic.auth.user.info")
  val SchemaRegistryBearerAuthCredentialsSource = text("minikafka.schema.registry.bearer.auth.credentials.source")
  val SchemaRegistryBearerAuthToken = text("minikafka.schema.registry.bearer.auth.token")
  val SchemaRegistryHttpConnectTimeoutMs = number("minikafka.schema.registry.http.connect.timeout.ms")
  val SchemaRegistryHttpReadTimeoutMs = number("minikafka.schema.registry.http.read.timeout.ms")
  val SchemaRegistryMaxRetries = number("minikafka.schema.registry.max.retries")
  val SchemaRegistryRetriesWaitMs = number("minikafka.schema.registry.retries.wait.ms")
  val SchemaRegistryRetriesMaxWaitMs = number("minikafka.schema.registry.retries.max.wait.ms")
  val KeySubjectNameStrategy = text("minikafka.key.subject.name.strategy")
  val ValueSubjectNameStrategy = text("minikafka.value.subject.name.strategy")
  val AutoRegisterSchemas = truth("minikafka.auto.register.schemas")
  val UseLatestVersion = truth("minikafka.use.latest.version")
  val NormalizeSchemas = truth("minikafka.normalize.schemas")

  // The topic of a write, and how often it gets a row.
  val Topic = text("topic")
  val Delivery = text("minikafka.delivery")
  val SinkId = text("minikafka.sink.id")
  val TransactionTimeoutMs = number("kafka.transaction.timeout.ms")

  // Properties of Kafka's clients.
  val ClientId = text("kafka.client.id")
  val RequestTimeoutMs = number("kafka.request.timeout.ms")
  val MetadataMaxAgeMs = number("kafka.metadata.max.age.ms")
  val RetryBackoffMs = number("kafka.retry.backoff.ms")
  val ConnectionsMaxIdleMs = number("kafka.connections.max.idle.ms")
  val SecurityProtocol = text("kafka.security.protocol")
  val MaxPartitionFetchBytes = number("kafka.max.partition.fetch.bytes")
  val FetchMinBytes = number("kafka.fetch.min.bytes")
  val FetchMaxWaitMs = number("kafka.fetch.max.wait.ms")
  val CheckCrcs = truth("kafka.check.crcs")
  val IsolationLevel = text("kafka.isolation.level")
  val ClientRack = text("kafka.client.rack")
  val Acks = text("kafka.acks")
  val CompressionType = text("kafka.compression.type")
  val Retries = number("kafka.retries")
  val LingerMs = number("kafka.linger.ms")
  val BatchSize = number("kafka.batch.size")
  val MaxRequestSize = number("kafka.max.request.size")
  val BufferMemory = number("kafka.buffer.memory")
  val MaxInFlightRequests = number("kafka.max.in.flight.requests.per.connection")
  val MaxBlockMs = number("kafka.max.block.ms")
  val DeliveryTimeoutMs = number("kafka.delivery.timeout.ms")
  val EnableIdempotence = truth("kafka.enable.idempotence")

  /** Any other property of Kafka's clients, such as `fetch.max.bytes`. */
  def kafka(property: String): MinikafkaOption[String] = text("kafka." + property)

  private def option[T](name: String)(write: T => String) = new MinikafkaOption[T](name, write)
  private def text(name: String) = option[String](name)(identity)
  private def number(name: String) = option[Long](name)(_.toString)
  private def truth(name: String) = option[Boolean](name)(_.toString)
  private def duration(name: String) = option[FiniteDuration](name)(_.toMillis.toString + "ms")
  private def time(name: String) = option[Instant](name)(_.toEpochMilli.toString)
  private def times(name: String) =
    option[Map[String, Map[Int, Instant]]](name)(Json.ofPartitions(_)(_.toEpochMilli.toString))
}

/** Kafka's names of topics need no escapes; Python refuses others. */
private object Json {
  def ofTopics[T](topics: Map[String, T])(write: T => String): String =
    topics.map { case (topic, value) => s""""$topic":${write(value)}""" }.mkString("{", ",", "}")

  def ofPartitions[T](topics: Map[String, Map[Int, T]])(write: T => String): String =
    ofTopics(topics)(_.map { case (number, value) => s""""$number":${write(value)}""" }.mkString("{", ",", "}"))
}
