"""``base/config/numbers``: whole numbers as Kafka reads them."""

from __future__ import annotations

import pytest

from minikafka.base.config.numbers import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        (" -5 ", -5),
        ("+5", 5),
        ("1_000", None),
        ("\u0665", None),
        ("1e3", None),
        ("", None),
        ("9" * 20, None),
    ],
)
def test_a_whole_number_is_read_as_java_reads_it(text: str, number: int | None) -> None:
    assert whole_number(text) == number
