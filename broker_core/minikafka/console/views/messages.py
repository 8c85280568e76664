"""The messages of a topic: pages of them, one message, search, live tail, export and produce."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

from starlette.responses import RedirectResponse, Response

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.times import parse_moment, utc_text
from minikafka.clients.fetch.read_ranges import OFFSET_MAX, Anchor, Position, ReadRange, parse_read_range
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.console.live_tail import Tick, tail
from minikafka.console.messages import (
    Message,
    MessagePage,
    Ranges,
    Reader,
    log_ranges,
    newest,
    one_message,
    onward,
)
from minikafka.console.search import FIELDS, Pattern, Progress, empty_reason, search
from minikafka.console.settings import CHANGE_TIMEOUT_MS, PAGE_TIMEOUT_MS
from minikafka.console.streams import GaveWay, Slot, csv_parts, export_batches, json_parts
from minikafka.console.texts import field_problem, parse_number, path
from minikafka.console.visit import Visit, error_text, status_of

LIMITS = (20, 50, 100, 200)
EXPORT_LIMITS = (1_000, 10_000, 100_000, 1_000_000)
SEARCH_LIMITS = (20, 100, 500)
SEARCH_SECONDS = (10, 30, 120, 600)
RATES = (5, 20, 100)
POSITIONS_MAX = 60
"""Partitions whose positions fit into an address: with more there are no links to older and newer ones."""
_EXPORT_IDLE_MS = 30_000
_LABELS = {"where": "From", "value": "Offset or time", "partition": "Partition", "limit": "Messages"}
_SEARCH_LABELS = _LABELS | {
    "text": "Text or expression",
    "field": "In",
    "until": "Until a time",
    "limit": "At most",
    "seconds": "Seconds",
}
_PRODUCE_LABELS = {"partition": "Partition", "key": "Key", "value": "Value", "headers": "Headers"}
_TIMES = "a time such as 2026-01-31T12:00 (UTC unless it names a zone) or -1h for an hour ago"
_TIME_RANGES = f"{_TIMES}, or 2026-01-31T12:00:1h for one hour from then on"


class Where(str, Enum):
    """The place in the log at which reading starts."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a topic that an address names."""

    topic: TopicMetadata
    partition: int | None
    where: Where
    text: str
    """The offset or time as it was typed."""
    wanted: ReadRange = field(default_factory=ReadRange)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions to read."""
        numbers = [part.topic_partition for part in self.topic.partitions]
        return [tp for tp in numbers if self.partition is None or tp.partition == self.partition]

    @property
    def parameters(self) -> dict[str, object]:
        """The selection as parameters of an address."""
        return {"partition": self.partition, "where": self.where.value, "value": self.text}


def selection(visit: Visit, default: Where = Where.NEWEST) -> Selection:
    """Return the selection in the address. Raises BrokerError or ConfigError."""
    topic = visit.topic(visit.part("topic"))
    word = visit.param("where", default.value)
    if word not in {where.value for where in Where}:
        raise ConfigError("where", word, f"must be one of {', '.join(where.value for where in Where)}")
    where, text = Where(word), visit.param("value")
    if text and where not in (Where.OFFSET, Where.TIME):  # it was typed, and the choice before it left alone
        where = Where.OFFSET if text.isascii() and text.isdigit() else Where.TIME
    wanted = ReadRange()
    if where is Where.OFFSET:
        wanted = ReadRange(Position(Anchor.OFFSET, parse_number("value", text, 0, OFFSET_MAX)))
    elif where is Where.TIME:
        is_chosen = word == Where.TIME.value
        wanted = _time_range(
            visit, "value", text, f"must be {'' if is_chosen else 'an offset such as 47, or '}{_TIME_RANGES}"
        )
    chosen = visit.param("partition")
    number = parse_number("partition", chosen) if chosen not in ("", "all") else None
    if number is not None and topic.partition(number) is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number}: {topic.partition_range}"
        )
    return Selection(topic, number, where, text, wanted)


def _time_range(visit: Visit, name: str, text: str, allowed: str) -> ReadRange:
    try:
        return parse_read_range(name, f"@{text}", visit.access.cluster.clock.now_ms())
    except ConfigError:
        raise ConfigError(name, text, allowed) from None


def _as_typed(visit: Visit, topic: TopicMetadata, default: Where) -> Selection:
    """Return the selection of an address with a fault, so that the form keeps what was typed."""
    word, number = visit.param("where"), visit.param("partition")
    where = Where(word) if word in {where.value for where in Where} else default
    chosen = [part.topic_partition.partition for part in topic.partitions]
    partition = next((found for found in chosen if str(found) == number), None)
    return Selection(topic, partition, where, visit.param("value"))


def _ranges(visit: Visit, chosen: Selection, until: Position | None = None) -> Ranges:
    cluster = visit.access.cluster
    wanted = chosen.wanted if until is None else replace(chosen.wanted, end=until)
    return log_ranges(cluster, chosen.partitions, wanted, cluster.deadline(PAGE_TIMEOUT_MS), visit.isolation)


def messages(visit: Visit) -> Response:
    """Show messages: the newest, the oldest, or from an offset or a time on."""
    values: dict[str, object] = {"limits": LIMITS, "wheres": [where.value for where in Where]}
    try:
        chosen = selection(visit)
        limit = visit.number("limit", LIMITS[1], 1, LIMITS[-1])
    except ConfigError as error:
        topic = visit.topic(visit.part("topic"))
        return visit.page(
            "messages.html",
            400,
            topic=topic,
            chosen=_as_typed(visit, topic, Where.NEWEST),
            page=None,
            problem=field_problem(error, _LABELS),
            isolation=visit.param("isolation"),
            **values,
            **_links(),
        )
    ranges = _ranges(visit, chosen)
    cluster = visit.access.cluster
    reader = Reader(cluster, cluster.deadline(PAGE_TIMEOUT_MS), visit.isolation, visit.schemas)
    before = _positions(chosen.topic, visit.param("before"))
    after = _positions(chosen.topic, visit.param("after"))
    if after or (chosen.where is not Where.NEWEST and not before):
        page = onward(reader, ranges, limit, after or None)
    else:
        page = newest(reader, ranges, limit, before or None)
    visit.notes += [note for note in page.notes if note not in visit.notes]
    base = chosen.parameters | {"limit": limit, "isolation": visit.param("isolation")}
    is_newest_first = not after and (chosen.where is Where.NEWEST or bool(before))
    return visit.page(
        "messages.html",
        topic=chosen.topic,
        chosen=chosen,
        page=page,
        is_newest_first=is_newest_first,
        problem="",
        limit=limit,
        isolation=visit.param("isolation"),
        **values,
        **_links(visit, chosen, page, base),
    )


def _links(
    visit: Visit | None = None,
    chosen: Selection | None = None,
    page: MessagePage | None = None,
    base: dict[str, object] | None = None,
) -> dict[str, object]:
    """Return the addresses of the pages beside this one, and of exports."""
    if visit is None or chosen is None or page is None or base is None:
        return {"older": "", "newer": "", "exports": ()}
    name = chosen.topic.name
    older, newer = _position_text(page.older), _position_text(page.newer)
    exports = tuple(
        (form, path("topics", name, "export", **base | {"format": form, "limit": EXPORT_LIMITS[0]}))
        for form in ("csv", "json")
    )
    return {
        "older": path("topics", name, "messages", **base, before=older) if older else "",
        "newer": path("topics", name, "messages", **base, after=newer) if newer else "",
        "exports": exports,
    }


def _position_text(positions: Mapping[TopicPartition, int]) -> str:
    if len(positions) > POSITIONS_MAX:
        return ""
    return "-".join(f"{tp.partition}.{offset}" for tp, offset in positions.items())


def _positions(topic: TopicMetadata, text: str) -> dict[TopicPartition, int]:
    found = {}
    for part in text.split("-") if text else ():
        number, _, offset = part.partition(".")
        tp = TopicPartition(topic.name, parse_number("position", number))
        found[tp] = parse_number("position", offset, 0, OFFSET_MAX)
    return found


def message(visit: Visit) -> Response:
    """Show one message whole, with the links to its neighbours."""
    tp, offset = _place(visit)
    cluster = visit.access.cluster
    record = one_message(cluster, tp, offset, cluster.deadline(PAGE_TIMEOUT_MS))
    shown = Message.of(record, visit.schemas, whole=True)
    return visit.page("message.html", topic=visit.topic(tp.topic), tp=tp, message=shown)


def message_bytes(visit: Visit) -> Response:
    """Return the bytes of a key or a value as a file."""
    tp, offset = _place(visit)
    part = visit.part("part")
    if part not in ("key", "value"):
        raise ConfigError("part", part, "must be key or value")
    cluster = visit.access.cluster
    record = one_message(cluster, tp, offset, cluster.deadline(PAGE_TIMEOUT_MS))
    name = f"{tp.topic}-{tp.partition}-{offset}.{part}"  # legal characters only, as those of topics
    return Response(
        (record.key if part == "key" else record.value) or b"",
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _place(visit: Visit) -> tuple[TopicPartition, int]:
    topic = visit.topic(visit.part("topic"))
    number = parse_number("partition", visit.part("partition"))
    if topic.partition(number) is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number}: {topic.partition_range}"
        )
    return TopicPartition(topic.name, number), parse_number("offset", visit.part("offset"), 0, OFFSET_MAX)


# --- search -------------------------------------------------------------------------------------------------


def search_page(visit: Visit) -> Response:
    """Show the form of a search; with a text, also what is found, as it is found."""
    values: dict[str, object] = {
        "limits": SEARCH_LIMITS,
        "seconds_choices": SEARCH_SECONDS,
        "wheres": [where.value for where in Where if where is not Where.NEWEST],
        "fields": ("any", *FIELDS),
        "text": visit.any_text("text"),
        "field_chosen": visit.param("field", "any"),
        "is_regex": visit.param("regex") == "1",
        "ignore_case": visit.param("case") == "ignore",
        "until": visit.param("until"),
        "isolation": visit.param("isolation"),
        "started": False,
        "results": (),
        "problem": "",
        "empty": "",
        "limit": SEARCH_LIMITS[1],
        "seconds": SEARCH_SECONDS[1],
    }
    topic = visit.topic(visit.part("topic"))
    if not values["text"]:
        blank = Selection(topic, None, Where.OLDEST, "")
        return visit.page("search.html", topic=topic, chosen=blank, **values)
    try:
        chosen = selection(visit, Where.OLDEST)
        values["limit"] = visit.number("limit", SEARCH_LIMITS[1], 1, SEARCH_LIMITS[-1])
        values["seconds"] = visit.number("seconds", SEARCH_SECONDS[1], 1, SEARCH_SECONDS[-1])
        pattern = _pattern(values)
        until = _until(visit, str(values["until"]), chosen.wanted.start)
    except ConfigError as error:
        values["problem"] = field_problem(error, _SEARCH_LABELS)
        typed = _as_typed(visit, topic, Where.OLDEST)
        return visit.page("search.html", 400, topic=topic, chosen=typed, **values)
    ranges = _ranges(visit, chosen, until)
    values["empty"] = empty_reason(
        ranges, chosen.wanted if until is None else replace(chosen.wanted, end=until)
    )
    if values["empty"]:
        return visit.page("search.html", topic=topic, chosen=chosen, **values)

    def parts(slot: Slot) -> Iterator[str]:
        found = search(
            visit.access.cluster,
            ranges,
            pattern,
            most=values["limit"],  # type: ignore[arg-type]
            seconds=values["seconds"],  # type: ignore[arg-type]
            isolation=visit.isolation,
            ended=slot.ended,
            schemas=visit.schemas,
        )
        results = ((isinstance(item, Progress), item) for item in found)
        given = values | {"started": True, "results": results}
        return visit.stream("search.html", topic=topic, chosen=chosen, **given)

    return visit.streamed(parts, "text/html", {"x-accel-buffering": "no"})


def _until(visit: Visit, text: str, start: Position) -> Position | None:
    """Parse the time before which a search ends."""
    if not text:
        return None
    until_ms = parse_moment("until", text, visit.access.cluster.clock.now_ms(), f"must be {_TIMES}")
    if start.anchor is Anchor.TIME and until_ms <= start.value:
        raise ConfigError(
            "until", text, f"must be later than the time to search from, {utc_text(start.value)}"
        )
    return Position(Anchor.TIME, until_ms)


def _pattern(values: Mapping[str, object]) -> Pattern:
    field = str(values["field_chosen"])
    if field not in ("any", *FIELDS):
        raise ConfigError("field", field, f"must be any, or one of {', '.join(FIELDS)}")
    pattern = Pattern(
        str(values["text"]),
        bool(values["is_regex"]),
        bool(values["ignore_case"]),
        FIELDS if field == "any" else (field,),
    )
    pattern.check()
    return pattern


# --- live tail ----------------------------------------------------------------------------------------------


def tail_page(visit: Visit) -> Response:
    """Show the page of the live tail, which its script fills."""
    chosen = selection(visit)
    return visit.page(
        "tail.html",
        topic=chosen.topic,
        chosen=chosen,
        rates=RATES,
        rate=visit.number("rate", RATES[1], 1, RATES[-1]),
        text=visit.any_text("text"),
        isolation=visit.param("isolation"),
    )


def tail_events(visit: Visit) -> Response:
    """Return the live tail as server-sent events, each with the messages of half a second."""
    chosen = selection(visit)
    text = visit.any_text("text")
    pattern = Pattern(text) if text else None
    if pattern is not None:
        pattern.check()
    ticks = tail(
        visit.access.cluster,
        chosen.partitions,
        rate=visit.number("rate", RATES[1], 1, RATES[-1]),
        isolation=visit.isolation,
        pattern=pattern,
        schemas=visit.schemas,
        wait=visit.console.slots.closing.wait,
    )
    return visit.streamed(
        lambda slot: events(slot.until_ended(ticks)), "text/event-stream", {"x-accel-buffering": "no"}
    )


def events(ticks: Iterator[Tick]) -> Iterator[str]:
    """Yield a server-sent event for each tick. JSON has no line end in it, so nothing can forge an event."""
    yield "retry: 2000\n\n"
    try:
        for tick in ticks:
            rows = [_event_row(row) for row in tick.messages]
            event = {"messages": rows, "skipped": tick.skipped, "note": tick.note}
            yield f"data: {json.dumps(event)}\n\n"
    except MinikafkaError as error:
        # The script of the page asks again after an error, but not where that would end another tail.
        last = {"messages": [], "skipped": 0, "note": error_text(error), "ended": isinstance(error, GaveWay)}
        yield f"data: {json.dumps(last)}\n\n"


def _event_row(row: Message) -> dict[str, object]:
    place = path("topics", row.topic, row.partition, row.offset)
    return {
        "partition": row.partition,
        "offset": row.offset,
        "time": utc_text(row.timestamp_ms) or "–",
        "key": asdict(row.key),
        "value": asdict(row.value),
        "href": place,
    }


# --- export -------------------------------------------------------------------------------------------------


def export(visit: Visit) -> Response:
    """Return messages as a file of CSV or of lines of JSON, as they are read."""
    form = visit.param("format", "csv")
    if form not in ("csv", "json"):
        raise ConfigError("format", form, "must be csv or json")
    chosen = selection(visit, Where.OLDEST)
    most = visit.number("limit", EXPORT_LIMITS[0], 1, EXPORT_LIMITS[-1])
    ranges = _ranges(visit, chosen)
    if chosen.where is Where.NEWEST:
        share = -(-most // max(1, len(ranges.by_partition)))
        ranges = ranges.last(share)
    batches = export_batches(
        visit.access.cluster, ranges, most=most, isolation=visit.isolation, timeout_ms=_EXPORT_IDLE_MS
    )
    lines = csv_parts if form == "csv" else json_parts
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{chosen.topic.name}-{stamp}.{'csv' if form == 'csv' else 'jsonl'}"
    return visit.streamed(
        lambda slot: lines(slot.until_ended(batches), ranges.notes),
        "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson",
        {"content-disposition": f'attachment; filename="{name}"'},
    )


# --- produce ------------------------------------------------------------------------------------------------


def produce_page(visit: Visit) -> Response:
    """Show the form that sends one message."""
    topic = visit.topic(visit.part("topic"))
    return visit.page("produce.html", topic=topic, form={}, problem="", done=visit.param("done"))


def produce(visit: Visit) -> Response:
    """Send the message of the form."""
    topic = visit.topic(visit.part("topic"))
    try:
        key = _bytes(visit.form, "key")
        value = _bytes(visit.form, "value")
        chosen = visit.form.get("partition", "").strip()
        number = parse_number("partition", chosen) if chosen else None
        headers = _headers(visit.form.get("headers", ""))
    except ConfigError as error:
        problem = field_problem(error, _PRODUCE_LABELS)
        return visit.page("produce.html", 400, topic=topic, form=visit.form, problem=problem, done="")
    config = BatchingConfig(
        acks=-1,
        max_block_ms=CHANGE_TIMEOUT_MS,
        request_timeout_ms=10_000,
        security=visit.access.cluster.security,
    )
    try:
        with BatchingProducer(visit.access.cluster, config, threads=False) as producer:
            sent = producer.send(topic.name, value, key, number, headers=headers)
            producer.flush()
            result = sent.result(CHANGE_TIMEOUT_MS)
    except MinikafkaError as error:  # what was typed must not be lost
        status, problem = status_of(error)[0], error_text(error)
        return visit.page("produce.html", status, topic=topic, form=visit.form, problem=problem, done="")
    return RedirectResponse(
        path("topics", topic.name, "produce", done=f"{result.topic_partition.partition}.{result.offset}"), 303
    )


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """Parse headers, a line ``name: value`` each."""
    found = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise ConfigError("headers", line, "must be lines of name: value")
            found.append((name.strip(), value.strip().encode("utf-8")))
    return tuple(found)


def _bytes(form: Mapping[str, str], name: str) -> bytes | None:
    """Return the bytes of a field: null, text, or base64. A browser sends line ends as CR LF."""
    kind, text = form.get(f"{name}_kind", "text"), form.get(name, "")
    if kind == "null":
        return None
    if kind == "base64":
        try:
            return base64.b64decode(text, validate=False)
        except binascii.Error as error:
            raise ConfigError(name, None, f"is not base64: {error}") from None
    if name == "key" and not text:
        return None
    return text.replace("\r\n", "\n").encode("utf-8", "surrogateescape")
