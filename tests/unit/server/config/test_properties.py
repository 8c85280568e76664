"""A broker's properties."""

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.log.layout import Layout
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.server.config.properties import BrokerConfig


def config(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", **named})


def test_without_properties_the_defaults_are_those_of_the_release() -> None:
    made = config()
    assert [(at.name, at.host, at.port) for at in made.listeners] == [("PLAINTEXT", "", 9092)]
    assert made.network_threads == 3
    assert made.request_max_bytes == 104857600
    assert made.zookeeper_session_timeout_ms == 6000
    assert made.zookeeper_connection_timeout_ms == 6000
    assert made.auto_create_topics
    assert made.log.segment_bytes == 1 << 30


def test_topics_can_be_deleted_by_default_and_new_directories_are_classic() -> None:
    assert config().delete_topics
    assert config().layout is Layout.CLASSIC


@pytest.mark.parametrize(("text", "layout"), [("apache", Layout.APACHE), (" Classic ", Layout.CLASSIC)])
def test_property_names_the_layout_of_a_new_directory(text: str, layout: Layout) -> None:
    assert config(log_layout=text).layout is layout


def test_every_invalid_property_is_named_at_once() -> None:
    given = {
        "num.partitions": "0",
        "listeners": "FTP://h:1",
        "log.roll.ms": "0",
        "group.max.session.timeout.ms": "x",
    }
    with pytest.raises(ConfigErrors) as refused:
        BrokerConfig.from_properties(given)
    assert {fault.name for fault in refused.value.faults} == {*given, "zookeeper.connect"}


def test_faults_and_unknown_names_are_named_in_the_order_of_the_file() -> None:
    given = {
        "num.partitions": "-4",
        "log.retention.huors": "7",
        "delete.topic.enable": "yes",
        "log.cleanup.policy": "compact,remove",
        "compression.type": "LZ4",
        "sasl.kerberos.kinit.cmd": "tiger",
        "ssl.keystore.type": "tiger",
        "log.segment.bytes": "",
        "transactional.id.expiration.ms": "0",
        "message.max.bytes": "99999999999999",
        "listener.security.protocol.map": "PLAINTEXT",
        "listeners": "PLAINTEXT://localhost",
        "advertised.listeners": "PLAINTEXT://",
    }
    with pytest.raises(ConfigErrors) as refused:
        config(**given)
    assert [fault.name for fault in refused.value.faults] == list(given)
    text = str(refused.value)
    assert "log.retention.huors: is not valid; did you mean log.retention.hours?" in text
    assert "sasl.kerberos.kinit.cmd: has no effect: not supported yet" in text
    assert "ssl.keystore.type='tiger': must be one of JKS, PKCS12, PEM" in text


def test_value_that_another_property_replaces_is_checked_too() -> None:
    with pytest.raises(ConfigErrors) as refused:
        config(**{"log.retention.ms": "5", "log.retention.hours": "long"})
    assert [fault.name for fault in refused.value.faults] == ["log.retention.hours"]


@pytest.mark.parametrize(
    "release", ["0.8.2.1", "0.10.0-IV1", "0.10.1.1", "1.1", " 2.1-IV2 ", "2.1.1", "2.3-IV0", "3.9.1"]
)
def test_release_that_this_broker_knows_is_accepted(release: str) -> None:
    assert str(config(**{"inter.broker.protocol.version": release}).protocol_version) == release.strip()


@pytest.mark.parametrize(
    "release", ["4.0", "3.10", "2.1-IV3", "1.2", "1.0.0.0", "0.10", "0.10.3", "0.10.x", "0.9.0-IV1", "2", ""]
)
def test_release_that_this_broker_does_not_know_is_refused(release: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        config(**{"inter.broker.protocol.version": release})
    (fault,) = refused.value.faults
    assert (fault.name, fault.value) == ("inter.broker.protocol.version", release)
    assert fault.allowed == "must be a release of Kafka from 0.8.0 to 3.9, such as 0.10.1 or 2.1-IV2"


def test_blanks_around_the_format_of_messages_beside_0_10_are_removed() -> None:
    named = {"inter.broker.protocol.version": "0.10.1", "log.message.format.version": " 0.10.0 "}
    assert config(**named).log.message_magic == 1


def test_a_property_that_two_settings_read_is_named_once() -> None:
    with pytest.raises(ConfigErrors) as refused:
        config(**{"log.flush.scheduler.interval.ms": "x"})
    (fault,) = refused.value.faults
    assert fault.allowed == f"must be a whole number from 1 to {2**63 - 1}"


def test_zookeeper_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        BrokerConfig.from_properties({})


def test_limits_on_connections_and_requests_are_none_unless_they_are_set() -> None:
    assert config().connection_limits == ConnectionLimits()
    assert (config().queued_max_requests, config().queued_max_bytes) == (500, 192 << 20)
    assert config(**{"queued.max.request.bytes": "-1"}).queued_max_bytes is None
    made = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "localhost:2181",
            "max.connections": "1000",
            "max.connections.per.ip": "10",
            "max.connections.per.ip.overrides": "127.0.0.1:100, [::1]:50,gateway:200",
            "queued.max.requests": "7",
            "queued.max.request.bytes": "1000000",
        }
    )
    overrides = {"127.0.0.1": 100, "::1": 50, "gateway": 200}
    assert made.connection_limits == ConnectionLimits(1000, 10, overrides)
    assert (made.queued_max_requests, made.queued_max_bytes) == (7, 1_000_000)


