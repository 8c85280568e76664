import java.io.FileReader;
import java.io.Reader;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * TransactionalProducer PROPERTIES TOPIC RECORDS TRANSACTION_RECORDS VALUE_BYTES: sends records in transactions, and
 * prints a JSON object with the rate and the time of commits. What was sent is flushed before its commit.
 */
public final class TransactionalProducer {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(args[0])) {
            properties.load(reader);
        }
        int records = Integer.parseInt(args[2]);
        int inOne = Integer.parseInt(args[3]);
        byte[] value = new byte[Integer.parseInt(args[4])];
        properties.put("transactional.id", "t" + System.nanoTime());
        properties.put("batch.size", "65536");
        properties.put("linger.ms", "5");
        double[] commits = new double[records / inOne];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            long began = System.nanoTime();
            for (int transaction = 0; transaction < commits.length; transaction++) {
                producer.beginTransaction();
                for (int number = 0; number < inOne; number++) {
                    producer.send(new ProducerRecord<>(args[1], value));
                }
                producer.flush();
                long committing = System.nanoTime();
                producer.commitTransaction();
                commits[transaction] = (System.nanoTime() - committing) / 1e6;
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            Arrays.sort(commits);
            System.out.printf(
                Locale.ROOT,
                "{\"records/s\": %.1f, \"commit p50 ms\": %.3f, \"commit p99 ms\": %.3f}%n",
                commits.length * (double) inOne / seconds,
                commits[commits.length / 2],
                commits[commits.length * 99 / 100]);
        }
    }
}
