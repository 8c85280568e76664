"""Stores in Java's own format, made by keytool (tests/data/key_stores/README.md)."""

from __future__ import annotations

import hashlib
import ssl
import struct
from base64 import encodebytes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.stores.jks import JavaKeyStore, PrivateKeyEntry

STORES = Path(__file__).parents[3] / "data" / "key_stores"
KEYS = (STORES / "keys.jks").read_bytes()
TRUST = (STORES / "trust.jks").read_bytes()
CERTIFICATE = (STORES / "broker.der").read_bytes()
PASSWORD = Password("changeit")
KEY_PASSWORDS = {"broker": Password("keypass1"), "kästchen": PASSWORD}
BROKER_DIGEST = "26b2300ef3630f2a302d94a7afcea985fd24cd0a08740161f6d9b03f18013e86"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key(alias: str) -> PrivateKeyEntry:
    entries = JavaKeyStore.parse(KEYS, PASSWORD).private_keys
    return next(entry for entry in entries if entry.alias == alias)


def pem(kind: str, der: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{encodebytes(der).decode()}-----END {kind}-----\n"


def signed(body: bytes, password: Password = PASSWORD) -> bytes:
    """Return a store of these bytes with its digest."""
    return body + hashlib.sha1(password.value.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


@pytest.mark.parametrize(
    ("alias", "created_ms", "key_digest", "chain"),
    [
        (
            "broker",
            1795669532980,
            "dbe5911a2da5e4189158a079c993255e1f147ac820a28705be3339cd836204a6",
            [BROKER_DIGEST],
        ),
        (
            "kästchen",
            1795669543654,
            "d9729f85baec4693aad03aa98592fd460af450b4507551f4ef9450968c775e04",
            ["800a400d75fe4dd0fdd1318eb028f078751fdff6ccf27f8531839bd70533ed62", BROKER_DIGEST],
        ),
    ],
)
def test_keys_and_chains_are_those_that_java_reads(
    alias: str, created_ms: int, key_digest: str, chain: list[str]
) -> None:
    entry = key(alias)
    assert entry.created_ms == created_ms
    assert digest(entry.private_key(KEY_PASSWORDS[alias])) == key_digest
    assert [digest(certificate) for certificate in entry.chain] == chain


@pytest.mark.parametrize("alias", KEY_PASSWORDS)
def test_key_fits_its_certificate(alias: str, tmp_path: Path) -> None:
    entry = key(alias)
    file = tmp_path / "key.pem"
    certificates = "".join(pem("CERTIFICATE", certificate) for certificate in entry.chain)
    file.write_text(pem("PRIVATE KEY", entry.private_key(KEY_PASSWORDS[alias])) + certificates)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)


def test_trusted_certificate_is_read() -> None:
    store = JavaKeyStore.parse(TRUST, PASSWORD)
    (entry,) = store.trusted_certificates
    assert (entry.alias, entry.created_ms, entry.certificate) == ("ca", 1795669536537, CERTIFICATE)
    assert store.private_keys == ()


def test_wrong_password_of_a_store_is_reported_as_such() -> None:
    with pytest.raises(WrongStorePassword, match="wrong password of the JKS store"):
        JavaKeyStore.parse(KEYS, Password("changeme"))


def test_wrong_password_of_a_key_names_the_key() -> None:
    with pytest.raises(WrongStorePassword, match="wrong password of the key 'broker'"):
        key("broker").private_key(PASSWORD)


def test_store_without_a_password_is_read_unchecked() -> None:
    assert len(JavaKeyStore.parse(KEYS, None).private_keys) == 2


def test_changed_byte_is_found_by_the_password() -> None:
    changed = TRUST[:-30] + bytes([TRUST[-30] ^ 1]) + TRUST[-29:]
    with pytest.raises(WrongStorePassword, match="or the store is damaged"):
        JavaKeyStore.parse(changed, PASSWORD)


def test_no_key_is_in_a_representation() -> None:
    assert "protected_key" not in repr(key("broker"))


def test_certificates_of_version_1_have_no_type() -> None:
    body = struct.pack(">4siiiH2sqi3s", b"\xfe\xed\xfe\xed", 1, 1, 2, 2, b"ca", 7, 3, b"DER")
    (entry,) = JavaKeyStore.parse(signed(body), PASSWORD).trusted_certificates
    assert (entry.alias, entry.created_ms, entry.certificate) == ("ca", 7, b"DER")


@pytest.mark.parametrize(
    ("raw", "alias"), [(b"\xc0\x80", "\0"), (b"\xed\xa0\xbd\xed\xb8\x80", "😀"), ("ä".encode(), "ä")]
)
def test_names_are_in_the_utf_8_of_java(raw: bytes, alias: str) -> None:
    name = struct.pack(">H", len(raw)) + raw
    body = struct.pack(">4siii", b"\xfe\xed\xfe\xed", 1, 1, 2) + name + struct.pack(">qi", 0, 0)
    assert JavaKeyStore.parse(signed(body), PASSWORD).trusted_certificates[0].alias == alias


def test_password_is_utf_16() -> None:
    body = struct.pack(">4sii", b"\xfe\xed\xfe\xed", 2, 0)
    password = Password("pässword😀")
    assert JavaKeyStore.parse(signed(body, password), password) == JavaKeyStore((), ())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "damaged"),
        (b"-----BEGIN CERTIFICATE-----", "not a JKS store"),
        (TRUST[:4] + b"\0\0\0\3" + TRUST[8:], "version 3: expected 1 or 2"),
        (TRUST[:8] + b"\xff\xff\xff\xff" + TRUST[12:], "bytes, not 32"),
        (TRUST[:8] + b"\0\0\0\2" + TRUST[12:], "damaged"),
        (TRUST[:12] + b"\0\0\0\3" + TRUST[16:], "entry 'ca' has the unknown kind 3"),
        (TRUST.replace(b"X.509", b"X.510"), "type 'X.510'"),
        (TRUST[:-1], "has 459 bytes, not 460"),
        (TRUST + b"\0", "has 461 bytes, not 460"),
        (TRUST.replace(b"ca", b"c\xff", 1), "not UTF-8"),
    ],
)
def test_damaged_store_is_refused_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(StoreError, match=says) as refused:
        JavaKeyStore.parse(data, PASSWORD)
    assert not isinstance(refused.value, WrongStorePassword)


