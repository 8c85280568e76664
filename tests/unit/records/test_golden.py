"""Every recorded segment of magic 0 and 1, read in each way, equals what Kafka's consumer returned."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest

from minikafka.base.errors import BrokerError
from minikafka.records.append.conversion import down_convert
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import assign, validate
from minikafka.records.columns import decode, partitions_by_key
from minikafka.records.format.hashes import murmur2, partition_of_key
from minikafka.records.format.message_set import Codec, Record, build_message_set, iterate
from minikafka.records.scan.scan import find_position, first_at_or_after, scan
from tests.oracles import messages as oracle
from tests.support.records import CASES, SEGMENTS, expected, row_of, rows_of, segment

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_the_iterator_reads_what_kafka_read(name: str) -> None:
    assert [row_of(record) for record in iterate(segment(name))] == expected(name)


@every_case
def test_the_columns_hold_what_kafka_read(name: str) -> None:
    assert rows_of(decode(segment(name), 0, 1 << 40)) == expected(name)


@every_case
def test_the_oracle_reads_what_kafka_read(name: str) -> None:
    rows = [(m.offset, m.timestamp, m.timestamp_type, m.key, m.value) for m in oracle.decode(segment(name))]
    assert rows == expected(name)


@every_case
def test_a_recovery_finds_every_byte_of_it_good(name: str) -> None:
    data = segment(name)
    result = scan(data, base_offset=0)
    assert (result.valid_bytes, result.next_offset, result.problem) == (len(data), 200, None)


@every_case
def test_a_part_of_its_offsets_can_be_decoded(name: str) -> None:
    assert rows_of(decode(segment(name), 37, 121)) == expected(name)[37:121]


@every_case
def test_every_offset_is_found_at_or_before_its_own_place(name: str) -> None:
    data, rows = segment(name), expected(name)
    for offset in range(0, 200, 9):
        position = find_position(data, offset)
        assert position is not None
        assert next(iterate(data[position:])).offset <= offset
        assert rows_of(decode(data[position:], offset, offset + 1)) == [rows[offset]]


@every_case
def test_the_first_message_of_each_time_is_found(name: str) -> None:
    rows = expected(name)
    for _, timestamp, _, _, _ in rows[::7]:
        wanted = next((row[0], row[1]) for row in rows if row[1] >= timestamp)
        assert first_at_or_after(segment(name), timestamp) == wanted


@every_case
def test_made_magic_0_it_keeps_offsets_keys_and_values(name: str) -> None:
    converted = list(iterate(down_convert(segment(name))))
    assert [(r.offset, r.key, r.value) for r in converted] == [(r[0], r[3], r[4]) for r in expected(name)]
    assert {record.magic for record in converted} == {0}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("magic0")])
def test_magic_0_passes_the_conversion_byte_for_byte(name: str) -> None:
    assert down_convert(segment(name)) == segment(name)


@pytest.mark.parametrize("name", ["magic0-none", "magic1-none"])
def test_built_set_is_byte_for_byte_that_of_kafka(name: str) -> None:
    records = [Record(key, value, timestamp) for _, timestamp, _, key, value in expected(name)]
    assert build_message_set(records, magic=int(name[5])) == segment(name)


@every_case
def test_segment_sent_as_a_set_gets_new_offsets_only(name: str) -> None:
    if "logappendtime" in name:
        with pytest.raises(BrokerError, match=r"INVALID_TIMESTAMP.*LogAppendTime"):
            validate(segment(name), Limits(), 0)
        return
    assigned = assign(validate(segment(name), Limits(), 0), 5000)
    rows = [(row[0] + 5000, *row[1:]) for row in expected(name)]
    assert [row_of(record) for record in iterate(assigned.data)] == rows
    assert (assigned.first_offset, assigned.last_offset, assigned.count) == (5000, 5199, 200)


@every_case
def test_assigning_its_own_offset_changes_no_byte(name: str) -> None:
    """Magic 0 wrappers are made anew; everything else must come out as Kafka 0.10.1.1 stored it."""
    data = segment(name)
    position = 0
    for record in iterate(data, deep=False):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if record.timestamp_type != 1 and (record.magic == 1 or record.codec is Codec.NONE):
            valid = validate(data[position:end], Limits(), 0)
            first = record.offset - valid.count + 1
            assert bytes(assign(valid, first).data) == data[position:end]
        position = end


def test_murmur2_and_partitions_are_kafkas() -> None:
    cases = json.loads((SEGMENTS / "murmur2.json").read_text())
    keys = [base64.b64decode(case["key"]) for case in cases]
    assert [murmur2(key) for key in keys] == [case["murmur2"] for case in cases]
    for partitions in (1, 2, 3, 4, 7, 10, 12, 50, 100):
        wanted = [case["partition"][str(partitions)] for case in cases]
        assert [partition_of_key(key, partitions) for key in keys] == wanted
        assert partitions_by_key(pa.array(keys, pa.binary()), partitions).tolist() == wanted
