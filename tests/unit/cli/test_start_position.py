from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.start_position import OFFSET_MAX, Start, parse_duration, parse_start


@pytest.mark.parametrize("text", ["beginning", "earliest", " beginning "])
def test_the_beginning_is_no_particular_place(text: str) -> None:
    assert parse_start(text) == Start()


@pytest.mark.parametrize("text", ["end", "latest"])
def test_the_end_is_the_end_when_reading_starts(text: str) -> None:
    assert parse_start(text) == Start(at_end=True)


@pytest.mark.parametrize(("text", "offset"), [("0", 0), ("0012", 12), (str(OFFSET_MAX), OFFSET_MAX)])
def test_digits_are_an_offset(text: str, offset: int) -> None:
    assert parse_start(text) == Start(offset=offset)


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1970-01-01", 0),
        ("2013-01-01", 1_356_998_400_000),
        ("2013-01-01T05:15", 1_357_017_300_000),
        ("2013-01-01T05:15:00Z", 1_357_017_300_000),
        ("2013-01-01 05:15:00.250", 1_357_017_300_250),
        ("2013-01-01T05:15:00-05:00", 1_357_035_300_000),
    ],
)
def test_a_date_is_a_time_in_utc_unless_it_names_a_zone(text: str, timestamp_ms: int) -> None:
    assert parse_start(text) == Start(timestamp_ms=timestamp_ms)


@pytest.mark.parametrize(
    "text", ["", "-1", "yesterday", "12.5", "2013-13-01", "1969-12-31", str(OFFSET_MAX + 1), "٣"]
)
def test_anything_else_is_refused_with_the_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_start(text)
    assert str(caught.value).startswith(f"--from={text!r}: ")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt30m", 1_800_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
    ],
)
def test_a_duration_is_one_of_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration("--by-duration", text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1H", "PT1D", "PT-1H", "P1DT", "PT1.5H"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--by-duration"):
        parse_duration("--by-duration", text)
