import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.BufferedWriter;
import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/**
 * Encode every message of the protocol with the classes of the release, and write them as lines of JSON:
 * tests/data/wire/README.md describes them.
 *
 *     Frames FILE.jsonl.gz
 */
public final class Frames {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    /** Serve the quorum of controllers only. */
    private static final Set<ApiKeys> LEFT_OUT = EnumSet.of(
        ApiKeys.DESCRIBE_QUORUM, ApiKeys.UNREGISTER_BROKER, ApiKeys.ADD_RAFT_VOTER, ApiKeys.REMOVE_RAFT_VOTER);

    /** Structures that may be null: schemas do not say it. */
    private static final Set<String> NULLABLE_STRUCTURES = Set.of("cursor", "next_cursor");

    private static final Pattern REFUSED = Pattern.compile("Attempted to write a non-default (\\w+) at version \\d+");

    private static final byte[] RECORDS = records();
    private static final String LONG_TEXT = "long-текст-".repeat(10);

    private enum Variant { DEFAULT, FILLED, NULLS, UNKNOWN_TAGS }

    public static void main(String[] arguments) throws Exception {
        try (Writer out = new BufferedWriter(new OutputStreamWriter(
                new GZIPOutputStream(new FileOutputStream(arguments[0])), StandardCharsets.UTF_8))) {
            for (ApiKeys api : ApiKeys.values()) {
                Set<ListenerType> listeners = api.messageType.listeners();
                boolean served = listeners.contains(ListenerType.ZK_BROKER) || listeners.contains(ListenerType.BROKER);
                if (!served || LEFT_OUT.contains(api)) continue;
                for (short version = api.oldestVersion(); version <= api.latestVersion(false); version++) {
                    writeApi(out, api, version);
                }
            }
            for (String name : new String[] {
                "common.message.ConsumerProtocolSubscription", "common.message.ConsumerProtocolAssignment",
                "coordinator.group.generated.OffsetCommitKey", "coordinator.group.generated.OffsetCommitValue",
                "coordinator.group.generated.GroupMetadataKey", "coordinator.group.generated.GroupMetadataValue",
                "coordinator.transaction.generated.TransactionLogKey",
                "coordinator.transaction.generated.TransactionLogValue",
            }) {
                writeStructure(out, Class.forName("org.apache.kafka." + name));
            }
        }
    }

    private static void writeApi(Writer out, ApiKeys api, short version) throws Exception {
        Schema request = api.messageType.requestSchemas()[version];
        for (Variant variant : variants(request)) {
            short headerVersion = api.requestHeaderVersion(version);
            RequestHeaderData header = new RequestHeaderData()
                .setRequestApiKey(api.id).setRequestApiVersion(version).setCorrelationId(1000 + version)
                .setClientId(variant == Variant.DEFAULT ? null : "клиент-1");
            if (variant == Variant.UNKNOWN_TAGS) addUnknownTags(header);
            ObjectNode line = described(api, version, "request", variant, headerVersion, bytes(header, headerVersion));
            writeLine(out, line, api.messageType.newRequest().getClass(), request, version, variant);
        }
        Schema response = api.messageType.responseSchemas()[version];
        for (Variant variant : variants(response)) {
            short headerVersion = api.responseHeaderVersion(version);
            ResponseHeaderData header = new ResponseHeaderData().setCorrelationId(1000 + version);
            if (variant == Variant.UNKNOWN_TAGS && headerVersion > 0) addUnknownTags(header);
            ObjectNode line = described(api, version, "response", variant, headerVersion, bytes(header, headerVersion));
            writeLine(out, line, api.messageType.newResponse().getClass(), response, version, variant);
        }
    }

    private static ObjectNode described(
            ApiKeys api, short version, String kind, Variant variant, short headerVersion, byte[] header) {
        return JSON.createObjectNode()
            .put("key", api.id).put("name", api.name).put("version", version).put("kind", kind)
            .put("variant", word(variant)).put("header_version", headerVersion).put("header", HEX.formatHex(header));
    }

    /** A structure that is no request or response: its bytes follow its version, as an int16. */
    private static void writeStructure(Writer out, Class<?> type) throws Exception {
        Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
        for (short version = 0; version < schemas.length; version++) {
            if (schemas[version] == null) continue;
            for (Variant variant : variants(schemas[version])) {
                ObjectNode line = JSON.createObjectNode()
                    .put("name", type.getSimpleName()).put("version", version).put("kind", "structure")
                    .put("variant", word(variant));
                writeLine(out, line, type, schemas[version], version, variant);
            }
        }
    }

