"""The options of managed services in the guide, and a stand-in for each service on this host.

Options are used as they stand there, user names and passwords included, but for addresses and files.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import io
import json
import os
import re
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minikafka.base.errors import AuthenticationFailed
from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.embedded.cluster import Cluster
from minikafka.registry.brokers import live_brokers
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer, OAuthBearerToken, TokenRefusal
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.server.served_versions import NEWEST_SERVED
from minikafka.wire.api_table import APIS
from tests.support.gateway import (
    EVENT_HUBS_2019,
    EVENT_HUBS_2023,
    EVENT_HUBS_REQUEST_BYTES,
    AwsIdentity,
    AwsMskIamSaslServer,
    Gateway,
    connection_string,
)
from tests.support.identity_provider import IdentityProvider
from tests.support.network import eventually
from tests.support.secured_kafka import PACKAGE, client_of, jaas, login_of, quoted
from tests.support.tls import (
    HOSTS,
    authority,
    broker_properties,
    ca_text,
    client_properties,
    inline_trust,
    key_and_chain,
    key_text,
    pkcs12_store,
)
from tests.unit.security.sasl.test_signed_tokens import jwk, jwks, private_key, signed

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "managed-clusters.md"
AWS = AwsIdentity("AKIAEXAMPLE", "tiger", "eu-central-1")
SCRAM_USERS = {"USER": "PASSWORD", "avnadmin": "PASSWORD"}
STORE_PASSWORD = "STORE_PASSWORD"
_PROTOCOL = "kafka.security.protocol"
TOKEN_SETTING = "kafka.sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the guide, which sets ``options``."""

    service: str
    number: int
    """Its place among those of the service, from 1 on."""
    text: str

    def __str__(self) -> str:
        return f"{self.service} {self.number}"

    def options(self, read: Callable[[str], str]) -> dict[str, str]:
        """Return the options; ``read`` returns the text of a file that the program opens."""
        found: dict[str, Any] = {}
        files = {**vars(builtins), "open": lambda name: io.StringIO(read(name))}
        exec(self.text, {"__builtins__": files}, found)  # noqa: S102 - a text of this tree
        options: dict[str, str] = found["options"]
        return options


def _programs() -> Iterator[Program]:
    _, *sections = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        texts = re.findall(r"```python\n(options = .*?)```", section, re.DOTALL)
        for number, text in enumerate(texts, 1):
            yield Program(section.partition("\n")[0], number, text)


PROGRAMS = tuple(_programs())


def program_of(service: str, number: int) -> Program:
    """Return a program of the guide by its place."""
    (found,) = [p for p in PROGRAMS if (p.service, p.number) == (service, number)]
    return found


def messages_of_tables() -> set[str]:
    """Return the parts of messages in the guide's tables."""
    rows = re.findall(r"^\| (`.*?) \| ", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    return {message for row in rows for message in re.findall(r"`([^`]+)`", row)}


def environment(directory: str) -> dict[str, str]:
    """Return the environment of a client: AWS's credentials, and the CA as one that the system trusts."""
    ca = Path(directory, "system-ca.pem")
    ca.write_text(ca_text(authority()))
    return {
        "SSL_CERT_FILE": str(ca),
        "AWS_ACCESS_KEY_ID": AWS.access_key,
        "AWS_SECRET_ACCESS_KEY": AWS.secret_key,
        "AWS_DEFAULT_REGION": AWS.region,
    }


@dataclass(frozen=True, slots=True)
class ManagedServices:
    """The stand-ins, and what a client needs of them."""

    addresses: Mapping[tuple[str, str], str]
    """Service and ``sasl.mechanism``, or else the protocol -> host and port."""
    gateways: tuple[Gateway, ...]
    provider: IdentityProvider
    plain: str
    """The address of the broker behind, without a login."""
    files: Path

    def options(self, program: Program) -> dict[str, str]:
        """Return the options of a program, with the addresses and the files of this host."""
        given = program.options(lambda name: (self.files / name).read_text())
        kind = given.get("kafka.sasl.mechanism", "SSL")
        address = self.addresses.get((program.service, kind), self.addresses["", given[_PROTOCOL]])
        given["kafka.bootstrap.servers"] = address
        for name in given.keys() & {"kafka.ssl.keystore.location", "kafka.ssl.truststore.location"}:
            given[name] = str(self.files / given[name])
        if TOKEN_SETTING in given:
            _, _, path = given[TOKEN_SETTING].removeprefix("https://").partition("/")
            given[TOKEN_SETTING] = f"{self.provider.url}/{path}"
        return given

    def take_refusals(self) -> list[str]:
        """Return why services have closed connections since the last call."""
        taken = [reason for gateway in self.gateways for reason in gateway.refused]
        for gateway in self.gateways:
            gateway.refused.clear()
        return taken


@contextlib.contextmanager
def managed_services(directory: Path) -> Iterator[ManagedServices]:
    """Run one broker, with what each service has in front of it."""
    files = directory / "files"
    files.mkdir()
    _write_files(files)
    with contextlib.ExitStack() as stack:
        provider = IdentityProvider(authority().issue_cert("127.0.0.1"))
        stack.callback(provider.close)
        token = _publish_token(provider)
        cluster = stack.enter_context(
            Cluster(config=_broker_config(provider), data_dir=str(directory / "data"))
        )
        ports = _add_users(cluster)
        plain = f"127.0.0.1:{ports['PLAINTEXT']}"
        limit = EVENT_HUBS_REQUEST_BYTES
        hubs = Gateway(
            plain,
            EVENT_HUBS_2019,
            {"PLAIN": lambda: PlainSaslServer(connection_string)},
            max_request_bytes=limit,
        )
        entra = Gateway(
            plain,
            EVENT_HUBS_2023,
            {"OAUTHBEARER": lambda: OAuthBearerSaslServer(lambda text: _judged(text, token))},
            max_request_bytes=limit,
        )
        table = {int(key): (APIS[key].min_version, newest) for key, newest in NEWEST_SERVED.items()}
        msk = Gateway(plain, table, {"AWS_MSK_IAM": lambda: AwsMskIamSaslServer(AWS)})
        for gateway in (hubs, entra, msk):
            stack.enter_context(gateway)
        addresses = {
            ("", "SSL"): f"localhost:{ports['SSL']}",
            ("", "SASL_SSL"): f"localhost:{ports['SASL_SSL']}",
            ("Azure Event Hubs", "PLAIN"): hubs.bootstrap,
            ("Azure Event Hubs", "OAUTHBEARER"): entra.bootstrap,
            ("Amazon MSK", "AWS_MSK_IAM"): msk.bootstrap,
        }
        yield ManagedServices(addresses, (hubs, entra, msk), provider, plain, files)


def _broker_config(provider: IdentityProvider) -> dict[str, str]:
    trust = " ".join(
        f"{name}={quoted(value)}".replace("\n", "\\n") for name, value in inline_trust(authority()).items()
    )
    prefix = "listener.name.sasl_ssl"
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0,SASL_SSL://localhost:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{prefix}.plain.sasl.jaas.config": jaas("PLAIN", 'user_API_KEY="API_SECRET"'),
        f"{prefix}.oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER", trust),
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
            f"{PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "listener.name.ssl.ssl.client.auth": "required",
        **broker_properties("localhost"),
    }


