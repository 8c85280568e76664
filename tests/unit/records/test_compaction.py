"""Compaction of message sets. (Random sets against the oracle: ``tests/property``.)"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.compaction import SLOT_BYTES, OffsetMap, RecordFilter, Transactions
from minikafka.records.format.batch import ControlType, build_batch, build_control_batch, read_header
from minikafka.records.format.compression import Codec
from minikafka.records.format.message_set import Record, StoredRecord, build_message_set, iterate
from tests.oracles import batches, compaction
from tests.oracles import messages as oracle
from tests.support.records import expected_read_committed, segment

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
EVER = 1 << 40


def no_transactions() -> Transactions:
    raise AssertionError("there is no transaction")


def map_of(data: bytes, *, start: int = 0, end: int = EVER) -> OffsetMap:
    """A map of all keys."""
    transactions = Transactions(start)
    transactions.add(data)
    offsets = OffsetMap(1000 * SLOT_BYTES)
    offsets.begin(start)
    offsets.add(data, end, lambda: transactions)
    return offsets


def filter_of(
    offsets: OffsetMap, *, now_ms: int = NOW_MS, transactions: Transactions | None = None
) -> RecordFilter:
    return RecordFilter(offsets, now_ms=now_ms, delete_retention_ms=1000, transactions=transactions)


def compacted(data: bytes, *, now_ms: int = NOW_MS, start: int = 0) -> bytes:
    """Return the result of one pass over a log that is dirty from ``start`` on."""
    transactions = Transactions(start)
    transactions.add(data)
    kept = filter_of(map_of(data, start=start), now_ms=now_ms, transactions=transactions).filter(data)
    return b"" if kept is None else bytes(kept.data)


def offsets_in(data: bytes) -> list[int]:
    return [record.offset for record in iterate(data)]


def keyed(*pairs: tuple[bytes | None, bytes | None], timestamp_ms: int = NOW_MS) -> list[Record]:
    return [Record(key, value, timestamp_ms + number) for number, (key, value) in enumerate(pairs)]


A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        (b"The quick brown fox jumps over the lazy dog", "e34bbc7bbc071b6c7a433ca9c49a9347"),
    ],
)
def test_a_key_is_known_by_the_published_murmur_hash(key: bytes, digest: str) -> None:
    """x64, 128 bits, seed 0, as its two numbers are written."""
    rows = map_of(build_message_set([Record(key, b"")])).table.reshape(-1, 3)
    (row,) = rows[rows[:, 2] != 0]
    assert row[:2].astype(">i8").tobytes().hex() == digest


@pytest.mark.parametrize("length", range(40))
def test_keys_that_differ_in_one_bit_are_two(length: int) -> None:
    keys = {bytes(length)} | {
        bytes([*bytes(byte), 1 << bit, *bytes(length - byte - 1)])
        for byte in range(length)
        for bit in range(8)
    }
    data = build_message_set([Record(key, b"") for key in keys])
    assert len(map_of(data)) == len(keys)


def test_a_map_takes_no_more_memory_than_it_was_given() -> None:
    offsets = OffsetMap(1000)
    assert offsets.table.nbytes <= 1000
    assert (offsets.slots, offsets.capacity) == (41, 36)


@pytest.mark.parametrize("memory_bytes", [0, SLOT_BYTES])
def test_a_map_without_two_slots_is_refused(memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="too few for a map: expected at least 48"):
        OffsetMap(memory_bytes)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_full_map_takes_known_keys_and_says_where_it_stopped(magic: int, codec: Codec) -> None:
    records = keyed(A, B, (None, b"no key"), A, C, A)
    data = build_message_set(records, magic=magic, codec=codec, base_offset=10)
    offsets = OffsetMap(3 * SLOT_BYTES)
    offsets.begin(10)
    assert not offsets.add(data, EVER, no_transactions)
    assert (len(offsets), offsets.end_offset, offsets.messages) == (2, 14, 4)
    kept = filter_of(offsets).filter(data)
    assert kept is not None
    assert offsets_in(bytes(kept.data)) == [11, 13, 14, 15]


def test_a_map_that_was_begun_again_has_forgotten_all() -> None:
    offsets = map_of(build_message_set(keyed(A, B)))
    offsets.begin(7)
    assert (len(offsets), offsets.end_offset, offsets.table.any()) == (0, 7, False)


def test_messages_before_the_dirty_part_are_not_in_the_map() -> None:
    data = build_message_set(keyed(A, B)) + build_message_set(keyed(C), base_offset=2)
    assert len(map_of(data, start=1)) == 2


def test_messages_without_key_go_and_are_counted() -> None:
    data = build_message_set(keyed(A, (None, b"x"), (None, None), B))
    record_filter = filter_of(map_of(data))
    kept = record_filter.filter(data)
    assert kept is not None
    assert offsets_in(bytes(kept.data)) == [0, 3]
    assert (record_filter.messages_read, record_filter.messages_kept) == (4, 2)
    assert record_filter.messages_without_key == 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_set_of_which_all_stays_is_the_same_bytes(magic: int, codec: Codec) -> None:
    if codec is Codec.ZSTD and magic < 2:
        return
    data = build_message_set(keyed(A, B, C), magic=magic, codec=codec, base_offset=5)
    assert compacted(data) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_rebuilt_wrapper_has_offsets_from_first_retained(codec: Codec) -> None:
    """As ``Cleaner.compressMessages`` of 0.10.1 does."""
    records = keyed(A, B, A, C, (b"b", b"later"), B)
    (entry,) = compaction.entries(compacted(build_message_set(records, codec=codec, base_offset=50)))
    assert [message.offset for message in entry.messages] == [52, 53, 55]
    assert (entry.codec, entry.magic, entry.offset, entry.time) == (codec, 1, 55, NOW_MS + 5)
    (raw,) = iterate(compacted(build_message_set(records, codec=codec, base_offset=50)), deep=False)
    inner = [int.from_bytes(part[:8], "big") for part in inside(raw)]
    assert inner == [0, 1, 3]


def test_a_wrapper_of_magic_0_keeps_its_offsets_as_they_are() -> None:
    data = build_message_set(keyed(A, B, A), magic=0, codec=Codec.GZIP, base_offset=50)
    (raw,) = iterate(compacted(data), deep=False)
    assert [int.from_bytes(part[:8], "big") for part in inside(raw)] == [51, 52]


def inside(wrapper: StoredRecord) -> list[bytes]:
    """Return the entries in a wrapper."""
    from tests.oracles import codecs

    content, found = codecs.decompress(int(wrapper.codec), wrapper.value or b""), []
    while content:
        size = 12 + int.from_bytes(content[8:12], "big")
        found.append(content[:size])
        content = content[size:]
    return found


def test_wrapper_without_retained_messages_is_deleted() -> None:
    old = build_message_set(keyed(A, B), codec=Codec.GZIP)
    new = build_message_set(keyed(A, B), base_offset=2)
    assert compacted(old + new) == new


def test_append_times_of_a_wrapper_stay() -> None:
    made = [oracle.Message(i, 777, 1, key, b"v") for i, key in enumerate((b"a", b"b", b"a"))]
    (entry,) = compaction.entries(compacted(oracle.message_set(made, magic=1, codec=1)))
    assert (entry.kind, entry.time, [m.timestamp for m in entry.messages]) == (1, 777, [777, 777])


def test_rebuilt_batch_keeps_offsets_producer_and_epoch() -> None:
    data = build_batch(
        keyed(A, B, A, (b"b", b"x"), C, (b"c", b"y"), (None, b"z"), timestamp_ms=500),
        base_offset=20,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=1,
        base_sequence=70,
    )
    left = compacted(data, now_ms=500)
    header = read_header(left, 0)
    assert (header.base_offset, header.last_offset, header.count) == (20, 26, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (
        9,
        1,
        70,
        4,
    )
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (502, 505)
    assert [(r.offset, r.timestamp_ms, r.sequence) for r in iterate(left)] == [
        (22, 502, 72),
        (23, 503, 73),
        (25, 505, 75),
    ]


def test_caller_decides_on_tombstones_of_older_formats() -> None:
    data = build_message_set(keyed(A, (b"a", None), (b"never there", None)))
    record_filter = filter_of(map_of(data))
    kept = record_filter.filter(data)
    assert kept is not None
    assert offsets_in(bytes(kept.data)) == [1, 2]
    record_filter.tombstones_stay = False
    assert record_filter.filter(data) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_tombstone_of_magic_2_stays_until_its_delete_horizon(codec: Codec) -> None:
    data = build_batch(keyed(A, (b"a", None), B), codec=codec)
    first = compacted(data)
    header = read_header(first, 0)
    assert (header.has_delete_horizon, header.base_timestamp_ms) == (True, NOW_MS + 1000)
    assert [record.timestamp_ms for record in iterate(first)] == [NOW_MS + 1, NOW_MS + 2]
    assert compacted(first, now_ms=NOW_MS + 999) == first
    later = compacted(first, now_ms=NOW_MS + 1000)
    assert [(r.offset, r.timestamp_ms, r.value) for r in iterate(later)] == [(2, NOW_MS + 2, b"2")]
    assert read_header(later, 0).has_delete_horizon


def test_a_tombstone_behind_the_map_does_not_begin_its_time() -> None:
    data = build_batch(keyed(A, (b"b", None)))
    offsets = OffsetMap(2 * SLOT_BYTES)
    offsets.begin(0)
    offsets.add(data, EVER, no_transactions)
    kept = filter_of(offsets).filter(data)
    assert kept is not None
    assert bytes(kept.data) == data


def batch_of(
    producer: int, key: bytes, offset: int, *, timestamp_ms: int = NOW_MS, **how: int | bool
) -> bytes:
    return build_batch(
        [Record(key, b"v", timestamp_ms)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=offset,
        transactional=bool(how.get("transactional")),
    )


def test_last_batch_of_active_producer_stays_empty() -> None:
    data = batch_of(1, b"a", 0) + batch_of(1, b"a", 1) + batch_of(2, b"a", 2) + batch_of(-1, b"a", 3)
    left = compaction.entries(compacted(data))
    assert [(e.producer, e.sequence, e.offset, len(e.messages)) for e in left] == [
        (1, 1, 1, 0),
        (2, 2, 2, 0),
        (-1, 3, 3, 1),
    ]
    assert compacted(compacted(data), start=4) == compacted(data)


def test_last_batch_of_inactive_producer_is_deleted() -> None:
    data = batch_of(1, b"a", 0) + batch_of(-1, b"a", 1)
    assert offsets_in(compacted(data, now_ms=NOW_MS + DAY_MS)) == [1]
    assert len(compaction.entries(compacted(data, now_ms=NOW_MS + DAY_MS))) == 2
    assert len(compaction.entries(compacted(data, now_ms=NOW_MS + DAY_MS + 1))) == 1


def mark(kind: ControlType, producer: int, offset: int, *, epoch: int = 0) -> bytes:
    return build_control_batch(
        kind,
        coordinator_epoch=0,
        producer_id=producer,
        producer_epoch=epoch,
        timestamp_ms=NOW_MS,
        base_offset=offset,
    )


def transactional(producer: int, key: bytes, offset: int) -> bytes:
    return batch_of(producer, key, offset, transactional=True)


def test_an_aborted_record_pushes_out_no_committed_one() -> None:
    data = transactional(1, b"a", 0) + mark(ControlType.COMMIT, 1, 1)
    data += transactional(2, b"a", 2) + mark(ControlType.ABORT, 2, 3)
    assert [r.offset for r in iterate(compacted(data)) if not r.control] == [0]


def test_interleaved_transactions_are_kept_apart() -> None:
    data = transactional(1, b"a", 0) + transactional(2, b"b", 1)
    data += mark(ControlType.ABORT, 2, 2) + transactional(2, b"c", 3)
    data += mark(ControlType.COMMIT, 1, 4) + mark(ControlType.COMMIT, 2, 5)
    assert [r.offset for r in iterate(compacted(data)) if not r.control] == [0, 3]


def test_recorded_log_keeps_committed_records() -> None:
    left = [record for record in iterate(compacted(segment("magic2-transactions"))) if not record.control]
    latest = {key: offset for offset, _, _, key, _ in expected_read_committed() if key is not None}
    assert {record.key: record.offset for record in left} == latest
    assert len(left) == len(latest)


def test_a_transaction_that_has_not_ended_bounds_the_map() -> None:
    data = batch_of(-1, b"a", 0) + transactional(1, b"a", 1) + batch_of(-1, b"a", 2)
    assert map_of(data).end_offset == 1
    assert compacted(data) == data


def test_marker_stays_until_its_transaction_and_horizon_end() -> None:
    data = transactional(1, b"a", 0) + mark(ControlType.COMMIT, 1, 1)
    data += mark(ControlType.COMMIT, 1, 2, epoch=1) + batch_of(-1, b"a", 3)
    now = NOW_MS + 2 * DAY_MS  # the producer is no longer active
    first = compacted(data, now_ms=now)
    assert offsets_in(first) == [1, 2, 3]
    assert [entry.horizon for entry in compaction.entries(first)] == [None, now + 1000, None]
    second = compacted(first, now_ms=now + 999, start=4)
    assert [entry.horizon for entry in compaction.entries(second)] == [now + 1999, now + 1000, None]
    assert offsets_in(compacted(second, now_ms=now + 1000, start=4)) == [1, 3]
    assert offsets_in(compacted(second, now_ms=now + 1999, start=4)) == [3]


def test_transactions_before_the_survey_count_as_committed() -> None:
    data = transactional(1, b"a", 0) + mark(ControlType.COMMIT, 1, 1)
    data += transactional(1, b"b", 2) + mark(ControlType.ABORT, 1, 3)
    assert [r.offset for r in iterate(compacted(data, start=2)) if not r.control] == [0]


def test_retained_records_report_offsets_and_times() -> None:
    data = build_message_set(keyed(A, B, A), base_offset=7)
    kept = filter_of(map_of(data)).filter(data)
    assert kept is not None
    assert (kept.first_offset, kept.last_offset, kept.newest, kept.classic) == (8, 9, (NOW_MS + 2, 9), True)


def test_a_batch_that_grows_gets_its_room() -> None:
    """Its timestamp deltas take ten bytes in place of one each."""
    records = [Record(b"%d" % number, None, 5) for number in range(100)]
    data = build_batch(records)
    left = compacted(data)
    assert len(left) > len(data)
    assert [(r.offset, r.timestamp_ms) for r in iterate(left)] == [(number, 5) for number in range(100)]


def damaged(records: Sequence[bytes], count: int, **more: int) -> bytes:
    return batches.raw_batch(0, count - 1, 0, 0, count, b"".join(records), batches.Batch(**more))


ONE = batches.record(0, 0, b"k", b"v")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (damaged([ONE], 2), "(position 9|the number of records).* of the records of the batch at position 0"),
        (damaged([ONE, ONE], 2), "an offset delta does not rise"),
        (damaged([ONE, ONE], 1), "the number of records"),
        (damaged([ONE, b"\4\0"], 2, codec=1), "(position 9|the number of records).* of the records"),
        (damaged([ONE], 1, codec=5), "unknown codec"),
        (oracle.entry(0, magic=1, attributes=1, value=b"no gzip"), "failed to decompress gzip content"),
        (oracle.entry(0, magic=1, attributes=1, value=None), "no value"),
        (
            oracle.message_set([oracle.Message(0, 0, 0, b"k", b"v")] * 2, magic=1, codec=1)[:-1] + b"!",
            "failed to decompress",
        ),
    ],
    ids=range(8),
)
def test_damage_is_reported_with_its_position(data: bytes, text: str) -> None:
    offsets = OffsetMap(1000)
    for call in (lambda: offsets.add(data, EVER, no_transactions), lambda: filter_of(offsets).filter(data)):
        offsets.begin(0)
        offsets.pass_gap(EVER)
        with pytest.raises(BrokerError, match=text) as raised:
            call()
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_wrapper_that_holds_one_of_another_magic_is_refused() -> None:
    from tests.oracles import codecs

    content = codecs.compress(1, oracle.entry(0, magic=0, value=b"v"), 1)
    data = oracle.entry(0, magic=1, attributes=1, value=content)
    with pytest.raises(BrokerError, match="different magic byte"):
        map_of(data)


def test_content_beyond_the_bound_is_refused() -> None:
    data = build_message_set([Record(b"k", bytes(1000))], codec=Codec.GZIP)
    with pytest.raises(BrokerError, match="exceed the limit of 100"):
        OffsetMap(1000).add(data, EVER, no_transactions, 100)
