import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * SpringRetries BOOTSTRAP: send numbers by Spring to a topic that it makes, and answer each in another; those divisible by ten
 * fail, are tried again through topics of their own, and end as dead letters. Runs until stdin ends.
 */
@Configuration
@EnableKafka
@EnableKafkaRetryTopic
public class SpringRetries {
    static final int NUMBERS = 100;
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (var context = new AnnotationConfigApplicationContext(SpringRetries.class)) {
            @SuppressWarnings("unchecked")
            KafkaTemplate<String, String> template = context.getBean(KafkaTemplate.class);
            for (int number = 1; number <= NUMBERS; number++) {
                template.send("numbers", Integer.toString(number), Integer.toString(number)).get();
            }
            while (System.in.read() >= 0) { }
        }
    }

    @Bean
    KafkaAdmin admin() {
        KafkaAdmin admin = new KafkaAdmin(Map.of("bootstrap.servers", bootstrap));
        admin.setFatalIfBrokerNotAvailable(true);
        return admin;
    }

    @Bean
    KafkaAdmin.NewTopics topics() {
        NewTopic[] byDefault = {TopicBuilder.name("numbers").build(), TopicBuilder.name("answers").build()};
        return new KafkaAdmin.NewTopics(byDefault);
    }

    @Bean
    KafkaTemplate<String, String> template() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(settings));
    }

    @Bean
    ConsumerFactory<String, String> consumers() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        return new DefaultKafkaConsumerFactory<>(settings);
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
        ConsumerFactory<String, String> consumers, KafkaTemplate<String, String> template
    ) {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumers);
        factory.setReplyTemplate(template);
        factory.setConcurrency(2);
        return factory;
    }

    @Bean
    TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @RetryableTopic(attempts = "2", kafkaTemplate = "template")
    @KafkaListener(id = "listener", topics = "numbers")
    @SendTo("answers")
    public String answer(String number) {
        if (Integer.parseInt(number) % 10 == 0) {
            throw new IllegalArgumentException(number);
        }
        return number;
    }

    @DltHandler
    public void dead(String number) {
        System.out.println("dead letter " + number);
    }
}
