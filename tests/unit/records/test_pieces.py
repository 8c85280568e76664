"""Messages decoded piece by piece: the same rows, and no more memory than a piece takes."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError
from minikafka.records.columns import (
    PIECE_BYTES,
    PIECE_ROWS,
    SCHEMA_WITH_HEADERS,
    ColumnDecoder,
    Columns,
    DamagedEntry,
    decode,
    decode_pieces,
)
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set, wrap
from tests.support.records import CODECS, MAGICS, rows_of, some_records

EVER = 1 << 40
FORMATS = [
    pytest.param(magic, codec, id=f"magic{magic}-{codec.name}")
    for magic in (*MAGICS, 2)
    for codec in (*CODECS, Codec.ZSTD)
    if codec is not Codec.ZSTD or magic == 2
]


def built(magic: int, codec: Codec, records: list[Record], base_offset: int = 0) -> bytes:
    return bytes(build_message_set(records, magic=magic, codec=codec, base_offset=base_offset))


def in_pieces(data: bytes, start: int = 0, end: int = EVER, **bounds: int) -> list[Columns]:
    return list(ColumnDecoder(start, end, headers=True, **bounds).pieces(data))  # type: ignore[arg-type]


def rows(pieces: list[Columns]) -> list[object]:
    return [row for piece in pieces for row in rows_of(piece)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("max_rows", [1, 3, 7, 100])
def test_pieces_of_some_rows_are_the_whole(magic: int, codec: Codec, max_rows: int) -> None:
    data = built(magic, codec, some_records(10)) + built(magic, codec, some_records(7), 10)
    pieces = in_pieces(data, max_rows=max_rows)
    assert rows(pieces) == rows_of(decode(data, 0, EVER, headers=True))
    assert all(piece.count == max_rows for piece in pieces[:-1])
    assert [piece.complete for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].valid_bytes == len(data)
    assert all(before.next_offset <= after.next_offset for before, after in pairwise(pieces))


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("max_bytes", [1, 10, 50, 1_000])
def test_pieces_of_some_bytes_are_the_whole(magic: int, codec: Codec, max_bytes: int) -> None:
    records = [Record(b"k" * (number % 4), b"v" * (number * 7 % 60), number) for number in range(30)]
    data = built(magic, codec, records)
    pieces = in_pieces(data, max_bytes=max_bytes)
    assert rows(pieces) == rows_of(decode(data, 0, EVER, headers=True))
    for piece in pieces:
        size = piece.values.size
        assert size <= max(max_bytes, 2 * max(len(row[4] or b"") for row in rows_of(piece)))


@pytest.mark.parametrize("bounds", [{}, {"max_rows": 1}, {"max_rows": 4}, {"max_bytes": 30}])
def test_entries_of_all_formats_follow_each_other(bounds: dict[str, int]) -> None:
    formats = [(2, codec) for codec in Codec] + [(1, codec) for codec in CODECS]
    sets = [
        built(magic, codec, some_records(5), 5 * number)
        for number, (magic, codec) in enumerate([*formats, *reversed(formats), *formats[::2]])
    ]
    expected = [row for data in sets for row in rows_of(decode(data, 0, EVER, headers=True))]
    assert rows(in_pieces(b"".join(sets), **bounds)) == expected
    assert rows(in_pieces(b"".join(sets), 7, 33, **bounds)) == expected[7:33]


def test_rows_before_damage_in_a_compressed_batch_are_kept() -> None:
    """The second batch holds fewer records than it says; the first one's content is in use before."""
    sets = [bytearray(built(2, Codec.LZ4, some_records(5), 5 * number)) for number in range(3)]
    sets[1][57:61] = (6).to_bytes(4, "big")
    decoder = ColumnDecoder(0, EVER, check_crc=False)
    with pytest.raises(BrokerError, match=f"of the records of the batch at position {len(sets[0])}"):
        decoder.add(b"".join(sets))
    columns = decoder.columns()
    assert (columns.count, columns.valid_bytes, columns.next_offset) == (5, len(sets[0]), 5)
    decoder.add(sets[2])
    assert decoder.columns().offsets.tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_data_of_an_abandoned_iterator_is_dropped(magic: int, codec: Codec) -> None:
    data, others = (built(magic, codec, some_records(10), base_offset) for base_offset in (0, 10))
    decoder = ColumnDecoder(0, EVER, headers=True, max_rows=4)
    first = next(decoder.pieces(data))
    assert rows([first, *decoder.pieces(others)]) == [
        *rows_of(decode(data, 0, 4, headers=True)), *rows_of(decode(others, 0, EVER, headers=True))
    ]  # fmt: skip


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_range_ends_in_the_middle_of_a_piece(magic: int, codec: Codec) -> None:
    data = built(magic, codec, some_records(20))
    pieces = in_pieces(data, 3, 15, max_rows=5)
    assert rows(pieces) == rows_of(decode(data, 3, 15, headers=True))
    assert pieces[-1].next_offset == 15


