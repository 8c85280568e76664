"""The one engine that sends records to brokers, and its API: the batching producer.

    BatchingProducer ─▶ RecordAccumulator ─▶ Sender ─▶ TaskRunner ─▶ broker
                 SendFuture ◀ offset or error ◀┘
    TransactionalProducer ─▶ BatchingProducer, with a TransactionManager beside the Sender

``RecordAccumulator`` and ``Sender`` only make decisions and take the time as an argument; ``TaskRunner`` does
the I/O, and ``BatchingProducer`` adds the threads. ``TransactionManager`` decides too; its producer is
exported by ``minikafka``. ``clients.producer`` is the texts' API on this engine.
"""

from minikafka.clients.produce.config import BatchingConfig, TransactionalConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.clients.produce.send_future import RecordMetadata, SendFuture

__all__ = ["BatchingConfig", "BatchingProducer", "RecordMetadata", "SendFuture", "TransactionalConfig"]
