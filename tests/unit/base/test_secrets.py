"""Detection of secret settings, and redaction of their values."""

from __future__ import annotations

import pickle

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.base.secrets import is_secret, redact, redact_all, redact_text

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="tiger";'


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "kafka.sasl.jaas.config",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        "kafka.ssl.keystore.password",
        "kafka.ssl.truststore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "kafka.sasl.password",
        "minikafka.password",
        "KAFKA.SASL.PASSWORD",
        "password.encoder.secret",
        "password.encoder.old.secret",
        "delegation.token.master.key",
        "sasl.oauthbearer.client.credentials.client.secret",
        "fs.s3a.access.key",
        # Written wrong, by a letter or two.
        "kafka.sasl.jass.config",
        "sasl.pasword",
        "sasl.passwrod",
        "sasl.tokn",
        "user.pass",
        "db_pw",
        "basic.auth.user.info",
    ],
)
def test_a_name_that_speaks_of_a_secret_hides_its_value(name: str) -> None:
    assert is_secret(name)
    assert redact(name, "tiger") == "***"


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.location",
        "ssl.truststore.location",
        "ssl.keystore.type",
        "ssl.keymanager.algorithm",
        "key.serializer",
        "key.deserializer",
        "key.serializer.class",
        "null.key.partition",
        "--key-separator",
        "password.encoder.iterations",
        "delegation.token.max.lifetime.ms",
        "minikafka.key.format",
        "minikafka.key.schema",
        "minikafka.key.schema.file",
        "minikafka.key.message",
        "minikafka.key.subject.name.strategy",
        "JAVA_HOME",
        "subscribe",
        "compression.type",
        "bypass",
    ],
)
def test_names_of_places_kinds_and_counts_hide_nothing(name: str) -> None:
    assert not is_secret(name)
    assert redact(name, "x") == "x"


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        (JAAS, "***"),
        ("http://alice:tiger@host:1/x", "http://***@host:1/x"),
        ("http://alice:ti@ger@host:1/x@y", "http://***@host:1/x@y"),
        ("alice:tiger@host:9092", "***@host:9092"),
        ("a:1,alice:ti:ger@[::1]:9092", "a:1,***@[::1]:9092"),
        ("'alice:tiger@host:9' has no port", "'***@host:9' has no port"),
        ("a:1 b@c:2 [::1]:9092", "a:1 b@c:2 [::1]:9092"),
        ("run --password tiger --topic a", "run --password *** --topic a"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("user=a;pwd=tiger;pass=lion", "user=a;pwd=***;pass=***"),
        ("bypass=1 compass=north", "bypass=1 compass=north"),
        ("s3a://AKIA:tiger@bucket/checkpoint", "s3a://***@bucket/checkpoint"),
        ('a password="ti ger" b', "a password=*** b"),
        ("user=alice;password=tiger", "user=alice;password=***"),
        ('{"password": "tiger", "topic": "a"}', '{"password": ***, "topic": "a"}'),
        ("--set ssl.key.password=tiger --port 1", "--set ssl.key.password=*** --port 1"),
        ("stored_key=tiger,iterations=4096", "stored_key=***,iterations=4096"),
        ("-----BEGIN PRIVATE KEY-----\ntiger\n-----END PRIVATE KEY-----", "***"),
        ('{"token-events":{"0":5}}', '{"token-events":{"0":5}}'),
        ("PLAINTEXT://localhost:9092", "PLAINTEXT://localhost:9092"),
        ("flights, secrets", "flights, secrets"),
        ("{'password': 'tiger'}", "{'password': ***}"),
        ("ssl.key.password: tiger", "ssl.key.password: ***"),
        ("password:12345", "password:***"),
        ("client.secret:tiger", "client.secret:***"),
        ("{'minikafka.password': 4711}", "{'minikafka.password': ***}"),
        ("'secret': tiger", "'secret': ***"),
        ("client-secret-1: tiger", "client-secret-1: ***"),
        ("the token:12345 is wrong", "the token:*** is wrong"),
        ("invalid credentials-2: tiger", "invalid credentials-2: ***"),
        ("sasl.jaas.config: tiger", "sasl.jaas.config: ***"),
        ("ssl.keystore.key=tiger", "ssl.keystore.key=***"),
        ("key=value, null.key.partition: 3", "key=value, null.key.partition: 3"),
    ],
)
def test_secrets_inside_other_values_are_taken_out(text: str, shown_as: str) -> None:
    assert redact_text(text) == shown_as
    assert redact("some.setting", text) == shown_as


