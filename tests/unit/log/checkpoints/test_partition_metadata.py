"""The topic ids in the directories of logs, and the logs that they tell apart."""

from __future__ import annotations

import errno
import logging
import random

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file, replace_file
from minikafka.base.ids import uuid_in
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.partition_metadata import read_topic_id, write_topic_id
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation
from minikafka.log.manager import LogManager
from tests.support.logs import ONE, TWO, manager_of

TEXT = "VNuEZmGWSK2D6MQIPJRByA"
ID, OTHER_ID = uuid_in(TEXT), bytes(range(16))
BYTES_OF_KAFKA = b"version: 0\ntopic_id: VNuEZmGWSK2D6MQIPJRByA"
"""The file as a broker of 3.9.1 has written it."""
FILE = "d1/my_topic_0/partition.metadata"


def with_log(files: MemoryFiles, topic: TopicIncarnation) -> LogManager:
    """A log of a topic, as it is recorded."""
    manager = manager_of(files)
    manager.topic_incarnations.begin(("a-cluster", 2))
    manager.create(ONE)
    manager.topic_incarnations.record({ONE: topic})
    return manager


def opened_again(files: MemoryFiles) -> LogManager:
    manager = manager_of(files)
    manager.topic_incarnations.begin(("a-cluster", 2))
    return manager


def kept(files: MemoryFiles) -> bytes | None:
    return read_topic_id(files, "d1/my_topic_0")


def test_bytes_are_those_of_kafka(files: MemoryFiles) -> None:
    assert ID is not None
    files.make_dirs("t-0")
    write_topic_id(files, "t-0", ID)
    assert read_file(files, "t-0/partition.metadata") == BYTES_OF_KAFKA
    assert read_topic_id(files, "t-0") == ID


@pytest.mark.parametrize("data", [BYTES_OF_KAFKA + b"\n", BYTES_OF_KAFKA.replace(b"0", b"1", 1)])
def test_later_versions_and_a_last_newline_are_read_as_kafka_does(files: MemoryFiles, data: bytes) -> None:
    replace_file(files, "partition.metadata", data)
    assert read_topic_id(files, "") == ID


def test_directory_without_the_file_has_no_id(files: MemoryFiles) -> None:
    assert read_topic_id(files, "nowhere") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 43,
        b"\xff",
        b"version: 0",
        b"version: 0\ntopic_id: ",
        b"version: x\ntopic_id: VNuEZmGWSK2D6MQIPJRByA",
        b"version: -1\ntopic_id: VNuEZmGWSK2D6MQIPJRByA",
        b"version: 0\ntopic_id: VNuEZmGW",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: VNuEZmGWSK2D6MQIPJRByA and more",
    ],
)
def test_file_that_is_not_valid_is_refused_with_its_path(files: MemoryFiles, data: bytes) -> None:
    replace_file(files, "partition.metadata", data)
    with pytest.raises(StorageError, match=r"^partition.metadata .* remove it if the log belongs to"):
        read_topic_id(files, "")


