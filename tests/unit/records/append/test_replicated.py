"""Sets from a leader, checked by the kernels and compared with plain Python."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.append.replicated import FollowerRecords, replicated
from tests.oracles import batches, messages
from tests.oracles.batches import Batch
from tests.oracles.messages import Message


def some(first: int, count: int, *, step: int = 1, timestamp: int = 1000) -> list[Message]:
    return [
        Message(first + number * step, timestamp + number, 0, b"k%d" % number, b"value %d" % number)
        for number in range(count)
    ]


def batch(first: int, count: int = 3, *, epoch: int = 0, **about: int | bool) -> bytes:
    return batches.batch(some(first, count), replace(Batch(leader_epoch=epoch), **about))  # type: ignore[arg-type]


def classic(first: int, count: int = 3, *, magic: int = 1, codec: int = 0) -> bytes:
    return messages.message_set(some(first, count, timestamp=1000 if magic else -1), magic=magic, codec=codec)


def found(data: bytes, next_offset: int = 0) -> FollowerRecords:
    copied = replicated(data, next_offset)
    assert copied is not None
    return copied


def entries(data: bytes) -> list[tuple[int, int]]:
    """Return last offset and position of each whole entry."""
    out, at = [], 0
    while len(data) - at >= 12:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if len(data) - at < size:
            break
        out.append((messages.decode_entry(data[at : at + size])[-1].offset, at))
        at += size
    return out


SETS = {
    "magic 0": classic(0, magic=0),
    "magic 1": classic(0) + classic(3),
    "wrappers of magic 0": classic(0, magic=0, codec=1) + classic(3, magic=0, codec=2),
    "wrappers of magic 1": classic(0, codec=1) + classic(3, codec=2) + classic(6, codec=3),
    "batches": batch(0) + batch(3, codec=1) + batch(6, codec=2) + batch(9, codec=3) + batch(12, codec=4),
    "mixed": classic(0) + batch(3) + classic(6, magic=0) + batch(9),
    "holes": classic(5) + batch(100) + batch(1000) + classic(5000, codec=1),
    "one entry": batch(0),
    "append time": batch(0, append_time=True) + batch(3, append_time=True),
    "without an epoch": batch(0, epoch=-1),
}
every_set = pytest.mark.parametrize("name", SETS)


@every_set
def test_result_equals_that_of_plain_python(name: str) -> None:
    data = SETS[name]
    copied, oracle = found(data), messages.decode(data)
    assert bytes(copied.data) == data
    assert list(zip(copied.offsets.tolist(), copied.positions.tolist(), strict=True)) == entries(data)
    assert copied.next_offset == oracle[-1].offset + 1
    assert copied.max_timestamp_ms == max(message.timestamp for message in oracle)
    newest = next(
        at
        for at, position in entries(data)
        if max(message.timestamp for message in messages.decode_entry(whole(data, position)))
        == copied.max_timestamp_ms
    )
    if copied.max_timestamp_ms >= 0:
        assert copied.max_timestamp_at == newest
    assert copied.classic is not any(whole(data, position)[16] == 2 for _, position in entries(data))
    assert copied.settled


def whole(data: bytes, position: int) -> bytes:
    return data[position : position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")]


@every_set
def test_entry_cut_off_at_any_byte_is_left_out(name: str) -> None:
    data = SETS[name]
    for length in range(len(data)):
        copied, kept = replicated(data[:length], 0), entries(data[:length])
        if copied is None:
            assert kept == []
        else:
            assert copied.offsets.tolist() == [offset for offset, _ in kept]
            assert bytes(copied.data) == data[: len(copied.data)]


def undamaged(data: bytes) -> FollowerRecords | None:
    try:
        return replicated(data, 0)
    except BrokerError:
        return None


@every_set
def test_no_damaged_byte_gets_through(name: str) -> None:
    data = SETS[name]
    good = [bytes(whole(data, position)) for _, position in entries(data)]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        copied = undamaged(bytes(damaged))
        if copied is None:
            continue
        # Neither checksum covers the offset, nor a batch's its leader epoch; and a size that leads past the
        # end is a cut-off entry.
        for (_, position), before in zip(entries(bytes(copied.data)), good, strict=False):
            entry = whole(bytes(damaged), position)
            covered = slice(17 if before[16] == 2 else 12, None)
            assert (len(entry), entry[covered]) == (len(before), before[covered])


@pytest.mark.parametrize("data", [b"", b"\0" * 11, batch(0)[:-1]], ids=["nothing", "no header", "cut off"])
def test_less_than_one_entry_is_none(data: bytes) -> None:
    assert replicated(data, 0) is None


@pytest.mark.parametrize("made", [classic, batch])
def test_records_that_the_follower_has_are_refused(made: type) -> None:
    with pytest.raises(BrokerError) as refused:
        replicated(made(0) + made(3), 6)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("made", [classic, batch])
def test_offsets_that_do_not_rise_are_refused(made: type) -> None:
    with pytest.raises(BrokerError):
        replicated(made(3) + made(0), 0)
    with pytest.raises(BrokerError):
        replicated(made(3) + made(5), 0)


@pytest.mark.parametrize(("asked", "first"), [(0, 0), (5, 5), (6, 5), (7, 5)])
def test_a_batch_may_begin_below_the_offset_that_was_asked_for(asked: int, first: int) -> None:
    copied = found(batch(5) + batch(8), asked)
    assert (copied.first_offset, copied.offsets.tolist()) == (first if asked else 5, [7, 10])


def test_a_wrapper_is_where_its_last_message_is() -> None:
    copied = found(classic(5, codec=1), 6)
    assert (copied.first_offset, copied.next_offset) == (7, 8)


# --- leader epochs ------------------------------------------------------------------------------------------


def test_epochs_begin_at_the_first_batch_of_each() -> None:
    data = batch(0, epoch=1) + batch(3, epoch=1) + batch(6, epoch=4) + batch(9, epoch=5) + batch(12, epoch=5)
    assert found(data).epochs == ((1, 0), (4, 6), (5, 9))
    assert found(data).first_without_epoch == found(data).next_offset


def test_an_epoch_that_falls_begins_nothing() -> None:
    assert found(batch(0, epoch=3) + batch(3, epoch=2) + batch(6, epoch=3)).epochs == ((3, 0),)


@pytest.mark.parametrize(
    ("data", "epochs", "first_without_epoch"),
    [
        (batch(0, epoch=-1), (), 2),
        (batch(0, epoch=2) + batch(3, epoch=-1) + batch(6, epoch=2), ((2, 0),), 5),
        (classic(0), (), 0),
        (batch(0, epoch=2) + classic(3), ((2, 0),), 3),
        (classic(0, codec=1) + batch(3, epoch=2), ((2, 3),), 2),
    ],
)
def test_where_messages_begin_that_tell_no_epoch(
    data: bytes, epochs: tuple[tuple[int, int], ...], first_without_epoch: int
) -> None:
    assert (found(data).epochs, found(data).first_without_epoch) == (epochs, first_without_epoch)


# --- transactions, marks, pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("bit", ["transactional", "control"])
def test_transactional_batch_is_reported(bit: str) -> None:
    assert not found(batch(0) + batch(3, **{bit: True}) + batch(6)).settled


def test_marks_name_the_first_entry_and_one_in_each_interval() -> None:
    data = b"".join(batch(3 * number) for number in range(40))
    size = len(data) // 40
    copied = found(data)
    assert copied.marks(1 << 20) == [(2, 0)]
    assert copied.marks(1) == entries(data)
    assert copied.marks(4 * size) == entries(data)[::4]


@pytest.mark.parametrize("entries_each", [1, 2, 3, 7, 40, 100])
def test_pieces_are_whole_entries_of_at_most_so_many_bytes(entries_each: int) -> None:
    data = b"".join(batch(3 * number, epoch=number // 5) for number in range(40))
    copied = found(data)
    pieces = copied.split(entries_each * len(data) // 40)
    assert b"".join(bytes(piece.data) for piece in pieces) == data
    assert [len(piece.offsets) for piece in pieces[:-1]] == [entries_each] * (len(pieces) - 1)
    assert [offset for piece in pieces for offset in piece.offsets.tolist()] == copied.offsets.tolist()


def test_an_entry_that_is_larger_than_a_piece_may_be_is_one() -> None:
    data = batch(0) + batch(3, 200) + batch(203)
    assert [len(piece.data) for piece in found(data).split(len(batch(0)))] == [
        len(batch(0)),
        len(batch(3, 200)),
        len(batch(203)),
    ]


def test_a_thousand_pieces_are_no_deep_matter() -> None:
    data = b"".join(classic(number, 1) for number in range(1200))
    assert len(found(data).split(1)) == 1200
