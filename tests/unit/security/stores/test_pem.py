"""Blocks of PEM, in files and in properties."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import StoreError
from minikafka.security.stores.pem import PemBlock, pem_blocks, pem_text

STORES = Path(__file__).parents[3] / "data" / "key_stores"
CERTIFICATE = (STORES / "broker.pem").read_text()
DER = (STORES / "broker.der").read_bytes()


def only(text: str) -> PemBlock:
    (block,) = pem_blocks(text)
    return block


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE,
        CERTIFICATE.replace("\n", "\r\n"),
        " ".join(CERTIFICATE.split("\n")),  # as one line of a property file
        CERTIFICATE.replace("\n", ""),
        f"subject=/CN=é\n{CERTIFICATE}\nand more",
        CERTIFICATE.replace("CERTIFICATE", "TRUSTED  CERTIFICATE"),
    ],
)
def test_certificate_is_read_in_every_form(text: str) -> None:
    block = only(text)
    assert (block.is_certificate, block.der) == (True, DER)


def test_blocks_are_in_their_order() -> None:
    text = pem_text("PRIVATE KEY", b"1") + pem_text("CERTIFICATE", b"2") + pem_text("CERTIFICATE", b"3")
    assert [block.der for block in pem_blocks(text)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("label", "is_key", "is_encrypted"),
    [
        ("PRIVATE KEY", True, False),
        ("EC PRIVATE KEY", True, False),
        ("ENCRYPTED PRIVATE KEY", True, True),
        ("EC PARAMETERS", False, False),
        ("PUBLIC KEY", False, False),
    ],
)
def test_label_says_what_a_block_is(label: str, is_key: bool, is_encrypted: bool) -> None:
    block = only(pem_text(label, b"x"))
    assert (block.is_private_key, block.is_encrypted) == (is_key, is_encrypted)


def test_headers_of_an_old_encrypted_key_are_kept() -> None:
    lines = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00FF", "", base64.b64encode(b"x").decode()]
    text = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----", ""])
    block = only(text)
    assert block.is_encrypted
    assert block.to_text() == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CERTIFICATE[:200], "no END line"),
        (CERTIFICATE.replace("M", "!"), "not base64"),
        (CERTIFICATE.replace("\n", "\\n"), "not base64"),
    ],
)
def test_damaged_block_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(StoreError, match=f"the CERTIFICATE is .*{says}"):
        only(text)


def test_content_of_a_key_is_not_shown() -> None:
    assert "secret" not in repr(only(pem_text("PRIVATE KEY", b"secret")))


@given(st.binary(min_size=1, max_size=300))
def test_what_is_written_is_read_again(der: bytes) -> None:
    assert only(pem_text("CERTIFICATE", der)).der == der
