import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * NewProducers TOPIC PARTITIONS TIMEOUT_MS: under the protocol of {@link Lines}, each line
 * "send BOOTSTRAP AT_ONCE VALUE..." makes an idempotent producer with the release's own defaults, sends the values
 * with it, flushes before each AT_ONCE of them, and answers "VALUE ok" or "VALUE WHY" for each.
 */
public final class NewProducers {
    private static final String STRINGS = "org.apache.kafka.common.serialization.StringSerializer";

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[1]);
        Lines.serve((words, lines) -> {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", words[1]);
            properties.put("enable.idempotence", "true");
            properties.put("delivery.timeout.ms", args[2]);
            properties.put("max.block.ms", args[2]);
            properties.put("key.serializer", STRINGS);
            properties.put("value.serializer", STRINGS);
            int atOnce = Integer.parseInt(words[2]);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
                for (int i = 3; i < words.length; i++) {
                    String value = words[i];
                    int number = i - 3;
                    producer.send(new ProducerRecord<>(args[0], number % partitions, null, value), (metadata, error) ->
                        Lines.reply(value, error == null ? "ok" : error.toString().replace('\n', ' ')));
                    if (number % atOnce == 0) producer.flush();
                }
            }
        });
    }
}
