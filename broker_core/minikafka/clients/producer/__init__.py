"""The producer of the reference texts, which Kafka 0.10.1 has as ``kafka.producer``: an API on the engine
``clients.produce``.

    Producer.send ─▶ (sync)                                   EventHandler ─▶ engine ─▶ brokers
                  └▶ (async) EventQueue ─▶ ProducerSendThread ──────┘

``DefaultEventHandler`` serializes, partitions and encodes; ``ProducerConfig`` names the classes that can be
plugged in. Behind the queue messages are columns (``messages.MessageColumns``), not objects.

    producer               Producer
    producer_config        settings
    handlers               EventHandler and CallbackHandler, the classes to plug in
    messages               KeyedMessage, and columns of messages
    partitioner            DefaultPartitioner and ByteArrayPartitioner, with Java's hashes
    async_producer, event_queue, producer_send_thread   the asynchronous producer
    default_event_handler  serialization, partitions, batches for the engine, failures
    broker_partition_info  topics, and partitions for messages without a key
    producer_stats         counters
"""

from minikafka.clients.producer.handlers import CallbackHandler, EventHandler
from minikafka.clients.producer.messages import KeyedMessage
from minikafka.clients.producer.producer import Producer
from minikafka.clients.producer.producer_config import ProducerConfig

__all__ = ["CallbackHandler", "EventHandler", "KeyedMessage", "Producer", "ProducerConfig"]
