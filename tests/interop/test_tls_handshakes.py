"""Handshakes with Kafka's TLS on the other side, without a network, and the messages about their failures."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pytest
import trustme

from minikafka.net.tls import ServerTls, client_context
from minikafka.net.tls_failures import tls_failure
from minikafka.security.certificates import peer_name_of
from minikafka.security.ssl_config import SslConfig
from tests.interop.clients import java
from tests.interop.driver import Program, decode, encode
from tests.support.tls import HOSTS, authority, inline_keys, inline_trust

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

HOST = "localhost"
PAST, FUTURE = datetime(2020, 1, 1, tzinfo=timezone.utc), datetime(2990, 1, 1, tzinfo=timezone.utc)
VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
RELEASES = {"3.9": ("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar")}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    prepare = java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "TlsStores")
    prepared = prepare(tmp_path_factory.mktemp("java"))
    program = Program(prepared.command, prepared.environment)
    yield program
    program.close()


@dataclass
class Handshake:
    """One end is ours, the other one Kafka's."""

    kafka: Program
    end: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    error: ssl.SSLError | None = None
    state: str = "going"
    is_complete: bool = field(default=False)

    def run(self) -> None:
        """Pass bytes until both ends have no more."""
        if self.end.server_side:
            self._pass_to_us(self._ask(b""))
        for _ in range(8):
            self._step()
            sent = self.outgoing.read()
            if not sent and self.error is None and self.is_complete:
                break
            if self.state in ("going", "complete"):
                self._pass_to_us(self._ask(sent))

    def _ask(self, data: bytes) -> bytes:
        ((answer, self.state),) = self.kafka.ask("bytes", encode(data))
        return decode(answer) or b""

    def _pass_to_us(self, data: bytes) -> None:
        self.incoming.write(data)
        self._step()

    def _step(self) -> None:
        try:
            if self.error is None and not self.is_complete:
                self.end.do_handshake()
                self.is_complete = True
            if self.error is None:
                self.end.read(1)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error

    def our_failure(self) -> str:
        """Return what our end says, after Kafka's or ours has refused."""
        assert self.error is not None
        return tls_failure(self.error, None if self.end.server_side else HOST)

    def kafkas_failure(self) -> str:
        return (decode(self.state) or b"").decode()


def begun(
    kafka: Program, side: str, ours: dict[str, str], kafkas: dict[str, str], host: str = HOST
) -> Handshake:
    """Begin a handshake with Kafka on ``side``."""
    words = [word for name, value in kafkas.items() for word in (name, encode(value.encode()))]
    kafka.ask("tls", side, encode(host.encode()), *words)
    config = SslConfig.from_properties(ours)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    if side == "client":
        end = ServerTls(config).context.wrap_bio(incoming, outgoing, server_side=True)
    else:
        end = client_context(config).wrap_bio(incoming, outgoing, server_hostname=host)
    handshake = Handshake(kafka, end, incoming, outgoing)
    handshake.run()
    return handshake


def leaf(*hosts: str, ca: trustme.CA | None = None, **validity: datetime) -> trustme.LeafCert:
    return (ca or authority()).issue_cert(*(hosts or HOSTS), common_name="peer", **validity)


def keys(certificate: trustme.LeafCert, **more: str) -> dict[str, str]:
    """Return the settings of an end with this certificate, which trusts the CA of the tests."""
    return inline_keys(certificate) | trust(**more)


def trust(**more: str) -> dict[str, str]:
    return inline_trust(authority()) | {
        f"ssl.{name.replace('_', '.')}": value for name, value in more.items()
    }


@VERSIONS
def test_client_of_kafka_agrees_with_our_listener(kafka: Program, version: str) -> None:
    handshake = begun(kafka, "client", keys(leaf(), enabled_protocols=version), trust())
    assert (handshake.is_complete, handshake.end.version()) == (True, version)


