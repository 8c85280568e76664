package examples

import minikafka.spark.MinikafkaOptions._
import minikafka.spark.Offsets
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.Trigger

/** Delays of flights: written, read, and those of an hour or more put into a topic of their own by a stream.
  *
  * One argument, HOST:PORT[,HOST:PORT…], names a cluster; without, there is one in ./minikafka-data.
  */
object Delays {
  def main(arguments: Array[String]): Unit = {
    val spark = SparkSession.builder().appName("delays").getOrCreate()
    import spark.implicits._
    val cluster = arguments.headOption.map(BootstrapServers(_)).toMap

    Seq("AA" -> "12", "UA" -> "-3", "DL" -> "75", "AA" -> "184").toDF("key", "value")
      .write.format("minikafka").options(cluster + Topic("delays")).mode("append").save()

    val delays = Map(Subscribe(Seq("delays")), StartingOffsets(Offsets.Earliest))
    spark.read.format("minikafka").options(cluster ++ delays).load()
      .selectExpr("cast(key AS string) AS carrier", "cast(cast(value AS string) AS int) AS delay")
      .groupBy("carrier").avg("delay").orderBy("carrier").show()

    // From Spark 4.2 on, batches have at most 1,000 records; before, one batch takes all.
    spark.readStream.format("minikafka").options(cluster ++ delays + MaxOffsetsPerTrigger(1000)).load()
      .where("cast(cast(value AS string) AS int) >= 60").select("key", "value")
      .writeStream.format("minikafka").options(cluster + Topic("late"))
      .option("checkpointLocation", "checkpoint-late")
      .trigger(Trigger.AvailableNow()).start().awaitTermination()

    val late = spark.read.format("minikafka").options(cluster + SubscribePattern("late")).load()
    println(s"late: ${late.count()}")
    spark.stop()
  }
}