    private static void writeLine(
            Writer out, ObjectNode line, Class<?> type, Schema schema, short version, Variant variant) throws Exception {
        Message message = message(type, schema, version, variant);
        JsonNode content = json(message, version);
        if (variant == Variant.UNKNOWN_TAGS) addUnknownTags(message);
        byte[] bytes = bytes(message, version);

        Message copy = newInstance(type);
        copy.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
        if (!copy.equals(message)) throw new IllegalStateException(line + ": read " + copy + ", not " + message);
        line.set("message", content);
        line.put("bytes", HEX.formatHex(bytes));
        out.write(JSON.writeValueAsString(line));
        out.write('\n');
    }

    private static EnumSet<Variant> variants(Schema schema) {
        EnumSet<Variant> variants = EnumSet.allOf(Variant.class);
        boolean flexible = false;
        for (var field : schema.fields()) flexible |= field.def.type instanceof TaggedFields;
        if (!flexible) variants.remove(Variant.UNKNOWN_TAGS);
        return variants;
    }

    private static String word(Variant variant) {
        return variant.name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    private static Message message(Class<?> type, Schema schema, short version, Variant variant) throws Exception {
        if (variant == Variant.DEFAULT) return newInstance(type);
        Map<String, String> names = fieldNames(type);
        Set<String> leftOut = new HashSet<>();
        while (true) {
            Filling filling = new Filling(names, leftOut, variant == Variant.NULLS);
            Message message = (Message) converter(type).getMethod("read", JsonNode.class, short.class)
                .invoke(null, filling.structure(schema, variant == Variant.NULLS), version);
            try {
                bytes(message, version);
                return message;
            } catch (UnsupportedVersionException error) {
                // The schemas of some versions have the tagged fields of later ones; the classes do not write them.
                Matcher refused = REFUSED.matcher(error.getMessage());
                if (!refused.matches() || !leftOut.add(refused.group(1))) throw error;
            }
        }
    }

    private static Message newInstance(Class<?> type) throws ReflectiveOperationException {
        return (Message) type.getConstructor().newInstance();
    }

    private static Class<?> converter(Class<?> type) throws ClassNotFoundException {
        return Class.forName(type.getName() + "JsonConverter");
    }

    private static JsonNode json(Message message, short version) throws Exception {
        Class<?> type = message.getClass();
        JsonNode content = (JsonNode) converter(type).getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, true);
        setRecords(content);
        return content;
    }

    /** The converters write no records, they leave empty bytes. */
    private static void setRecords(JsonNode content) {
        if (content instanceof ObjectNode structure) {
            if (structure.get("records") instanceof BinaryNode) structure.set("records", new BinaryNode(RECORDS));
        }
        content.forEach(Frames::setRecords);
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBufferAccessor buffer = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
        message.write(buffer, cache, version);
        return buffer.buffer().array();
    }

