import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Roundtrip BOOTSTRAP TOPIC CODEC FILE [NAME=VALUE]...: with these settings, sends the lines of FILE ("TIMESTAMP KEY VALUE", base64, - for null) to
 * partition 0, reads the partition from its start, and prints what came as "OFFSET TIMESTAMP KEY VALUE".
 */
public final class Roundtrip {
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";

    public static void main(String[] args) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(args[3]));
        Properties settings = new Properties();
        for (int i = 4; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        send(args[0], args[1], args[2], lines, settings);
        read(args[0], args[1], lines.size(), settings);
    }

    private static void send(String bootstrap, String topic, String codec, List<String> lines, Properties settings)
            throws Exception {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("bootstrap.servers", bootstrap);
        properties.put("acks", "all");
        properties.put("compression.type", codec);
        properties.put("key.serializer", BYTES + "Serializer");
        properties.put("value.serializer", BYTES + "Serializer");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            List<Future<?>> sent = new ArrayList<>();
            for (String line : lines) {
                String[] fields = line.split(" ", -1);
                sent.add(producer.send(new ProducerRecord<>(
                    topic, 0, Long.parseLong(fields[0]), decode(fields[1]), decode(fields[2]))));
            }
            for (Future<?> one : sent) one.get(30, TimeUnit.SECONDS);
        }
    }

    private static void read(String bootstrap, String topic, int count, Properties settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", BYTES + "Deserializer");
        properties.put("value.deserializer", BYTES + "Deserializer");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            for (int seen = 0; seen < count && System.nanoTime() < deadline; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(500);
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    System.out.println(record.offset() + " " + record.timestamp() + " "
                        + encode(record.key()) + " " + encode(record.value()));
                    seen++;
                }
            }
        }
    }

    private static byte[] decode(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String encode(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
