"""``clients/fetch/read_ranges``: what a user writes for a range, and its offsets in each partition."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import (
    OFFSET_MAX,
    Anchor,
    PartitionRange,
    Position,
    ReadRange,
    find_ranges,
    parse_position,
    parse_read_range,
)
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.transactions import part_of_transaction

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
START, END = Position(Anchor.START), Position(Anchor.END)
HOUR = 3_600_000
DAY_2013 = 1_356_998_400_000
NOW = 1_600_000_000_000


def offset(value: int) -> Position:
    return Position(Anchor.OFFSET, value)


def time(value: int) -> Position:
    return Position(Anchor.TIME, value)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", START),
        (" earliest ", START),
        ("end", END),
        ("latest", END),
        ("0", offset(0)),
        ("0012", offset(12)),
        (str(OFFSET_MAX), offset(OFFSET_MAX)),
        ("1970-01-01", time(0)),
        ("2013-01-01", time(DAY_2013)),
        ("2013-01-01T05:15", time(1_357_017_300_000)),
        ("2013-01-01T05:15:00Z", time(1_357_017_300_000)),
        ("2013-01-01 05:15:00.250", time(1_357_017_300_250)),
        ("2013-01-01T05:15:00-05:00", time(1_357_035_300_000)),
        ("1357016400000", offset(1_357_016_400_000)),
        ("1h", time(NOW - HOUR)),
        ("-PT1H", time(NOW - HOUR)),
    ],
)
def test_a_position_is_a_word_an_offset_or_a_time(text: str, position: Position) -> None:
    assert parse_position("--from", text, NOW) == position


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "yesterday", "12.5", "2013-13-01", "1969-12-31", str(OFFSET_MAX + 1), "٣"]
)
def test_another_position_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_position("--from", text, NOW)
    assert str(caught.value).startswith(f"--from={text!r}: ")


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("start", START, None),
        ("beginning", START, None),
        ("end", END, None),
        ("newest", END, None),
        ("47", offset(47), None),
        ("47:", offset(47), None),
        ("+2", Position(Anchor.START, 2), None),
        ("-3", Position(Anchor.END, -3), None),
        ("10:20", offset(10), offset(20)),
        (":20", START, offset(20)),
        (":end", START, END),
        ("start:+5", START, Position(Anchor.START, 5)),
        ("-10:-5", Position(Anchor.END, -10), Position(Anchor.END, -5)),
        ("@1357016400000", time(1_357_016_400_000), None),
        ("@1357016400", time(1_357_016_400_000), None),
        ("@2013-01-01:", time(DAY_2013), None),
        ("@2013-01-01T05:15", time(1_357_017_300_000), None),
        (
            "@2013-01-01T05:00:00Z:2013-01-02T00:00:00+01:00",
            time(DAY_2013 + 5 * HOUR),
            time(DAY_2013 + 23 * HOUR),
        ),
        ("@2013-01-01:1h", time(DAY_2013), time(DAY_2013 + HOUR)),
        ("@-2h:-1h", time(NOW - 2 * HOUR), time(NOW - HOUR)),
        ("@-1h:end", time(NOW - HOUR), END),
        ("@:-1h", START, time(NOW - HOUR)),
        ("@:1h", START, time(NOW - HOUR)),
        ("@1h", time(NOW - HOUR), None),
        ("@PT1H", time(NOW - HOUR), None),
        ("@2h:-1h", time(NOW - 2 * HOUR), time(NOW - HOUR)),
        ("@-3h:1h", time(NOW - 3 * HOUR), time(NOW - 2 * HOUR)),
        ("@3h:1h", time(NOW - 3 * HOUR), time(NOW - HOUR)),
        ("@3h:+1h", time(NOW - 3 * HOUR), time(NOW - 2 * HOUR)),
        ("@2013-01-01:PT1H", time(DAY_2013), time(DAY_2013 + HOUR)),
    ],
)
def test_a_range_is_what_rpk_and_kcat_users_type(text: str, start: Position, end: Position | None) -> None:
    assert parse_read_range("-o", text, NOW) == ReadRange(start, end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "@",
        "@:",
        "x",
        "1.5",
        "--3",
        "+",
        "20:10",
        "5:5",
        "-5:-10",
        "@-1h:-2h",
        "@1h:2h",
        "@end",
        "@12345",
        "9" * 5_000,
        "-" + "9" * 5_000,
        "@" + "9" * 5_000,
        "@-" + "999999999d" * 100,
        "@1h:x",
        "@+1h",
        "@:+1h",
    ],
)
def test_another_range_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_read_range("-o", text, NOW)
    assert str(caught.value).startswith(f"-o={text!r}: ")


def test_every_split_of_two_times_is_found_whatever_their_colons() -> None:
    times = {"2013-01-01": 0, "2013-01-01T05:00": 5 * HOUR, "2013-01-01T05:00:00Z": 5 * HOUR}
    for text, since_day in times.items():
        found = parse_read_range("-o", f"@{text}:2013-01-01T07:00:00+01:00", NOW)
        assert found == ReadRange(time(DAY_2013 + since_day), time(DAY_2013 + 6 * HOUR))


@pytest.fixture
def brokers() -> BrokerHarness:
    """Partition 0 has the offsets 2 to 5, at 2 to 5 s; partition 1 has 0 to 1, at 0 to 1 s; 2 is empty."""
    brokers = BrokerHarness(2, {"t": 3})
    for tp, count in {T0: 6, T1: 2}.items():
        for second in range(count):
            brokers.produce(tp, build_batch([Record(None, b"v", 1_000 * second)]))
    brokers.logs[T0].delete_before(2)
    return brokers


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("start", PartitionRange(2, 6, 2, None, 2), PartitionRange(0, 2, 0, None, 0)),
        ("end", PartitionRange(2, 6, 6, None, 6), PartitionRange(0, 2, 2, None, 2)),
        ("-3:end", PartitionRange(2, 6, 3, 6, 3), PartitionRange(0, 2, 0, 2, 0)),
        ("+1:+2", PartitionRange(2, 6, 3, 4, 3), PartitionRange(0, 2, 1, 2, 1)),
        ("1:4", PartitionRange(2, 6, 2, 4, 1), PartitionRange(0, 2, 1, 2, 1)),
        ("4:9", PartitionRange(2, 6, 4, 6, 4), PartitionRange(0, 2, 2, 2, 4)),
    ],
)
def test_offsets_are_within_the_log_of_each_partition(
    brokers: BrokerHarness, text: str, first: PartitionRange, second: PartitionRange
) -> None:
    cluster = brokers.client()
    found = find_ranges(cluster, [T0, T1], parse_read_range("-o", text, NOW), cluster.deadline())
    assert found == {T0: first, T1: second}


def test_times_are_looked_up_in_each_partition(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    wanted = ReadRange(time(1_000), time(4_000))
    found = find_ranges(cluster, [T0, T1, T2], wanted, cluster.deadline())
    assert found == {
        T0: PartitionRange(2, 6, 2, 4, 2),
        T1: PartitionRange(0, 2, 1, 2, 1),
        T2: PartitionRange(0, 0, 0, 0, None),
    }


def test_one_look_up_asks_each_leader_once_per_kind_of_offset(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    find_ranges(cluster, [T0, T1, T2], ReadRange(time(0), END), cluster.deadline())
    leaders = {brokers.leader(tp) for tp in (T0, T1, T2)}
    assert len(brokers.asked(ApiKey.LIST_OFFSETS)) == 3 * len(leaders)


def test_read_committed_ends_before_an_open_transaction(brokers: BrokerHarness) -> None:
    partition = brokers.simulation.machine_of(brokers.leader(T1)).broker.partition(T1)
    partition.append(part_of_transaction(7, 1))
    cluster = brokers.client()
    found = find_ranges(cluster, [T1], ReadRange(END), cluster.deadline(), IsolationLevel.READ_COMMITTED)
    assert found == {T1: PartitionRange(0, 2, 2, None, 2)}