@pytest.mark.parametrize(
    ("protected_key", "says"),
    [
        (b"", "truncated"),
        (b"\x31\x00", "damaged"),
        (b"\x30\x05\x30\x00", "damaged"),
        (b"\x30\x04\x30\x00\x04\x00", "an algorithm that JKS does not have"),
        (b"\x30\x84\xff\xff\xff\xff", "damaged"),
    ],
)
def test_damaged_key_is_refused_with_the_reason(protected_key: bytes, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        PrivateKeyEntry("a", 0, protected_key, ()).private_key(PASSWORD)


def test_truncated_key_is_refused() -> None:
    whole = key("broker").protected_key
    algorithm = whole[whole.index(b"\x30", 1) :][:16]
    with pytest.raises(StoreError, match="truncated"):
        PrivateKeyEntry("a", 0, b"\x30\x12" + algorithm + b"\x04\x00", ()).private_key(PASSWORD)


@given(st.integers(0, len(KEYS) - 1), st.binary(min_size=1, max_size=4), st.booleans())
def test_any_damage_raises_only_own_errors(position: int, change: bytes, cut: bool) -> None:
    data = KEYS[:position] + change + (b"" if cut else KEYS[position + len(change) :])
    try:
        for entry in JavaKeyStore.parse(data, None).private_keys:
            entry.private_key(PASSWORD)
    except StoreError:
        return


@given(st.binary(max_size=60))
def test_any_protected_key_raises_only_own_errors(protected_key: bytes) -> None:
    with pytest.raises(StoreError):
        PrivateKeyEntry("a", 0, protected_key, ()).private_key(PASSWORD)
