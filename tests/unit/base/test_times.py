from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.times import parse_duration, parse_moment, short_duration_ms, utc_text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_357_017_300_250, "2013-01-01T05:15:00.250Z"),
        (-1, None),
        (None, None),
        (2**62, str(2**62)),
    ],
)
def test_times_are_printed_in_utc_and_impossible_ones_as_numbers(
    timestamp_ms: int | None, text: str | None
) -> None:
    assert utc_text(timestamp_ms) == text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt30m", 1_800_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("1h30m", 5_400_000),
    ],
)
def test_a_duration_is_short_or_of_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration("--by-duration", text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1", "-1h", "P1H", "PT1D", "PT-1H", "P1DT", "PT1.5H", f"P{10**400}D"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--by-duration"):
        parse_duration("--by-duration", text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("90m", 5_400_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)],
)
def test_a_short_duration_adds_up_its_units(text: str, milliseconds: int) -> None:
    assert short_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "h", "1.5h", "-1h", "1w", "1 h", "\u0663h", "9d" * 99])
def test_another_text_is_no_short_duration(text: str) -> None:
    assert short_duration_ms(text) is None


@pytest.mark.parametrize("text", ["1h", "-1h", " 60m ", "PT1H", "-PT1H", "1600000000000", "1600000000"])
def test_a_duration_is_ago_in_a_moment(text: str) -> None:
    assert parse_moment("--to", text, 1_600_003_600_000) == 1_600_000_000_000


@pytest.mark.parametrize("text", ["2020-09-13T12:26:40", "2020-09-13T12:26:40Z", "2020-09-13T14:26:40+02:00"])
def test_a_moment_is_also_a_time_of_iso_8601(text: str) -> None:
    assert parse_moment("--to", text, 0) == 1_600_000_000_000


@pytest.mark.parametrize("text", ["", "-", "+1h", "--1h", "12345", "-1", "soon", "2020-13-01", "\u0663h"])
def test_no_other_text_is_a_moment_nor_one_to_come(text: str) -> None:
    with pytest.raises(ConfigError, match="how long ago"):
        parse_moment("--to", text, 1_600_000_000_000)