@pytest.mark.parametrize("name", ["my.secret", "my.secret:orders"])
def test_value_that_is_a_resource_name_is_not_redacted(name: str) -> None:
    text = f"there is no group '{name}'; {name}:x and {name}: gone"
    assert redact_text(text, [name]) == text
    assert redact_text("secret: tiger", [name]) == "secret: ***"
    assert "***" in redact_text("there is no group 'my.secret:orders'")


@pytest.mark.parametrize(
    "text",
    [
        "topic='my.secret': there is no such topic",
        "my.secret-0: the leader is away",
        "my.secret:9 has no leader",
        "my.secret-0:9: it has no leader",
    ],
)
def test_text_about_a_known_name_is_not_redacted(text: str) -> None:
    assert redact_text(text, ["my.secret"]) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("--password: tiger", "--password"),
        ("password: tiger", "password"),
        ("user.password: tiger", "user.password"),
        ("--client-secret: tiger", "--client-secret"),
        ("client.secret: tiger", "secret"),
        ("client.secret.text: tiger", "client.secret"),
        ("my-secret-text: tiger", "secret"),
        ("my.secret=tiger", "my.secret"),
        ("secret: tiger", "s"),
        ("secret: tiger", ""),
    ],
)
def test_a_secret_is_hidden_whatever_is_known_as_a_name(text: str, name: str) -> None:
    assert "tiger" not in redact_text(text, [name])


@pytest.mark.parametrize(
    "text",
    [
        "/data/tls/ca.key: not there: it is needed to renew broker.pem",
        "ssl.key.password: cannot be changed while a broker runs",
        "--password-stdin: must be given once",
        "sasl.jaas.config: must end with ';'",
        "zookeeper.digest-key: is not known",
        "cannot get AWS credentials: none found",
        "ssl.truststore.location='/tls/ca.key': the PEM text has no certificate",
        "/tls/client.key: No such file or directory",
        "cannot read '/tls/my-secret': Permission denied for this user",
        "file /run/secrets/token: it is empty",
        "https://login.example.com:8443/oauth2/token: no token from the identity provider within 4000 ms",
        "https://login.example.com/oauth2/token: no token: status 401 (invalid_client)",
        "the response of https://example.com/token has no access_token; check it",
    ],
)
def test_a_sentence_about_a_setting_or_a_file_is_kept(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password: must",
        "password: must\nuser: alice",
        "password: must, user: alice",
        "password:must be",
        "password:  must be",
        "password=must be",
        "password = must be",
        '"password": must be',
        'password: "must be"',
        "password: must-be given",
        "password: musty be",
        "password: Must be",
        "'/users/password': must",
        "{'/users/password': 'must be'}",
        "/users/password:must be",
        "/users/password=must be",
        "https://host/password: must-be given",
        "user/password: mustang horse",
        "https://host/?password: mustang horse",
        "https://host/token: mustang",
    ],
)
def test_a_secret_that_is_a_word_of_messages_is_hidden(text: str) -> None:
    assert "must" not in redact_text(text).lower()


def test_refused_topic_name_stays_in_its_error_text() -> None:
    refusal = ConfigError("--topic", "my.secret", "'my.secret': there is no such topic")
    assert "there is no such topic" in str(refusal)


def test_a_name_of_a_topic_in_an_option_stays_as_it_is() -> None:
    assert str(ConfigError("--topic", "my.secret:x", "no partition")).startswith("--topic='my.secret:x'")


def test_redact_keeps_none_and_numbers() -> None:
    assert redact_all({"ssl.key.password": None, "retries": 3, "sasl.password": ""}) == {
        "ssl.key.password": None,
        "retries": 3,
        "sasl.password": "",
    }


@pytest.mark.parametrize("name", ["sasl.jaas.config", "kafka.ssl.keystore.password", "minikafka.password"])
def test_no_form_of_a_refusal_has_the_secret(name: str) -> None:
    refusal = ConfigError(name, "tiger", "not supported yet")
    several = ConfigErrors([refusal, ConfigError("a", "b", "c")])
    for error in (refusal, several, pickle.loads(pickle.dumps(refusal))):
        assert "tiger" not in f"{error} {error!r} {error.args} {vars(error)}"
        assert f"{name}='***'" in str(error)


def test_a_refusal_takes_secrets_out_of_any_value() -> None:
    refusal = ConfigError("zookeeper.connect", "zk://u:tiger@h:1", "'zk://u:tiger@h:1' is no host")
    assert "tiger" not in f"{refusal} {refusal!r}"
    assert "@h:1" in str(refusal)


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "a.",
        "password",
        "password ",
        "a://",
        "://a:",
        "a:b",
        " a:b@",
        "-----BEGIN PRIVATE KEY-----",
        "token=",
        '"',
        "LoginModul",
        "secret\\",
    ],
)
def test_a_large_value_is_looked_through_at_once(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    redact_text(text)
    is_secret(text)
