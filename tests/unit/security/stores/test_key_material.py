"""Keys with their certificates, and trusted certificates, from stores of every format."""

from __future__ import annotations

import hashlib
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from minikafka.base.errors import StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.certificates import Certificate
from minikafka.security.stores.key_material import KeyMaterial, trusted_certificates
from tests.support.tls import authority, ca_text, der_of, key_and_chain

STORES = Path(__file__).parents[3] / "data" / "key_stores"
PASSWORD = Password("changeit")
LEAF = authority().issue_cert(common_name="a")
OTHER = authority().issue_cert(common_name="b")
KEY = load_pem_private_key(LEAF.private_key_pem.bytes(), None)
CHAIN = LEAF.cert_chain_pems[0].bytes().decode()


def stored(name: str) -> bytes:
    return (STORES / name).read_bytes()


def key_text(form: PrivateFormat, password: str | None = None) -> str:
    protection = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return KEY.private_bytes(Encoding.PEM, form, protection).decode()


def from_pem(key: str, chain: str = CHAIN, password: str | None = None) -> KeyMaterial:
    return KeyMaterial.from_pem(key, chain, None if password is None else Password(password))


@pytest.mark.parametrize(
    ("form", "password"),
    [
        (PrivateFormat.PKCS8, None),
        (PrivateFormat.PKCS8, "secret"),
        (PrivateFormat.TraditionalOpenSSL, None),
        (PrivateFormat.TraditionalOpenSSL, "secret"),
    ],
)
def test_key_is_read_in_every_form(form: PrivateFormat, password: str | None) -> None:
    material = from_pem(key_text(form, password), password=password)
    assert material.private_key.value == key_text(PrivateFormat.PKCS8)
    assert material.chain == (der_of(LEAF),)


def test_key_and_chain_in_one_file_are_read() -> None:
    material = KeyMaterial.from_store(key_and_chain(LEAF).encode(), None, None)
    assert material.chain == (der_of(LEAF),)


def test_parameters_before_a_key_are_passed_over() -> None:
    parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    assert from_pem(parameters + key_text(PrivateFormat.TraditionalOpenSSL)).chain == (der_of(LEAF),)


def test_password_of_a_key_that_has_none_does_no_harm() -> None:
    assert from_pem(key_text(PrivateFormat.PKCS8), password="any").chain == (der_of(LEAF),)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_wrong_password_of_a_key_is_refused(form: PrivateFormat) -> None:
    key = key_text(form, "secret")
    with pytest.raises(WrongStorePassword, match="wrong password of the private key"):
        from_pem(key, password="wrong")
    with pytest.raises(WrongStorePassword, match="its password is not given"):
        from_pem(key)


@pytest.mark.parametrize(
    ("key", "chain", "says"),
    [
        ("", CHAIN, "no private key"),
        (CHAIN, CHAIN, "no private key"),
        (key_text(PrivateFormat.PKCS8) * 2, CHAIN, "2 private keys"),
        (key_text(PrivateFormat.PKCS8), "", "no certificate"),
        (key_text(PrivateFormat.PKCS8).replace("MIGH", "AAAA"), CHAIN, "the private key is damaged"),
        (key_text(PrivateFormat.PKCS8), key_and_chain(OTHER), "does not fit the certificate of CN=b"),
        (key_text(PrivateFormat.PKCS8), ca_text(authority()) + CHAIN, "put its own certificate first"),
    ],
)
def test_unusable_key_is_refused_with_the_reason(key: str, chain: str, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        from_pem(key, chain)


@pytest.mark.parametrize(
    ("name", "store_password", "key_password", "says"),
    [
        ("keys.jks", "changeit", None, "2 private keys"),
        ("two-keys.p12", "changeit", None, "2 private keys"),
        ("trust.jks", "changeit", None, "no private key"),
        ("named.jks", "changeit", None, "no private key"),
        ("chain.p12", "wrong", None, "wrong password of the PKCS12 store"),
        ("chain.p12", "changeit", "other", "has the password of the store"),
        ("chain.p12", None, None, "password must be given"),
        ("trust.jks", None, None, "password must be given"),
        ("broker.pem", "changeit", None, "has no password"),
        ("trust.jceks", "changeit", None, "it is JCEKS"),
    ],
)
def test_unusable_store_is_refused_with_the_reason(
    name: str, store_password: str | None, key_password: str | None, says: str
) -> None:
    passwords = [None if text is None else Password(text) for text in (store_password, key_password)]
    with pytest.raises(StoreError, match=says):
        KeyMaterial.from_store(stored(name), *passwords)


def test_material_of_a_store_is_what_openssl_takes(tmp_path: Path) -> None:
    material = KeyMaterial.from_store(stored("chain.p12"), PASSWORD, PASSWORD)
    assert len(material.chain) == 2
    file = tmp_path / "key.pem"
    file.write_text(material.to_pem().value)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)


def test_key_is_not_shown() -> None:
    assert "PRIVATE KEY" not in repr(from_pem(key_text(PrivateFormat.PKCS8)))


@pytest.mark.parametrize(
    ("name", "password"),
    [("trust.jks", "changeit"), ("trust.jks", None), ("named.jks", "changeit"), ("broker.pem", None)],
)
def test_trusted_certificates_of_every_format_are_the_same(name: str, password: str | None) -> None:
    found = trusted_certificates(stored(name), None if password is None else Password(password))
    assert found == (stored("broker.der"),)


def test_certificates_of_keys_are_trusted_but_not_their_cas() -> None:
    found = trusted_certificates(stored("keys.jks"), PASSWORD)
    assert [Certificate.parse(der).name for der in found] == [
        "CN=broker,O=minikafka tests",
        "CN=client,O=minikafka tests",
    ]


@pytest.mark.parametrize(
    ("data", "password", "says"),
    [
        (stored("trust.jks"), "wrong", "wrong password of the JKS store"),
        (stored("broker.pem"), "changeit", "has no password"),
        (key_text(PrivateFormat.PKCS8).encode(), None, "no certificate"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            None,
            "the certificate is damaged",
        ),
        (bytes.fromhex("feedfeed 00000002 00000000") + hashlib.sha1(b"").digest(), None, "no certificate"),
    ],
)
def test_unusable_trust_store_is_refused_with_the_reason(
    data: bytes, password: str | None, says: str
) -> None:
    with pytest.raises(StoreError, match=says):
        trusted_certificates(data, None if password is None else Password(password))


def test_certificate_of_the_chain_that_is_not_valid_is_named() -> None:
    material = from_pem(key_text(PrivateFormat.PKCS8), CHAIN + ca_text(authority()))
    own = Certificate.parse(der_of(LEAF))
    assert material.validity_fault(datetime.now(timezone.utc)) is None
    late = material.validity_fault(own.not_after + timedelta(seconds=1))
    assert late is not None
    assert "CN=a" in late
    assert "expired at" in late
    early = material.validity_fault(own.not_before - timedelta(days=400_000))
    assert early is not None
    assert "not valid before" in early
