"""Headers of one record, as Python objects."""

from __future__ import annotations

import pytest

from minikafka.records.columns import decode
from minikafka.records.format.batch import build_batch
from minikafka.records.format.headers import read_headers
from minikafka.records.format.record import Headers, Record


def raw(headers: Headers) -> bytes:
    found = decode(build_batch([Record(None, None, 0, headers)]), 0, 1, headers=True).headers
    assert found is not None
    return found.data.tobytes()


@pytest.mark.parametrize(
    "headers",
    [(), (("a", b"1"),), (("a", b"x" * 100_000), ("", b""), ("ä" * 70, None), ("a", b"2"))],
    ids=["none", "one", "many"],
)
def test_the_headers_of_a_record_come_back(headers: Headers) -> None:
    assert read_headers(raw(headers)) == headers


def test_a_name_that_is_no_text_is_shown_with_replacements() -> None:
    assert read_headers(raw((("ab", b"1"),)).replace(b"ab", b"a\xff")) == (("a�", b"1"),)


def test_bytes_that_are_no_headers_are_refused() -> None:
    whole = raw((("name", b"content"),))
    for cut in range(1, len(whole)):
        with pytest.raises(ValueError, match="invalid record headers"):
            read_headers(whole[:cut])
    with pytest.raises(ValueError, match="invalid record headers"):
        read_headers(b"\xff" * 10)
