"""The batching producer.

    Producer.send ─▶ Accumulator (batches per partition) ─▶ Sender (requests per leader) ─▶ broker
                                      Delivery ◀─ offset or error ◀─┘

``Accumulator`` and ``Sender`` decide, with the time as an argument; ``Producer`` adds the threads.
"""

from minikafka.clients.producer.config import ProducerConfig
from minikafka.clients.producer.delivery import Acknowledged, Delivery
from minikafka.clients.producer.producer import Producer

__all__ = ["Acknowledged", "Delivery", "Producer", "ProducerConfig"]
