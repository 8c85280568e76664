import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;

/** Makes topic T with the broker's defaults, describes and deletes it by its id, and makes it again. */
public final class TopicIds {
    private TopicIds() {}

    private static Uuid make(Admin admin, String topic) throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.empty(), Optional.empty());
        CreateTopicsResult made = admin.createTopics(List.of(wanted.configs(Map.of("cleanup.policy", "compact"))));
        System.out.println("made " + made.numPartitions(topic).get() + " " + made.replicationFactor(topic).get()
                + " " + made.config(topic).get().get("cleanup.policy").value());
        return made.topicId(topic).get();
    }

    private static String describe(Admin admin, Uuid id) throws Exception {
        try {
            DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            TopicDescription found =
                    admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)), options).allTopicIds().get().get(id);
            return found.name() + " " + found.topicId().equals(id) + " " + found.authorizedOperations().size();
        } catch (java.util.concurrent.ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static String delete(Admin admin, Uuid id) throws Exception {
        try {
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            return "deleted";
        } catch (java.util.concurrent.ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            Uuid first = make(admin, topic);
            System.out.println(describe(admin, first));
            System.out.println(delete(admin, first));
            Uuid second = make(admin, topic);
            System.out.println(first.equals(second) ? "same" : "another");
            System.out.println(describe(admin, first));
            System.out.println(delete(admin, first));
            System.out.println(describe(admin, second));
        }
    }
}
