"""``kafka.producer.Producer``: the old producer, synchronous or asynchronous."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minikafka.base.config.class_loader import create_instance
from minikafka.base.config.types import INT_MAX
from minikafka.base.errors import ProducerClosed
from minikafka.clients.metrics.producer import PREFIX
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.producer.async_producer import AsyncProducer
from minikafka.clients.producer.default_event_handler import DefaultEventHandler
from minikafka.clients.producer.handlers import CallbackHandler, EventHandler
from minikafka.clients.producer.messages import KeyedMessage, MessageColumns, columns_of
from minikafka.clients.producer.producer_config import BROKER_LIST, ProducerConfig
from minikafka.clients.producer.producer_stats import ProducerStats

_MESSAGES = {KeyedMessage}


class Producer:
    """Sends messages to topics (``kafka.producer.Producer`` of the texts, whose ``send`` of one message and
    of a list are one method here). Thread-safe. Close it, or use it as a context manager: queued messages are
    sent first. An asynchronous producer that is not closed is closed at the end of the program.

    With ``producer.type=sync``, the default, ``send`` returns when the brokers have acknowledged as
    ``request.required.acks`` says, and calls run one at a time. With ``async`` it queues.

    ``config`` may be a mapping of Kafka's names. ``cluster`` is an existing client to use; it is not closed,
    and its timeouts and buffers apply. ``threads=False`` is for simulations.
    """

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, Any],
        *,
        cluster: ClusterClient | None = None,
        threads: bool = True,
    ) -> None:
        if not isinstance(config, ProducerConfig):
            config = ProducerConfig.from_properties(config)
        self.config = config
        self.stats = ProducerStats()
        self._encoder = create_instance(config.serializer_class, config.properties)
        self._key_encoder = create_instance(config.key_serializer_class, config.properties)
        callback: CallbackHandler | None = create_instance(config.callback_handler, config.properties)
        self._own_cluster = cluster is None
        self._cluster = cluster or _make_cluster(config)
        self._handler: EventHandler = create_instance(config.event_handler, config.properties)
        if self._handler is None:
            self._handler = DefaultEventHandler(
                config,
                self._cluster,
                partitioner=create_instance(config.partitioner_class, config.properties),
                encoder=self._encoder,
                key_encoder=self._key_encoder,
                stats=self.stats,
            )
        self._lock = threading.Lock()
        self._closed = False
        self._callback = None if config.is_sync else callback
        self._one_by_one = self._callback is not None or not isinstance(self._handler, DefaultEventHandler)
        self._async: AsyncProducer | None = None
        self._offer: Callable[[KeyedMessage], bool] = _not_queued
        if self._callback is not None:
            self._callback.init(config.properties)
        if not config.is_sync:
            self._async = AsyncProducer(
                config, self._cluster, self._handler, self._callback, self.stats, threads=threads
            )
            if self._callback is None:
                self._offer = self._async.queue.offer
            if threads:
                atexit.register(self._close_at_exit)

    def send(self, messages: KeyedMessage | Iterable[KeyedMessage]) -> None:
        """Send one message or several, in their order. Raises TypeError for anything else.

        Sync: raises FailedToSendMessage, which holds the unsent messages, and any error of the encoders.
        Async: raises QueueFull if the queue has no room in time; later failures are logged, counted in
        ``stats`` and passed to the callback handler. Raises ProducerClosed after ``close``.
        """
        if isinstance(messages, KeyedMessage):
            # The fast path: the queue has room, and there is no callback handler.
            if self._offer(messages):
                return
            if self._async is None:
                self._send_sync([messages])
            else:
                self._async.send(messages)
            return
        batch = messages if isinstance(messages, (list, tuple)) else _to_list(messages)
        if not set(map(type, batch)) <= _MESSAGES:  # a tenth of the time of a check of each message
            for item in batch:
                if not isinstance(item, KeyedMessage):
                    raise TypeError(_type_error_text(item))
        if self._async is None:
            self._send_sync(batch)
        else:
            self._async.send_all(batch)

    def send_values(self, topic: str, values: Any, keys: Any = None) -> None:
        """Send many messages for one topic in one call, without an object for each.

        values: a list of what ``serializer.class`` encodes (bytes by default), an Arrow column (binary or
        string in any layout), or a table or record batch with the column ``value`` and, optionally, ``key``.
        keys: a list or a column of the same length. Columns are sent as they are, strings as UTF-8. Null is
        null.

        Raises as ``send``; TypeError or ValueError for values that cannot be sent. With ``event.handler`` or
        ``callback.handler`` the messages are sent one by one.
        """
        columns = columns_of(topic, values, keys, self._encoder, self._key_encoder)
        if self._one_by_one:
            self._send_one_by_one(topic, values, keys, columns)
        elif self._async is None:
            self._send_columns_sync(columns)
        else:
            self._async.send_columns(columns)

    def step(self) -> bool:
        """Without threads: send the messages that may leave the queue now. Return whether there were any."""
        return self._async is not None and self._async.step()

    def metrics(self) -> Metrics:
        """Return the numbers of messages, requests and connections under the names of Kafka's newer clients:
        group -> name -> value. With an ``event.handler`` those of connections alone. Thread-safe.
        """
        if isinstance(self._handler, DefaultEventHandler):
            return self._handler.metrics()
        return self._cluster.metrics(PREFIX)

    @property
    def queued(self) -> int:
        """The number of messages in the queue."""
        return 0 if self._async is None else len(self._async.queue)

    def close(self) -> None:
        """Send all queued messages, then end. A second call does nothing.

        Waits for an asynchronous producer as long as its retries take, and logs that every five seconds; once
        a batch has found no broker, all remaining messages get ``request.timeout.ms`` together. Unsent
        messages are logged. Ctrl-C, or any other exception meanwhile, abandons the remaining messages.
        """
        if self._async is None:
            self._end()
            return
        try:
            ended = self._async.close(self._end)
        except BaseException:
            if isinstance(self._handler, DefaultEventHandler):
                self._handler.give_up()
            if self._own_cluster:
                self._cluster.close()  # fails the requests in flight
            if self._async.give_up():
                self._end()
            atexit.unregister(self._close_at_exit)
            raise
        if ended:
            self._end()

    def _end(self) -> None:
        """Close the handlers and the cluster."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self._close_at_exit)
            with contextlib.ExitStack() as last:
                if self._own_cluster:
                    last.callback(self._cluster.close)
                if self._callback is not None:
                    last.callback(self._callback.close)
                last.callback(self._handler.close)

    def _close_at_exit(self) -> None:
        with contextlib.suppress(KeyboardInterrupt):  # the log says that messages were abandoned
            self.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_sync(self, messages: Sequence[KeyedMessage]) -> None:
        with self._lock:
            self._check_open()
            self._handler.handle(messages)

    def _send_columns_sync(self, columns: Iterable[MessageColumns]) -> None:
        assert isinstance(self._handler, DefaultEventHandler)
        with self._lock:
            self._check_open()
            self._handler.handle_columns(columns)

    def _send_one_by_one(self, topic: str, values: Any, keys: Any, columns: Iterable[MessageColumns]) -> None:
        if isinstance(values, (list, tuple)) and (keys is None or isinstance(keys, (list, tuple))):
            messages = [
                KeyedMessage(topic, value, key)
                for value, key in zip(values, keys or [None] * len(values), strict=True)
            ]
        else:
            messages = [message for piece in columns for message in piece.messages(range(len(piece)))]
        self.send(messages)

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosed("the producer is closed")


def _to_list(given: Any) -> list[KeyedMessage]:
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise TypeError(_type_error_text(given))
    return list(given)


def _type_error_text(given: object) -> str:
    return (
        f"expected a KeyedMessage or a list of them, got {given!r:.100}: send KeyedMessage(topic, message), "
        "or call send_values(topic, messages)"
    )


def _not_queued(_: KeyedMessage) -> bool:
    return False


def _make_cluster(config: ProducerConfig) -> ClusterClient:
    return ClusterClient(
        config.metadata_broker_list,
        security=config.security,
        connector=config.security.connector(
            client_id=config.client_id,
            connect_timeout_ms=config.request_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            send_buffer_bytes=config.send_buffer_bytes,
        ),
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        metadata_max_age_ms=INT_MAX,  # topic.metadata.refresh.interval.ms says when
        option=BROKER_LIST,
    )