def test_log_with_an_invalid_file_is_not_opened_until_it_is_mended(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with_log(files, TopicIncarnation(7, ID)).close()
    replace_file(files, FILE, b"version: 0\ntopic")
    again = opened_again(files)
    assert again.get(ONE) is None
    assert FILE in caplog.text
    with pytest.raises(StorageError, match=FILE):
        again.create(ONE)
    replace_file(files, FILE, BYTES_OF_KAFKA)
    assert again.create(ONE).directory == "d1/my_topic_0"
    assert again.topic_incarnations.of(ONE) == TopicIncarnation(7, ID)


def test_id_is_written_at_the_next_save_and_known_after_a_restart(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    assert kept(files) is None
    manager.topic_incarnations.save_topic_ids()
    assert kept(files) == ID
    files.power_cut()
    assert opened_again(files).topic_incarnations.of(ONE) == TopicIncarnation(7, ID)


def test_clean_close_writes_the_ids(files: MemoryFiles) -> None:
    with_log(files, TopicIncarnation(7, ID)).close()
    assert kept(files) == ID


def test_id_that_is_written_is_not_written_again(files: MemoryFiles) -> None:
    with_log(files, TopicIncarnation(7, ID)).close()
    again = opened_again(files)
    again.topic_incarnations.record({ONE: TopicIncarnation(7, ID)})
    before = len(files.operations)
    again.topic_incarnations.save_topic_ids()
    assert len(files.operations) == before


@pytest.mark.parametrize("seed", range(40))
def test_power_cut_leaves_a_whole_file_or_none(files: MemoryFiles, seed: int) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.flush_names()
    chance = random.Random(seed)
    kind = chance.choice(["write", "sync", "rename", ""])
    if kind:
        getattr(files, f"fail_next_{kind}")(match="partition.metadata")
    manager.topic_incarnations.save_topic_ids()
    files.power_cut(chance)
    files.clear_faults()
    again = opened_again(files)
    assert again.topic_incarnations.of(ONE) in {TopicIncarnation(7), TopicIncarnation(7, ID)}
    assert again.topic_incarnations.is_of_another(ONE, TopicIncarnation(8, OTHER_ID))


def test_full_disk_is_logged_once_and_tried_again(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.create(TWO)
    manager.topic_incarnations.record({TWO: TopicIncarnation(7, ID)})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            files.fail_next_write(errno.ENOSPC, match="partition.metadata")
            manager.topic_incarnations.save_topic_ids()
    assert len(caplog.messages) == 1
    manager.topic_incarnations.save_topic_ids()
    assert [read_topic_id(files, f"d1/my_topic_{number}") for number in (0, 1)] == [ID, ID]


def test_id_of_a_deleted_log_is_not_written_to_the_next_one(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.delete(ONE)
    manager.create(ONE)
    manager.topic_incarnations.save_topic_ids()
    assert kept(files) is None
    assert manager.topic_incarnations.of(ONE) == TopicIncarnation()


def test_log_set_aside_keeps_its_id(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.topic_incarnations.save_topic_ids()
    stray = manager.mark_stray(ONE)
    assert stray is not None
    assert read_topic_id(files, stray) == ID
    assert manager.topic_incarnations.of(ONE) == TopicIncarnation()


def test_missing_directory_ends_the_attempts(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    files.remove_tree("d1/my_topic_0")
    manager.topic_incarnations.save_topic_ids()
    before = len(files.operations)
    manager.topic_incarnations.save_topic_ids()
    assert len(files.operations) == before


def test_no_more_files_are_written_at_once_than_asked_for(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.create(TWO)
    manager.topic_incarnations.record({TWO: TopicIncarnation(7, ID)})
    manager.topic_incarnations.save_topic_ids(1)
    assert [read_topic_id(files, f"d1/my_topic_{number}") for number in (0, 1)] == [ID, None]


def test_log_whose_file_cannot_be_written_does_not_hold_up_the_others(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(7, ID))
    manager.create(TWO)
    manager.topic_incarnations.record({TWO: TopicIncarnation(7, ID)})
    for _ in range(2):
        files.fail_next_write(errno.EACCES, match=FILE)
        manager.topic_incarnations.save_topic_ids(1)
    assert [read_topic_id(files, f"d1/my_topic_{number}") for number in (0, 1)] == [None, ID]


def test_full_directory_does_not_hold_up_the_other_one(files: MemoryFiles) -> None:
    manager = manager_of(files, "d1", "d2")
    manager.topic_incarnations.begin(("a-cluster", 2))
    logs = [manager.create(partition) for partition in (ONE, TWO)]
    manager.topic_incarnations.record(dict.fromkeys((ONE, TWO), TopicIncarnation(7, ID)))
    files.fail_next_write(errno.ENOSPC, match="d1/")
    manager.topic_incarnations.save_topic_ids(1)
    assert [read_topic_id(files, log.directory) for log in logs] == [None, ID]


@pytest.mark.parametrize(
    ("log", "topic", "another"),
    [
        (TopicIncarnation(None, ID), TopicIncarnation(9, ID), False),
        (TopicIncarnation(None, ID), TopicIncarnation(9, OTHER_ID), True),
        (TopicIncarnation(None, ID), TopicIncarnation(9), False),
        (TopicIncarnation(7, ID), TopicIncarnation(9, ID), False),
        (TopicIncarnation(7, ID), TopicIncarnation(9, OTHER_ID), True),
        (TopicIncarnation(7, ID), TopicIncarnation(9), True),
        (TopicIncarnation(9, ID), TopicIncarnation(9, OTHER_ID), False),
        (TopicIncarnation(9), TopicIncarnation(9, ID), False),
        (TopicIncarnation(7), TopicIncarnation(9, ID), True),
        (TopicIncarnation(), TopicIncarnation(9, ID), False),
    ],
)
def test_id_decides_and_without_it_the_change(
    files: MemoryFiles, log: TopicIncarnation, topic: TopicIncarnation, another: bool
) -> None:
    manager = with_log(files, log)
    assert manager.topic_incarnations.is_of_another(ONE, topic) is another
    assert not manager.topic_incarnations.is_of_later(ONE, topic)


def test_log_of_a_topic_that_zookeeper_lost_takes_the_id_of_the_next(files: MemoryFiles) -> None:
    manager = with_log(files, TopicIncarnation(12, ID))
    topic = TopicIncarnation(9, OTHER_ID)
    assert not manager.topic_incarnations.is_of_another(ONE, topic)
    assert manager.topic_incarnations.is_of_later(ONE, topic)
    manager.topic_incarnations.record({ONE: topic})
    manager.close()
    again = opened_again(files)
    assert again.topic_incarnations.of(ONE) == topic


def test_log_with_the_id_belongs_to_the_topic_in_any_cluster(files: MemoryFiles) -> None:
    with_log(files, TopicIncarnation(12, ID)).close()
    elsewhere = manager_of(files)
    elsewhere.topic_incarnations.begin(("another-cluster", 3))
    assert elsewhere.topic_incarnations.is_of_another(ONE, TopicIncarnation(4, OTHER_ID))
    assert not elsewhere.topic_incarnations.is_of_another(ONE, TopicIncarnation(4, ID))
