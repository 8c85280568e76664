import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** What kafka-clients of every release can do, with its own defaults, under the commands of tests/interop/driver.py. */
public abstract class Client {
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";
    private final String bootstrap;

    protected Client(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    protected abstract ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms);

    protected abstract ProducerRecord<byte[], byte[]> record(
        String topic, int partition, long timestamp, byte[] key, byte[] value, String headers);

    protected abstract String headers(ConsumerRecord<byte[], byte[]> record);

    protected abstract void administer(Properties properties, String[] words) throws Exception;

    protected void run(String[] words, String[] lines) throws Exception {
        switch (words[0]) {
            case "produce": produce(words[1], words[2], words[3], lines); break;
            case "read": read(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]); break;
            case "times": times(words[1], Long.parseLong(words[2])); break;
            case "join":
                String[] settings = Arrays.copyOfRange(words, 5, words.length);
                new GroupMember(words[1], words[2], words[3], words[4].equals("commits"), settings).start();
                break;
            case "commit": Lines.MEMBERS.get(words[1]).ask("commit"); break;
            case "leave": Lines.MEMBERS.remove(words[1]).ask("leave"); break;
            default: administer(properties(), words);
        }
    }

    private Properties properties(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) properties.put(pairs[i], pairs[i + 1]);
        return properties;
    }

    private void produce(String topic, String codec, String mode, String[] lines) throws Exception {
        Properties properties = properties("compression.type", codec, "acks", "all",
            "key.serializer", BYTES + "Serializer", "value.serializer", BYTES + "Serializer");
        if (!mode.equals("default")) properties.put("enable.idempotence", String.valueOf(mode.equals("idempotent")));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String line : lines) {
                String[] words = line.split(" ");
                sent.add(producer.send(record(topic, Integer.parseInt(words[0]), Long.parseLong(words[1]),
                    Lines.decode(words[2]), Lines.decode(words[3]), words[4])));
            }
            for (Future<RecordMetadata> one : sent) Lines.reply(one.get(30, TimeUnit.SECONDS).offset());
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String... pairs) {
        Properties properties = properties(pairs);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", BYTES + "Deserializer");
        properties.put("value.deserializer", BYTES + "Deserializer");
        return new KafkaConsumer<>(properties);
    }

    private String describe(ConsumerRecord<byte[], byte[]> record) {
        return record.partition() + " " + record.offset() + " " + record.timestamp() + " " + Lines.encode(record.key())
            + " " + Lines.encode(record.value()) + " " + headers(record);
    }

    private void read(String topic, int partition, int count, String level) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", level)) {
            List<TopicPartition> one = Collections.singletonList(new TopicPartition(topic, partition));
            consumer.assign(one);
            consumer.seekToBeginning(one);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            for (int seen = 0; seen < count && System.nanoTime() < deadline; ) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 500)) {
                    Lines.reply(describe(record));
                    seen++;
                }
            }
        }
    }

    private void times(String topic, long timestamp) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            consumer.partitionsFor(topic).forEach(p -> asked.put(new TopicPartition(topic, p.partition()), timestamp));
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(asked);
            asked.keySet().forEach(p -> Lines.reply(p.partition(), found.get(p) == null ? -1 : found.get(p).offset()));
        }
    }

    private final class GroupMember implements Lines.Member, ConsumerRebalanceListener {
        private final String name;
        private final String topic;
        private final boolean commits;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final BlockingQueue<String> asked = new LinkedBlockingQueue<>();
        private final BlockingQueue<String> done = new LinkedBlockingQueue<>();

        GroupMember(String name, String group, String topic, boolean commits, String[] settings) {
            this.name = name;
            this.topic = topic;
            this.commits = commits;
            List<String> pairs = new ArrayList<>(Arrays.asList("group.id", group, "client.id", name));
            for (String setting : settings) pairs.addAll(Arrays.asList(setting.split("=", 2)));
            consumer = consumer(pairs.toArray(new String[0]));
        }

        void start() {
            Lines.MEMBERS.put(name, this);
            new Thread(this, name).start();
        }

        @Override public void ask(String what) throws InterruptedException {
            asked.put(what);
            String answer = done.take();
            if (!answer.isEmpty()) throw new IllegalStateException(answer);
        }

        @Override public void run() {
            consumer.subscribe(Collections.singletonList(topic), this);
            for (String what = null; !"leave".equals(what); ) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 100)) {
                        Lines.event(name, "record", describe(record));
                    }
                } catch (RuntimeException error) {
                    Lines.event(name, "error", Lines.describe(error));
                }
                what = asked.poll();
                if (what != null) done.add(does(what));
            }
        }

        private String does(String what) {
            try {
                if (what.equals("commit") || commits) consumer.commitSync();
                if (what.equals("leave")) {
                    Lines.event(name, "leaving");
                    consumer.close();
                }
                return "";
            } catch (RuntimeException error) {
                return Lines.describe(error);
            }
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Lines.event(name, "assigned", numbers(partitions));
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (commits && !partitions.isEmpty()) consumer.commitSync();
            Lines.event(name, "revoked", numbers(partitions));
        }

        private String numbers(Collection<TopicPartition> partitions) {
            return Lines.partitions(partitions.stream().map(TopicPartition::partition).collect(Collectors.toList()));
        }
    }
}
