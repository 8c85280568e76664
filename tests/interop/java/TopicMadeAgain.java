import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads topic T while it is deleted and made again, with fewer and then with more records than were read.
 *
 * Prints what the consumer reads of each life of the topic, up to its last record.
 */
public final class TopicMadeAgain {
    private TopicMadeAgain() {}

    private static void make(Admin admin, String topic) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                admin.createTopics(List.of(new NewTopic(topic, Optional.of(1), Optional.empty()))).all().get();
                return;
            } catch (java.util.concurrent.ExecutionException error) {
                if (attempt == 50) throw error;
                Thread.sleep(100); // the one before is still being deleted
            }
        }
    }

    private static void write(Map<String, Object> servers, String topic, String life, int count) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, life + number)).get();
            }
        }
    }

    private static void read(KafkaConsumer<String, String> consumer, String last) {
        StringBuilder found = new StringBuilder();
        long end = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        while (!found.toString().endsWith(last) && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                found.append(" ").append(record.value());
            }
        }
        System.out.println("read" + found);
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Map<String, Object> servers = Map.of("bootstrap.servers", arguments[0]);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0],
                "auto.offset.reset", "earliest",
                "allow.auto.create.topics", false, // a look-up would make the topic again
                "fetch.max.wait.ms", 200);
        try (Admin admin = Admin.create(servers);
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            make(admin, topic);
            write(servers, topic, "a", 5);
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(List.of());
            read(consumer, "a4");
            for (String life : List.of("b", "c")) {
                admin.deleteTopics(List.of(topic)).all().get();
                consumer.poll(Duration.ofMillis(500));
                make(admin, topic);
                int count = life.equals("b") ? 3 : 8;
                write(servers, topic, life, count);
                read(consumer, life + (count - 1));
            }
        }
    }
}
