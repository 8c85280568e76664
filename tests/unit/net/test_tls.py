"""TLS with the settings of both ends, in memory."""

from __future__ import annotations

import os
import ssl
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from minikafka.base.clock import ManualClock
from minikafka.base.errors import ConfigErrors
from minikafka.net.tls import ServerTls, client_context
from minikafka.security.certificates import peer_name_of
from minikafka.security.cipher_suites import OPENSSL_NAMES, is_tls_1_3
from minikafka.security.ssl_config import SslConfig
from tests.support.tls import (
    HOSTS,
    TlsHandshake,
    authority,
    broker_properties,
    broker_tls,
    ca_text,
    client_tls,
    inline_keys,
    inline_trust,
    key_and_chain,
    pkcs12_store,
)


def connect(server: SslConfig, client: SslConfig, host: str = "localhost") -> TlsHandshake:
    handshake = TlsHandshake(ServerTls(server).context, client_context(client), host)
    handshake.run()
    return handshake


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_client_connects_to_a_host_of_the_certificate(host: str) -> None:
    assert connect(broker_tls(), client_tls(), host).client.version() == "TLSv1.3"


def test_client_refuses_another_host() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(broker_tls("other.example"), client_tls())


def test_host_is_not_checked_without_an_algorithm() -> None:
    connect(broker_tls("other.example"), client_tls(endpoint_identification_algorithm=""))


def test_name_of_the_client_is_in_its_certificate() -> None:
    handshake = connect(broker_tls(client_auth="required"), client_tls("alice"))
    der = handshake.server.getpeercert(binary_form=True)
    assert der is not None
    assert peer_name_of(der).startswith("CN=alice,OU=")


def test_client_without_a_certificate_is_refused_where_one_is_required() -> None:
    with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
        connect(broker_tls(client_auth="required"), client_tls())


def pem_file(path: Path, *hosts: str, **validity: datetime) -> SslConfig:
    """Write a key with its certificate, and return the settings of a listener with it."""
    path.write_text(key_and_chain(authority().issue_cert(*hosts, **validity)))
    return SslConfig(keystore_type="PEM", keystore_location=str(path))


def accepts(tls: ServerTls, host: str = "localhost") -> bool:
    """Return True if a new connection finds a certificate for the host."""
    try:
        TlsHandshake(tls.context, client_context(client_tls()), host).run()
    except ssl.SSLError:
        return False
    return True


def test_changed_file_is_used_by_new_connections(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    tls = ServerTls(pem_file(file, "old.example"), "SSL")
    assert not tls.reload()
    assert not accepts(tls)
    pem_file(file, "localhost")
    assert tls.reload()
    assert accepts(tls)


def test_certificate_of_another_host_than_the_advertised_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.pem"
    tls = ServerTls(pem_file(file, "a.example"), "SSL", host="b.example")
    (warning,) = caplog.records
    assert "listener SSL: advertises b.example, but its certificate is of a.example" in warning.getMessage()
    pem_file(file, "b.example")
    assert tls.reload()
    assert len(caplog.records) == 1
    pem_file(file, "c.example")
    assert tls.reload()
    assert "is of c.example" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("change", ["damaged", "gone", "expired"])
def test_unusable_new_file_leaves_the_old_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    file = tmp_path / "keys.pem"
    tls = ServerTls(pem_file(file, "localhost"), "SSL")
    if change == "damaged":
        file.write_text(file.read_text()[:-40])
    elif change == "gone":
        file.unlink()
    else:
        pem_file(file, "localhost", not_after=datetime(2020, 1, 1, tzinfo=timezone.utc))
    assert not tls.reload()
    assert not tls.reload()
    assert accepts(tls)
    (warning,) = caplog.records
    assert "listener SSL keeps its earlier certificates" in warning.getMessage()
    assert change == "expired" or str(file) in warning.getMessage()
    pem_file(file, "localhost")
    assert tls.reload()


def test_changed_trust_store_is_used_by_new_connections(tmp_path: Path) -> None:
    trust = tmp_path / "ca.pem"
    trust.write_text(ca_text(authority("other")))
    properties = broker_properties(client_auth="required") | {"ssl.truststore.location": str(trust)}
    del properties["ssl.truststore.certificates"]
    tls, client = ServerTls(SslConfig.from_properties(properties)), client_context(client_tls("alice"))
    with pytest.raises(ssl.SSLError):
        TlsHandshake(tls.context, client).run()
    trust.write_text(ca_text(authority()))
    assert tls.reload()
    TlsHandshake(tls.context, client).run()


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def expiring(tmp_path: Path, days: float) -> tuple[ServerTls, ManualClock, Path]:
    """Return a listener whose certificate expires in so many days."""
    file, clock = tmp_path / "keys.pem", ManualClock(int(NOW.timestamp() * 1000))
    config = pem_file(file, "localhost", not_after=NOW + timedelta(days=days))
    return ServerTls(config, "SSL", clock=clock), clock, file


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [
        (31, None, ""),
        (29.5, "WARNING", "expires at 2026-01-30 12:00:00 UTC, in 29 days ({}): renew it"),
        (1, "ERROR", "expires at 2026-01-02 00:00:00 UTC, in 1 day ({}): renew it"),
        (0.5, "ERROR", "expires at 2026-01-01 12:00:00 UTC, in less than a day ({}): renew it"),
        (-1, "ERROR", "expired at 2025-12-31 00:00:00 UTC ({}); it is refused: renew it"),
    ],
)
def test_certificate_that_expires_soon_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: float, level: str | None, text: str
) -> None:
    *_, file = expiring(tmp_path, days)
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    if level is None:
        assert found == []
    else:
        ((found_level, line),) = found
        assert found_level == level
        assert line.startswith("listener SSL: the certificate of ")
        assert line.endswith(text.format(f"in ssl.keystore.location={file}"))


