"""Formats of stores by their first bytes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StoreError
from minikafka.security.stores.formats import StoreFormat, format_of

STORES = Path(__file__).parents[3] / "data" / "key_stores"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("keys.jks", StoreFormat.JKS),
        ("named.jks", StoreFormat.PKCS12),  # what keytool writes into this name
        ("broker.pem", StoreFormat.PEM),
    ],
)
def test_format_is_that_of_the_content(name: str, expected: StoreFormat) -> None:
    assert format_of((STORES / name).read_bytes()) is expected


def test_text_may_stand_before_a_certificate() -> None:
    assert format_of(b"subject=CN=a\n-----BEGIN CERTIFICATE-----\n") is StoreFormat.PEM


@pytest.mark.parametrize(
    "data", [b"\x30\x80\x02\x01\x03", b"\x30\x03\x02\x01\x03", b"\x30\x82\x02\xfe\x02\x01\x03"]
)
def test_pkcs12_has_a_length_of_any_form(data: bytes) -> None:
    assert format_of(data) is StoreFormat.PKCS12


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        ((STORES / "trust.jceks").read_bytes(), "it is JCEKS"),
        ((STORES / "broker.der").read_bytes(), "a certificate or a key in DER"),
        (b"\x30", "in DER"),
        (b"PK\3\4 zip", "it is none of them"),
    ],
)
def test_other_content_is_refused_with_what_it_is(data: bytes, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        format_of(data)


@given(st.binary(max_size=12), st.sampled_from([b"", b"\x30", b"\xfe\xed\xfe\xed", b"-----BEGIN "]))
def test_any_bytes_have_a_format_or_are_refused(data: bytes, begin: bytes) -> None:
    with contextlib.suppress(StoreError):
        assert format_of(begin + data) in StoreFormat
