"""The batching producer.

    BatchingProducer.send ─▶ Accumulator (batches per partition) ─▶ Sender (requests per leader) ─▶ broker
                                      Delivery ◀─ offset or error ◀─┘

``Accumulator`` and ``Sender`` decide, with the time as an argument; ``BatchingProducer`` adds the threads.
"""

from minikafka.clients.batching.config import BatchingConfig
from minikafka.clients.batching.delivery import Acknowledged, Delivery
from minikafka.clients.batching.producer import BatchingProducer

__all__ = ["Acknowledged", "BatchingConfig", "BatchingProducer", "Delivery"]
