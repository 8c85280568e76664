import io.debezium.config.Configuration;
import io.debezium.relational.Column;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.Tables;
import io.debezium.relational.history.HistoryRecordComparator;
import io.debezium.relational.history.SchemaHistoryListener;
import io.debezium.relational.history.TableChanges;
import io.debezium.storage.kafka.history.KafkaSchemaHistory;
import java.sql.Types;
import java.time.Instant;
import java.util.Map;
import java.util.TreeSet;

/** DebeziumHistory BOOTSTRAP TOPIC: keep changes of tables in a new topic, print the tables that come back, and wait for stdin's end. */
public final class DebeziumHistory {
    private static final Map<String, String> SOURCE = Map.of("server", "s");

    public static void main(String[] args) throws Exception {
        Configuration settings = Configuration.create()
            .with("schema.history.internal.kafka.bootstrap.servers", args[0])
            .with("schema.history.internal.kafka.topic", args[1])
            .with("schema.history.internal.connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector")
            .with("schema.history.internal.connector.id", "history")
            .build();
        KafkaSchemaHistory history = started(settings);
        System.out.println("exists " + history.exists());
        if (!history.storageExists()) {
            history.initializeStorage();
        }
        for (int number = 0; number < 3; number++) {
            TableId id = new TableId("db", null, "t" + number);
            record(history, 2 * number, new TableChanges().create(table(id, "a")));
            record(history, 2 * number + 1, new TableChanges().alter(table(id, "a", "b" + number)));
        }
        record(history, 6, new TableChanges().drop(new TableId("db", null, "t1")));
        history.stop();
        history = started(settings);
        System.out.println("exists " + history.exists());
        Tables tables = new Tables();
        history.recover(SOURCE, Map.of("position", 100), tables, null);
        for (TableId id : new TreeSet<>(tables.tableIds())) {
            System.out.println(id + " " + tables.forTable(id).columns().stream().map(Column::name).toList());
        }
        history.stop();
        while (System.in.read() >= 0) { }
    }

    private static KafkaSchemaHistory started(Configuration settings) {
        KafkaSchemaHistory history = new KafkaSchemaHistory();
        history.configure(settings, HistoryRecordComparator.INSTANCE, SchemaHistoryListener.NOOP, true);
        history.start();
        return history;
    }

    private static void record(KafkaSchemaHistory history, int position, TableChanges changes) {
        history.record(SOURCE, Map.of("position", position), "db", null, "DDL", changes, Instant.now());
    }

    private static Table table(TableId id, String... columns) {
        var editor = Table.editor().tableId(id);
        for (String name : columns) {
            editor.addColumn(Column.editor().name(name).type("INT").jdbcType(Types.INTEGER).create());
        }
        return editor.setPrimaryKeyNames("a").create();
    }
}
