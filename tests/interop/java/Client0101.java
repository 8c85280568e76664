import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Client0101 BOOTSTRAP: kafka-clients 0.10, which has neither headers nor an admin client. */
public final class Client0101 extends Client {
    private Client0101(String bootstrap) {
        super(bootstrap);
    }

    public static void main(String[] args) throws Exception {
        Lines.serve(new Client0101(args[0])::run);
    }

    @Override protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(ms);
    }

    @Override protected ProducerRecord<byte[], byte[]> record(
            String topic, int partition, long timestamp, byte[] key, byte[] value, String headers) {
        return new ProducerRecord<>(topic, partition, timestamp, key, value);
    }

    @Override protected String headers(ConsumerRecord<byte[], byte[]> record) {
        return "-";
    }

    @Override protected void administer(Properties properties, String[] words) {
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
}
