import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.source.SourceRecord;

/** DebeziumFile BOOTSTRAP FILE OFFSETS: print a file's lines by Debezium's engine, with offsets in a topic, until stdin ends. */
public final class DebeziumFile {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("name", "lines");
        properties.put("connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector");
        properties.put("file", args[1]);
        properties.put("topic", "unused");
        properties.put("bootstrap.servers", args[0]);
        properties.put("offset.storage", "org.apache.kafka.connect.storage.KafkaOffsetBackingStore");
        properties.put("offset.storage.topic", args[2]);
        properties.put("offset.storage.partitions", "3");
        properties.put("offset.storage.replication.factor", "1");
        properties.put("offset.flush.interval.ms", "200");
        DebeziumEngine<?> engine = DebeziumEngine.create(Connect.class)
            .using(properties)
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    System.exit(3);
                }
            })
            .notifying((ChangeEvent<SourceRecord, SourceRecord> line) -> System.out.println(line.value().value()))
            .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        while (System.in.read() >= 0) { }
        engine.close();
        thread.shutdown();
        System.exit(thread.awaitTermination(60, TimeUnit.SECONDS) ? 0 : 4);
    }
}