def _add_users(cluster: Cluster) -> dict[str, int]:
    """Add the users of SCRAM, and return the ports of the listeners once they can log in."""
    with contextlib.closing(ZooKeeperStore(cluster.zookeeper_connect)) as store:
        for name, password in SCRAM_USERS.items():
            add_user(ZooKeeperUsers(store), name, NewPassword(Password(password)), os.urandom)
        (registration,) = live_brokers(store).values()
    ports = {found.listener: found.port for found in registration.broker.endpoints}
    server = {
        "bootstrap.servers": f"localhost:{ports['SASL_SSL']}",
        "security.protocol": "SASL_SSL",
        **client_properties(),
    }

    def logs_in(user: str, password: str) -> bool:
        try:
            with client_of(server | login_of("SCRAM-SHA-256", user, password)) as client:
                client.metadata()
        except AuthenticationFailed:
            return False
        return True

    for name, password in SCRAM_USERS.items():
        eventually(lambda user=name, secret=password: logs_in(user, secret), f"the broker knows {name}")
    return ports


def _publish_token(provider: IdentityProvider) -> str:
    """Let the provider give one token at the addresses of the guide, and another elsewhere. Return it."""
    now_s = int(time.time())
    token = signed("ES256", headers={"kid": "k1"}, sub="service", iat=now_s, exp=now_s + 3600)
    answer = (200, json.dumps({"access_token": token, "expires_in": 3600}).encode())
    provider.answers["/oauth2/token"] = provider.answers["/TENANT/oauth2/v2.0/token"] = answer
    other = signed("ES256", sub="nobody", iat=now_s, exp=now_s + 3600)
    provider.answers["/elsewhere/token"] = (200, json.dumps({"access_token": other}).encode())
    provider.answers["/keys"] = (200, jwks(jwk(private_key("ES256"))))
    return token


def _judged(text: str, token: str) -> OAuthBearerToken | TokenRefusal:
    if text != token:
        return TokenRefusal("another token than that of the provider")
    return OAuthBearerToken(Password(text), "service", int(time.time() * 1000) + 3_600_000)


def _write_files(directory: Path) -> None:
    """Write the files that the guide names: keys, certificates, and the CA."""
    leaf = authority().issue_cert(*HOSTS, common_name="client")
    (directory / "service.key").write_text(key_text(leaf))
    (directory / "service.cert").write_text(key_and_chain(leaf).replace(key_text(leaf), ""))
    (directory / "ca.pem").write_text(ca_text(authority()))
    store = pkcs12_store(leaf, STORE_PASSWORD.encode())
    (directory / "client.p12").write_bytes(store)
    (directory / "client.keystore.p12").write_bytes(store)
    (directory / "client.truststore.jks").write_bytes(_java_trust_store())


def _java_trust_store() -> bytes:
    """Return a store in Java's own format with the certificate of the CA."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    der = ssl.PEM_cert_to_DER_cert(ca_text(authority()))
    entry = struct.pack(">i", 2) + text("ca") + struct.pack(">q", 0) + text("X.509")
    body = struct.pack(">Iii", 0xFEEDFEED, 2, 1) + entry + struct.pack(">i", len(der)) + der
    digest = hashlib.sha1(STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + digest
