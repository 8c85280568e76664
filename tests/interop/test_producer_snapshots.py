"""Producer state between Apache Kafka 3.9.1 and us: snapshots and logs of either."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.log.producers.snapshots import parse_producers
from minikafka.net.connection import connect
from minikafka.records.format.batch import build_batch
from minikafka.records.format.record import Record
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.framing import RequestHeader, split_response
from tests.interop.relay import CONFIG, PATIENCE_S
from tests.interop.releases import KAFKA_3_9
from tests.support.kafka_broker import KafkaBroker, await_free_id

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

NOT_LED_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_FOR_PARTITION}
SENT_MS = int(time.time() * 1000)
"""The time of all records: a retry is the same batch. Kafka forgets a producer by the age of its messages."""
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def ask(bootstrap: str, key: ApiKey, version: int, request: Any) -> Any:
    """One request over a connection of its own."""
    host, _, port = bootstrap.rpartition(":")
    connection = connect(host, int(port))
    try:
        header = RequestHeader(int(key), version, 1, "test")
        body = APIS[key].encode_request(version, request)
        _, answer = split_response(connection.request([header.encode(), *body]).result(10_000))
        return APIS[key].decode_response(version, answer)
    finally:
        connection.close()


def producer_id(bootstrap: str) -> int:
    """A new one. 3.9.1 has none at first, and says so."""
    found: list[int] = []

    def asked() -> bool:
        answer = ask(bootstrap, ApiKey.INIT_PRODUCER_ID, 0, InitProducerIdRequest(None, 60_000))
        assert answer.error_code in {ErrorCode.NONE, ErrorCode.GROUP_LOAD_IN_PROGRESS}
        found.append(answer.producer_id)
        return answer.error_code == ErrorCode.NONE

    assert wait_until(asked, PATIENCE_S)
    return found[-1]


def send(bootstrap: str, producer: int, first: int, count: int = 2) -> int | ErrorCode:
    """Have a producer send its records ``first`` and following, once somebody leads the partition; the offset
    of the first, or the error.
    """
    records = [Record(None, b"%d/%d" % (producer, first + n), SENT_MS) for n in range(count)]
    data = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=first)
    request = ProduceRequest(None, -1, 5000, (ProduceTopic("t", (ProducePartition(0, data),)),))
    parts: list[Any] = []

    def led() -> bool:
        parts.append(ask(bootstrap, ApiKey.PRODUCE, 7, request).topics[0].partitions[0])
        return parts[-1].error_code not in NOT_LED_YET

    assert wait_until(led, PATIENCE_S)
    offset: int = parts[-1].base_offset
    return ErrorCode(parts[-1].error_code) if parts[-1].error_code else offset


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_one_broker_knows_of_producers_the_next_one_knows(tmp_path: Path, end: str) -> None:
    KAFKA_3_9.libs()
    data = tmp_path / "broker-0"
    with EmbeddedZooKeeper(str(tmp_path)) as zookeeper:
        kafka = KafkaBroker(KAFKA_3_9, tmp_path / "kafka", zookeeper.connect, data=data, config=CONFIG)
        try:
            kafka.start()
            with Client(kafka.bootstrap) as client:
                assert set(Admin(client).create_topics([NewTopic("t", 1, 1)]).values()) == {None}
            one = producer_id(kafka.bootstrap)
            assert [send(kafka.bootstrap, one, first) for first in (0, 2)] == [0, 2]
            kafka.kill() if end == "killed" else kafka.stop()

            await_free_id(zookeeper.connect)
            config = {**CONFIG, "log.layout": "apache"}
            with Cluster(data_dir=tmp_path, zookeeper=zookeeper.connect, config=config) as cluster:
                ours = cluster.bootstrap_servers
                assert [send(ours, one, first) for first in (2, 4, 8)] == [2, 4, GAP]
                other = producer_id(ours)
                assert other >= one + 1000 - one % 1000
                assert send(ours, other, 0) == 6
                if end == "killed":
                    cluster.kill(0)

            kafka.start()
            assert [send(kafka.bootstrap, one, first) for first in (4, 6, 10)] == [4, 8, GAP]
            assert [send(kafka.bootstrap, other, first) for first in (0, 2)] == [6, 10]
            assert producer_id(kafka.bootstrap) >= other + 1000 - other % 1000
        finally:
            kafka.kill()
        assert "snapshot" not in kafka.log.read_text()


def test_the_tool_shows_what_we_know_of_producers(tmp_path: Path) -> None:
    KAFKA_3_9.libs()
    with Cluster(data_dir=tmp_path, config={"log.layout": "apache"}) as cluster:
        cluster.create_topic("t")
        bootstrap = cluster.bootstrap_servers
        producers = [producer_id(bootstrap) for _ in range(3)]
        for producer in producers:
            for number in range(producer + 1):
                send(bootstrap, producer, 2 * number)
    (snapshot,) = (tmp_path / "broker-0" / "t-0").glob("*.snapshot")
    printed = KAFKA_3_9.dump_log_segments([snapshot])
    shown = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: \S+ "
        r"lastTimestamp: (\d+) firstSequence: (\d+) lastSequence: (\d+) lastOffset: (\d+) offsetDelta: (\d+)",
        printed.out,
    )
    known, _ = parse_producers(snapshot.name, snapshot.read_bytes())
    assert [tuple(map(int, row)) for row in shown] == [
        (number, 0, -1, one.last_timestamp_ms, one.last_sequence - 1, one.last_sequence, one.last_offset, 1)
        for number, one in known.items()
    ]
    assert list(known) == producers
