"""What an old consumer is given while it reads."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import pytest

from minikafka.base.errors import BrokerError, StorageError
from minikafka.base.files import FileSlice
from minikafka.records import down_conversion
from minikafka.records.append.conversion import down_convert
from minikafka.records.down_conversion import Cursor, DownConverter, Piece
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record, iterate
from minikafka.server.core.converted_records import FILLING, ConvertedRecords, PieceBudget, converted
from minikafka.server.workers.work_pool import InlineWorkPool, finish
from minikafka.wire.frame_parts import Part, buffer_of
from tests.support.records import row_of, slice_of, some_records

POOL = InlineWorkPool()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one message, or nearly."""
    for name in ("PIECE_BYTES", "PORTION_BYTES", "WORK_BYTES"):
        monkeypatch.setattr(down_conversion, name, 100)


def given(data: bytes | FileSlice, budget: PieceBudget | None = None, first_offset: int = 0) -> Part:
    source = slice_of(data) if isinstance(data, bytes) else data
    return finish(converted(source, 1, first_offset, 0, POOL, budget or PieceBudget()))


def plain(count: int, base_offset: int = 0) -> bytes:
    return bytes(build_batch(some_records(count), base_offset=base_offset))


def values(part: Part) -> list[bytes | None]:
    return [record.value for record in iterate(buffer_of(part))]


def sent(part: ConvertedRecords, count: int) -> bytes:
    """The next ``count`` bytes, as a connection takes them."""
    out = bytearray()
    while len(out) < count and part.length:
        data = part.ready()
        if data is None:
            part.prepare(lambda: None)
            continue
        data = data[: count - len(out)]
        out += data
        part.sent(len(data))
    return bytes(out)


def test_the_length_of_an_answer_is_that_of_what_is_stored() -> None:
    data = plain(50)
    part = given(data)
    assert isinstance(part, ConvertedRecords)
    assert part.length == len(data)
    whole = down_convert(data, 1)
    assert buffer_of(part) == whole[: len(data)]


@pytest.mark.parametrize("taken", [1, 7, 100, 1000])
def test_a_connection_may_take_any_number_of_bytes_at_a_time(taken: int) -> None:
    data = plain(50)
    part = given(data)
    assert isinstance(part, ConvertedRecords)
    out = b""
    while part.length:
        out += sent(part, taken)
    assert out == down_convert(data, 1)[: len(data)]


def test_rest_after_the_last_message_is_filled_with_a_partial_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_conversion, "PIECE_BYTES", 1)
    # Of headers nothing is left.
    records = [Record(None, b"%d" % n, 5, headers=(("h", bytes(500)),)) for n in range(4)]
    data = bytes(build_batch(records))
    out = bytes(buffer_of(given(data)))
    assert len(out) == len(data)
    assert values(out) == [b"0", b"1", b"2", b"3"]
    filling = out[len(down_convert(data, 1)) :]
    assert filling[:8] == b"\xff" * 8
    assert int.from_bytes(filling[8:12], "big") > len(filling) - 12


def test_first_wrapper_is_sent_whole_even_if_larger_than_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_conversion, "PORTION_BYTES", 1 << 20)
    data = bytes(build_batch([Record(None, None, 1)] * 300, codec=Codec.GZIP))
    part = given(data + plain(1, 300))
    assert isinstance(part, ConvertedRecords)
    assert part.length > len(data + plain(1, 300))
    assert len(values(part)) == 300


def test_where_nothing_is_left_a_consumer_sees_that_the_log_goes_on() -> None:
    assert given(plain(3)[:-1]) == FILLING


def test_zstd_and_damage_fail_at_the_start_and_end_records_later() -> None:
    zipped = bytes(build_batch(some_records(3), base_offset=3, codec=Codec.ZSTD))
    with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        given(zipped)
    before = plain(3)
    assert values(given(before + zipped)) == values(down_convert(before, 1))


def test_pieces_of_all_together_stay_below_the_bound() -> None:
    budget = PieceBudget(1000)
    parts = [given(plain(50), budget) for _ in range(40)]
    assert 0 < budget.used_bytes <= 1000
    for part in parts:
        assert values(part) == values(down_convert(plain(50), 1)[: len(plain(50))])
    del parts, part
    gc.collect()
    assert budget.used_bytes == 0


def test_a_piece_that_was_dropped_in_between_goes_on_where_it_was() -> None:
    budget = PieceBudget(300)
    part = given(plain(50), budget)
    assert isinstance(part, ConvertedRecords)
    begin = sent(part, 30)
    part.drop()
    assert part.ready() is None
    rest = sent(part, 1 << 20)
    assert begin + rest == down_convert(plain(50), 1)[: len(plain(50))]


