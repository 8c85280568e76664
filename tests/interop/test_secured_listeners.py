"""Real clients on each kind of secured listener: TLS with and without a certificate, and each SASL mechanism.

One broker has all listeners. Each client sends a record on a listener and reads it there.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.base.acls import (
    ANONYMOUS,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.secrets import Password
from minikafka.clients.admin.acls import AclBinding
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.zookeeper.users import NewPassword, add_user
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.registry.brokers import live_brokers
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.certificates import peer_name_of
from tests.interop.clients import go, java
from tests.interop.compatibility import NOT_IN_CLIENT
from tests.interop.driver import Program, Refused, encode
from tests.support.processes import wait_until
from tests.support.python_clients import confluent_kafka, kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka
    import aiokafka.errors
    from aiokafka.abc import AbstractTokenProvider

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

USER, PASSWORD = "alice", "won;der=land"
MODULES = "org.apache.kafka.common.security"
HANDLER = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
PATIENCE_S = 5.0
SESSION_MS = 2_000
"""The time of a session on the listener HASTY, after which clients must authenticate again."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a client connects."""

    listener: str
    mechanism: str | None = None
    password: str = PASSWORD
    has_certificate: bool = False

    def __str__(self) -> str:
        return self.listener if self.mechanism is None else f"{self.listener}-{self.mechanism}"

    @property
    def protocol(self) -> str:
        """Kafka's ``security.protocol``."""
        return {"MUTUAL": "SSL", "HASTY": "SASL_PLAINTEXT"}.get(self.listener, self.listener)

    @property
    def has_tls(self) -> bool:
        return "SSL" in self.protocol


