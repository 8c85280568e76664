import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions BOOTSTRAP TOPIC COMMAND...: runs commands in order, and prints a line for each. BOOTSTRAP may be a file of
 * client properties instead.
 *
 * <p>"init ID [TIMEOUT_MS]", "begin ID", "send ID PARTITION VALUE", "commit ID", "abort ID", "wait ID TIMEOUT_MS", each
 * for the producer of that name; "new ID" puts another one in its place. "large ID BYTES" sends so much to partition 0,
 * "to ID TOPIC" a record to another topic, and "raise ID VALUE" one whose callback throws. "offsets ID GROUP" commits an
 * offset of partition 0. "topic TOPIC" is about the commands that follow. "read" prints the values of all
 * partitions that a read_committed consumer sees until the last stable offset. A line is "ok" or the simple name of the
 * exception; that of the cause too after a KafkaException.
 */
public final class Transactions {
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Properties client = new Properties();
    private String topic;

    private Transactions(String bootstrap, String topic) throws IOException {
        client.put("bootstrap.servers", bootstrap);
        if (Files.exists(Path.of(bootstrap))) {
            try (Reader file = Files.newBufferedReader(Path.of(bootstrap))) {
                client.load(file);
            }
        }
        this.topic = topic;
    }

    private KafkaProducer<String, String> open(String name, String timeoutMs) {
        Properties properties = new Properties();
        properties.putAll(client);
        properties.put("transactional.id", name.split("/")[0]);
        properties.put("transaction.timeout.ms", timeoutMs);
        properties.put("max.block.ms", "20000");
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private String read() {
        Properties properties = new Properties();
        properties.putAll(client);
        properties.put("isolation.level", "read_committed");
        StringBuilder values = new StringBuilder();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.append(' ').append(record.partition()).append(':').append(record.value());
                }
            }
        }
        return values.toString().trim();
    }

    private String run(String[] words) throws Exception {
        KafkaProducer<String, String> producer = words.length > 1 ? producers.get(words[1]) : null;
        switch (words[0]) {
            case "init" -> {
                producers.put(words[1], open(words[1], words.length > 2 ? words[2] : "60000"));
                producers.get(words[1]).initTransactions();
            }
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(
                new ProducerRecord<>(topic, Integer.parseInt(words[2]), null, words[3])).get();
            case "large" -> producer.send(
                new ProducerRecord<>(topic, 0, null, "x".repeat(Integer.parseInt(words[2])))).get();
            case "to" -> producer.send(new ProducerRecord<>(words[2], "x")).get();
            case "raise" -> producer.send(new ProducerRecord<>(topic, 0, null, words[2]), (metadata, error) -> {
                throw new IllegalStateException();
            }).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)), new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "topic" -> topic = words[1];
            case "sleep" -> Thread.sleep(Long.parseLong(words[1]));
            case "read" -> {
                return read();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "ok";
    }

    public static void main(String[] args) throws IOException {
        Transactions transactions = new Transactions(args[0], args[1]);
        for (int number = 2; number < args.length; number++) {
            String said;
            try {
                said = transactions.run(args[number].split(" "));
            } catch (java.util.concurrent.ExecutionException error) {
                said = error.getCause().getClass().getSimpleName();
            } catch (Exception error) {
                said = error.getClass().getSimpleName();
                if (said.equals("KafkaException") && error.getCause() != null) {
                    said += " " + error.getCause().getClass().getSimpleName();
                }
            }
            System.out.println(said);
        }
        System.exit(0);
    }
}