def test_each_piece_is_a_batch_of_its_own() -> None:
    data = built(2, Codec.ZSTD, some_records(10))
    batches = [piece.record_batch("t", 0, SCHEMA_WITH_HEADERS) for piece in in_pieces(data, max_rows=4)]
    for batch in batches:
        batch.validate(full=True)
    assert [batch.num_rows for batch in batches] == [4, 4, 2]


@pytest.mark.parametrize("magic", [*MAGICS, 2])
def test_damaged_message_gives_no_more_rows(magic: int) -> None:
    inner = bytearray(built(magic, Codec.NONE, some_records(10)))
    if magic < 2:
        inner[-1] ^= 1  # the last message's value: its own checksum is wrong, that of the wrapper is right
        data = bytes(wrap(inner, codec=Codec.GZIP, magic=magic, offset=9, timestamp_ms=0))
    else:
        data = bytearray(built(2, Codec.NONE, some_records(10)))
        data[-1] ^= 1
    decoder, given = ColumnDecoder(0, EVER, max_rows=4), list[int]()
    with pytest.raises(BrokerError):
        given.extend(piece.count for piece in decoder.pieces(data))
    assert given == ([4, 4] if magic < 2 else [])  # a batch has one checksum for all of it
    left = decoder.columns()
    assert (left.count, left.next_offset) == (0, sum(given))


def test_pieces_are_bounded_and_the_damage_behind_them_is_named() -> None:
    tiny = [Record(None, b"", 0)] * (PIECE_ROWS + 5)
    data = built(2, Codec.ZSTD, tiny)
    damaged = bytearray(build_batch([Record(None, b"x", 0)], base_offset=len(tiny)))
    damaged[-1] ^= 1
    counts = []
    with pytest.raises(DamagedEntry) as found:
        counts.extend(piece.count for piece in decode_pieces(data + damaged, 0, EVER))
    assert counts == [PIECE_ROWS, 5]
    assert (found.value.offset, found.value.after_offset) == (len(tiny), len(tiny) + 1)


@pytest.mark.parametrize(("magic", "codec"), [(1, Codec.GZIP), (2, Codec.ZSTD)])
def test_highly_compressed_response_uses_the_memory_of_a_piece(magic: int, codec: Codec) -> None:
    """Two entries of 40 MB each, which a few kilobytes hold: one of them is open, and one piece is there."""
    record = Record(None, bytes(10 << 20), 0)
    data = b"".join(built(magic, codec, [record] * 4, 4 * number) for number in range(2))
    assert len(data) < 1 << 20
    before = pa.total_allocated_bytes()
    values = 0
    for piece in decode_pieces(data, 0, EVER):
        values += piece.values.size
        assert piece.values.size <= PIECE_BYTES
        assert pa.total_allocated_bytes() - before <= 3 * PIECE_BYTES
        del piece
    assert values == 8 * (10 << 20)


def test_a_record_larger_than_a_piece_has_room_in_the_next_one() -> None:
    data = built(2, Codec.ZSTD, [Record(None, bytes(size << 20), 0) for size in (1, 40, 1)])
    assert [piece.values.size >> 20 for piece in decode_pieces(data, 0, EVER)] == [1, 41]
