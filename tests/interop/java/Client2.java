import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Client2 BOOTSTRAP: kafka-clients 2.3 to 4, with headers and the admin client. */
public final class Client2 extends Client {
    private Client2(String bootstrap) {
        super(bootstrap);
    }

    public static void main(String[] args) throws Exception {
        Lines.serve(new Client2(args[0])::run);
    }

    @Override protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    @Override protected ProducerRecord<byte[], byte[]> record(
            String topic, int partition, long timestamp, byte[] key, byte[] value, String headers) {
        List<Header> decoded = new ArrayList<>();
        for (String header : headers.equals("-") ? new String[0] : headers.split(",")) {
            String[] pair = header.split(":");
            String name = new String(Lines.decode(pair[0]), StandardCharsets.UTF_8);
            decoded.add(new RecordHeader(name, Lines.decode(pair[1])));
        }
        return new ProducerRecord<>(topic, partition, timestamp, key, value, decoded);
    }

    @Override protected String headers(ConsumerRecord<byte[], byte[]> record) {
        List<String> encoded = new ArrayList<>();
        for (Header header : record.headers()) {
            String name = Lines.encode(header.key().getBytes(StandardCharsets.UTF_8));
            encoded.add(name + ":" + Lines.encode(header.value()));
        }
        return encoded.isEmpty() ? "-" : String.join(",", encoded);
    }

    @Override protected void administer(Properties properties, String[] words) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            administer(admin, words);
        }
    }

    @SuppressWarnings({"deprecation", "removal"})  // what has replaced it is not in 3.9 yet
    private static void administer(Admin admin, String[] words) throws Exception {
        List<String> named = words.length > 1 ? Collections.singletonList(words[1]) : Collections.emptyList();
        switch (words[0]) {
            case "create":
                NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
                admin.createTopics(Collections.singletonList(topic.configs(pairs(words, 3)))).all().get();
                break;
            case "topics":
                for (String name : admin.listTopics().names().get()) Lines.reply(name);
                break;
            case "describe":
                for (TopicPartitionInfo one : admin.describeTopics(named).allTopicNames().get().get(words[1]).partitions()) {
                    Lines.reply(one.partition(), one.leader().id(), one.replicas().size());
                }
                break;
            case "delete":
                admin.deleteTopics(named).all().get();
                break;
            case "config": {
                ConfigResource of = new ConfigResource(ConfigResource.Type.TOPIC, words[1]);
                for (ConfigEntry one : admin.describeConfigs(List.of(of)).all().get().get(of).entries()) {
                    Lines.reply(one.name() + "=" + one.value());
                }
                break;
            }
            case "alter": {
                List<AlterConfigOp> changes = new ArrayList<>();
                pairs(words, 2).forEach((name, value) ->
                    changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                ConfigResource of = new ConfigResource(ConfigResource.Type.TOPIC, words[1]);
                admin.incrementalAlterConfigs(Collections.singletonMap(of, changes)).all().get();
                break;
            }
            case "groups":
                for (ConsumerGroupListing group : admin.listConsumerGroups().all().get()) Lines.reply(group.groupId());
                break;
            case "group":
                ConsumerGroupDescription group = admin.describeConsumerGroups(named).all().get().get(words[1]);
                Lines.reply(group.state());
                group.members().forEach(member -> Lines.reply(Lines.partitions(member.assignment().topicPartitions()
                    .stream().map(TopicPartition::partition).collect(Collectors.toList()))));
                break;
            default: throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static Map<String, String> pairs(String[] words, int from) {
        return Arrays.stream(words).skip(from).map(word -> word.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }
}
