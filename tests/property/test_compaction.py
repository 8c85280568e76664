"""Compaction against the oracle: any formats, codecs, producers and transactions; pass after pass.

And of whole logs against a dict.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.clock import ManualClock
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.cleanup.cleaner import Cleaner
from minikafka.log.cleanup.cleaner_manager import LogCleanerManager
from minikafka.log.config import LogConfig
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.compaction import SLOT_BYTES, OffsetMap, RecordFilter, Transactions
from minikafka.records.format.message_set import CLASSIC_CODECS, Codec, Record, build_message_set
from tests.oracles import batches, compaction
from tests.oracles import messages as oracle
from tests.support.logs import open_log

NOW_MS = 1_700_000_000_000
KEYS = [None, b"", *(b"k%d" % i for i in range(6)), b"a key of sixteen", b"and one that is longer than this"]
keys = st.sampled_from(KEYS)
values = st.one_of(st.none(), st.none(), st.binary(max_size=40), st.just(b"v" * 300))
times = st.sampled_from([-1, 0, NOW_MS - 3 * compaction.DAY_MS, NOW_MS - 1000, NOW_MS, NOW_MS + 10**9])
headers = st.sampled_from([(), (("h", b"1"),), (("", None), ("x", b""))])


@st.composite
def parts(draw: st.DrawFn, offset: int, open_transactions: set[int]) -> bytes:
    """Build a set as a broker may have stored it: a batch, a marker, or messages of magic 0 and 1."""
    magic = draw(st.sampled_from([0, 1, 2, 2]))
    about = batches.Batch()
    if magic == 2:
        producer = draw(st.sampled_from([-1, 1, 2, 3]))
        transactional = producer >= 2
        control = transactional and producer in open_transactions and draw(st.booleans())
        about = batches.Batch(
            codec=0 if control else draw(st.integers(0, 4)),
            append_time=draw(st.integers(0, 4)) == 0,
            control=control,
            transactional=transactional,
            producer_id=producer,
            producer_epoch=draw(st.integers(0, 1)) if producer >= 0 else -1,
            base_sequence=-1 if control or producer < 0 else offset % 1000,
            leader_epoch=draw(st.integers(-1, 3)),
            more_offsets=0 if control else draw(st.integers(0, 2)),
        )
        if control:
            open_transactions.discard(producer)
            key = b"\0\0\0" + bytes([draw(st.integers(0, 1))])
            return batches.batch([oracle.Message(offset, draw(times), 0, key, bytes(6))], about)
        if transactional:
            open_transactions.add(producer)
    kind = -1 if magic == 0 else int(draw(st.integers(0, 4)) == 0)
    made = []
    for _ in range(draw(st.integers(1, 5))):
        time = -1 if magic == 0 else draw(times)
        extra = draw(headers) if magic == 2 else ()
        made.append(oracle.Message(offset, time, kind, draw(keys), draw(values), extra))
        offset += draw(st.integers(1, 3))
    if magic == 2:
        return batches.batch(made, about)
    return oracle.message_set(made, magic=magic, codec=draw(st.integers(0, 3)))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    offset, sets, open_transactions = draw(st.sampled_from([0, 7, 1 << 40])), [], set()
    for _ in range(draw(st.integers(1, 9))):
        sets.append(draw(parts(offset, open_transactions)))
        offset = compaction.entries(sets[-1])[-1].offset + draw(st.integers(1, 4))
    return sets


def sifted(
    entries: list[bytes], in_window: int, offsets: OffsetMap, *, start: int, end: int, **how: int
) -> bytes:
    """Run one pass over a log, ``in_window`` entries at a time."""
    transactions = Transactions(start)
    transactions.add(b"".join(raw for raw in entries if compaction.entries(raw)[0].offset < end))
    windows = [b"".join(entries[at : at + in_window]) for at in range(0, len(entries), in_window)]
    asked: list[Transactions] = []

    def ask() -> Transactions:
        asked.append(transactions)
        return transactions

    offsets.begin(start)
    all(offsets.add(data, end, ask) for data in windows)
    record_filter = RecordFilter(
        offsets,
        now_ms=how["now"],
        delete_retention_ms=how["retention"],
        transactions=asked[0] if asked else None,
    )
    record_filter.tombstones_stay = bool(how["tombstones_stay"])
    left = b""
    for data in windows:
        kept = record_filter.filter(data)
        if kept is None:
            continue
        found = compaction.entries(bytes(kept.data))
        newest = max(entry.time for entry in found)
        assert kept.last_offset == found[-1].offset
        assert kept.first_offset == (found[0].base if found[0].magic == 2 else found[0].offset)
        assert kept.classic == all(entry.magic < 2 for entry in found)
        assert kept.newest[0] == newest
        if newest >= 0:
            assert kept.newest[1] == next(entry.offset for entry in found if entry.time == newest)
        left += bytes(kept.data)
    return left


@given(logs(), st.data())
def test_each_pass_retains_what_the_oracle_retains(sets: list[bytes], data: st.DataObject) -> None:
    offsets = OffsetMap(SLOT_BYTES * data.draw(st.sampled_from([3, 5, 9, 50])))
    how = {
        "tombstones_stay": data.draw(st.integers(0, 1)),
        "retention": data.draw(st.sampled_from([0, 1000])),
    }
    in_window = data.draw(st.integers(1, 4))
    log = compaction.entries(b"".join(sets))
    raw = split(b"".join(sets))
    ends = [entry.offset + 1 for entry in log]
    start = 0
    for now in range(NOW_MS, NOW_MS + 2400, 600):
        end = data.draw(st.sampled_from([end for end in ends if end > start] or [start]))
        log, reached = compaction.cleaned(
            log, start=start, end=end, capacity=offsets.capacity, now=now, **how
        )
        left = sifted(raw, in_window, offsets, start=start, end=end, now=now, **how)
        assert compaction.entries(left) == log
        assert offsets.end_offset == reached
        raw, start = split(left), reached


def split(data: bytes) -> list[bytes]:
    """Return the entries one by one."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:size])
        data = data[size:]
    return found


