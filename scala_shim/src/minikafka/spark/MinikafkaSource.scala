package minikafka.spark

import java.util.{HashMap => JavaHashMap, HashSet => JavaHashSet, Map => JavaMap, Set => JavaSet}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.connector.catalog.{Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceCreationResult, PythonDataSourceV2, PythonTable
}
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The Python data source `minikafka`, found by a service file. All work is done in Python.
  *
  * It adds to Spark's own class for Python sources: a table of the catalog keeps its options, each run of a
  * view or DataFrame is planned again and so sees new partitions, rows of any columns can be inserted, and an
  * error reports that Python lacks the package.
  */
class MinikafkaSource extends PythonDataSourceV2 with DataSourceRegister {

  override def shortName(): String = MinikafkaSource.Name

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    super.inferSchema(MinikafkaSource.own(options))

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table =
    new MinikafkaTable(schema, properties)

  override def getOrCreateDataSourceInPython(
      name: String,
      options: CaseInsensitiveStringMap,
      schema: Option[StructType]): PythonDataSourceCreationResult =
    try super.getOrCreateDataSourceInPython(name, options, schema)
    catch {
      case problem: AnalysisException if problem.getCondition == MissingPackage.Condition =>
        throw MissingPackage(problem)
    }
}

private object MinikafkaSource {
  val Name = "minikafka"

  /** The properties that the catalog adds to every table. */
  private val OfTheCatalog = Set(
    TableCatalog.PROP_PROVIDER, TableCatalog.PROP_OWNER, TableCatalog.PROP_LOCATION,
    TableCatalog.PROP_COMMENT, TableCatalog.PROP_EXTERNAL, TableCatalog.PROP_IS_MANAGED_LOCATION)

  /** Returns a new source: an instance of Spark's class keeps its first plan. */
  def fresh(): MinikafkaSource = {
    val source = new MinikafkaSource
    source.setShortName(Name)
    source
  }

  /** Returns the user's options among a table's properties, which also contain each as `option.NAME`. */
  def own(properties: JavaMap[String, String]): CaseInsensitiveStringMap = {
    val all = new CaseInsensitiveStringMap(properties)
    if (!catalogued(all)) all
    else new CaseInsensitiveStringMap(all.asScala.filter { case (key, _) =>
      !key.startsWith(TableCatalog.OPTION_PREFIX) && !OfTheCatalog(key)
    }.asJava)
  }

  def catalogued(properties: JavaMap[String, String]): Boolean =
    properties.containsKey(TableCatalog.PROP_PROVIDER)
}

private class MinikafkaTable(columns: StructType, properties: JavaMap[String, String])
    extends PythonTable(MinikafkaSource.fresh(), MinikafkaSource.Name, columns) {

  private val own = MinikafkaSource.own(properties)

  override def capabilities(): JavaSet[TableCapability] = {
    val all = new JavaHashSet(super.capabilities())
    all.add(TableCapability.ACCEPT_ANY_SCHEMA) // the columns of a write are not those of a read
    all
  }

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new MinikafkaScanBuilder(MinikafkaSource.fresh(), columns, withOwn(options))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    if (MinikafkaSource.catalogued(properties)) refuseOtherColumns()
    fresh().newWriteBuilder(new LogicalWriteInfo {
      override def options(): CaseInsensitiveStringMap = withOwn(info.options)
      override def queryId(): String = info.queryId
      override def schema(): StructType = info.schema
    })
  }

  private def fresh() = new PythonTable(MinikafkaSource.fresh(), MinikafkaSource.Name, columns)

  /** Returns the table's options, overridden by those of a query (`WITH (…)`). */
  private def withOwn(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap = {
    val all = new JavaHashMap[String, String](own)
    all.putAll(options)
    new CaseInsensitiveStringMap(all)
  }

  /** Refuses a table with other columns (`CREATE TABLE … AS SELECT`): it could never be read. */
  private def refuseOtherColumns(): Unit = {
    val fixed = MinikafkaSource.fresh().inferSchema(own)
    val same = columns.map(c => c.name -> c.dataType) == fixed.map(c => c.name -> c.dataType)
    if (!same) throw new Refused(
      s"a table of ${MinikafkaSource.Name} has fixed columns (${fixed.toDDL}), not ${columns.toDDL}: " +
        "create it without columns and without AS SELECT, then use INSERT INTO")
  }
}

/** An error during Spark's planning, of which only the message is shown, by `spark-sql` too. */
private class Refused(message: String, condition: Option[String] = None, cause: Option[Throwable] = None)
    extends AnalysisException(message = message, cause = cause, errorClass = condition)

private object MissingPackage {
  val Condition = "DATA_SOURCE_NOT_EXIST"

  /** Spark asked its Python for data sources, and this one was not among them. */
  def apply(problem: Throwable): Refused = new Refused(
    s"[$Condition] The Python that Spark started, $python, has no data source ${MinikafkaSource.Name}. " +
      "Install its package there, on the driver and on every executor (pip install 'minikafka[spark]'), or " +
      "set PYSPARK_PYTHON to a Python that has it.",
    Some(Condition),
    Some(problem))

  /** Returns the Python that Spark starts. */
  private def python: String =
    Seq("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON").flatMap(sys.env.get).headOption.getOrElse("python3")
}
