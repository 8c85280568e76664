"""Down-conversion in pieces gives what conversion as a whole gives."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import BrokerError
from minikafka.records import down_conversion
from minikafka.records.append.conversion import down_convert
from minikafka.records.down_conversion import START, Cursor, DownConverter, Piece
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from tests.property.test_records_roundtrip import logs
from tests.support.records import BATCH_CASES, CASES, CODECS, Row, row_of, segment, slice_of, some_records

every_case = pytest.mark.parametrize("name", [*CASES, *(set(BATCH_CASES) - {"magic2-zstd"})])


@dataclass
class Converted:
    pieces: list[bytes]
    needs: list[int]

    @property
    def rows(self) -> list[Row]:
        return [row_of(record) for record in iterate(b"".join(self.pieces))]


def piece_at(converter: DownConverter, cursor: Cursor, needs: list[int] | None = None) -> Piece:
    steps = converter.steps(cursor)
    while True:
        try:
            need = next(steps)
        except StopIteration as end:
            piece: Piece = end.value
            return piece
        if needs is not None:
            needs.append(need)


def converted(data: bytes, magic: int, first_offset: int = 0, *, again: bool = True) -> Converted:
    """Convert piece by piece; each one ``again``, as what was dropped can be made anew."""
    converter, needs, pieces = DownConverter(slice_of(data), magic, first_offset), [0], []
    cursor: Cursor | None = START
    while cursor is not None:
        piece = piece_at(converter, cursor, needs)
        assert not again or piece_at(converter, cursor) == piece
        pieces.append(bytes(piece.data))
        cursor = piece.next
    return Converted(pieces, needs)


def rows(data: bytes) -> list[Row]:
    return [row_of(record) for record in iterate(data)]


@functools.cache
def expected(name: str, magic: int) -> list[Row]:
    """The records of a case, converted as a whole."""
    return rows(down_convert(segment(name), magic))


@pytest.fixture(params=[None, 1, 300, 5000])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, pieces and portions of some sizes."""
    if request.param is not None:
        monkeypatch.setattr(down_conversion, "WINDOW_BYTES", max(61, request.param))
        monkeypatch.setattr(down_conversion, "PIECE_BYTES", request.param)
        monkeypatch.setattr(down_conversion, "PORTION_BYTES", request.param)
        monkeypatch.setattr(down_conversion, "WORK_BYTES", 4 * request.param)


@every_case
@pytest.mark.parametrize("magic", [0, 1])
def test_pieces_of_any_size_hold_the_records_of_the_whole(small: None, name: str, magic: int) -> None:
    assert converted(segment(name), magic).rows == expected(name, magic)


@every_case
@pytest.mark.parametrize("magic", [0, 1])
def test_set_that_fits_one_piece_is_converted_at_once(name: str, magic: int) -> None:
    data = segment(name)
    assert b"".join(converted(data, magic).pieces) == down_convert(data, magic)


@every_case
@pytest.mark.parametrize("first", [1, 7, 50, 203])
def test_from_an_offset_on_nothing_is_missing(small: None, name: str, first: int) -> None:
    wanted = [row for row in expected(name, 1) if row[0] >= first]
    found = converted(segment(name), 1, first, again=False).rows
    assert [row for row in found if row[0] >= first] == wanted


def test_messages_of_a_plain_batch_below_the_offset_are_left_out(small: None) -> None:
    data = build_batch(some_records(40), base_offset=100)
    assert [row[0] for row in converted(bytes(data), 1, 117).rows] == list(range(117, 140))


def test_the_first_piece_that_has_anything_reaches_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a consumer would ask for the same again, for ever."""
    monkeypatch.setattr(down_conversion, "PORTION_BYTES", 300)
    monkeypatch.setattr(down_conversion, "PIECE_BYTES", 1)
    for codec in CODECS:
        data = bytes(build_batch(some_records(90), base_offset=100, codec=codec))
        pieces = [piece for piece in converted(data, 1, 170).pieces if piece]
        assert max(record.offset for record in iterate(pieces[0])) >= 170
        assert [row[0] for row in converted(data, 1, 170).rows if row[0] >= 170] == list(range(170, 190))


def test_a_batch_with_large_content_becomes_several_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_conversion, "PORTION_BYTES", 4000)
    for codec in CODECS[1:]:
        for magic in (0, 1):
            data = bytes(build_batch(some_records(500), base_offset=7, codec=codec))
            found = converted(data, magic)
            assert found.rows == rows(down_convert(data, magic))
            shallow = list(iterate(b"".join(found.pieces), deep=False))
            assert len(shallow) > 5
            assert {entry.codec for entry in shallow} == {codec}


def test_a_step_says_how_much_memory_compressed_content_may_take() -> None:
    data = bytes(build_batch([Record(None, bytes(9 << 20), 0)], codec=Codec.GZIP))
    found = converted(data, 1)
    assert max(found.needs) >= 9 << 20
    assert len(b"".join(found.pieces)) < 1 << 20


def test_zstd_ends_a_piece_or_is_an_error_at_its_start() -> None:
    zipped = bytes(build_batch(some_records(3), base_offset=3, codec=Codec.ZSTD))
    before = bytes(build_batch(some_records(3)))
    found = converted(before + zipped, 1)
    assert [row[0] for row in found.rows] == [0, 1, 2]
    with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        converted(zipped + before, 1)


def test_damage_ends_a_piece_or_is_an_error_at_its_start() -> None:
    before, damaged = (
        bytes(build_batch(some_records(3))),
        bytearray(build_batch(some_records(3), base_offset=3)),
    )
    damaged[-1] ^= 1
    assert [row[0] for row in converted(before + bytes(damaged), 1).rows] == [0, 1, 2]
    with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
        converted(bytes(damaged), 1)


def test_a_cut_off_last_message_is_left_out() -> None:
    data = build_message_set(some_records(3))
    assert len(converted(data[:-1], 0).rows) == 2
    assert converted(data[:5], 0).rows == converted(b"", 0).rows == []


@given(logs(), st.sampled_from((0, 1)), st.sampled_from((1, 100, 1000)), st.integers(0, 60))
def test_any_log_in_pieces_has_the_records_of_the_whole(
    log: tuple[bytes, list[object]], magic: int, size: int, first: int
) -> None:
    data, _ = log
    if any(record.codec is Codec.ZSTD and not record.control for record in iterate(data)):
        return
    wanted = [row for row in rows(down_convert(data, magic)) if row[0] >= first]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PIECE_BYTES", "PORTION_BYTES", "WORK_BYTES"):
            patch.setattr(down_conversion, name, size)
        patch.setattr(down_conversion, "WINDOW_BYTES", max(61, size))
        found = converted(data, magic, first).rows
    assert [row for row in found if row[0] >= first] == wanted