ACCESSES = [
    Access("SSL"),
    Access("MUTUAL"),
    *(Access(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


@pytest.fixture(autouse=True)
def _recorded(request: pytest.FixtureRequest) -> None:
    """Record what a client's test shows, for docs/reference/compatibility.md."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    access: Access | None = parameters.get("access")
    if access is None or "sends_and_reads" not in request.node.name:
        return
    client = parameters.get("client") or parameters.get("library")
    java_release = parameters.get("by_java", "0.10")
    feature = "SSL, with a certificate" if access.listener == "MUTUAL" else str(access).replace("-", ", ", 1)
    request.node.user_properties.extend(
        [("client", client or f"Java {java_release}"), ("feature", f"connect by {feature}")]
    )


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with all kinds of listeners."""

    cluster: Cluster
    addresses: Mapping[str, str]
    """Listener -> host and port."""
    ca: str
    client: str
    """The client's certificate and key, in one file."""
    client_name: str
    """The principal of that certificate."""
    log: Path
    renew_certificate: Callable[[], bytes]
    """Puts a new certificate of the broker in the place of the old one, and returns it, in DER."""

    def new_topic(self) -> str:
        topic = f"t-{uuid.uuid4().hex[:8]}"
        with ClusterClient(self.cluster.bootstrap_servers) as client:
            Admin(client).create_topic(NewTopic(topic))
        return topic


def pem_of(issued: trustme.LeafCert) -> bytes:
    """Return key and certificates in one file; the key in PKCS#8, the only form that Java reads."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    server, client = ca.issue_cert("localhost", "127.0.0.1"), ca.issue_cert("client@example.com")
    for name, issued in {"server": server, "client": client}.items():
        (directory / f"{name}.pem").write_bytes(pem_of(issued))
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    listeners = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL", "HASTY")
    config = {
        "listeners": ",".join(f"{name}://localhost:0" for name in listeners),
        "listener.security.protocol.map": "MUTUAL:SSL,HASTY:SASL_PLAINTEXT",
        "listener.name.hasty.connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": "60000",
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    users = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    for listener in ("sasl_plaintext", "sasl_ssl", "hasty"):
        config[f"listener.name.{listener}.plain.sasl.jaas.config"] = users
        config[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = HANDLER

    def renew_certificate() -> bytes:
        renewed = ca.issue_cert("localhost", "127.0.0.1")
        (directory / "new.pem").write_bytes(pem_of(renewed))
        (directory / "new.pem").replace(directory / "server.pem")
        return ssl.PEM_cert_to_DER_cert(renewed.cert_chain_pems[0].bytes().decode())

    with Cluster(config=config, data_dir=str(directory / "data")) as cluster:
        store = ZooKeeperStore(cluster.zookeeper_connect)
        try:
            add_user(store, USER, NewPassword(Password(PASSWORD)), os.urandom)
            (registration,) = live_brokers(store).values()
        finally:
            store.close()
        addresses = {
            endpoint.listener: f"localhost:{endpoint.port}" for endpoint in registration.broker.endpoints
        }
        (log,) = (directory / "data" / "logs").glob("broker-*.log")
        der = ssl.PEM_cert_to_DER_cert(client.cert_chain_pems[0].bytes().decode())
        yield Secured(
            cluster,
            addresses,
            ca=str(directory / "ca.pem"),
            client=str(directory / "client.pem"),
            client_name=f"User:{peer_name_of(der)}",
            log=log,
            renew_certificate=renew_certificate,
        )


def unsecured_token() -> str:
    now_s = int(time.time())
    claims: tuple[dict[str, object], ...] = (
        {"alg": "none"},
        {"sub": USER, "iat": now_s, "exp": now_s + 3600},
    )
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in claims]
    return ".".join((*parts, ""))


def by_librdkafka(secured: Secured, access: Access, topic: str, value: bytes) -> bytes:
    refusals: list[Any] = []
    config: dict[str, Any] = {
        "bootstrap.servers": secured.addresses[access.listener],
        "security.protocol": access.protocol,
        "error_cb": refusals.append,
        "log_level": 0,
    }
    if access.has_tls:
        config["ssl.ca.location"] = secured.ca
    if access.listener == "MUTUAL":
        config |= {"ssl.certificate.location": secured.client, "ssl.key.location": secured.client}
    if access.mechanism == "OAUTHBEARER":
        config |= {
            "sasl.mechanism": access.mechanism,
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={USER}",
        }
    elif access.mechanism is not None:
        config |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": USER,
            "sasl.password": access.password,
        }
    producer = confluent_kafka.Producer(config)
    delivered: list[Any] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: delivered.append(message))
    deadline = time.monotonic() + PATIENCE_S
    while not delivered and time.monotonic() < deadline:
        producer.poll(0.1)
        if any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in refusals):
            raise PermissionError(str(refusals))
    consumer = confluent_kafka.Consumer({**config, "group.id": "g", "enable.auto.commit": False})
    try:
        (message,) = delivered
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, message.offset())])
        found = consumer.poll(PATIENCE_S)
        assert found is not None
        assert found.error() is None, found.error()
        return bytes(found.value())
    finally:
        consumer.close()


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for aiokafka."""

    async def token(self) -> str:
        return unsecured_token()


def context_of(secured: Secured, access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=secured.ca)
    if access.listener == "MUTUAL" or access.has_certificate:
        context.load_cert_chain(secured.client)
    return context


def by_aiokafka(secured: Secured, access: Access, topic: str, value: bytes) -> bytes:
    config: dict[str, Any] = {
        "bootstrap_servers": secured.addresses[access.listener],
        "security_protocol": access.protocol,
    }
    if access.has_tls:
        config["ssl_context"] = context_of(secured, access)
    if access.mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": access.mechanism, "sasl_oauth_token_provider": Tokens()}
    elif access.mechanism is not None:
        config |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": access.password,
        }

    async def roundtrip() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            sent = await producer.send_and_wait(topic, value, partition=0)
        finally:
            await producer.stop()
        async with aiokafka.AIOKafkaConsumer(**config) as consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            return bytes((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)

    return asyncio.run(roundtrip())


def by_kafka_python(secured: Secured, access: Access, topic: str, value: bytes) -> bytes:
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc, name-defined]
        def token(self) -> str:
            return unsecured_token()

    config: dict[str, Any] = {
        "bootstrap_servers": secured.addresses[access.listener],
        "security_protocol": access.protocol,
    }
    if access.has_tls:
        config["ssl_context"] = context_of(secured, access)
    if access.mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": access.mechanism, "sasl_oauth_token_provider": Provider()}
    elif access.mechanism is not None:
        config |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": access.password,
        }
    producer = kafka.KafkaProducer(**config, max_block_ms=PATIENCE_S * 1000)
    try:
        sent = producer.send(topic, value, partition=0).get(PATIENCE_S)
    finally:
        producer.close(1)
    consumer = kafka.KafkaConsumer(**config, consumer_timeout_ms=PATIENCE_S * 1000)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        return bytes(next(iter(consumer)).value)
    finally:
        consumer.close()


Roundtrip = Callable[[Secured, Access, str, bytes], bytes]
PYTHON = {"librdkafka": by_librdkafka, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python}


JAVA = {
    "3.9": ("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar"),
    "4": ("MINIKAFKA_KAFKA4_LIBS", "kafka-clients-4.*.jar"),
}
KAFKA_0_10 = ("MINIKAFKA_KAFKA_LIBS", "kafka-clients-0.10.*.jar")


def java_properties(secured: Secured, access: Access) -> dict[str, str]:
    module = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
    login = f'username="{USER}" password="{access.password}"'
    if access.mechanism == "OAUTHBEARER":
        login = f'unsecuredLoginStringClaim_sub="{USER}"'
    properties = {"security.protocol": access.protocol}
    if access.has_tls:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.ca}
    if access.listener == "MUTUAL":
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": secured.client}
    if access.mechanism is not None:
        name = module.get(access.mechanism, "scram.ScramLoginModule")
        properties |= {
            "sasl.mechanism": access.mechanism,
            "sasl.jaas.config": f"{MODULES}.{name} required {login};",
        }
    return properties


