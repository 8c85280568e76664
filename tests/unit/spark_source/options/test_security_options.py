"""The options of TLS and SASL, and those of the managed services in the guide."""

from __future__ import annotations

import pickle
import re

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    ConfigErrors,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    RemoteWireError,
    SslAuthenticationFailed,
)
from pyspark_minikafka import cache, workers
from pyspark_minikafka.options.kafka_options import with_prefixes
from pyspark_minikafka.options.options import Mode, SourceOptions, sink_options, source_options
from tests.support.managed_services import PROGRAMS, Program

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL_SSL = {
    "kafka.bootstrap.servers": "h:1",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="ti;ger";',
}


def read(given: dict[str, str]) -> SourceOptions:
    return source_options({"subscribe": "t", **given}, Mode.BATCH)


def test_the_guide_has_options_of_each_service() -> None:
    services = {program.service for program in PROGRAMS}
    assert services == {"Confluent Cloud", "Amazon MSK", "Azure Event Hubs", "Aiven", "Redpanda"}
    assert len(PROGRAMS) == 11


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_options_of_a_managed_service_are_taken_as_they_stand(program: Program) -> None:
    given = program.options(lambda name: f"the content of {name}")
    for security in (read(given).connection.security, sink_options(given).connection.security):
        assert security.protocol.name == given["kafka.security.protocol"]
    assert read(given).warnings == sink_options({**given, "topic": "t"}).warnings == ()


def test_the_user_and_password_of_a_login_are_used() -> None:
    sasl = read(SASL_SSL).connection.security.sasl
    assert sasl is not None
    assert sasl.jaas_config is not None
    assert 'password="ti;ger"' in sasl.jaas_config.value


def test_servers_of_another_protocol_are_refused() -> None:
    given = {"kafka.bootstrap.servers": "SASL_SSL://h:9093"}
    expected = r"kafka\.bootstrap\.servers.*conflicts with kafka\.security\.protocol=PLAINTEXT"
    with pytest.raises(ConfigError, match=expected):
        read(given)
    with pytest.raises(ConfigError, match=expected):
        sink_options(given)
    assert read({**SASL_SSL, **given}).location.bootstrap_servers == "h:9093"


def test_names_of_shaded_login_modules_are_known() -> None:
    shaded = SASL_SSL["kafka.sasl.jaas.config"].replace("org.apache", "kafkashaded.org.apache")
    assert read({**SASL_SSL, "kafka.sasl.jaas.config": shaded}).connection.security.sasl is not None


def test_secrets_reach_executors_and_no_text() -> None:
    options = read(SASL_SSL)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "ti;ger" not in f"{options!r} {options}"


def test_settings_that_the_protocol_does_not_use_are_named_with_the_reason() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.sasl.mechanism": "PLAIN"}
    assert read(given).warnings == (
        "kafka.sasl.mechanism has no effect with kafka.security.protocol=PLAINTEXT",
    )


def test_login_of_a_secured_data_directory_is_its_own() -> None:
    given = {
        "minikafka.data.dir": "/d",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.ssl.truststore.location": "/x",
    }
    (warning,) = read(given).warnings
    assert "no effect of kafka." in warning
    assert "kafka.sasl.mechanism" in warning
    assert warning.endswith("an embedded cluster that is secured has the login of its data directory")


def test_a_slip_in_a_setting_of_tls_is_named() -> None:
    (warning,) = read({**SASL_SSL, "kafka.ssl.trustore.location": "x"}).warnings
    assert warning.startswith(
        "kafka.ssl.trustore.location is not valid; did you mean kafka.ssl.truststore.location?"
    )


def test_a_setting_without_its_prefix_is_named() -> None:
    (warning,) = read({**SASL_SSL, "ssl.truststore.location": "x"}).warnings
    assert "ssl.truststore.location (did you mean kafka.ssl.truststore.location?)" in warning


def test_a_login_to_the_embedded_broker_is_refused() -> None:
    given = {name: value for name, value in SASL_SSL.items() if name != "kafka.bootstrap.servers"}
    with pytest.raises(ConfigError, match=re.escape("set kafka.bootstrap.servers")):
        read(given)