def test_rate_of_new_connections_is_for_the_broker_and_for_each_listener() -> None:
    limits = config(
        **{
            "listeners": "PLAINTEXT://:9092,IN://:9093,OUT://:9094",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "max.connection.creation.rate": "100",
            "listener.name.out.max.connection.creation.rate": "5",
            "quota.window.num": "3",
            "quota.window.size.seconds": "2",
        }
    ).connection_limits
    assert (limits.creation_rate, limits.inter_broker_listener) == (100, "IN")
    assert limits.creation_rates == {"PLAINTEXT": 100, "IN": 100, "OUT": 5}
    assert (limits.rate_windows, limits.rate_window_ms) == (3, 2_000)


def test_listeners_have_limits_of_connections_of_their_own() -> None:
    limits = config(
        **{
            "listeners": "PLAINTEXT://:9092,OUT://:9094",
            "listener.security.protocol.map": "OUT:PLAINTEXT",
            "max.connections": "100",
            "listener.name.out.max.connections": "5",
        }
    ).connection_limits
    assert (limits.total, limits.totals) == (100, {"OUT": 5})


def test_wrong_rate_of_a_listener_is_named_as_given() -> None:
    name = "listener.name.plaintext.max.connection.creation.rate"
    with pytest.raises(ConfigError, match=f"{name}='fast'"):
        config(**{name: "fast"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker.id", "-2"),
        ("port", "70000"),
        ("listeners", "FTP://localhost:9093"),
        ("listeners", "PLAINTEXT://localhost"),
        ("listeners", "PLAINTEXT://localhost:x"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:many"),
        ("max.connections.per.ip.overrides", "127.0.0.1:\u0665"),
        ("log.dirs", ","),
        ("log.dirs", "a,b,a"),
        ("log.layout", "modern"),
        ("log.segment.bytes", "3"),
    ],
)
def test_a_bad_value_is_refused_with_name_and_value(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", name: value})
    assert refused.value.name == name
    assert refused.value.value == value


def test_names_that_nobody_uses_are_listed_for_one_warning() -> None:
    made = BrokerConfig.from_properties(
        {"zookeeper.connect": "localhost:2181", "background.threads": "8", "log.segment.bytes": "1024"}
    )
    assert made.unknown == ("background.threads",)
    assert made.log.segment_bytes == 1024


def test_the_text_of_a_configuration_has_no_property_as_it_was_given() -> None:
    given = {"zookeeper.connect": "h:1", "listeners": "PLAINTEXT://h:1", "ssl.key.password": "tiger"}
    assert "tiger" not in repr(BrokerConfig.from_properties(given))


def test_defaults_of_the_texts_override_those_of_the_release() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "h:1", "log.dirs": "d"})
    assert config.delete_topics
    assert not config.log.unclean_election
    assert config.flush_scheduler_interval_ms == 1_000


def test_the_security_of_zookeeper_is_read_and_its_names_are_known() -> None:
    made = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "localhost:2181",
            "zookeeper.set.acl": "true",
            "zookeeper.digest.credentials": "kafka:tiger",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.protocol": "TLSv1.3",
            "zookeeper.ssl.truststore.location": "/ca.pem",
            "zookeeper.ssl.ocsp.enable": "false",
        }
    )
    assert made.unknown == ()
    assert made.zookeeper.set_acl == "true"
    assert made.zookeeper.ssl is not None
    assert "tiger" not in repr(made)


def test_the_broker_names_faults_in_the_security_of_zookeeper() -> None:
    with pytest.raises(ConfigErrors) as refused:
        BrokerConfig.from_properties(
            {"zookeeper.connect": "", "zookeeper.set.acl": "true", "num.partitions": "x"}
        )
    names = [fault.name for fault in refused.value.faults]
    assert names == ["zookeeper.connect", "zookeeper.set.acl", "num.partitions"]


def test_topics_get_ids_unless_brokers_before_2_8_are_named() -> None:
    assert config().gives_topic_ids
    given = {
        release: config(**{"inter.broker.protocol.version": release}).gives_topic_ids
        for release in ("0.10.1", "2.7", "2.8")
    }
    assert given == {"0.10.1": False, "2.7": False, "2.8": True}