def test_certificate_that_expires_is_named_daily_until_it_is_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls, clock, file = expiring(tmp_path, 31.5)
    for day in range(4):
        tls.warn_of_expiry()
        tls.warn_of_expiry()
        assert len(caplog.records) == max(0, day - 1)
        clock.advance(86_400_000)
    pem_file(file, "localhost", not_after=NOW + timedelta(days=20))
    caplog.clear()
    assert tls.reload()
    tls.warn_of_expiry()
    assert "in 16 days" in caplog.text
    pem_file(file, "localhost")
    assert tls.reload()
    caplog.clear()
    tls.warn_of_expiry()
    clock.advance(86_400_000)
    tls.warn_of_expiry()
    assert caplog.records == []


def test_trusted_certificate_that_expires_is_named_with_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    ca = load_pem_x509_certificate(ca_text(authority()).encode())
    end_ms = int(ca.not_valid_after_utc.timestamp() * 1000)
    ServerTls(broker_tls(), "SSL", clock=ManualClock(end_ms - 86_400_000))
    (line,) = [record.getMessage() for record in caplog.records if "truststore" in record.getMessage()]
    assert line.startswith("listener SSL: the certificate of ")
    assert line.endswith("in 1 day (in ssl.truststore.certificates): renew it")


def test_certificate_that_is_not_valid_is_a_warning_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    ServerTls(broker_tls(), "SSL", clock=ManualClock(0))
    (warning,) = caplog.records
    assert "listener SSL: the certificate of CN=broker," in warning.getMessage()
    assert "is not valid before" in warning.getMessage()


def test_listener_without_keys_is_refused() -> None:
    with pytest.raises(ConfigErrors, match=r"ssl\.keystore\.location: must be given"):
        ServerTls(SslConfig())


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_listener_that_asks_for_certificates_needs_their_cas(auth: str) -> None:
    properties = broker_properties(client_auth=auth)
    del properties["ssl.truststore.certificates"]
    with pytest.raises(
        ConfigErrors, match=rf"ssl\.truststore\.location: must be given with ssl\.client\.auth={auth}"
    ):
        ServerTls(SslConfig.from_properties(properties))


def test_faults_of_both_stores_are_in_one_error() -> None:
    config = SslConfig(
        keystore_type="PEM",
        keystore_location="/none/keys.pem",
        truststore_type="PEM",
        truststore_location="/none/ca.pem",
    )
    for make in (client_context, ServerTls):
        with pytest.raises(ConfigErrors) as refused:
            make(config)
        assert [fault.name for fault in refused.value.faults] == [
            "ssl.keystore.location",
            "ssl.truststore.location",
        ]


@pytest.mark.parametrize("auth", ["none", "requested"])
def test_client_needs_no_certificate_unless_it_is_required(auth: str) -> None:
    handshake = connect(broker_tls(client_auth=auth), client_tls())
    assert handshake.server.getpeercert(binary_form=True) is None


def test_certificate_that_is_not_asked_for_is_not_sent() -> None:
    handshake = connect(broker_tls(client_auth="none"), client_tls("alice"))
    assert handshake.server.getpeercert(binary_form=True) is None


