import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.TreeMap;
import kafka.common.TopicAndPartition;
import kafka.consumer.AssignmentContext;
import kafka.consumer.Blacklist;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.PartitionAssignor$;
import kafka.consumer.TopicCount;
import kafka.consumer.TopicCount$;
import kafka.consumer.TopicFilter;
import kafka.consumer.Whitelist;
import kafka.utils.Json;
import kafka.utils.Pool;
import kafka.utils.ZkUtils;
import org.I0Itec.zkclient.exception.ZkNoNodeException;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.zookeeper.data.Stat;
import scala.Option;
import scala.Tuple2;
import scala.collection.JavaConversions;
import scala.collection.Seq;
import scala.collection.mutable.Map;

/**
 * What the release's own classes make of consumers, for each line of a file; words stand between tabs.
 *
 * new: nothing is in ZooKeeper any more. znode PATH DATA: one more is. assign STRATEGY CONSUMER EXCLUDE prints
 * "TOPIC/PARTITION=THREAD" for each partition of group g. filter KIND BASE64 prints what a consumer with two streams
 * registers. "refused" stands for an error. What is printed is UTF-8 in base64.
 */
public final class Consumers {
    private static final class Znodes extends ZkUtils {
        private final TreeMap<String, String> data = new TreeMap<>();

        Znodes() {
            super(null, null, false);
        }

        @Override
        public Tuple2<String, Stat> readData(String path) {
            if (!data.containsKey(path)) throw new ZkNoNodeException(path);
            return new Tuple2<>(data.get(path), new Stat());
        }

        @Override
        public Tuple2<Option<String>, Stat> readDataMaybeNull(String path) {
            return new Tuple2<>(Option.apply(data.get(path)), new Stat());
        }

        @Override
        public Seq<String> getChildren(String path) {
            List<String> names = new ArrayList<>();
            for (String other : data.keySet()) {
                int end = path.length() + 1;
                if (other.startsWith(path + "/") && other.indexOf('/', end) < 0) names.add(other.substring(end));
            }
            return JavaConversions.asScalaBuffer(names);
        }

        @Override
        public Seq<String> getChildrenParentMayNotExist(String path) {
            return getChildren(path);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getRootLogger().setLevel(Level.OFF);
        Znodes znodes = new Znodes();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> znodes = new Znodes();
                case "znode" -> znodes.data.put(words[1], words[2]);
                default -> print(words[0].equals("assign") ? owners(znodes, words) : registration(words));
            }
        }
    }

    private static String owners(Znodes znodes, String[] words) {
        try {
            AssignmentContext context = new AssignmentContext("g", words[2], words[3].equals("true"), znodes);
            Pool<String, Map<TopicAndPartition, ConsumerThreadId>> found =
                PartitionAssignor$.MODULE$.createInstance(words[1]).assign(context);
            List<String> printed = new ArrayList<>();
            for (Object consumer : JavaConversions.asJavaIterable(found.keys())) {
                JavaConversions.mapAsJavaMap(found.get((String) consumer)).forEach(
                    (at, owner) -> printed.add(at.topic() + "/" + at.partition() + "=" + owner));
            }
            return String.join("\n", printed);
        } catch (IllegalArgumentException refusal) {
            return "refused";
        }
    }

    private static String registration(String[] words) {
        String raw = new String(Base64.getDecoder().decode(words[2]), StandardCharsets.UTF_8);
        TopicFilter filter;
        try {
            filter = words[1].equals("white_list") ? new Whitelist(raw) : new Blacklist(raw);
        } catch (RuntimeException refusal) {
            return "refused";
        }
        TopicCount count = TopicCount$.MODULE$.constructTopicCount("c", filter, 2, null, true);
        return Json.encode(new scala.collection.immutable.Map.Map4<String, Object>(
            "version", 1, "subscription", count.getTopicCountMap(), "pattern", count.pattern(), "timestamp", "1"));
    }

    private static void print(String text) {
        System.out.println(Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)));
    }
}
