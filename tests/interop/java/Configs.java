import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Create a topic, and print what a broker says of its own settings and of the topic's, a line of JSON each.
 *
 *     Configs BOOTSTRAP
 */
public final class Configs {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic("configs", 1, (short) 1))).all().get();
            print(admin, new ConfigResource(ConfigResource.Type.BROKER, "0"));
            print(admin, new ConfigResource(ConfigResource.Type.TOPIC, "configs"));
        }
    }

    private static void print(Admin admin, ConfigResource resource) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<ConfigResource, org.apache.kafka.clients.admin.Config> found =
            admin.describeConfigs(List.of(resource), options).all().get();
        List<ConfigEntry> entries = new ArrayList<>(found.get(resource).entries());
        entries.sort(Comparator.comparing(ConfigEntry::name));
        for (ConfigEntry entry : entries) {
            ObjectNode line = JSON.createObjectNode()
                .put("resource", resource.type().name().toLowerCase()).put("name", entry.name())
                .put("type", entry.type().name()).put("source", entry.source().name())
                .put("read_only", entry.isReadOnly()).put("sensitive", entry.isSensitive())
                .put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
            boolean own = entry.source() == ConfigSource.STATIC_BROKER_CONFIG;
            if (!own) line.put("value", entry.value());
            ArrayNode synonyms = line.putArray("synonyms");
            for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                synonyms.add(synonym.source().name() + " " + synonym.name()
                    + (synonym.source() == ConfigSource.DEFAULT_CONFIG ? "=" + synonym.value() : ""));
            }
            System.out.println(JSON.writeValueAsString(line));
        }
    }
}
