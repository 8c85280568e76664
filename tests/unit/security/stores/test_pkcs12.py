"""PKCS12 stores of keytool (tests/data/key_stores/README.md), and of OpenSSL by ``cryptography``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.certificates import peer_name_of
from minikafka.security.stores.pkcs12 import key_aliases, read_pkcs12_certificates, read_pkcs12_key
from tests.support.tls import authority, pkcs12_store

STORES = Path(__file__).parents[3] / "data" / "key_stores"
CHAIN = (STORES / "chain.p12").read_bytes()
TWO_KEYS = (STORES / "two-keys.p12").read_bytes()
TRUST = (STORES / "named.jks").read_bytes()
PASSWORD = Password("changeit")


def names(certificates: tuple[bytes, ...]) -> list[str]:
    return [peer_name_of(der).partition(",")[0] for der in certificates]


LEAF = authority().issue_cert(common_name="a")
OPENSSL = pkcs12_store(LEAF, b"x")
"""With the certificate of the CA, which has no name there."""


def test_chain_begins_with_the_certificate_of_the_key() -> None:
    _, chain = read_pkcs12_key(CHAIN, PASSWORD)
    assert names(chain) == ["CN=client", "CN=broker"]


def test_chain_of_an_openssl_store_has_its_ca() -> None:
    _, chain = read_pkcs12_key(OPENSSL, Password("x"))
    assert names(chain)[0] == "CN=a"
    assert len(chain) == 2


def test_certificates_of_a_trust_store_are_all_trusted() -> None:
    assert names(read_pkcs12_certificates(TRUST, PASSWORD)) == ["CN=broker"]


def test_rest_of_a_chain_is_not_trusted() -> None:
    assert names(read_pkcs12_certificates(CHAIN, PASSWORD)) == ["CN=client", "CN=a"]
    assert names(read_pkcs12_certificates(OPENSSL, Password("x"))) == ["CN=a"]


def test_certificates_without_a_key_are_trusted_without_a_name() -> None:
    store = pkcs12_store(LEAF, None, with_key=False, with_certificate=False)
    assert len(read_pkcs12_certificates(store, None)) == 1


def test_several_keys_are_named() -> None:
    assert key_aliases(TWO_KEYS) == ["a", "b"]
    with pytest.raises(StoreError, match=r"2 private keys \('a', 'b'\)"):
        read_pkcs12_key(TWO_KEYS, PASSWORD)


def test_store_without_a_key_is_refused() -> None:
    with pytest.raises(StoreError, match="no private key"):
        read_pkcs12_key(TRUST, PASSWORD)


def test_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(StoreError, match="no certificate"):
        read_pkcs12_key(pkcs12_store(LEAF, b"x", with_certificate=False), Password("x"))


@pytest.mark.parametrize("store", [CHAIN, TRUST], ids=["keytool", "trust"])
def test_wrong_password_is_refused(store: bytes) -> None:
    with pytest.raises(
        WrongStorePassword, match="wrong password of the PKCS12 store, or the store is damaged"
    ):
        read_pkcs12_certificates(store, Password("wrong"))
    with pytest.raises(WrongStorePassword, match="needs a password"):
        read_pkcs12_certificates(store, None)


@given(st.integers(0, len(CHAIN) - 1), st.integers(1, 255))
def test_damaged_store_is_refused_or_read(position: int, change: int) -> None:
    damaged = bytearray(CHAIN)
    damaged[position] ^= change
    with contextlib.suppress(StoreError):
        read_pkcs12_key(bytes(damaged), PASSWORD)
