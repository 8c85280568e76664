"""Clients of other projects with TLS and SASL: how each is configured, and one record sent and read."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster
from tests.interop.driver import Program, encode
from tests.support.python_clients import confluent_kafka, kafka
from tests.support.secured_kafka import login_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka
    import aiokafka.errors
    from aiokafka.abc import AbstractTokenProvider

USER, PASSWORD = "alice", "won;der=land"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """The connection settings of a client."""

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


def python_config(secured: Secured, access: Access, tokens: object) -> dict[str, Any]:
    """Return the configuration of kafka-python's and aiokafka's clients. tokens: their provider of tokens."""
    config: dict[str, Any] = {
        "bootstrap_servers": secured.addresses[access.listener],
        "security_protocol": access.protocol,
    }
    if access.has_tls:
        config["ssl_context"] = context_of(secured, access)
    if access.mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": access.mechanism, "sasl_oauth_token_provider": tokens}
    elif access.mechanism is not None:
        config |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": access.password,
        }
    return config


def by_aiokafka(secured: Secured, access: Access, topic: str, value: bytes) -> bytes:
    config = python_config(secured, access, Tokens())

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

    config = python_config(secured, access, Provider())
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
    properties = {"security.protocol": access.protocol}
    if access.has_tls:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.ca}
    if access.listener == "MUTUAL":
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": secured.client}
    if access.mechanism is not None:
        properties |= login_of(access.mechanism, USER, access.password)
    return properties


def roundtrip_by(
    program: Program, address: str, topic: str, value: bytes, properties: dict[str, str]
) -> bytes:
    words = [word for name, text in properties.items() for word in (name, encode(text.encode()))]
    ((found,),) = program.ask("roundtrip", address, topic, encode(value), *words)
    return base64.b64decode(found[1:])


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
