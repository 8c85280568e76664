"""The producer of the reference texts, which Kafka 0.10.1 has as ``kafka.producer``.

    Producer.send ─▶ (sync)                                   EventHandler ─▶ brokers
                  └▶ (async) EventQueue ─▶ ProducerSendThread ──────┘

``DefaultEventHandler`` serializes, partitions and sends; all that is plugged in is named in
``ProducerConfig``. Behind the queue messages are columns (``message_columns``), not objects.
"""

from minikafka.clients.producer.handlers import CallbackHandler, EventHandler
from minikafka.clients.producer.messages import KeyedMessage
from minikafka.clients.producer.producer import Producer
from minikafka.clients.producer.producer_config import ProducerConfig

__all__ = ["CallbackHandler", "EventHandler", "KeyedMessage", "Producer", "ProducerConfig"]
