import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

/** FlinkCopy BOOTSTRAP IN OUT DIRECTORY: copy a topic with Flink, from the group's offsets on, until stdin ends. */
public final class FlinkCopy {
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment();
        flink.setParallelism(2);
        flink.enableCheckpointing(500); // offsets are committed when a checkpoint is whole
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics(args[1])
            .setGroupId(args[1])
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(args[2])
                .setKeySerializationSchema((String line) -> line.getBytes(StandardCharsets.UTF_8))
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink);
        JobClient job = flink.executeAsync("copy");
        while (System.in.read() >= 0) { }
        job.stopWithSavepoint(false, args[3], SavepointFormatType.DEFAULT).get();
        System.exit(0);
    }
}