    private static byte[] records() {
        ByteBuffer buffer = MemoryRecords.withRecords(7L, Compression.of(CompressionType.NONE).build(),
            new SimpleRecord(1_700_000_000_000L, "key".getBytes(StandardCharsets.UTF_8), new byte[] {0, -1}),
            new SimpleRecord(1_700_000_000_001L, (byte[]) null, null)).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    /** Add tagged fields that no version knows to a message and to the structures in it. */
    private static void addUnknownTags(Message message) throws ReflectiveOperationException {
        message.unknownTaggedFields().add(new RawTaggedField(1000, new byte[] {1, 2, 3}));
        message.unknownTaggedFields().add(new RawTaggedField(100_000, new byte[200]));
        for (Field field : message.getClass().getDeclaredFields()) {
            field.setAccessible(true);
            Object value = field.get(message);
            if (value instanceof Collection<?> elements) {
                for (Object element : elements) if (element instanceof Message nested) addUnknownTags(nested);
            } else if (value instanceof Message nested && !nested.equals(newInstance(nested.getClass()))) {
                addUnknownTags(nested);
            }
        }
    }

    /** The names of all fields in the classes of a message, in camel case, by the lower-case letters of them. */
    private static Map<String, String> fieldNames(Class<?> type) {
        Map<String, String> names = new HashMap<>();
        for (Field field : type.getDeclaredFields()) {
            names.put(field.getName().toLowerCase(Locale.ROOT), field.getName());
        }
        for (Class<?> nested : type.getDeclaredClasses()) names.putAll(fieldNames(nested));
        return names;
    }

    /** Values for every field of a schema: a counter makes each another one. */
    private static final class Filling {
        private final Map<String, String> names;
        private final Set<String> leftOut;
        private final boolean nullRecords;
        private int counter;
        private boolean longText = true;

        Filling(Map<String, String> names, Set<String> leftOut, boolean nulls) {
            this.names = names;
            this.leftOut = leftOut;
            this.nullRecords = nulls;
            this.counter = nulls ? 1 : 0;
        }

        ObjectNode structure(Schema schema, boolean nulls) {
            ObjectNode node = JSON.createObjectNode();
            for (var field : schema.fields()) {
                if (field.def.type instanceof TaggedFields tagged) {
                    for (var def : fields(tagged)) add(node, def, nulls);
                } else {
                    add(node, field.def, nulls);
                }
            }
            return node;
        }

        /** The fields of a section of tagged ones, by their tags: the class shows them to nobody. */
        @SuppressWarnings("unchecked")
        private static Collection<org.apache.kafka.common.protocol.types.Field> fields(TaggedFields tagged) {
            try {
                Field fields = TaggedFields.class.getDeclaredField("fields");
                fields.setAccessible(true);
                return ((Map<Integer, org.apache.kafka.common.protocol.types.Field>) fields.get(tagged)).values();
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        private void add(ObjectNode node, org.apache.kafka.common.protocol.types.Field field, boolean nulls) {
            String name = names.get(field.name.replace("_", "").toLowerCase(Locale.ROOT));
            if (name == null) throw new IllegalStateException("no field of the class is " + field.name);
            if (leftOut.contains(name)) return;
            boolean nullable = field.type.isNullable() || NULLABLE_STRUCTURES.contains(field.name);
            boolean empty = nulls && nullable && (nullRecords || !field.name.equals("records"));
            node.set(name, empty ? NullNode.instance : value(field.name, field.type, nulls));
        }

        private JsonNode value(String name, Type type, boolean nulls) {
            if (type instanceof Schema schema) return structure(schema, nulls);
            if (type.isArray()) {
                Type element = type.arrayElementType().get();
                ArrayNode array = JSON.createArrayNode();
                array.add(value(name, element, nulls));
                array.add(value(name, element, true));
                return array;
            }
            counter++;
            return switch (type.toString()) {
                case "BOOLEAN" -> BooleanNode.valueOf(counter % 2 == 1);
                case "INT8" -> new IntNode(1 + counter % 5);
                case "INT16" -> new IntNode(name.endsWith("error_code") ? 1 + counter % 100 : 100 + counter);
                case "UINT16" -> new IntNode(40_000 + counter);
                case "INT32" -> new IntNode(counter % 4 == 3 ? -1_000_000_000 - counter : 70_000 * counter);
                case "UINT32" -> new LongNode(4_000_000_000L + counter);
                case "INT64" -> new LongNode(counter % 4 == 3 ? -(1L << 60) - counter : (1L << 40) + counter);
                case "FLOAT64" -> new DoubleNode(counter + 0.25);
                case "UUID" -> new TextNode(new Uuid(0x1234_5678_9abc_4d00L + counter, counter).toString());
                case "STRING", "COMPACT_STRING", "NULLABLE_STRING", "COMPACT_NULLABLE_STRING" -> new TextNode(text());
                case "BYTES", "COMPACT_BYTES", "NULLABLE_BYTES", "COMPACT_NULLABLE_BYTES" -> new BinaryNode(bytes());
                case "RECORDS", "COMPACT_RECORDS" -> new BinaryNode(RECORDS);
                default -> throw new IllegalStateException("no value for the type " + type);
            };
        }

        private String text() {
            String text = (longText ? LONG_TEXT : "имя-✓-𝄞-") + counter;
            longText = false;
            return text;
        }

        private byte[] bytes() {
            byte[] bytes = new byte[counter % 3 == 0 ? 200 : 4];
            for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) (counter + i);
            return bytes;
        }
    }
}
