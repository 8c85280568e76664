"""Pages of messages, their neighbours, searches, exports and live tails on brokers in memory."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.base.errors import ConfigError, ErrorCode, MinikafkaError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.base.row_formats import CSV_COLUMNS
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.read_ranges import ReadRange
from minikafka.console import messages
from minikafka.console import search as search_module
from minikafka.console.live_tail import tail
from minikafka.console.messages import Message, MessagePage, Reader, fetch_sets, log_ranges, newest, onward
from minikafka.console.search import Pattern, Progress, search
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import SERVED, BrokerHarness, fetch_error
from tests.unit.console.conftest import T0, T1, ConsoleClient

ANY = IsolationLevel.READ_UNCOMMITTED
OFFSET = re.compile(r'href="/topics/orders/(\d)/(\d+)"')


def offsets(text: str) -> list[tuple[int, int]]:
    """Return partition and offset of the messages on a page."""
    return [(int(partition), int(offset)) for partition, offset in OFFSET.findall(text)]


def link(text: str, label: str) -> str:
    found = re.search(rf'href="([^"]+)">{label}<', text)
    assert found is not None, label
    return found[1].replace("&amp;", "&")


def test_the_newest_come_first_and_older_ones_follow(console: ConsoleClient) -> None:
    text = console.page("/topics/orders/messages?limit=4")
    assert offsets(text) == [(0, 4), (1, 4), (0, 3), (1, 3)]
    text = console.page(link(text, "Older"))
    assert offsets(text) == [(0, 2), (1, 2), (0, 1), (1, 1)]
    newer = console.page(link(text, "Newer"))
    assert offsets(newer) == [(0, 3), (1, 3), (0, 4), (1, 4)]
    text = console.page(link(text, "Older"))
    assert offsets(text) == [(0, 0), (1, 0)]
    assert ">Older<" not in text


def test_the_oldest_are_followed_by_newer_ones(console: ConsoleClient) -> None:
    text = console.page("/topics/orders/messages?where=oldest&limit=3")
    assert offsets(text) == [(0, 0), (1, 0), (0, 1)]
    text = console.page(link(text, "Newer"))
    assert offsets(text) == [(1, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("partition=1&limit=2", [(1, 4), (1, 3)]),
        ("where=offset&value=3", [(0, 3), (1, 3), (0, 4), (1, 4)]),
        ("where=offset&value=99", []),
        ("where=newest&value=3&partition=0", [(0, 3), (0, 4)]),
        ("where=newest&value=1970-01-01T00:00:01.003&partition=0", [(0, 3), (0, 4)]),
        ("where=time&value=1970-01-01T00:00:01.003&partition=0", [(0, 3), (0, 4)]),
        ("where=time&value=2030-01-01", []),
    ],
)
def test_messages_are_found_by_place(
    console: ConsoleClient, query: str, shown: list[tuple[int, int]]
) -> None:
    assert offsets(console.page(f"/topics/orders/messages?{query}")) == shown


def test_the_newest_are_found_behind_deleted_offsets(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0], ReadRange(), cluster.deadline())
    reader = Reader(cluster, cluster.deadline())
    brokers.damage(4, lambda data: b"")  # the newest offset has no message
    found = newest(reader, ranges, 2)
    assert [message.offset for message in found.messages] in ([3, 2], [4, 3])


def test_a_page_holds_only_what_it_shows(brokers: BrokerHarness) -> None:
    brokers.fill(T0, *[b"x" * 10_000] * 30)
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    found = onward(Reader(cluster, cluster.deadline()), ranges, 20)
    assert len(found.messages) == 20
    assert max(len(message.value.text) for message in found.messages) <= 1_000


@pytest.mark.parametrize("read", [newest, onward])
def test_only_messages_of_the_page_are_rendered(
    brokers: BrokerHarness, read: Callable[..., MessagePage], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[bytes | None] = []
    monkeypatch.setattr(messages, "payload", lambda data, *_, **__: rendered.append(data))
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    assert len(read(Reader(cluster, cluster.deadline()), ranges, 3).messages) == 3
    assert len(rendered) == 6  # a key and a value each


@pytest.mark.parametrize("where", ["newest", "oldest"])
def test_a_page_asks_each_leader_once_for_all_partitions(
    serve: Callable[..., ConsoleClient], where: str
) -> None:
    brokers = BrokerHarness(2, {"orders": 10})
    for number in range(10):
        brokers.fill(TopicPartition("orders", number), b"a", b"b", b"c")
    text = serve(brokers).page(f"/topics/orders/messages?limit=10&where={where}")
    last = 2 if where == "newest" else 0
    assert offsets(text) == [(number, last) for number in range(10)]
    assert len(brokers.asked(ApiKey.FETCH)) == 2
    assert "is up" not in text


@pytest.mark.parametrize("where", ["newest", "oldest"])
@pytest.mark.parametrize("silent", [1, 2])
def test_a_leader_that_does_not_answer_leaves_a_page_the_others(
    serve: Callable[..., ConsoleClient], where: str, silent: int
) -> None:
    brokers = BrokerHarness(2, {"orders": 4})
    parts = [TopicPartition("orders", number) for number in range(4)]
    for tp in parts:
        brokers.fill(tp, b"a")
    leaders = {tp.partition: brokers.leader(tp) for tp in parts}
    brokers.always(ApiKey.FETCH, lambda broker_id, _: None if broker_id == silent else SERVED)
    text = serve(brokers).page(f"/topics/orders/messages?where={where}")
    assert offsets(text) == [(number, 0) for number, leader in leaders.items() if leader != silent]
    assert "the time for a page is up" in text


def test_the_page_after_a_fault_begins_where_it_was(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0], ReadRange(), cluster.deadline())
    brokers.always(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    found = onward(Reader(cluster, cluster.deadline()), ranges, 20)
    assert (found.messages, found.newer) == ([], {T0: 0})
    assert len(found.notes) == 1


def test_a_partition_with_a_fault_is_asked_and_noted_once(brokers: BrokerHarness) -> None:
    brokers.fill(T0, *[b"x"] * 60)
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0], ReadRange(), cluster.deadline())
    brokers.always(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    found = newest(Reader(cluster, cluster.deadline()), ranges, 2)
    assert (len(found.notes), len(brokers.asked(ApiKey.FETCH))) == (1, 1)


def test_a_message_with_many_headers_shows_some(console: ConsoleClient, brokers: BrokerHarness) -> None:
    names = [f"name-{number}\u202e" for number in range(2_000)]
    brokers.produce(T0, build_batch([Record(None, b"v", 2_000, tuple((name, b"x") for name in names))]))
    text = console.page("/topics/orders/messages?limit=1")
    assert text.count("<dt>name-") == 20
    assert "and 1,980 more headers" in text
    assert "name-19\\u202e" in text
    assert console.page("/topics/orders/0/5").count("<dt>name-") == 2_000


def test_a_long_value_links_to_its_page_and_its_bytes(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.fill(T0, b"long " * 1_000)
    text = console.page("/topics/orders/messages?partition=0&limit=1")
    assert '<a href="/topics/orders/0/5">whole</a>' in text
    assert ("long " * 1_000).strip() in console.page("/topics/orders/0/5")
    response = console.get("/topics/orders/0/5/value")
    assert response.content == b"long " * 1_000
    assert response.headers["content-disposition"] == 'attachment; filename="orders-0-5.value"'
    assert response.headers["content-type"] == "application/octet-stream"


# --- search


def found_by(brokers: BrokerHarness, pattern: Pattern, most: int = 100) -> list[Message | Progress]:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    return list(search(cluster, ranges, pattern, most=most, seconds=60, isolation=ANY))


def places(found: list[Message | Progress]) -> list[tuple[int, int]]:
    return [(item.partition, item.offset) for item in found if isinstance(item, Message)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (Pattern('"id": 13'), [(1, 3)]),
        (Pattern('"id": 13', fields=("key",)), []),
        (Pattern(r'"id": [01]2\b', is_regex=True), [(0, 2), (1, 2)]),
        (Pattern('"ID": 04'), []),
        (Pattern('"ID": 04', ignore_case=True), [(0, 4)]),
        (Pattern("^.$", is_regex=True, fields=("value",)), []),
    ],
)
def test_a_search_finds_text_and_expressions(
    brokers: BrokerHarness, pattern: Pattern, found: list[tuple[int, int]]
) -> None:
    items = found_by(brokers, pattern)
    assert places(items) == found
    assert isinstance(items[-1], Progress)
    assert (items[-1].searched, items[-1].total, items[-1].is_end) == (10, 10, True)


def test_a_search_asks_each_leader_once_for_small_partitions() -> None:
    brokers = BrokerHarness(2, {"orders": 10})
    parts = [TopicPartition("orders", number) for number in range(10)]
    for tp in parts:
        brokers.fill(tp, b"a", b"b")
    cluster = brokers.client()
    ranges = log_ranges(cluster, parts, ReadRange(), cluster.deadline())
    found = list(search(cluster, ranges, Pattern("b"), most=99, seconds=60, isolation=ANY))
    assert sorted(places(found)) == [(number, 1) for number in range(10)]
    assert len(brokers.asked(ApiKey.FETCH)) == 2


def test_keys_and_headers_are_searched_too(brokers: BrokerHarness) -> None:
    records = [
        Record(b"key-1", None, 2_000),
        Record(None, b"v", 2_001, (("trace", b"abc-1"), ("other", None))),
        Record(None, b"\xff\xfe needle", 2_002, (("needle-name", b"x"),)),
    ]
    brokers.produce(T0, build_batch(records))
    assert places(found_by(brokers, Pattern("key-1"))) == [(0, 5)]
    assert places(found_by(brokers, Pattern("abc-1", fields=("headers",)))) == [(0, 6)]
    assert places(found_by(brokers, Pattern("needle"))) == [(0, 7)]
    assert places(found_by(brokers, Pattern("needle", fields=("headers",)))) == [(0, 7)]


def test_a_search_ends_after_its_limit(brokers: BrokerHarness) -> None:
    items = found_by(brokers, Pattern("id"), most=3)
    assert len(places(items)) == 3
    assert isinstance(items[-1], Progress)
    assert "limit of 3" in items[-1].note


@pytest.mark.parametrize(
    ("start", "found", "note"),
    [
        (
            1,
            [(0, 1), (0, 2), (0, 3), (0, 4)],
            "orders-0: message 0 was deleted, by retention or a trim, while",
        ),
        (9, [], "orders-0: messages 0 to 4 were deleted, by retention or a trim, while the search ran"),
    ],
)
def test_a_search_goes_on_where_a_log_begins_now(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch, start: int, found: list[object], note: str
) -> None:
    fetch: Callable[..., Iterator[object]] = fetch_sets

    def trimmed(cluster: object, tp: object, at: int, end: int, *rest: object) -> Iterator[object]:
        if tp == T0 and at == 0:
            raise OffsetOutOfRange(at, start, max(5, start))
        yield from fetch(cluster, tp, at, end, *rest)

    monkeypatch.setattr(search_module, "fetch_sets", trimmed)
    items = found_by(brokers, Pattern("id"))
    notes = [item.note for item in items if isinstance(item, Progress) and item.note]
    assert sorted(place for place in places(items) if place[0] == 0) == found
    assert len([place for place in places(items) if place[0] == 1]) == 5
    assert len(notes) == 1
    assert notes[0].startswith(note)


def test_a_search_ends_where_its_stream_gives_way(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    found = search(
        cluster, ranges, Pattern("id"), most=20, seconds=5, isolation=ANY, ended=lambda: "ended for a newer"
    )
    *matches, end = found
    assert len(matches) == 1
    assert isinstance(end, Progress)
    assert (end.note, end.is_end) == ("ended for a newer", True)


def test_a_search_ends_after_its_time(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    ranges = log_ranges(cluster, [T0, T1], ReadRange(), cluster.deadline())
    times = itertools.count(0.0, 10.0)
    items = list(
        search(
            cluster,
            ranges,
            Pattern("nothing"),
            most=9,
            seconds=30,
            isolation=ANY,
            monotonic=lambda: next(times),
        )
    )
    assert isinstance(items[-1], Progress)
    assert "limit of 30 s" in items[-1].note


@pytest.mark.parametrize(
    "pattern",
    [Pattern(""), Pattern("(", is_regex=True), Pattern("a{9999}", is_regex=True), Pattern("x" * 2_000)],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: Pattern) -> None:
    with pytest.raises(ConfigError):
        pattern.check()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("where=offset&value=5", "offset 5 is after the last message (orders-0 ends with offset 4)"),
        ("where=time&value=1970-01-02", "no message is of 1970-01-02T00:00:00.000Z or later"),
        ("where=offset&value=3&until=1970-01-01T00:00:01", "no message from there on is before 1970"),
        ("where=offset&value=5&partition=1", "orders-1 ends with offset 4"),
        ("where=oldest&value=1970-01-02", "no message is of 1970-01-02"),  # the choice was left alone
    ],
)
def test_a_search_of_an_empty_range_says_why(console: ConsoleClient, query: str, reason: str) -> None:
    text = console.page(f"/topics/orders/search?text=id&{query}")
    assert "the range is empty, " in text
    assert reason in text
    assert "All was searched" not in text


def test_a_search_of_an_empty_topic_says_so(console: ConsoleClient) -> None:
    assert "the range is empty, there are no messages" in console.page("/topics/empty/search?text=id")


@pytest.mark.parametrize(
    ("page", "query", "problem"),
    [
        ("messages", "where=time&value=yesterday", "Offset or time ('yesterday'): must be a time such as"),
        ("messages", "value=noon", "Offset or time ('noon'): must be an offset such as 47, or a time"),
        ("messages", "where=offset&value=", "Offset or time (empty): must be a whole number"),
        ("messages", "limit=9999", "Messages ('9999'): must be"),
        ("search", "text=a&until=soon", "Until a time ('soon'): must be a time such as"),
        (
            "search",
            "text=a&where=time&value=2013-01-02&until=2013-01-01",
            "Until a time ('2013-01-01'): must be later than the time to search from, 2013-01-02",
        ),
        ("search", "text=(&regex=1", "Text or expression ('('): is not a regular expression"),
    ],
)
def test_a_fault_in_a_form_names_the_field(
    console: ConsoleClient, page: str, query: str, problem: str
) -> None:
    response = console.get(f"/topics/orders/{page}?partition=1&{query}")
    assert response.status_code == 400
    assert problem in html.unescape(response.text)
    assert '<option value="1" selected>' in response.text


def test_the_search_page_shows_what_it_finds_and_its_end(console: ConsoleClient) -> None:
    text = console.page("/topics/orders/search?text=id&limit=3&field=value&case=ignore")
    assert len(offsets(text)) == 3
    assert "limit of 3 messages is reached" in text
    assert "All was searched" in console.page("/topics/orders/search?text=nothing")
    text = console.page(
        "/topics/orders/search?text=id&where=time&value=1970-01-01T00:00:01.002&until=1970-01-01T00:00:01.004"
    )
    assert offsets(text) == [(0, 2), (0, 3), (1, 2), (1, 3)]


# --- export


def test_an_export_of_csv_has_quoted_cells_without_formulas(
    console: ConsoleClient, brokers: BrokerHarness
) -> None:
    record = Record(b'=cmd|"x"', b"a,b\n\xff", 2_000, (("h", b"=1"),))
    brokers.produce(T0, build_batch([record, Record(b"-5", b"\xe2\x80\xae", 2_000)]))
    response = console.get("/topics/orders/export?format=csv&partition=0&where=offset&value=4")
    rows = list(csv.reader(io.StringIO(response.text)))
    assert rows[0] == list(CSV_COLUMNS)
    assert rows[1] == ["orders", "0", "4", "1004", "k", '{"id": 04}', "", ""]
    assert rows[2][4] == '\'=cmd|"x"'
    assert rows[2][5] == "base64:YSxiCv8="
    assert json.loads(rows[2][6]) == [["h", "=1"]]
    assert rows[3][4:6] == ["-5", "\\u202e"]
    assert response.headers["content-disposition"].startswith('attachment; filename="orders-')


def test_an_export_of_json_is_as_the_commands_print_it(console: ConsoleClient) -> None:
    response = console.get("/topics/orders/export?format=json&where=newest&limit=2")
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert rows == [
        {
            "topic": "orders",
            "partition": p,
            "offset": 4,
            "timestamp": 1004,
            "key": "k",
            "value": f'{{"id": {p}4}}',
        }
        for p in (0, 1)
    ]


# --- live tail


def test_a_tail_begins_at_the_end_and_shows_what_comes(brokers: BrokerHarness) -> None:
    ticks = tail(brokers.client(), [T0, T1], rate=20, isolation=ANY, wait=lambda _: None)
    assert next(ticks).messages == ()
    brokers.fill(T0, b"new")
    tick = next(ticks)
    assert [(message.offset, message.value.text) for message in tick.messages] == [(5, "new")]
    assert tick.skipped == 0
    assert next(ticks).messages == ()


def test_a_tail_skips_what_is_more_than_its_rate(brokers: BrokerHarness) -> None:
    ticks = tail(brokers.client(), [T0, T1], rate=20, isolation=ANY, wait=lambda _: None)
    next(ticks)
    brokers.fill(T0, *[b"%d" % number for number in range(5_000)])
    brokers.fill(T1, *[b"%d" % number for number in range(300)])
    tick = next(ticks)
    assert len(tick.messages) == 20
    assert tick.skipped == 5_280
    assert max(message.offset for message in tick.messages if message.partition == 0) == 5_004


@pytest.mark.parametrize("counts", [(20,), (17, 3)], ids=["one partition", "two partitions"])
def test_a_tail_shows_a_burst_within_its_rate(brokers: BrokerHarness, counts: tuple[int, ...]) -> None:
    ticks = tail(brokers.client(), [T0, T1], rate=20, isolation=ANY, wait=lambda _: None)
    next(ticks)
    for tp, count in zip((T0, T1), counts, strict=False):
        brokers.fill(tp, *[b"v"] * count)
    tick = next(ticks)
    assert (len(tick.messages), tick.skipped) == (20, 0)
    brokers.fill(T0, *[b"v"] * 20)
    tick = next(ticks)
    assert (len(tick.messages), tick.skipped) == (10, 10)  # half a second later


def test_a_tail_shows_all_of_many_partitions_in_turn() -> None:
    brokers = BrokerHarness(1, {"wide": 25})
    partitions = [TopicPartition("wide", number) for number in range(25)]
    ticks = tail(brokers.client(), partitions, rate=20, isolation=ANY, wait=lambda _: None)
    next(ticks)
    shown: list[int] = []
    for count in (20, 10, 10):
        for tp in partitions:
            brokers.fill(tp, b"v")
        tick = next(ticks)
        assert (len(tick.messages), tick.skipped) == (count, 25 - count)
        shown += [message.partition for message in tick.messages]
    assert set(shown) == set(range(25))


def test_a_tail_shows_only_messages_with_the_text(brokers: BrokerHarness) -> None:
    ticks = tail(brokers.client(), [T0], rate=20, isolation=ANY, pattern=Pattern("yes"), wait=lambda _: None)
    next(ticks)
    brokers.fill(T0, b"yes 1", b"no", b"yes 2")
    assert [message.value.text for message in next(ticks).messages] == ["yes 1", "yes 2"]


def test_a_tail_goes_on_when_a_leader_is_away(brokers: BrokerHarness) -> None:
    ticks = tail(brokers.client(), [T0, T1], rate=20, isolation=ANY, wait=lambda _: None)
    next(ticks)
    brokers.lose_leader(T1)
    brokers.fill(T0, b"new")
    tick = next(ticks)
    assert len(tick.messages) == 1
    assert "orders-1" in tick.note


def test_events_are_json_without_markup(brokers: BrokerHarness, serve: Callable[..., ConsoleClient]) -> None:
    from minikafka.console.live_tail import Tick
    from minikafka.console.views.messages import events

    record = Message.of(next(records(brokers, b"</script><b>\n\nevent: x")))
    lines = list(events(iter([Tick((record,), 7)])))
    assert lines[0].startswith("retry:")
    assert lines[1].count("\n") == 2
    assert lines[1].endswith("\n\n")
    data = json.loads(lines[1].removeprefix("data: "))
    assert (data["skipped"], data["messages"][0]["href"]) == (7, "/topics/orders/0/5")


def test_a_tail_that_gave_way_does_not_come_back_by_itself() -> None:
    from minikafka.console.streams import GaveWay
    from minikafka.console.views.messages import events

    def ticks(error: MinikafkaError) -> Iterator[Any]:
        raise error
        yield

    for error, ended in ((GaveWay("ended for a newer one"), True), (MinikafkaError("no broker"), False)):
        last = json.loads(list(events(ticks(error)))[-1].removeprefix("data: "))
        assert (last["note"], last["ended"]) == (str(error), ended)


def records(brokers: BrokerHarness, value: bytes) -> object:
    from minikafka.console.messages import fetch_sets, records_of

    brokers.fill(T0, value)
    for fetched in fetch_sets(brokers.client(), TopicPartition("orders", 0), 5, 6, ANY, 1_000, 1_000):
        yield from records_of(fetched, 1)
