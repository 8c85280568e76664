"""Produced sets of very many wrappers: the stored records, and the memory."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import REBUILT_MOST, assign, prepare, validate, validate_steps
from minikafka.records.append.wrappers import GROUP, GROUP_BYTES
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate, wrap

NOW_MS = 5
MANY = 2 * GROUP + 3


def small(number: int, magic: int, codec: Codec, *, first_inside: int = 0) -> bytes:
    """A wrapper of two messages."""
    records = [Record(b"k", b"%d-%d" % (number, k), number + k) for k in range(2)]
    content = build_message_set(records, magic=magic, base_offset=first_inside)
    return wrap(content, offset=first_inside + 1, magic=magic, codec=codec, timestamp_ms=number + 1)


def values(data: memoryview | bytes) -> list[tuple[int, bytes | None, int]]:
    return [(record.offset, record.value, record.timestamp_ms) for record in iterate(data)]


def shallow(data: memoryview) -> int:
    return len(list(iterate(data, deep=False)))


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_of_all_codecs_keep_their_messages(magic: int) -> None:
    dice = Random(3)
    entries = []
    for number in range(MANY):
        codec = dice.choice([Codec.NONE, Codec.GZIP, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        if codec is Codec.NONE:
            entries.append(build_message_set([Record(None, b"plain", number)], magic=magic))
        else:
            entries.append(small(number, magic, codec))
    sent = b"".join(entries)
    valid = prepare(validate(bytearray(sent), Limits(), NOW_MS), 100)
    assigned = assign(valid, 100)
    wanted = [row[1:] for row in values(sent)]
    assert [row[1:] for row in values(assigned.data)] == wanted
    assert [row[0] for row in values(assigned.data)] == list(range(100, 100 + len(wanted)))
    assert assigned.count == len(wanted)
    if magic:
        newest = max(row[1] for row in wanted)
        assert (assigned.max_timestamp_ms, shallow(assigned.data)) == (newest, MANY)
        assert max(row[0] for row in values(assigned.data) if row[2] == newest) == assigned.max_timestamp_at


@pytest.mark.parametrize(("magic", "first_inside"), [(0, 0), (1, 7)])
def test_many_wrappers_to_rebuild_become_one(magic: int, first_inside: int) -> None:
    def stored(count: int) -> memoryview:
        sent = b"".join(small(k, magic, Codec.GZIP, first_inside=first_inside) for k in range(count))
        valid = prepare(validate(bytearray(sent), Limits(), NOW_MS), 9)
        data = assign(valid, 9).data
        assert [row[:2] for row in values(data)] == [
            (9 + 2 * k + i, b"%d-%d" % (k, i)) for k in range(count) for i in range(2)
        ]
        return data

    assert shallow(stored(REBUILT_MOST)) == REBUILT_MOST
    assert shallow(stored(REBUILT_MOST + 1)) == 1
    assert shallow(stored(MANY)) == 1


def test_many_wrappers_get_the_largest_time_of_their_messages() -> None:
    content = build_message_set([Record(None, b"x", 70)])
    wrong = wrap(content, offset=0, magic=1, codec=Codec.LZ4, timestamp_ms=5)
    valid = validate(bytearray(wrong * MANY), Limits(), NOW_MS)
    assert {record.timestamp_ms for record in iterate(assign(valid, 0).data, deep=False)} == {70}


@pytest.mark.parametrize("at", [0, 1, GROUP - 1, GROUP, MANY - 1])
def test_fault_in_any_wrapper_is_reported_with_its_position(at: int) -> None:
    entries = [small(number, 1, Codec.SNAPPY) for number in range(MANY)]
    position = sum(map(len, entries[:at]))
    damaged = bytearray(build_message_set([Record(None, b"x")]))
    damaged[-1] ^= 1
    entries[at] = wrap(damaged, offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=0)
    with pytest.raises(BrokerError, match=f"checksum.*at position {position}$") as raised:
        validate(bytearray(b"".join(entries)), Limits(), NOW_MS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    entries[at] = wrap(b"", offset=0, magic=1, codec=Codec.GZIP, timestamp_ms=0)
    with pytest.raises(BrokerError, match=f"holds no message, at position {position}$"):
        validate(bytearray(b"".join(entries)), Limits(), NOW_MS)
    entries[at] = bytearray(small(1, 1, Codec.GZIP))
    entries[at][-8] ^= 1
    with pytest.raises(BrokerError, match=f"position {position}$"):
        validate(bytearray(b"".join(entries)), Limits(), NOW_MS)


def test_large_content_among_small_is_a_step_of_its_own() -> None:
    large = build_message_set([Record(None, bytes(3 * GROUP_BYTES), 1)], codec=Codec.LZ4)
    few = b"".join(small(number, 1, Codec.GZIP) for number in range(3))
    steps = validate_steps(bytearray(few + large + few), Limits(), NOW_MS)
    needs = list(steps)
    assert [need > GROUP_BYTES for need in needs] == [False, True, False]
    assert validate(bytearray(few + large + few), Limits(), NOW_MS).count == 13


@pytest.mark.parametrize("limits", [Limits(), Limits(codec=Codec.LZ4), Limits(magic=0)])
def test_very_many_wrappers_take_many_steps_and_little_memory(limits: Limits) -> None:
    count = 10_000
    data = bytearray(build_message_set([Record(None, b"x", 1)], codec=Codec.LZ4) * count)
    steps = validate_steps(data, limits, NOW_MS)
    tracemalloc.start()
    try:
        assert sum(1 for _ in steps) >= count // GROUP
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 4 * len(data)