def roundtrip_by(
    program: Program, address: str, topic: str, value: bytes, properties: dict[str, str]
) -> bytes:
    words = [word for name, text in properties.items() for word in (name, encode(text.encode()))]
    ((found,),) = program.ask("roundtrip", address, topic, encode(value), *words)
    return base64.b64decode(found[1:])


@pytest.fixture(scope="module", params=JAVA)
def by_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roundtrip]:
    """Kafka's clients of a release, in one process."""
    prepared = java(*JAVA[request.param], "SecuredClient")(tmp_path_factory.mktemp("java"))
    program = Program(prepared.command, prepared.environment)
    yield lambda secured, access, topic, value: roundtrip_by(
        program, secured.addresses[access.listener], topic, value, java_properties(secured, access)
    )
    program.close()


@pytest.mark.parametrize("access", ACCESSES, ids=str)
@pytest.mark.parametrize("client", PYTHON)
def test_python_client_sends_and_reads(secured: Secured, client: str, access: Access) -> None:
    value = os.urandom(100_000)
    assert PYTHON[client](secured, access, secured.new_topic(), value) == value


@pytest.mark.interop
@pytest.mark.parametrize("access", ACCESSES, ids=str)
def test_java_client_sends_and_reads(secured: Secured, by_java: Roundtrip, access: Access) -> None:
    value = os.urandom(100_000)
    assert by_java(secured, access, secured.new_topic(), value) == value


@pytest.mark.parametrize(
    "access",
    [
        Access("SSL"),
        Access("MUTUAL"),
        *(access for access in ACCESSES if access.listener == "SASL_SSL"),
        Access("SASL_SSL", "SCRAM-SHA-512", has_certificate=True),
    ],
    ids=str,
)
def test_acls_are_about_the_principal(secured: Secured, access: Access) -> None:
    topic = secured.new_topic()
    principal = {"SSL": ANONYMOUS, "MUTUAL": secured.client_name}.get(access.listener, f"User:{USER}")
    denial = Acl(principal, Permission.DENY, WILDCARD_HOST, Operation.WRITE)
    others = Acl(WILDCARD_PRINCIPAL, Permission.ALLOW, WILDCARD_HOST, Operation.ALL)
    with ClusterClient(secured.cluster.bootstrap_servers) as client:
        about = Resource(ResourceType.TOPIC, topic)
        Admin(client).create_acls([AclBinding(about, acl) for acl in (denial, others)])
    with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
        by_aiokafka(secured, access, topic, b"x")
    with_another_principal = Access("SASL_SSL", "PLAIN") if access.mechanism is None else Access("SSL")
    assert by_aiokafka(secured, with_another_principal, topic, b"x") == b"x"