def test_untrusted_certificate_is_refused_even_if_none_is_required() -> None:
    other = authority("other")
    keys = inline_keys(other.issue_cert(*HOSTS)) | inline_trust(authority())
    with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_VERIFY_FAILED|UNKNOWN_CA"):
        connect(broker_tls(client_auth="requested"), SslConfig.from_properties(keys))


def test_certificate_in_the_trust_store_is_trusted_itself() -> None:
    leaf = authority("other").issue_cert("localhost")
    chain = leaf.cert_chain_pems[0].bytes().decode()
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": chain}
    connect(SslConfig.from_properties(inline_keys(leaf)), SslConfig.from_properties(trust))


def test_key_of_a_pkcs12_store_makes_a_connection(tmp_path: Path) -> None:
    store = tmp_path / "keys.jks"  # a name says nothing
    store.write_bytes(pkcs12_store(authority().issue_cert("localhost"), b"changeit"))
    keys = {"ssl.keystore.location": str(store), "ssl.keystore.password": "changeit"}
    connect(SslConfig.from_properties(keys), client_tls())


def test_cas_of_the_system_are_trusted_without_a_trust_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(ca_text(authority()))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    connect(broker_tls(), SslConfig())


def test_suite_that_is_chosen_is_used() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    handshake = connect(broker_tls(), client_tls(cipher_suites=suite))
    cipher = handshake.client.cipher()
    assert cipher is not None
    assert cipher[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")


ALL_OF_TLS_1_3 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"


def test_suites_of_one_version_exclude_the_other() -> None:
    assert connect(broker_tls(), client_tls(cipher_suites=ALL_OF_TLS_1_3)).client.version() == "TLSv1.3"
    only_new = broker_tls(cipher_suites=ALL_OF_TLS_1_3)
    with pytest.raises(ssl.SSLError, match="PROTOCOL"):
        connect(only_new, client_tls(enabled_protocols="TLSv1.2"))


@pytest.mark.parametrize(
    ("suites", "protocols", "says"),
    [
        (ALL_OF_TLS_1_3, "TLSv1.2", "has no suite of TLSv1.2"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "TLSv1.3", "has no suite of TLSv1.3"),
    ],
)
def test_suites_without_an_enabled_version_are_refused(suites: str, protocols: str, says: str) -> None:
    with pytest.raises(ConfigErrors, match=rf"ssl\.cipher\.suites.*{says}"):
        client_context(client_tls(cipher_suites=suites, enabled_protocols=protocols))


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can choose among them")
def test_choice_among_the_suites_of_tls_1_3_is_refused() -> None:
    with pytest.raises(ConfigErrors, match=r"cannot choose among the suites of TLSv1\.3: give all of"):
        client_context(client_tls(cipher_suites="TLS_AES_128_GCM_SHA256"))


def test_every_suite_that_is_known_is_in_openssl() -> None:
    names = [name for name in OPENSSL_NAMES if not is_tls_1_3(name)]
    client_context(client_tls(cipher_suites=",".join(names)))


def test_key_that_openssl_refuses_names_the_setting() -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ssl.keystore.certificate.chain": builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode(),
    }
    with pytest.raises(ConfigErrors, match=r"ssl\.keystore\.key: OpenSSL refuses it: ee key too small"):
        ServerTls(SslConfig.from_properties(keys))


def test_session_is_resumed_and_its_client_still_known() -> None:
    server = ServerTls(broker_tls(client_auth="required", enabled_protocols="TLSv1.2")).context
    client = client_context(client_tls("alice"))
    first = TlsHandshake(server, client)
    first.run()
    second = TlsHandshake(server, client, session=first.client.session)
    second.run()
    assert second.client.session_reused
    der = second.server.getpeercert(binary_form=True)
    assert der is not None
    assert peer_name_of(der).startswith("CN=alice")


@pytest.mark.parametrize("missing", ["nothing", "memfd", "proc"])
def test_key_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str) -> None:
    if missing == "memfd":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif missing == "proc":
        monkeypatch.setattr(os.path, "exists", lambda path: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert accepts(ServerTls(broker_tls()))
    assert list(tmp_path.iterdir()) == []


def test_key_without_a_place_for_a_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigErrors, match=r"ssl\.keystore\.key: cannot be passed to OpenSSL.*No such file"):
        ServerTls(broker_tls())


def test_store_that_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    config = SslConfig(truststore_type="PEM", truststore_location=str(tmp_path / "pipe"))
    with pytest.raises(ConfigErrors, match=r"ssl\.truststore\.location.*cannot be read: not a regular file"):
        client_context(config)
