"""Our clients against real Kafka, 0.10.1.1, 3.9.1 and 4: what one writes, the other reads back, exactly."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from itertools import islice

import pytest

from minikafka.base.endpoints import LiveBroker
from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import EARLIEST, LATEST, Admin, NewTopic
from minikafka.clients.consumer.chunks import INVALID_OFFSET, ChunkQueue, PartitionTopicInfo
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.fetcher_manager import ConsumerFetcherManager
from minikafka.clients.consumer.streams import ConsumerIterator, KafkaStream
from minikafka.clients.fetch.fetch_state import FetchSettings
from minikafka.clients.fetch.range_fetcher import RangeFetcher, prefetched
from minikafka.clients.fetch.shared_fetch import Beginning, SharedFetch
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.clients.serializer import DefaultDecoder
from minikafka.embedded.process import wait_until
from minikafka.records.format.message_set import (
    CLASSIC_CODECS,
    Codec,
    Record,
    StoredRecord,
    build_message_set,
    iterate,
)
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.wire.api import ApiKey
from minikafka.wire.fields import ZERO_UUID
from tests.interop.releases import KAFKA_0_10, KAFKA_4, RELEASES
from tests.support.kafka_broker import KafkaBroker, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=[*RELEASES, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running(request.param, tmp_path_factory.mktemp("real-kafka")) as broker:
        yield broker


def needs(kafka: KafkaBroker, key: ApiKey, version: int) -> None:
    """Skip where the release has this version no more."""
    if kafka.release is KAFKA_4 and version < OLDEST_OF_4[key]:
        pytest.skip(f"Kafka 4 has no {key.name} before version {OLDEST_OF_4[key]}")


@pytest.fixture
def cluster(kafka: KafkaBroker) -> Iterator[ClusterClient]:
    kafka.start()
    with ClusterClient(kafka.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: ClusterClient) -> str:
    name = f"topic-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, partitions=3))
    return name


_NUMBERS = itertools.count()

OLDEST_OF_4 = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1}

Row = tuple[int, int, bytes | None, bytes | None]


def hard_records(count: int, seed: int) -> list[Record]:
    """Null and empty keys and values, bytes that are no UTF-8, one large value, many small ones."""
    chance = random.Random(seed)
    hard = [
        Record(None, None, 0),
        Record(b"", b"", 1),
        Record(b"key", None, 1_700_000_000_000),
        Record(b"\xff\x00", b"\x80" * 10, 1_600_000_000_000),
        Record(b"large", chance.randbytes(300_000), 1_650_000_000_000),
    ]
    small = [
        Record(b"k%d" % n, chance.randbytes(chance.randrange(200)), 1_700_000_000_000 + n)
        for n in range(count - len(hard))
    ]
    return hard + small


def read(
    cluster: ClusterClient, tp: TopicPartition, start: int = 0, end: int | None = None, **options: int
) -> list[StoredRecord]:
    if end is None:
        end = Admin(cluster).offsets({tp: LATEST})[tp]
        assert end is not None
    sets = RangeFetcher(cluster, tp, start, end, timeout_ms=20_000, **options)
    return [r for data in prefetched(sets, 2) for r in iterate(data) if start <= r.offset < end]


@pytest.mark.parametrize("max_bytes", [100, 1 << 20])
def test_ranges_of_several_partitions_are_begun_together(
    cluster: ClusterClient, topic: str, max_bytes: int
) -> None:
    records = hard_records(300, seed=max_bytes)
    with BatchingProducer(cluster) as producer:
        for number, record in enumerate(records):
            producer.send(topic, record.value, key=record.key, partition=number % 3)
    parts = [TopicPartition(topic, number) for number in range(3)]
    settings = FetchSettings(partition_max_bytes=1 << 20, max_bytes=1 << 20, message_max_bytes=1 << 20)
    firsts = dict(SharedFetch(cluster, dict.fromkeys(parts, Beginning(0, max_bytes)), settings))
    assert firsts.keys() == set(parts)
    assert any(firsts.values())
    for tp, first in firsts.items():
        sets = RangeFetcher(cluster, tp, 0, 100, first=first, timeout_ms=20_000)
        assert [r.value for data in sets for r in iterate(data)] == [
            r.value for r in records[tp.partition :: 3]
        ]


def rows(records: list[StoredRecord]) -> list[Row]:
    return [(r.offset, r.timestamp_ms, r.key, r.value) for r in records]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("acks", [1, -1])
def test_what_the_producer_writes_the_fetcher_reads_back(
    kafka: KafkaBroker, cluster: ClusterClient, topic: str, codec: Codec, acks: int
) -> None:
    magic = kafka.release.magics[-1]
    if codec is Codec.ZSTD and magic < 2:
        with BatchingProducer(cluster, BatchingConfig(compression=codec)) as producer:
            refused = producer.send(topic, b"v")
        assert isinstance(refused.error, BrokerError)
        assert refused.error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return
    records = hard_records(700, seed=codec * 10 + acks)
    with BatchingProducer(cluster, BatchingConfig(acks=acks, compression=codec)) as producer:
        deliveries = [
            producer.send(topic, r.value, key=r.key, partition=n % 3, timestamp_ms=r.timestamp_ms)
            for n, r in enumerate(records)
        ]
    wanted: dict[TopicPartition, list[Row]] = {}
    for record, delivery in zip(records, deliveries, strict=True):
        done = delivery.result()
        row = (done.offset, record.timestamp_ms, record.key, record.value)
        wanted.setdefault(done.topic_partition, []).append(row)
    assert len(wanted) == 3
    for tp, expected in wanted.items():
        found = read(cluster, tp, max_bytes=40_000)
        assert rows(found) == expected
        assert [row[0] for row in expected] == list(range(len(expected)))
        assert {r.magic for r in found} == {magic}
        assert {r.codec for r in found} == {codec}


def test_idempotence_is_had_of_releases_that_have_it(
    kafka: KafkaBroker, cluster: ClusterClient, topic: str
) -> None:
    with BatchingProducer(cluster, BatchingConfig(idempotence=True)) as producer:
        demanded = producer.send(topic, b"v", partition=0)
    with BatchingProducer(cluster, BatchingConfig(acks=-1)) as producer:
        wished = producer.send(topic, b"v", partition=1)
    assert wished.result().offset == 0
    (record,) = read(cluster, TopicPartition(topic, 1))
    if kafka.release.magics[-1] >= 2:
        assert demanded.result().offset == 0
        assert record.producer_id >= 0
    else:
        assert isinstance(demanded.error, BrokerError)
        assert demanded.error.code is ErrorCode.UNSUPPORTED_VERSION
        assert "enable.idempotence=true" in str(demanded.error)


@pytest.mark.parametrize("codec", CLASSIC_CODECS)
@pytest.mark.parametrize("magic", [1, None])
def test_encoded_sets_arrive_as_they_are(
    kafka: KafkaBroker, cluster: ClusterClient, topic: str, codec: Codec, magic: int | None
) -> None:
    needs(kafka, ApiKey.PRODUCE, 3 if magic is None else 2)
    records = hard_records(300, seed=codec)
    tp = TopicPartition(topic, 1)
    with BatchingProducer(cluster) as producer:
        magic = producer.magic(tp) if magic is None else magic
        sets = [build_message_set(part, magic=magic, codec=codec) for part in (records[:200], records[200:])]
        first, second = producer.send_encoded(tp, sets[0], 200), producer.send_encoded(tp, sets[1], 100)
    assert [(d.result().offset, d.result().count) for d in (first, second)] == [(0, 200), (200, 100)]
    expected = [(n, r.timestamp_ms, r.key, r.value) for n, r in enumerate(records)]
    assert rows(read(cluster, tp)) == expected


@pytest.mark.parametrize("fetch_version", range(11))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_fetch_version_reads_the_same_range(
    kafka: KafkaBroker, topic: str, fetch_version: int, codec: Codec
) -> None:
    needs(kafka, ApiKey.FETCH, fetch_version)
    records = hard_records(200, seed=fetch_version)
    tp = TopicPartition(topic, 0)
    with ClusterClient(kafka.bootstrap, newest_versions={ApiKey.FETCH: fetch_version}) as cluster:
        with BatchingProducer(cluster, BatchingConfig(compression=codec)) as producer:
            for record in records:
                producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp_ms)
        # The large record takes many times max_bytes: versions 0 to 2 cut it off at first. Of a batch that
        # is cut off there is nothing to convert down, and 3.9.1 gives nothing.
        converted = fetch_version < 3 and 2 in kafka.release.magics
        found = read(cluster, tp, 2, 150, max_bytes=400_000 if converted else 2_000)
    assert [r.offset for r in found] == list(range(2, 150))
    assert [(r.key, r.value) for r in found] == [(r.key, r.value) for r in records[2:150]]
    newest = 0 if fetch_version < 2 else 1 if fetch_version < 4 else 2
    assert {r.magic for r in found} == {min(newest, kafka.release.magics[-1])}


@pytest.mark.parametrize("produce_version", [0, 1])
def test_old_produce_versions_carry_magic_0(kafka: KafkaBroker, topic: str, produce_version: int) -> None:
    needs(kafka, ApiKey.PRODUCE, produce_version)
    tp = TopicPartition(topic, 0)
    with ClusterClient(kafka.bootstrap, newest_versions={ApiKey.PRODUCE: produce_version}) as cluster:
        with BatchingProducer(cluster, BatchingConfig(compression=Codec.GZIP)) as producer:
            sent = [producer.send(topic, b"v%d" % n, partition=0, timestamp_ms=5) for n in range(10)]
            assert [d.result(10_000).offset for d in sent] == list(range(10))
        found = read(cluster, tp)
    assert [r.value for r in found] == [b"v%d" % n for n in range(10)]
    # The broker stores its own format and marks what came without a time.
    assert {r.timestamp_ms for r in found} == {-1}


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_listed_in_every_version(kafka: KafkaBroker, topic: str, version: int) -> None:
    needs(kafka, ApiKey.LIST_OFFSETS, version)
    partitions = [TopicPartition(topic, n) for n in range(3)]
    with ClusterClient(kafka.bootstrap, newest_versions={ApiKey.LIST_OFFSETS: version}) as cluster:
        with BatchingProducer(cluster) as producer:
            for n in range(7):
                producer.send(topic, b"x", partition=2, timestamp_ms=1000 + n)
        admin = Admin(cluster)
        assert admin.offsets(dict.fromkeys(partitions, EARLIEST)) == dict.fromkeys(partitions, 0)
        assert list(admin.offsets(dict.fromkeys(partitions, LATEST)).values()) == [0, 0, 7]
        if version == 0:
            with pytest.raises(BrokerError, match=r"UNSUPPORTED_VERSION.*by time.*0\.10\.1"):
                admin.offsets({partitions[2]: 1003})
        else:
            assert admin.offsets({partitions[2]: 1003, partitions[0]: 5}) == {
                partitions[2]: 3,
                partitions[0]: None,
            }


def test_a_range_outside_of_the_log_is_told_with_the_logs_own(cluster: ClusterClient, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with BatchingProducer(cluster) as producer:
        producer.send(topic, b"only", partition=0)
    with pytest.raises(OffsetOutOfRange) as caught:
        list(RangeFetcher(cluster, tp, 50, 60, timeout_ms=5_000))
    assert (caught.value.offset, caught.value.start_offset, caught.value.end_offset) == (50, 0, 1)


def test_a_range_that_is_not_written_yet_is_waited_for_and_then_given_up(
    cluster: ClusterClient, topic: str
) -> None:
    fetcher = RangeFetcher(cluster, TopicPartition(topic, 0), 0, 5, max_wait_ms=100, timeout_ms=500)
    with pytest.raises(
        NetworkError, match=r"from offset 0 within 500 ms \(wanted up to 5; high watermark 0\)"
    ):
        next(fetcher)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_stream_reads_what_the_producer_writes(
    kafka: KafkaBroker, cluster: ClusterClient, topic: str, codec: Codec
) -> None:
    records = hard_records(600, seed=7)
    with BatchingProducer(cluster, BatchingConfig(compression=codec)) as producer:
        for record in records:
            producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp_ms)
    config = ConsumerConfig("g", "memory:1", auto_offset_reset="smallest", fetch_message_max_bytes=400_000)
    queue, decoder = ChunkQueue(config.queued_max_message_chunks), DefaultDecoder()
    stream = KafkaStream(ConsumerIterator(queue, 30_000, decoder, decoder, config.client_id))
    # Kafka 4 has no ZooKeeper; fetchers only want to know of brokers there.
    store = MemoryZooKeeper().connect()
    (broker,) = cluster.metadata().brokers.values()
    registration = BrokerRegistration(LiveBroker.plaintext(1, broker.host, broker.port))
    store.create(paths.broker_path(1), registration.to_json(), make_parents=True)
    manager = ConsumerFetcherManager("g_c", config, store)
    manager.start_connections(
        [PartitionTopicInfo(topic, 0, queue, INVALID_OFFSET, INVALID_OFFSET, 400_000, config.client_id)]
    )
    try:
        found = [(m.offset, m.timestamp_ms, m.key, m.message) for m in islice(stream, len(records))]
    finally:
        manager.shutdown()
    assert found == [(n, r.timestamp_ms, r.key, r.value) for n, r in enumerate(records)]


def test_topics_are_made_described_and_removed_with_one_result_each(cluster: ClusterClient) -> None:
    admin = Admin(cluster)
    names = [f"admin-{next(_NUMBERS)}" for _ in range(2)]
    made = admin.create_topics(
        [
            NewTopic(names[0], partitions=2, configs={"retention.ms": "60000"}),
            NewTopic(names[1], assignments={0: [0], 1: [0], 2: [0]}),
            NewTopic("bad name"),
            NewTopic("too-many-replicas", replication_factor=3),
            NewTopic("bad-config", configs={"no.such.setting": "1"}),
        ]
    )
    codes = {name: error and error.code for name, error in made.items()}
    assert codes == {
        names[0]: None,
        names[1]: None,
        "bad name": ErrorCode.INVALID_TOPIC,
        "too-many-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "bad-config": ErrorCode.INVALID_CONFIG,
    }
    again = admin.create_topics([NewTopic(names[0])])[names[0]]
    assert again is not None
    assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert set(names) <= set(admin.list_topics())
    described = admin.describe_topics([names[1], "no-such-topic"])
    assert described[names[1]].partitions[2].leader_id == 0
    assert described["no-such-topic"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = admin.delete_topics([names[0], "no-such-topic"])
    assert gone[names[0]] is None
    assert gone["no-such-topic"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # A broker of Kafka 4 hears of it a moment after the controller has answered.
    assert wait_until(lambda: names[0] not in admin.list_topics(), 10)


def test_topic_made_again_has_another_id_where_topics_have_ids(
    cluster: ClusterClient, kafka: KafkaBroker
) -> None:
    admin, name = Admin(cluster), f"again-{next(_NUMBERS)}"

    def create() -> bool:
        return admin.create_topics([NewTopic(name)])[name] is None

    def topic_id() -> bytes:
        return admin.describe_topics([name])[name].topic_id

    assert create()
    first = topic_id()
    if kafka.release is KAFKA_0_10:
        assert first == ZERO_UUID
        return
    assert admin.delete_topics([name]) == {name: None}
    assert wait_until(create, 10)  # the name is in use until the deletion is over
    assert len({ZERO_UUID, first, topic_id()}) == 3


def test_the_cluster_describes_itself(cluster: ClusterClient, kafka: KafkaBroker) -> None:
    described = Admin(cluster).describe_cluster()
    assert [str(b) for b in described.brokers.values()] == [f"broker 0 at {kafka.bootstrap}"]
    assert described.controller_id == 0
    assert len(described.cluster_id) == 22


def test_a_record_that_the_topic_does_not_take_fails_alone(cluster: ClusterClient) -> None:
    name = f"small-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, configs={"max.message.bytes": "1000"}))
    with BatchingProducer(cluster, BatchingConfig(linger_ms=200)) as producer:
        sent = [producer.send(name, b"x" * size) for size in (10, 20, 5000, 30, 40)]
        producer.flush(20_000)
    assert sent[2].error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(sent[2].error)
    assert [sent[n].result().offset for n in (0, 1, 3, 4)] == [0, 1, 2, 3]


def test_a_record_that_kafka_refuses_is_named(cluster: ClusterClient, kafka: KafkaBroker) -> None:
    if kafka.release is KAFKA_0_10:
        pytest.skip("0.10.1 does not say which record of a batch it refuses")
    name = f"compacted-{next(_NUMBERS)}"
    Admin(cluster).create_topic(NewTopic(name, configs={"cleanup.policy": "compact"}))
    with BatchingProducer(cluster, BatchingConfig(linger_ms=200)) as producer:
        sent = [producer.send(name, b"v", key=key, partition=0) for key in (b"a", None, b"c")]
        producer.flush(20_000)
    reason = f"Compacted topic cannot accept message without key in topic partition {name}-0"
    assert [future.error.code for future in sent] == [ErrorCode.INVALID_RECORD] * 3
    assert str(sent[1].error).endswith(f"record 1 (the first is 0) of 3 records for {name}-0: {reason}")
    assert str(sent[0].error).endswith(f"rejected 3 records for {name}-0: record 1: {reason}")


def test_records_without_acknowledgement_arrive(cluster: ClusterClient, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    # Nobody tells who sends like this that the new topic's leader is not ready.
    assert Admin(cluster).offsets({tp: LATEST})[tp] == 0
    with BatchingProducer(cluster, BatchingConfig(acks=0)) as producer:
        sent = [producer.send(topic, b"%d" % n, partition=0) for n in range(50)]
        producer.flush(10_000)
    assert {d.result().offset for d in sent} == {-1}
    assert wait_until(lambda: Admin(cluster).offsets({tp: LATEST})[tp] == 50, 10)
    assert [r.value for r in read(cluster, tp)] == [b"%d" % n for n in range(50)]


def test_every_acknowledged_record_outlives_a_killed_and_restarted_broker(
    kafka: KafkaBroker, cluster: ClusterClient, topic: str
) -> None:
    config = BatchingConfig(acks=1, batch_bytes=2_000, request_timeout_ms=10_000)
    acknowledged = []
    with BatchingProducer(cluster, config) as producer:
        sent = [producer.send(topic, b"%06d" % n, partition=n % 3) for n in range(2_000)]
        sent[500].result(20_000)
        kafka.kill()
        before = sum(d.done for d in sent)
        sent += [producer.send(topic, b"%06d" % n, partition=n % 3) for n in range(2_000, 4_000)]
        kafka.start()
        sent += [producer.send(topic, b"%06d" % n, partition=n % 3) for n in range(4_000, 5_000)]
        producer.flush(90_000)
    for number, delivery in enumerate(sent):
        done = delivery.result()
        acknowledged.append((done.topic_partition, done.offset, b"%06d" % number))
    assert before < len(sent)
    stored = {
        (tp, record.offset): record.value
        for tp in (TopicPartition(topic, p) for p in range(3))
        for record in read(cluster, tp)
    }
    for tp, offset, value in acknowledged:
        assert stored[tp, offset] == value
    for partition in range(3):
        values = [v for (tp, _), v in sorted(stored.items()) if tp.partition == partition]
        # A batch whose answer was lost may be there twice, but each record's first place keeps the order.
        assert list(dict.fromkeys(values)) == sorted(set(values))