def test_librdkafka_authenticates_again_in_time(secured: Secured) -> None:
    topic, failed, delivered = secured.new_topic(), list[Any](), list[Any]()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": secured.addresses["HASTY"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "error_cb": failed.append,
        }
    )
    until = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < until:
        producer.produce(topic, b"x", on_delivery=lambda error, message: delivered.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert set(delivered) == {None}
    assert not failed
    assert "without a re-authentication" not in secured.log.read_text()


@pytest.mark.interop
def test_java_client_authenticates_again_in_time(secured: Secured, by_java: Roundtrip) -> None:
    topic, began = secured.new_topic(), time.monotonic()
    assert by_java(secured, Access("HASTY", "PLAIN"), topic, b"pause") == b"pause"
    assert time.monotonic() - began > 2 * SESSION_MS / 1000
    assert "without a re-authentication" not in secured.log.read_text()


@pytest.mark.slow
def test_renewed_certificate_is_used_without_a_restart(secured: Secured) -> None:
    host, _, port = secured.addresses["SSL"].rpartition(":")
    renewed = secured.renew_certificate()

    def shown() -> bytes | None:
        context = context_of(secured, Access("SSL"))
        with (
            socket.create_connection((host, int(port))) as raw,
            context.wrap_socket(raw, server_hostname=host) as connection,
        ):
            return connection.getpeercert(binary_form=True)

    wait_until(lambda: shown() == renewed, "the new certificate", 30)
    topic = secured.new_topic()
    assert by_librdkafka(secured, Access("SSL"), topic, b"x") == b"x"


def assert_refusals_are_logged(secured: Secured) -> None:
    """The broker's log says who was refused, and why: once in ten seconds for the same reason and host."""
    wanted = f"authentication failed: PLAIN: wrong password of user '{USER}'"
    wait_until(lambda: wanted in secured.log.read_text(), wanted, PATIENCE_S)
    (line, *_) = [line for line in secured.log.read_text().splitlines() if wanted in line]
    assert "127.0.0.1:" in line or "::1" in line
    assert "wr0ng" not in secured.log.read_text()


# kafka-python is left out: it takes the end of the connection for its answer, and tries for 30 seconds.
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])
def test_wrong_password_is_refused_at_once(
    secured: Secured, client: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, began = secured.new_topic(), time.monotonic()
    with pytest.raises(Exception) as refused:
        PYTHON[client](secured, Access("SASL_PLAINTEXT", mechanism, "wr0ng"), topic, b"x")
    assert time.monotonic() - began < PATIENCE_S
    told = f"{refused.value} {caplog.text}"
    assert "Authentication failed" in told
    if mechanism == "PLAIN":
        assert_refusals_are_logged(secured)


@pytest.fixture(scope="module")
def by_go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    prepared = go("secured", "github.com/twmb/franz-go")(tmp_path_factory.mktemp("go"))
    program = Program(prepared.command, prepared.environment)
    yield program
    program.close()


@pytest.mark.interop
@pytest.mark.parametrize("access", ACCESSES, ids=str)
@pytest.mark.parametrize("library", ["franz-go", "sarama"])
def test_go_client_sends_and_reads(secured: Secured, by_go: Program, library: str, access: Access) -> None:
    if library == "sarama" and access.mechanism in SCRAM:
        pytest.skip(f"{NOT_IN_CLIENT}it leaves SCRAM to its users")
    value, address = os.urandom(100_000), secured.addresses[access.listener]
    secret = unsecured_token() if access.mechanism == "OAUTHBEARER" else PASSWORD
    ca = secured.ca if access.has_tls else "-"
    certificate = secured.client if access.listener == "MUTUAL" else "-"
    words = [address, secured.new_topic(), encode(value), ca, certificate, access.mechanism or "-", USER]
    ((found,),) = by_go.ask("roundtrip", library, *words, encode(secret.encode()))
    assert base64.b64decode(found[1:]) == value


@pytest.fixture(scope="module")
def by_java_0_10(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roundtrip]:
    """Kafka 0.10.1.1, with neither PEM nor ``sasl.jaas.config``: its virtual machine is told of a file."""
    directory = tmp_path_factory.mktemp("java")
    prepared = java(*KAFKA_0_10, "SecuredClient")(directory)
    login, stores = directory / "jaas", java_stores(secured, directory)
    module = f'{MODULES}.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'
    login.write_text(f"KafkaClient {{ {module} }};")
    executable, *arguments = prepared.command
    program = Program(
        [executable, f"-Djava.security.auth.login.config={login}", *arguments], prepared.environment
    )

    def roundtrip(secured: Secured, access: Access, topic: str, value: bytes) -> bytes:
        properties = {"security.protocol": access.protocol, **(stores if access.has_tls else {})}
        if access.mechanism is not None:
            properties["sasl.mechanism"] = access.mechanism
        return roundtrip_by(program, secured.addresses[access.listener], topic, value, properties)

    yield roundtrip
    program.close()


@pytest.mark.interop
@pytest.mark.parametrize("access", ACCESSES, ids=str)
def test_java_client_of_0_10_sends_and_reads(
    secured: Secured, by_java_0_10: Roundtrip, access: Access
) -> None:
    if access.mechanism not in (None, "PLAIN"):
        pytest.skip(f"{NOT_IN_CLIENT}it came later than 0.10.1")
    value = os.urandom(100_000)
    assert by_java_0_10(secured, access, secured.new_topic(), value) == value


def java_stores(secured: Secured, directory: Path) -> dict[str, str]:
    """The client's certificate and its CA in stores that any release reads."""
    password, pem = "changeit", Path(secured.client).read_bytes()
    hidden = serialization.BestAvailableEncryption(password.encode())
    ca = x509.load_pem_x509_certificate(Path(secured.ca).read_bytes())
    key = serialization.load_pem_private_key(pem, None)
    certificate = x509.load_pem_x509_certificate(pem)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], hidden)
    own = pkcs12.serialize_key_and_certificates(b"client", key, certificate, [ca], hidden)
    properties = {}
    for name, content in (("truststore", trusted), ("keystore", own)):
        (directory / name).write_bytes(content)
        properties |= {f"ssl.{name}.location": str(directory / name), f"ssl.{name}.password": password}
    return {**properties, "ssl.key.password": password}


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_java_client_with_a_wrong_password_is_refused(
    secured: Secured, by_java: Roundtrip, mechanism: str
) -> None:
    topic = secured.new_topic()
    with pytest.raises(Refused, match="SaslAuthenticationException: Authentication failed"):
        by_java(secured, Access("SASL_SSL", mechanism, "wr0ng"), topic, b"x")
