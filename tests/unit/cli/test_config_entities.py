"""Quotas of clients and rates of replication, set and read by commands, at brokers and in ZooKeeper."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.connection import connect
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.framing import RequestHeader, split_response
from tests.support import requests
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

PATIENCE_S = 30


@pytest.fixture(params=["--bootstrap", "--zookeeper"])
def to(request: pytest.FixtureRequest, minikafka_cluster: Cluster) -> tuple[str, str]:
    """Return the option that names the cluster."""
    at_brokers = request.param == "--bootstrap"
    return request.param, getattr(
        minikafka_cluster, "bootstrap_servers" if at_brokers else "zookeeper_connect"
    )


def ok(cli: CommandLine, *arguments: str) -> str:
    status = cli.run("config", *arguments)
    assert status == 0, cli.err
    return cli.out


def test_they_are_set_and_read_and_go_back_to_those_of_all(to: tuple[str, str], cli: CommandLine) -> None:
    said = ok(cli, "set", "client", "<default>", "consumer_byte_rate=5000000", *to)
    assert said == "<default> has consumer_byte_rate=5000000\n"
    ok(cli, "set", "client", "a/b", "producer_byte_rate=10", "consumer_byte_rate=7", *to)
    ok(cli, "set", "client", "a/b", "--delete", "consumer_byte_rate", *to)
    own = {"client": "a/b", "setting": "producer_byte_rate", "value": "10", "source": "client"}
    of_all = {
        "client": "a/b",
        "setting": "consumer_byte_rate",
        "value": "5000000",
        "source": "clients/<default>",
    }
    found = ("get", "client", "a/b", "--format", "json", *to)
    assert [json.loads(line) for line in ok(cli, *found).splitlines()] == [own]
    assert [json.loads(line) for line in ok(cli, *found, "--all").splitlines()] == [of_all, own]
    assert cli.run("config", "set", "client", "a/b", "--delete", "consumer_byte_rate", *to) == 2
    assert "a/b has no such setting; it has producer_byte_rate" in cli.err
    for name, key in (("a/b", "producer_byte_rate"), ("<default>", "consumer_byte_rate")):
        ok(cli, "set", "client", name, "--delete", key, *to)
    assert ok(cli, "get", "client", "a/b", "--all", *to) == ""


def test_addresses_have_a_rate_of_new_connections(to: tuple[str, str], cli: CommandLine) -> None:
    ok(cli, "set", "ip", "<default>", "connection_creation_rate=1000", *to)
    said = ok(cli, "set", "ip", "::ffff:10.0.0.1", "connection_creation_rate=5", *to)
    assert said == "::ffff:10.0.0.1 has connection_creation_rate=5\n"
    row = {"ip": "10.0.0.1", "setting": "connection_creation_rate", "value": "5", "source": "ip"}
    found = ok(cli, "get", "ip", "10.0.0.1", "--all", "--format", "json", *to)
    assert [json.loads(line) for line in found.splitlines()] == [row]
    ok(cli, "set", "ip", "10.0.0.1", "--delete", "connection_creation_rate", *to)
    found = ok(cli, "get", "ip", "10.0.0.1", "--all", "--format", "json", *to)
    assert [json.loads(line) for line in found.splitlines()] == [
        {**row, "value": "1000", "source": "ips/<default>"}
    ]
    ok(cli, "set", "ip", "<default>", "--delete", "connection_creation_rate", *to)
    assert cli.run("config", "set", "ip", "a-host", "connection_creation_rate=5", *to) == 2
    assert "must be an address, such as 10.0.0.1" in cli.err
    assert cli.run("config", "set", "ip", "10.0.0.1", "producer_byte_rate=5", *to) == 2
    assert "use connection_creation_rate" in cli.err


def test_quotas_of_users_win_over_those_of_client_ids(to: tuple[str, str], cli: CommandLine) -> None:
    ok(cli, "set", "user", "al ice", "producer_byte_rate=10", "consumer_byte_rate=11", *to)
    ok(cli, "set", "client", "app-2", "producer_byte_rate=12", "consumer_byte_rate=13", *to)
    said = ok(cli, "set", "client", "app-2", "--user", "al ice", "producer_byte_rate=14", *to)
    assert said == "app-2 of user al ice has producer_byte_rate=14\n"
    own = {"user": "al ice", "setting": "producer_byte_rate", "value": "10", "source": "user"}
    assert json.loads(ok(cli, "get", "user", "al ice", "--format", "json", *to).splitlines()[1]) == own
    found = ok(cli, "get", "client", "app-2", "--user", "al ice", "--all", "--format", "json", *to)
    of_both = {"client": "app-2", "user": "al ice"}
    assert [json.loads(line) for line in found.splitlines()] == [
        {**of_both, "setting": "consumer_byte_rate", "value": "11", "source": "users/al%20ice"},
        {**of_both, "setting": "producer_byte_rate", "value": "14", "source": "client"},
    ]
    assert cli.run("config", "set", "user", "al ice", "--user", "bob", "consumer_byte_rate=1", *to) == 2
    assert "is only for clients" in cli.err
    assert cli.run("config", "set", "user", "al ice", "SCRAM-SHA-256=salt=x", *to) == 2
    assert "change it with `minikafka user passwd al ice`" in cli.err
    for owner in (("user", "al ice"), ("client", "app-2")):
        ok(cli, "set", *owner, "--delete", "producer_byte_rate", "--delete", "consumer_byte_rate", *to)
    ok(cli, "set", "client", "app-2", "--user", "al ice", "--delete", "producer_byte_rate", *to)


def test_the_password_of_a_user_is_not_shown(minikafka_cluster: Cluster, cli: CommandLine) -> None:
    to = ("--zookeeper", minikafka_cluster.zookeeper_connect)
    assert cli.run("user", "add", "b/b", "--password", "tiger-88", *to) == 0
    assert ok(cli, "get", "user", "b/b", *to).splitlines()[1:] == [
        "SCRAM-SHA-256  ***    user",
        "SCRAM-SHA-512  ***    user",
    ]
    assert cli.run("user", "delete", "b/b", *to) == 0
    assert ok(cli, "get", "user", "b/b", *to) == ""
    assert cli.run("user", "passwd", "b", "--password", "x", *to[:1], f"{to[1]}/else") == 1
    assert "no Kafka cluster in ZooKeeper at" in cli.err


def test_a_user_is_added_before_the_first_broker_runs(tmp_path: Path, cli: CommandLine) -> None:
    zookeeper = EmbeddedZooKeeper(str(tmp_path))
    try:
        to = ("--zookeeper", zookeeper.start())
        assert cli.run("user", "list", *to) == 1
        assert cli.run("user", "add", "broker", "--password", "x", *to) == 0
        assert cli.run("user", "list", *to) == 0
        assert "broker  SCRAM-SHA-512" in cli.out
    finally:
        zookeeper.stop()


def test_a_running_broker_acts_on_them(
    minikafka_cluster: Cluster, minikafka_topic: str, to: tuple[str, str], cli: CommandLine
) -> None:
    ok(cli, "set", "client", "kafka/1", "producer_byte_rate=10", *to)
    host, _, port = minikafka_cluster.bootstrap_servers.rpartition(":")

    def throttled_ms() -> int:
        asked = requests.produce(minikafka_topic, build_message_set([Record(None, b"x" * 1000, 1)]))
        header = RequestHeader(int(asked.key), asked.version, 1, "kafka/1").encode()
        with contextlib.closing(connect(host, int(port))) as connection:
            answer = connection.request([header, *PRODUCE.encode_request(asked.version, asked.body)])
            response = PRODUCE.decode_response(asked.version, split_response(answer.result())[1])
        return response.throttle_time_ms

    assert wait_until(lambda: throttled_ms() > 0, PATIENCE_S)
    ok(cli, "set", "client", "kafka/1", "--delete", "producer_byte_rate", *to)
    assert wait_until(lambda: throttled_ms() == 0, PATIENCE_S)


def test_a_zookeeper_without_a_cluster_is_left_as_it_is(minikafka_cluster: Cluster, cli: CommandLine) -> None:
    for _ in range(2):
        status = cli.run(
            "config", "get", "client", "c", "--zookeeper", minikafka_cluster.zookeeper_connect + "/else"
        )
        assert (status, cli.out) == (1, "")
        assert f"no Kafka cluster in ZooKeeper at {minikafka_cluster.zookeeper_connect}/else" in cli.err


@pytest.mark.parametrize("words", [("get", "broker", "two"), ("set", "broker", "1.5", "message.max.bytes=1")])
def test_a_broker_is_named_by_its_id(cli: CommandLine, words: tuple[str, ...]) -> None:
    assert cli.run("config", *words, "--bootstrap", "127.0.0.1:1") == 2
    assert cli.err.endswith(f"NAME='{words[2]}': must be the id of a broker, or <default> for all brokers\n")
    assert len(cli.err.splitlines()) == 1


def test_replication_rates_are_set_at_broker_or_in_zookeeper(
    minikafka_cluster: Cluster, cli: CommandLine
) -> None:
    here = ("--bootstrap", minikafka_cluster.bootstrap_servers)
    there = ("--zookeeper", minikafka_cluster.zookeeper_connect)
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    ok(cli, "set", "broker", "0", f"{leader}=1000000", *here)
    ok(cli, "set", "broker", "0", f"{follower}=2000000", *there)

    def found(*arguments: str) -> list[tuple[str, str, str]]:
        rows = map(json.loads, ok(cli, "get", "broker", "0", "--format", "json", *arguments).splitlines())
        return [
            (row["setting"], row["value"], row["source"]) for row in rows if "throttled" in row["setting"]
        ]

    def both(source: str) -> list[tuple[str, str, str]]:
        return [(follower, "2000000", source), (leader, "1000000", source)]

    assert found(*there) == both("broker")
    assert wait_until(lambda: found(*here) == both("dynamic broker"), PATIENCE_S)
    ok(cli, "set", "broker", "0", "--delete", leader, *here)
    ok(cli, "set", "broker", "0", "--delete", follower, *there)
    assert found(*there) == []
    assert cli.run("config", "set", "broker", "0", "log.retention.ms=5", *there) == 2
    assert "not a setting of brokers in ZooKeeper" in cli.err
    assert cli.run("config", "set", "topic", "t", "retention.ms=5", *there) == 2
    assert "for topics use --bootstrap" in cli.err
