"""Our clients and commands with a service that has just the APIs of Azure Event Hubs."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from minikafka.base.config.property_files import write_properties
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.embedded.cluster import Cluster
from minikafka.security.sasl.plain import PlainSaslServer
from tests.support.command_line import CommandLine
from tests.support.gateway import (
    EVENT_HUBS_2019,
    EVENT_HUBS_2023,
    EVENT_HUBS_REQUEST_BYTES,
    Gateway,
    connection_string,
)
from tests.support.network import eventually
from tests.support.sasl_broker import VersionTable
from tests.support.secured_kafka import Properties, client_of, create_topic, jaas, quoted, write_and_read
from tests.support.tls import client_properties

pytestmark = pytest.mark.process

USER = "$ConnectionString"
TABLES = pytest.mark.parametrize("table", [EVENT_HUBS_2019, EVENT_HUBS_2023], ids=["of 2019", "of 2023"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Cluster(data_dir=tmp_path_factory.mktemp("broker") / "d", config=config) as cluster:
        yield cluster.bootstrap_servers


def service(broker: str, table: VersionTable, idle_s: float | None = None) -> Gateway:
    mechanisms = {"PLAIN": lambda: PlainSaslServer(connection_string)}
    limit = EVENT_HUBS_REQUEST_BYTES
    return Gateway(broker, table, mechanisms, max_request_bytes=limit, idle_s=idle_s)


def properties_of(gateway: Gateway) -> Properties:
    password = connection_string(USER)
    assert password is not None
    login = jaas("PLAIN", f"username={quoted(USER)} password={quoted(password.value)}")
    return {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
        **client_properties(),
    }


@TABLES
def test_clients_send_only_what_the_service_has(
    broker: str, table: VersionTable, caplog: pytest.LogCaptureFixture
) -> None:
    with service(broker, table) as gateway, caplog.at_level(logging.WARNING):
        write_and_read(properties_of(gateway))
    assert gateway.refused == []
    assert (17, table[17][1]) in gateway.requests
    assert any(key == 36 for key, _ in gateway.requests) == (36 in table)
    (warning,) = [record.message for record in caplog.records if "producer id" in record.message]
    assert "idempotence is off, retries may duplicate records" in warning


COMMANDS: Sequence[tuple[str, str, str]] = [
    # what is run, words of its output; words of its error on the service of 2019, if it fails there
    ("topic create made", "created made", ""),
    ("topic list", "made", ""),
    ("topic describe made", "LEADER", ""),
    ("topic alter made --partitions 3", "has 3 partitions", "no common version of CreatePartitions"),
    ("config get topic made", "no settings of its own", "no common version of DescribeConfigs"),
    ("produce made", "", ""),
    ("consume made --from beginning --max 1", "typed", ""),
    ("group list", "", ""),
    ("group reset g --topic made --to-earliest --execute", "NEW OFFSET", ""),
    ("group describe g", "made", ""),
    ("group delete g", "deleted g", "no common version of DeleteGroups"),
    ("cluster describe", "topics", ""),
    ("cluster health", "is healthy", ""),
    ("topic delete made", "deleted made", ""),
]


@TABLES
def test_commands_work_or_say_what_the_service_lacks(
    broker: str,
    table: VersionTable,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
    cli, file = CommandLine(capfd), str(tmp_path / "client.properties")
    with service(broker, table) as gateway:
        write_properties(file, properties_of(gateway))
        for words, output, refusal in COMMANDS:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"typed\n")))
            status = cli.run(*words.split(), "--command-config", file)
            if refusal and table is EVENT_HUBS_2019:
                assert (status, cli.out) == (1, ""), words
                (line,) = cli.err.splitlines()
                assert refusal in line
            else:
                assert status == 0, (words, cli.err)
                assert output in cli.out + cli.err
    assert gateway.refused == []


def test_idle_connections_that_it_closes_lose_and_repeat_nothing(broker: str) -> None:
    with service(broker, EVENT_HUBS_2019, idle_s=0.2) as gateway:
        properties = properties_of(gateway)
        with client_of(properties) as cluster:
            topic = create_topic(cluster)
            settings = {**properties, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
            config = BatchingConfig.from_properties({**properties, "acks": "all"})
            found: list[bytes | None] = []
            with BatchingProducer(cluster, config) as producer, GroupConsumer(cluster, settings) as consumer:
                consumer.subscribe([topic])
                for number in range(3):
                    sent = producer.send(topic, b"%d" % number, partition=0)
                    assert sent.result().offset == number
                    while len(found) <= number:
                        found += [record.value for record in consumer.poll_records(100)]
                    consumer.commit_sync()
                    closed = gateway.idle_closes
                    eventually(lambda before=closed: gateway.idle_closes > before, "a connection is closed")
                    eventually(lambda: gateway.open_connections == 0, "all are closed")
                assert producer.resends == 0
            assert found == [b"0", b"1", b"2"]
    assert gateway.refused == []


def test_a_record_above_its_limit_is_refused_by_max_request_size(broker: str) -> None:
    with service(broker, EVENT_HUBS_2019) as gateway, client_of(properties_of(gateway)) as cluster:
        topic = create_topic(cluster)
        config = BatchingConfig.from_properties({"max.request.size": "1000000"})
        with BatchingProducer(cluster, config) as producer:
            fits = [producer.send(topic, bytes(400_000), partition=number % 2) for number in range(6)]
            with pytest.raises(BrokerError, match=r"max\.request\.size is 1000000") as refused:
                producer.send(topic, bytes(1_000_000))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert sorted(future.result().offset for future in fits) == [0, 0, 1, 1, 2, 2]
    assert gateway.refused == []