@pytest.mark.parametrize(
    "name", ["databricks.serviceCredential", "spark.kafka.clusters.c.auth.bootstrap.servers"]
)
def test_a_login_of_another_connector_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("kafka.sasl.jaas.config")) as refused:
        read({**SASL_SSL, name: "x"})
    assert refused.value.name.lower() == name.lower()


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        ("set security.protocol=SSL", "set kafka.security.protocol=SSL"),
        (
            "the host ssl.example.com: set ssl.endpoint.identification.algorithm= (empty)",
            "the host ssl.example.com: set kafka.ssl.endpoint.identification.algorithm= (empty)",
        ),
        (
            "check sasl.mechanism, kafka.sasl.jaas.config.",
            "check kafka.sasl.mechanism, kafka.sasl.jaas.config.",
        ),
    ],
)
def test_properties_in_advice_have_the_prefix_of_options(text: str, shown_as: str) -> None:
    assert with_prefixes(text) == shown_as


def test_faults_of_a_login_name_options_as_users_type_them() -> None:
    with pytest.raises(ConfigError) as refused:
        read({name: value for name, value in SASL_SSL.items() if name != "kafka.sasl.jaas.config"})
    assert "kafka.sasl.jaas.config: must be given for kafka.sasl.mechanism=PLAIN" in str(refused.value)


@pytest.mark.parametrize("kind", [AuthenticationFailed, SslAuthenticationFailed])
def test_a_refused_login_names_options_as_users_type_them(
    monkeypatch: pytest.MonkeyPatch, kind: type[AuthenticationFailed]
) -> None:
    def refuse(*_: object) -> bool:
        reason = "h:1: check sasl.jaas.config"
        raise SslAuthenticationFailed(reason) if kind is SslAuthenticationFailed else kind(reason, reason)

    monkeypatch.setattr(cache.ClusterClient, "check_login", refuse)
    with pytest.raises(kind, match=r"h:1: check kafka\.sasl\.jaas\.config"), workers.readable_errors():
        cache.check_login("h:1", read({"kafka.bootstrap.servers": "h:1"}).connection)


@pytest.mark.parametrize(
    ("error", "shown_as"),
    [
        (
            NetworkError("no token", "h:1", "check sasl.oauthbearer.token.endpoint.url"),
            "h:1: no token; check kafka.sasl.oauthbearer.token.endpoint.url",
        ),
        (NetworkError("set kafka.bootstrap.servers"), "set kafka.bootstrap.servers"),
        (
            BrokerError(ErrorCode.LISTENER_NOT_FOUND, "set bootstrap.servers and security.protocol"),
            "LISTENER_NOT_FOUND: set kafka.bootstrap.servers and kafka.security.protocol",
        ),
        (ConfigError("ssl.key.password", "x", "is wrong"), "kafka.ssl.key.password='***': is wrong"),
        (
            ConfigErrors([ConfigError("sasl.mechanism", "x", "a"), ConfigError("topic", "ssl.a", "b")]),
            "kafka.sasl.mechanism='x': a; topic='ssl.a': b",
        ),
        (RemoteWireError("see ssl.protocol"), "see kafka.ssl.protocol"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_of_a_task_names_options_as_users_type_them(error: MinikafkaError, shown_as: str) -> None:
    for _ in range(2):  # an error may pass two borders
        with pytest.raises(type(error)) as raised, workers.readable_errors():
            raise error
        assert str(raised.value) == shown_as
    assert str(pickle.loads(pickle.dumps(error))) == shown_as


def test_a_store_that_a_host_does_not_have_is_named_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.platform, "node", lambda: "executor-7")
    options = read({**SASL_SSL, "kafka.ssl.truststore.location": "no/such.jks"})
    assert options.connection.security.protocol is SecurityProtocol.SASL_SSL
    with pytest.raises(ConfigError) as refused, workers.readable_errors():
        cache.reading("h:1", options.connection)
    assert str(refused.value) == (
        "kafka.ssl.truststore.location='no/such.jks': cannot be read: No such file or directory "
        "(on host executor-7: files must be on the driver and on every executor)"
    )
