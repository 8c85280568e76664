"""Names in certificates and their validity. Java's side is in tests/interop/test_tls_stores.py."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StoreError
from minikafka.security.certificates import Certificate, distinguished_name, peer_name_of
from minikafka.security.der import DerValue, object_identifier
from tests.support.der import UTF8, attribute, der, identifier, name
from tests.support.tls import authority, der_of

CERTIFICATE = (Path(__file__).parents[2] / "data" / "key_stores" / "broker.der").read_bytes()
CN, OU, EMAIL, SERIAL = "2.5.4.3", "2.5.4.11", "1.2.840.113549.1.9.1", "2.5.4.5"
PRINTABLE, IA5 = 0x13, 0x16


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], ""),
        ([[attribute(OU, "sales")], [attribute(CN, "alice")]], "CN=alice,OU=sales"),
        ([[attribute(CN, "a"), attribute(OU, "b")]], "CN=a+OU=b"),
        ([[attribute(CN, 'a,b=c+d<e>f#g;h"i\\j')]], 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
        ([[attribute(CN, "  a b ")]], "CN=\\ \\ a b\\ "),
        ([[attribute(CN, " ")]], "CN=\\ "),
        ([[attribute(CN, "é漢\n\0")]], "CN=é漢\n\\00"),
        ([[attribute(EMAIL, "a@b", IA5)]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[attribute(SERIAL, "12", PRINTABLE)]], "2.5.4.5=#13023132"),
        ([[attribute(CN, "1", 0x02)]], "CN=#020131"),
        ([[attribute(CN, "")]], "CN="),
    ],
)
def test_name_is_written_as_java_writes_it(parts: list[list[bytes]], expected: str) -> None:
    assert distinguished_name(DerValue.parse(name(*parts))) == expected


def test_name_of_a_peer_is_the_subject_of_its_certificate() -> None:
    assert peer_name_of(CERTIFICATE) == "CN=broker,O=minikafka tests"


@pytest.mark.parametrize("attribute_parts", [b"", identifier(CN), identifier(CN) * 3])
def test_subject_that_is_damaged_is_refused(attribute_parts: bytes) -> None:
    time = der(0x17, b"260101000000Z")
    subject = name([der(0x30, attribute_parts)])
    body = der(0x02, b"1") + der(0x30, b"") + name() + der(0x30, time * 2) + subject + der(0x30, b"")
    with pytest.raises(StoreError, match="damaged"):
        peer_name_of(der(0x30, der(0x30, body)))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("A.example.com", True),
        ("a.b.example.com", False),
        ("example.com", False),
        ("köln.example", True),
        ("0:0::1", True),
        ("::2", False),
    ],
)
def test_certificate_is_of_its_hosts(host: str, expected: bool) -> None:
    leaf = authority().issue_cert("*.example.com", "::1", "xn--kln-sna.example")
    assert Certificate.parse(der_of(leaf)).is_of(host) is expected


def test_hosts_of_a_certificate_are_its_alternative_names() -> None:
    certificate = Certificate.parse(CERTIFICATE)
    assert certificate.hosts == ("localhost", "127.0.0.1")
    leaf = authority().issue_cert("*.example.com", "::1", common_name="other")
    assert Certificate.parse(der_of(leaf)).hosts == ("*.example.com", "::1")


def test_host_without_alternative_names_is_the_common_name() -> None:
    certificate = Certificate(
        DerValue.parse(name([attribute(OU, "x")], [attribute(CN, "host")])),
        DerValue.parse(name()),
        datetime.now(timezone.utc),
        datetime.now(timezone.utc),
        (),
        (),
    )
    assert certificate.hosts == ("host",)


def test_issuer_is_named() -> None:
    certificate = Certificate.parse(der_of(authority().issue_cert("a")))
    assert certificate.issuer_name.endswith("O=tests")
    assert not certificate.is_self_issued
    assert Certificate.parse(CERTIFICATE).is_self_issued


def test_validity_has_both_ends() -> None:
    certificate, second = Certificate.parse(CERTIFICATE), timedelta(seconds=1)
    begin, end = certificate.not_before, certificate.not_after
    assert certificate.validity_fault(begin) is None
    assert certificate.validity_fault(end) is None
    early, late = certificate.validity_fault(begin - second), certificate.validity_fault(end + second)
    about = "the certificate of CN=broker,O=minikafka tests"
    assert early == f"{about} is not valid before {begin:%Y-%m-%d %H:%M:%S} UTC"
    assert late == f"{about} expired at {end:%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x00", b"\x30\x02\x30\x00", b"\x02\x01\x00", CERTIFICATE[:-1]]
)
def test_damaged_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="the certificate is damaged"):
        Certificate.parse(data)


@given(st.integers(0, len(CERTIFICATE) - 1), st.integers(1, 255))
def test_changed_certificate_is_refused_or_read(position: int, change: int) -> None:
    changed = bytearray(CERTIFICATE)
    changed[position] ^= change
    with contextlib.suppress(StoreError):
        assert isinstance(Certificate.parse(bytes(changed)).name, str)


@given(st.binary(max_size=64))
def test_any_bytes_are_der_or_refused(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        value = DerValue.parse(data)
        assert data.startswith(value.encoded)
        list(value.values())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x55\x04\x03", "2.5.4.3"),
        (b"\x2a\x86\x48", "1.2.840"),
        (b"\x88\x37\x03", "2.999.3"),
        (b"\x00", "0.0"),
    ],
)
def test_object_identifier_is_numbers(content: bytes, expected: str) -> None:
    assert object_identifier(content) == expected


@pytest.mark.parametrize("content", [b"", b"\x86"])
def test_truncated_object_identifier_is_refused(content: bytes) -> None:
    with pytest.raises(StoreError, match="truncated"):
        object_identifier(content)


def test_indefinite_length_is_refused() -> None:
    with pytest.raises(StoreError, match="length"):
        DerValue.parse(b"\x30\x80\x00\x00")


def test_long_value_is_read() -> None:
    assert DerValue.parse(der(UTF8, b"x" * 300) + b"more").content == b"x" * 300
