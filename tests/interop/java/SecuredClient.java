import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's clients with TLS and SASL, for tests/interop/test_secured_listeners.py.
 *
 *     roundtrip BOOTSTRAP TOPIC BYTES [PROPERTY VALUE]…   sends a record, reads it, and answers with its value
 *
 * Values of properties are encoded.
 */
public final class SecuredClient {
    public static void main(String[] arguments) throws Exception {
        Lines.serve((words, lines) -> Lines.reply(Lines.encode(roundtrip(words))));
    }

    private static byte[] roundtrip(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[1]);
        properties.put("max.block.ms", "10000");
        for (String kind : List.of("key", "value")) {
            String classes = "org.apache.kafka.common.serialization.ByteArray";
            properties.put(kind + ".serializer", classes + "Serializer");
            properties.put(kind + ".deserializer", classes + "Deserializer");
        }
        for (int i = 4; i + 1 < words.length; i += 2) properties.put(words[i], new String(Lines.decode(words[i + 1]), "UTF-8"));
        TopicPartition partition = new TopicPartition(words[2], 0);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            // Long enough for sessions of two seconds to end: the clients authenticate again meanwhile.
            for (int i = 0; i < (new String(Lines.decode(words[3])).equals("pause") ? 50 : 0); i++) {
                producer.send(new ProducerRecord<>(words[2], 0, null, Lines.decode(words[3]))).get();
                Thread.sleep(100);
            }
            long offset = producer.send(new ProducerRecord<>(words[2], 0, null, Lines.decode(words[3]))).get().offset();
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            for (int i = 0; i < 100; i++) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) return record.value();
            }
            throw new IllegalStateException("no record at offset " + offset);
        }
    }

    /** Calls {@code poll} of the release: until 2.0 it takes milliseconds, and since 4.0 only a Duration. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Object found;
        try {
            found = KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(100));
        } catch (NoSuchMethodException error) {
            found = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        }
        return (ConsumerRecords<byte[], byte[]>) found;
    }
}