def test_a_connection_that_goes_on_is_dropped_last() -> None:
    budget = PieceBudget(400)
    stalled, active = given(plain(50), budget), given(plain(50), budget)
    assert isinstance(stalled, ConvertedRecords)
    assert isinstance(active, ConvertedRecords)
    sent(stalled, 1)
    sent(active, 1)
    given_later = [given(plain(50), budget) for _ in range(2)]
    assert stalled.ready() is None
    assert given_later


def test_requested_piece_is_kept_until_it_was_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each piece is more than half of the bound, and is sent after the other connection had its turn.
    monkeypatch.setattr(down_conversion, "PORTION_BYTES", 10_000)
    made = []
    steps = DownConverter.steps

    def counted(converter: DownConverter, cursor: Cursor) -> Generator[int, None, Piece]:
        made.append(cursor)
        return steps(converter, cursor)

    monkeypatch.setattr(DownConverter, "steps", counted)
    data = b"".join(bytes(build_batch([Record(None, bytes(5_000), 1)], base_offset=n)) for n in range(2))
    budget = PieceBudget(8_000)
    parts = [given(data, budget) for _ in range(2)]
    out = [b"", b""]
    while left := [number for number in range(2) if parts[number].length]:
        for number in left:
            part = parts[number]
            assert isinstance(part, ConvertedRecords)
            piece = part.ready()
            if piece is None:
                part.prepare(lambda: None)
            else:
                out[number] += piece[:1_000]
                part.sent(min(1_000, len(piece)))
            assert budget.used_bytes <= 8_000
        assert len(made) < 200
    assert [values(part) for part in out] == [[bytes(5_000)] * 2] * 2


def test_requested_piece_that_is_not_read_is_dropped_for_others() -> None:
    budget = PieceBudget(1_000)
    parts = [given(plain(50), budget) for _ in range(40)]
    for part in parts:
        assert isinstance(part, ConvertedRecords)
        part.drop()
        part.prepare(lambda: None)
        assert part.ready() is not None  # the connection was tried, and took nothing
        assert budget.used_bytes <= 1_000
    assert sum(part.ready() is not None for part in parts) < 20


def test_what_was_asked_for_and_is_closed_makes_room() -> None:
    budget = PieceBudget(300)
    first, second = given(plain(50), budget), given(plain(50), budget)
    assert isinstance(first, ConvertedRecords)
    assert isinstance(second, ConvertedRecords)
    for part in (first, second):
        part.drop()
    size = budget.used_bytes
    first.prepare(lambda: None)
    first.close()
    second.prepare(lambda: None)
    assert second.ready() is not None
    assert budget.used_bytes <= size


def test_piece_without_room_is_converted_when_read_as_a_whole() -> None:
    budget = PieceBudget(150)
    held, read = given(plain(50), budget), given(plain(50), budget)
    assert isinstance(held, ConvertedRecords)
    held.drop()
    held.prepare(lambda: None)
    assert values(read) == values(down_convert(plain(50), 1)[: len(plain(50))])


def test_a_file_that_has_changed_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = slice_of(plain(50))
    part = given(source)
    assert isinstance(part, ConvertedRecords)
    sent(part, 30)
    part.drop()
    source.file.write_at(0, bytes(build_batch([Record(None, b"another", 1)] * 60)))
    part.prepare(lambda: None)
    with pytest.raises(StorageError, match="changed"):
        part.ready()


@pytest.mark.parametrize("error", [MemoryError("no room"), ValueError("6 is not a valid Codec")])
def test_a_piece_that_cannot_be_made_ends_the_answer(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    part = given(plain(50))
    assert isinstance(part, ConvertedRecords)
    part.drop()

    def failing(converter: DownConverter, cursor: Cursor) -> Iterator[int]:
        yield 0
        raise error

    monkeypatch.setattr(DownConverter, "steps", failing)
    seen: list[bool] = []

    def done() -> None:
        with pytest.raises(StorageError, match=f"{type(error).__name__}: {error}"):
            part.ready()
        seen.append(True)

    part.prepare(done)
    assert seen
    with pytest.raises(StorageError, match="failed to convert"):
        part.read()


def test_a_closed_part_keeps_nothing() -> None:
    budget = PieceBudget()
    part = given(plain(50), budget)
    assert isinstance(part, ConvertedRecords)
    part.close()
    done: list[bool] = []
    part.prepare(lambda: done.append(True))
    assert done
    assert budget.used_bytes == 0


def test_all_records_come_by_one_fetch_after_the_other() -> None:
    data = plain(30) + bytes(build_batch(some_records(500), base_offset=30, codec=Codec.GZIP)) + plain(9, 530)
    wanted = [row_of(record) for record in iterate(down_convert(data, 1))]
    found = []
    at = 0
    while at < 539:
        got = [row_of(record) for record in iterate(buffer_of(given(data, first_offset=at)))]
        found += [row for row in got if row[0] >= at]
        # Each answer begins with the same slice here; a log would begin with the right batch.
        assert got[-1][0] >= at
        at = got[-1][0] + 1
    assert found == wanted
