"""A consumer's fetchers without threads, on brokers in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.chunks import ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.fetcher_manager import ConsumerFetcherManager
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry, FetchRequestAndResponseStatsRegistry
from minikafka.clients.consumer.streams import ConsumerIterator, KafkaStream
from minikafka.clients.serializer import DefaultDecoder
from minikafka.registry.store import Store
from minikafka.wire.api import ApiKey, partitions_of
from tests.support.broker_harness import BrokerHarness
from tests.support.consumer_streams import StreamHarness

CLIENT = "fetchers-of-tests"


class SteppedFetcher(ConsumerFetcherManager):
    """The fetchers of a consumer, which run only in ``step`` and ``deliver``."""

    def __init__(
        self, brokers: BrokerHarness, config: ConsumerConfig | None = None, store: Store | None = None
    ) -> None:
        super().__init__(
            "g_c",
            config or ConsumerConfig("g", "memory:1"),
            store or brokers.zookeeper.connect(),
            connector=brokers.network,
            clock=brokers.clock,
            make_waiter=brokers.make_waiter,
            threads=False,
        )
        self.brokers = brokers
        self.starts = 0
        self.ended = False

    @property
    def infos(self) -> dict[TopicPartition, PartitionTopicInfo]:
        return {} if self._current is None else self._current.infos

    def start_connections(self, infos: Iterable[PartitionTopicInfo]) -> None:
        self.starts += 1
        super().start_connections(infos)

    def shutdown(self) -> None:
        self.ended = True
        super().shutdown()

    def deliver(self, count: int) -> None:
        """Bring the next ``count`` messages of each partition, which are written if they are not there."""
        if any(info.fetched_offset < 0 for info in self.infos.values()):
            self.step()
        wanted = {tp: info.fetched_offset + count for tp, info in self.infos.items()}
        for tp, offset in wanted.items():
            end = self.brokers.logs[tp].end_offset
            if end < offset:
                self.brokers.fill(tp, *(b"%d" % number for number in range(end, offset)))
        while any(info.fetched_offset < wanted[tp] for tp, info in self.infos.items()):
            self.step()


class FetcherHarness:
    """A fetcher manager with settings ``config`` (fields of ConsumerConfig), and streams that do not wait."""

    def __init__(self, brokers: BrokerHarness, **config: Any) -> None:
        self.brokers = brokers
        self.zookeeper = brokers.zookeeper
        self.store = self.zookeeper.connect()
        self.config = ConsumerConfig(
            "g", "memory:2181", client_id=CLIENT, **{"auto_offset_reset": "smallest", **config}
        )
        self.manager = SteppedFetcher(brokers, self.config, self.store)
        FetchRequestAndResponseStatsRegistry.remove(CLIENT)
        ConsumerTopicStatsRegistry.remove(CLIENT)

    def stream(self, max_chunks: int | None = None) -> StreamHarness:
        queue = ChunkQueue(self.config.queued_max_message_chunks if max_chunks is None else max_chunks)
        iterator = ConsumerIterator(queue, 0, DefaultDecoder(), DefaultDecoder(), CLIENT)
        return StreamHarness(queue, KafkaStream(iterator))

    def info(self, stream: StreamHarness, partition: int = 0, offset: int = 0) -> PartitionTopicInfo:
        size = self.config.fetch_message_max_bytes
        return PartitionTopicInfo("t", partition, stream.queue, offset, offset, size, CLIENT)

    def start(self, stream: StreamHarness, steps: int = 1) -> None:
        """Fetch partition 0 from its beginning for a stream."""
        self.fetch([self.info(stream)], steps)

    def fetch(self, infos: Iterable[PartitionTopicInfo], steps: int = 1) -> None:
        """Begin to fetch partitions."""
        self.manager.start_connections(infos)
        self.step(steps)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.manager.step()

    @property
    def positions(self) -> list[dict[TopicPartition, int]]:
        """Return the positions of each fetch, also those that its session has from earlier ones."""
        found: list[dict[TopicPartition, int]] = []
        for request in self.brokers.asked(ApiKey.FETCH):
            kept = found[-1] if request.session_epoch > 0 else {}
            named = {tp: part.fetch_offset for tp, part in partitions_of(request.topics)}
            forgotten = {
                TopicPartition(topic.name, number)
                for topic in request.forgotten_topics
                for number in topic.partitions
            }
            found.append({tp: at for tp, at in {**kept, **named}.items() if tp not in forgotten})
        return found

    @property
    def waits_ms(self) -> list[int]:
        """Return the maximum wait of each fetch."""
        return [request.max_wait_ms for request in self.brokers.asked(ApiKey.FETCH)]


def five_messages(**config: object) -> tuple[BrokerHarness, FetcherHarness, StreamHarness]:
    """Return a broker with five messages of one partition, a fetcher harness, and a stream."""
    brokers = BrokerHarness(1, {"t": 1})
    brokers.fill(TopicPartition("t", 0), *values(0, 1, 2, 3, 4))
    harness = FetcherHarness(brokers, **config)
    stream = harness.stream()
    return brokers, harness, stream


def values(*offsets: int) -> list[bytes]:
    return [b"%d" % offset for offset in offsets]
