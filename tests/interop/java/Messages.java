import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Messages as the release writes them. Each line of the file is a class of org.apache.kafka.common.message without
 * its "Data", a version and the message in JSON; what is printed for it is hex. For a request its header (correlation
 * id 7, client id "c") stands before it. Without a file: the key and the newest version of every API.
 */
public final class Messages {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            for (ApiKeys key : ApiKeys.values()) System.out.println(key.id + " " + key.latestVersion(false));
            return;
        }
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", 3);
            short version = Short.parseShort(words[1]);
            Class<?> converter = Class.forName("org.apache.kafka.common.message." + words[0] + "DataJsonConverter");
            Message message = (Message) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, new ObjectMapper().readTree(words[2]), version);
            System.out.println(header(message, version) + hex(message, version));
        }
    }

    private static String header(Message message, short version) {
        if (!message.getClass().getSimpleName().endsWith("RequestData")) return "";
        ApiKeys key = ApiKeys.forId(((ApiMessage) message).apiKey());
        RequestHeader header = new RequestHeader(key, version, "c", 7);
        return hex(header.data(), header.headerVersion());
    }

    private static String hex(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBuffer(message, version);
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
