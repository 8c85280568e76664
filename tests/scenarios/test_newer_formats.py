"""A broker on a data directory with messages of a newer format than its clients know."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.records.message_set import StoredRecord, iterate
from minikafka.wire.parts import buffer_of
from tests.scenarios.simulation import DATA_DIR, Simulation
from tests.unit.records.samples import BATCH_CASES, expected, segment

every_case = pytest.mark.parametrize("name", [name for name in BATCH_CASES if name != "magic2-zstd"])


def world_with(name: str) -> Simulation:
    """One topic whose log Kafka 3.9.1 wrote."""
    world = Simulation()
    world.machine.start()
    world.create_topic("t")
    world.machine.stop()
    file = world.machine.files.open(f"{DATA_DIR}/t_0/00000000000.kafka", create=True)
    file.write_at(0, segment(name))
    file.close()
    world.machine.files.remove(f"{DATA_DIR}/.kafka_cleanshutdown")
    assert world.machine.start()
    return world


def fetched(world: Simulation, version: int) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    at = 0
    while True:
        answer = world.fetch("t", at, version=version, max_bytes=1 << 22)
        assert answer.error_code == ErrorCode.NONE
        if not answer.records:
            return found
        got = [record for record in iterate(buffer_of(answer.records)) if record.offset >= at]
        found += got
        at = got[-1].offset + 1 if got else at + 1


@every_case
@pytest.mark.parametrize("version", [2, 3])
def test_consumers_of_magic_1_get_every_record_in_it(name: str, version: int) -> None:
    records = fetched(world_with(name), version)
    assert {record.magic for record in records} == {1}
    assert [(r.offset, r.timestamp_ms, int(r.timestamp_type), r.key, r.value) for r in records] == expected(
        name
    )


@every_case
def test_consumers_of_magic_0_get_every_record_without_its_timestamp(name: str) -> None:
    records = fetched(world_with(name), 1)
    assert {record.magic for record in records} == {0}
    assert [(r.offset, r.key, r.value) for r in records] == [(o, k, v) for o, _, _, k, v in expected(name)]


def test_zstd_which_older_formats_do_not_have_is_an_error_of_that_partition() -> None:
    answer = world_with("magic2-zstd").fetch("t", 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_where_only_marks_of_a_transaction_are_left_a_consumer_sees_that_the_log_goes_on() -> None:
    """What 3.9.1 answers there is recorded: the beginning of a message of offset -1."""
    world = world_with("magic2-transactions")
    marks = set(range(205)) - {row[0] for row in expected("magic2-transactions")}
    answer = world.fetch("t", min(marks), max_bytes=1)
    assert bytes(buffer_of(answer.records))[:8] == b"\xff" * 8