formats = st.tuples(st.integers(0, 2), st.sampled_from(Codec)).filter(
    lambda one: one[0] == 2 or one[1] in CLASSIC_CODECS
)
sets = st.tuples(formats, st.lists(st.tuples(keys, values), min_size=1, max_size=8), st.integers(0, 3))
PARTITION = TopicPartition("t", 0)


@given(st.lists(sets, max_size=25), st.sampled_from([3, 6, 100]), st.sampled_from([3000, 10_000]))
def test_a_cleaned_log_has_the_last_message_of_every_key(
    appended: list[tuple[tuple[int, Codec], list[tuple[bytes | None, bytes | None]], int]],
    slots: int,
    segment_bytes: int,
) -> None:
    """However many passes it takes, and cleaned again and again while it grows."""
    files = MemoryFiles(clock=ManualClock(NOW_MS))
    config = LogConfig(segment_bytes, 100, compacted=True, min_cleanable_dirty_ratio=0.0)
    log = open_log(files, config, directory="d/t_0")
    cleaner = Cleaner(files, files.clock, OffsetMap(slots * SLOT_BYTES), lambda cleaned, paths: None)
    cleaning = LogCleanerManager(files, lambda: {PARTITION: log}, cleaner)
    written: list[oracle.Message] = []
    for (magic, codec), pairs, chance in appended:
        made = [Record(key, value, NOW_MS + number) for number, (key, value) in enumerate(pairs)]
        data = bytearray(build_message_set(made, magic=magic, codec=codec))
        log.append(validate(data, Limits(max_magic=2), NOW_MS))
        written += [
            oracle.Message(
                len(written) + number, -1 if magic == 0 else one.timestamp_ms, 0, one.key, one.value
            )
            for number, one in enumerate(made)
        ]
        if chance == 0:
            cleaning.run_once(NOW_MS)
        if chance < 2:
            log.roll()
    while cleaning.run_once(NOW_MS) is not None:
        pass
    active = log.segments[-1].base_offset
    last = {message.key: message.offset for message in written if message.offset < active}
    last.pop(None, None)
    wanted = [message for message in written if message.offset >= active or message.offset in last.values()]
    for found in (log, open_log(files, config, directory="d/t_0")):
        data = b"".join(segment.file.read_at(0, segment.size) for segment in found.segments)
        left = [replace(message, timestamp_type=0) for message in oracle.decode(data)]
        assert left == wanted
    for message in wanted:
        found_slice = log.read(message.offset, 1).slice
        assert found_slice is not None
        assert message.offset in {found.offset for found in oracle.decode(found_slice.read())}
