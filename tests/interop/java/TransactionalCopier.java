import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * TransactionalCopier BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID: copies records to the same partition of OUTPUT,
 * with the offsets of what was read in the same transaction, until it is killed. A line "copied COUNT" follows each
 * commit; each tenth transaction is aborted and done again.
 */
public final class TransactionalCopier {
    private static final String READ = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    private static final String WRITE = "org.apache.kafka.common.serialization.ByteArraySerializer";
    private static final int MOST = 200;

    private static KafkaConsumer<byte[], byte[]> consumer(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[3]);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", String.valueOf(MOST));
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("key.deserializer", READ);
        properties.put("value.deserializer", READ);
        return new KafkaConsumer<>(properties);
    }

    private static KafkaProducer<byte[], byte[]> producer(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("transactional.id", args[4]);
        properties.put("transaction.timeout.ms", "10000");
        properties.put("batch.size", "2000");
        properties.put("key.serializer", WRITE);
        properties.put("value.serializer", WRITE);
        return new KafkaProducer<>(properties);
    }

    private static void toCommitted(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset.offset());
            }
        }
    }

    private static void copy(String[] args) {
        try (KafkaProducer<byte[], byte[]> producer = producer(args);
                KafkaConsumer<byte[], byte[]> consumer = consumer(args)) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            for (long number = 0; true;) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                number++;
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        producer.send(new ProducerRecord<>(args[2], record.partition(), record.key(), record.value()));
                        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                        offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (number % 10 == 0) {
                        producer.flush();
                        producer.abortTransaction();
                        toCommitted(consumer);
                    } else {
                        producer.commitTransaction();
                        System.out.println("copied " + records.count());
                    }
                } catch (ProducerFencedException | OutOfOrderSequenceException | FencedInstanceIdException error) {
                    throw error;
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    toCommitted(consumer);
                }
            }
        }
    }

    public static void main(String[] args) {
        while (true) {
            try {
                copy(args);
            } catch (KafkaException error) {
                System.out.println("begins anew after " + error);
            }
        }
    }
}
