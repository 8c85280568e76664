"""Real clients on each kind of secured listener: TLS with and without a certificate, and each SASL mechanism.

One broker has all listeners. Each client sends a record on a listener and reads it there.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

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
from minikafka.clients.admin.admin import Admin
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from minikafka.registry.brokers import live_brokers
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.certificates import peer_name_of
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader
from tests.interop.clients import go, java
from tests.interop.compatibility import NOT_IN_CLIENT
from tests.interop.driver import Program, Refused, encode
from tests.interop.secured_clients import (
    ACCESSES,
    JAVA,
    KAFKA_0_10,
    MECHANISMS,
    PASSWORD,
    PATIENCE_S,
    PYTHON,
    SCRAM,
    USER,
    Access,
    Roundtrip,
    Secured,
    by_aiokafka,
    by_librdkafka,
    context_of,
    java_properties,
    java_stores,
    pem_of,
    roundtrip_by,
    unsecured_token,
)
from tests.support.processes import wait_until
from tests.support.python_clients import confluent_kafka
from tests.support.secured_kafka import PACKAGE, jaas, login_of, quoted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka
    import aiokafka.errors

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

HANDLER = f"{PACKAGE}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SESSION_MS = 2_000
"""The time of a session on the listener HASTY, after which clients must authenticate again."""


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
    users = jaas("PLAIN", f"user_{USER}={quoted(PASSWORD)}")
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
            add_user(ZooKeeperUsers(store), USER, NewPassword(Password(PASSWORD)), os.urandom)
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


VERSIONS = RequestHeader(ApiKey.API_VERSIONS, 0, 1, "c").encode()
METADATA = join([RequestHeader(ApiKey.METADATA, 1, 1, "c").encode(), b"\xff\xff\xff\xff"])


def handshake(mechanism: bytes) -> bytes:
    header = RequestHeader(ApiKey.SASL_HANDSHAKE, 0, 1, "c").encode()
    return join([header, len(mechanism).to_bytes(2, "big"), mechanism])


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake of a client, and the line of the broker's log about it."""

    listener: str
    logged: str
    frames: tuple[bytes, ...] = ()
    ca: str | None = None
    """The CA that the client trusts: the broker's, or another; None: without TLS."""
    certificate: str | None = None

    def __str__(self) -> str:
        return self.logged.partition(" ")[2]


MISTAKES = [
    Mistake("SSL", "a client without TLS", (VERSIONS,)),
    Mistake("SSL", "does not trust the certificate", ca="other"),
    Mistake("PLAINTEXT", "these bytes are TLS", ca="own"),
    Mistake("PLAINTEXT", "a client with SASL on the listener PLAINTEXT", (handshake(b"PLAIN"),)),
    Mistake("MUTUAL", "no certificate", (VERSIONS,), ca="own"),
    Mistake("MUTUAL", "certificate", (VERSIONS,), ca="own", certificate="other"),
    Mistake("SASL_PLAINTEXT", "may have another security.protocol than the listener", (METADATA,)),
    Mistake("SASL_PLAINTEXT", "mechanism 'GSSAPI' is not enabled", (handshake(b"GSSAPI"),)),
    Mistake("SASL_PLAINTEXT", "user 'bob' is unknown", (handshake(b"PLAIN"), b"\0bob\0wr0ng")),
    Mistake("SASL_PLAINTEXT", "wrong password of user", (handshake(b"PLAIN"), b"\0alice\0wr0ng")),
]


@pytest.mark.parametrize(("number", "mistake"), list(enumerate(MISTAKES)), ids=str)
def test_each_mistake_is_named_with_the_address(
    secured: Secured, number: int, mistake: Mistake, tmp_path: Path
) -> None:
    source = f"127.0.0.{10 + number}"  # lines about one host are few in ten seconds
    host, _, port = secured.addresses[mistake.listener].rpartition(":")
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        connection = socket.create_connection(("127.0.0.1", int(port)), PATIENCE_S, (source, 0))
        stack.callback(connection.close)
        if mistake.ca is not None:
            other = trustme.CA()
            context = ssl.create_default_context(cafile=secured.ca)
            if mistake.ca == "other":
                context = ssl.create_default_context(cadata=other.cert_pem.bytes().decode())
            if mistake.certificate == "other":
                (tmp_path / "other.pem").write_bytes(pem_of(other.issue_cert("client@example.com")))
                context.load_cert_chain(tmp_path / "other.pem")
            connection = context.wrap_socket(connection, server_hostname=host)
            stack.callback(connection.close)
        for frame in mistake.frames:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            connection.recv(1_000)

    def lines() -> list[str]:
        return [line for line in secured.log.read_text().splitlines() if f"{source}:" in line]

    wait_until(lambda: any(mistake.logged in line for line in lines()), str(lines()), PATIENCE_S)
    assert len(lines()) == 1
    assert "wr0ng" not in lines()[0]


def assert_refusals_are_logged(secured: Secured) -> None:
    """The broker's log says who was refused, and why: once in ten seconds for the same reason and host."""
    wanted = f"authentication failed on SASL_PLAINTEXT: PLAIN: wrong password of user '{USER}'"
    wait_until(lambda: wanted in secured.log.read_text(), wanted, PATIENCE_S)
    (line, *_) = [line for line in secured.log.read_text().splitlines() if wanted in line]
    assert "127.0.0." in line or "::1" in line
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
    module = login_of("PLAIN", USER, PASSWORD)["sasl.jaas.config"]
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


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_java_client_with_a_wrong_password_is_refused(
    secured: Secured, by_java: Roundtrip, mechanism: str
) -> None:
    topic = secured.new_topic()
    with pytest.raises(Refused, match="SaslAuthenticationException: Authentication failed"):
        by_java(secured, Access("SASL_SSL", mechanism, "wr0ng"), topic, b"x")