@VERSIONS
def test_our_client_agrees_with_a_listener_of_kafka(kafka: Program, version: str) -> None:
    handshake = begun(kafka, "server", trust(enabled_protocols=version), keys(leaf()))
    assert (handshake.is_complete, handshake.end.version()) == (True, version)


@VERSIONS
def test_client_of_kafka_is_known_by_its_certificate(kafka: Program, version: str) -> None:
    server = keys(leaf(), client_auth="required", enabled_protocols=version)
    handshake = begun(kafka, "client", server, keys(authority().issue_cert(HOST, common_name="alice")))
    der = handshake.end.getpeercert(binary_form=True)
    assert der is not None
    assert peer_name_of(der).startswith("CN=alice,")


@VERSIONS
def test_our_certificate_is_taken_by_kafka(kafka: Program, version: str) -> None:
    server = keys(leaf(), client_auth="required", enabled_protocols=version)
    handshake = begun(kafka, "server", keys(leaf()), server)
    assert handshake.error is None
    assert handshake.state == "complete"


@VERSIONS
@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (leaf(ca=authority("other")), "the client refuses the certificate of this listener"),
        (leaf("other.example"), "the client refuses the certificate of this listener"),
        (leaf(not_after=PAST), "certificate of this listener"),
        (leaf(not_before=FUTURE), "the client refuses the certificate of this listener"),
    ],
    ids=["unknown CA", "other host", "expired", "not yet valid"],
)
def test_refusal_by_a_client_of_kafka_is_named(
    kafka: Program, version: str, shown: trustme.LeafCert, says: str
) -> None:
    handshake = begun(kafka, "client", keys(shown, enabled_protocols=version), trust())
    assert handshake.kafkas_failure()
    assert says in handshake.our_failure()
    assert "renew it" in handshake.our_failure()


@VERSIONS
@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (None, "demands"),
        (leaf(ca=authority("other")), "certificate of this client"),
        (leaf(not_after=PAST), "certificate of this client"),
    ],
    ids=["none", "unknown CA", "expired"],
)
def test_refusal_by_a_listener_of_kafka_is_named(
    kafka: Program, version: str, shown: trustme.LeafCert | None, says: str
) -> None:
    server = keys(leaf(), client_auth="required", enabled_protocols=version)
    handshake = begun(kafka, "server", trust() if shown is None else keys(shown), server)
    assert handshake.kafkas_failure()
    assert says in handshake.our_failure()
    assert "ssl.keystore" in handshake.our_failure()


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("swap", [False, True])
def test_versions_without_a_common_one_are_named(kafka: Program, side: str, swap: bool) -> None:
    ours, kafkas = ("TLSv1.3", "TLSv1.2") if swap else ("TLSv1.2", "TLSv1.3")
    both = keys(leaf())
    handshake = begun(
        kafka, side, both | {"ssl.enabled.protocols": ours}, both | {"ssl.enabled.protocols": kafkas}
    )
    assert "versions of TLS; set ssl.enabled.protocols" in handshake.our_failure()


@pytest.mark.parametrize("side", ["client", "server"])
def test_cipher_suites_without_a_common_one_are_named(kafka: Program, side: str) -> None:
    both, suite = keys(leaf(), enabled_protocols="TLSv1.2"), "TLS_ECDHE_ECDSA_WITH_AES_{}_GCM_SHA{}"
    handshake = begun(
        kafka,
        side,
        both | {"ssl.cipher.suites": suite.format(128, 256)},
        both | {"ssl.cipher.suites": suite.format(256, 384)},
    )
    assert "no cipher suite in common" in handshake.our_failure()


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize(
    "suite",
    [
        "TLS_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ],
)
def test_suite_has_the_same_name_for_kafka(kafka: Program, side: str, suite: str) -> None:
    both = keys(leaf())
    handshake = begun(kafka, side, both, both | {"ssl.cipher.suites": suite})
    assert handshake.error is None
    assert handshake.is_complete
