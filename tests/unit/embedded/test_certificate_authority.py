"""The CA of a cluster, and the certificates that it issues."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta, timezone

import pytest

from minikafka.base.errors import ConfigError, StoreError
from minikafka.embedded.certificate_authority import (
    CA_LIFETIME,
    LIFETIME,
    CertificateAuthority,
    covers,
    is_issued_by,
)
from minikafka.net.tls import ServerTls, client_context
from minikafka.security.certificates import Certificate
from minikafka.security.ssl_config import SslConfig
from minikafka.security.stores.key_material import KeyMaterial, certificates_in
from tests.support.tls import TlsHandshake

NOW = datetime.now(timezone.utc)
CA = CertificateAuthority.create(NOW)
HOSTS = ["broker.example", "10.1.2.3", "::1"]


def server_tls(material: KeyMaterial, **properties: str) -> ServerTls:
    text = material.to_pem().value
    given = {"type": "PEM", "key": text, "certificate.chain": text}
    keys = {f"ssl.keystore.{name}": value for name, value in given.items()}
    return ServerTls(SslConfig.from_properties(keys | trust() | properties))


def trust(ca: CertificateAuthority = CA) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca.certificate}


def certificate_of(material: KeyMaterial) -> Certificate:
    return Certificate.parse(material.chain[0])


@pytest.mark.parametrize("host", HOSTS)
def test_strict_client_connects_by_each_host(host: str) -> None:
    context = client_context(SslConfig.from_properties(trust()))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    TlsHandshake(server_tls(CA.issue(HOSTS, NOW)).context, context, host).run()


def test_broker_is_a_client_of_another_broker() -> None:
    one, other = (CA.issue(["localhost"], NOW) for _ in range(2))
    text = other.to_pem().value
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.key": text, "ssl.keystore.certificate.chain": text}
    server = server_tls(one, **{"ssl.client.auth": "required"})
    TlsHandshake(server.context, client_context(SslConfig.from_properties(keys | trust()))).run()


def test_certificate_is_valid_from_a_little_earlier_on() -> None:
    certificate = certificate_of(CA.issue(["a"], NOW))
    assert certificate.not_before < NOW
    assert certificate.not_after == (NOW + LIFETIME).replace(microsecond=0)


def test_certificate_ends_with_its_ca() -> None:
    late = NOW + CA_LIFETIME - timedelta(days=1)
    assert certificate_of(CA.issue(["a"], late)).not_after == (NOW + CA_LIFETIME).replace(microsecond=0)


def test_each_ca_has_a_name_of_its_own() -> None:
    names = {
        Certificate.parse(certificates_in(ca.certificate)[0]).name
        for ca in (CA, CertificateAuthority.create(NOW))
    }
    assert len(names) == 2


def test_issuer_is_known_by_its_signature() -> None:
    der = CA.issue(["a"], NOW).chain[0]
    assert is_issued_by(der, CA.certificate)
    assert not is_issued_by(der, CertificateAuthority.create(NOW).certificate)


def test_hosts_of_a_certificate_are_compared_as_clients_do() -> None:
    certificate = certificate_of(CA.issue(["Broker.Example", "::1", "bücher.example"], NOW))
    assert covers(certificate, ["broker.example", "0:0:0:0:0:0:0:1", "bücher.example"])
    assert not covers(certificate, ["other.example"])


@pytest.mark.parametrize("host", ["", "a" * 64 + ".example", "a..b"])
def test_host_that_no_certificate_can_have_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="must be a name or an address"):
        CA.issue(["localhost", host], NOW)


def test_long_name_of_a_host_is_cut_where_only_people_read_it() -> None:
    host = ".".join(["a" * 60, "b" * 60, "example"])
    certificate = certificate_of(CA.issue([host], NOW))
    assert certificate.dns_names == (host,)


def test_key_of_another_ca_is_refused() -> None:
    with pytest.raises(StoreError, match="does not fit"):
        CertificateAuthority.read(CertificateAuthority.create(NOW).key.value, CA.certificate)


def test_key_of_a_ca_is_not_shown() -> None:
    assert "PRIVATE" not in repr(CA)
