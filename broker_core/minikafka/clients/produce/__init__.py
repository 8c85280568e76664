"""The batching producer.

    BatchingProducer.send ─▶ Accumulator (batches per partition) ─▶ Sender (requests per leader) ─▶ broker
                                      SendFuture ◀ offset or error ◀─┘

``RecordAccumulator`` and ``Sender`` only make decisions and take the time as an argument;
``BatchingProducer`` adds the threads.
"""

from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.produce.send_future import RecordMetadata, SendFuture

__all__ = ["BatchingConfig", "BatchingProducer", "RecordMetadata", "SendFuture"]
