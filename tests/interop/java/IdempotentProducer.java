import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * IdempotentProducer BOOTSTRAP TOPIC COUNT: sends the numbers below COUNT to partition 0 with the release's own
 * defaults but for small batches, and prints what is acknowledged as "OFFSET NUMBER", what is not as
 * "failed NUMBER REASON".
 */
public final class IdempotentProducer {
    private static final String STRINGS = "org.apache.kafka.common.serialization.StringSerializer";

    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("batch.size", "1000");
        properties.put("key.serializer", STRINGS);
        properties.put("value.serializer", STRINGS);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (int number = 0; number < Integer.parseInt(args[2]); number++) {
                String value = Integer.toString(number);
                producer.send(new ProducerRecord<>(args[1], 0, null, value), (metadata, error) ->
                    System.out.println(error == null ? metadata.offset() + " " + value : "failed " + value + " " + error));
            }
        }
        System.out.println("done");
    }
}
