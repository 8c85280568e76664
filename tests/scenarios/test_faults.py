"""One broker in simulation, and everything that goes wrong around it: one failure stays one failure."""

from __future__ import annotations

import errno

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, StorageError
from minikafka.log.log import Log
from minikafka.records.message_set import Record, build_message_set
from minikafka.registry import paths
from minikafka.registry.paths import EntityConfig
from minikafka.server.handlers import fetch
from minikafka.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from minikafka.wire.apis.metadata import MetadataRequest
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.keys import ApiKey
from tests.scenarios.simulation import DATA_DIR, Client, Simulation

DURABLE = {"log_flush_interval_messages": "1"}


@pytest.fixture
def world() -> Simulation:
    return Simulation()


class _ProcessDied(BaseException):
    """Ends a step as the end of the process would."""


def begin_fetch(client: Client, topic: str, *, version: int, wait_ms: int = 30_000) -> None:
    """Send a fetch that waits for its first message; nobody waits for the answer here."""
    part = FetchPartition(0, 0, 1 << 20)
    client.begin(ApiKey.FETCH, version, FetchRequest(-1, wait_ms, 1, 1 << 24, (FetchTopic(topic, (part,)),)))


# --- durability ---------------------------------------------------------------------------------------------


def test_what_recovery_finds_is_flushed_before_consumers_may_read_it(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(**DURABLE)
    world.create_topic("t")
    world.produce("t", b"acknowledged")

    def die(log: Log, up_to: int | None = None) -> int:
        raise _ProcessDied

    with monkeypatch.context() as patched:
        patched.setattr(Log, "flush", die)
        with pytest.raises(_ProcessDied):
            world.produce("t", b"written, not flushed")
    world.kill()
    world.start(**DURABLE)
    seen = [record.value for record in world.records("t")]
    world.power_cut()
    world.start(**DURABLE)
    assert [record.value for record in world.records("t")] == seen


def test_acks_all_wants_as_many_replicas_in_sync_as_the_topic_says(world: Simulation) -> None:
    world.start()
    world.create_topic("t", min_insync_replicas="2")
    assert world.produce("t", b"x", acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.records("t") == []
    assert world.produce("t", b"x", acks=1).error_code == ErrorCode.NONE


def test_a_partition_that_is_named_twice_in_a_request_is_refused_and_nothing_of_it_is_written(
    world: Simulation,
) -> None:
    world.start()
    world.create_topic("t")
    parts = tuple(ProducePartition(0, build_message_set([Record(None, value)])) for value in (b"a", b"b"))
    answer = world.call(ApiKey.PRODUCE, 2, ProduceRequest(-1, 5000, (ProduceTopic("t", parts),)))
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
    assert world.records("t") == []


# --- one failure stays one failure --------------------------------------------------------------------------


def test_an_answer_that_cannot_be_made_takes_no_other_with_it(
    world: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    world.create_topic("t")
    poisoned, healthy = world.another_client(), world.another_client()

    def broken(data: bytes) -> bytes:
        raise ValueError("a defect")

    monkeypatch.setattr(fetch, "down_convert", broken)
    begin_fetch(poisoned, "t", version=1)
    begin_fetch(healthy, "t", version=2)
    assert world.produce("t", b"x").error_code == ErrorCode.NONE
    assert healthy.finish().topics[0].partitions[0].records
    assert poisoned.connection is not None
    assert poisoned.connection.closed


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("unreadable"), ErrorCode.KAFKA_STORAGE_ERROR),
        (BrokerError(ErrorCode.CORRUPT_MESSAGE, "damaged"), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_cannot_be_converted_down_is_that_partitions_error(
    world: Simulation, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    world.start()
    world.create_topic("t")
    world.produce("t", b"x")

    def broken(data: bytes) -> bytes:
        raise error

    monkeypatch.setattr(fetch, "down_convert", broken)
    assert world.fetch("t", version=1).error_code == code


def test_the_housekeeper_goes_on_when_the_data_directory_is_gone(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    running = world.start()
    world.create_topic("t")
    world.files.remove_tree(DATA_DIR)
    for _ in range(2):
        world.clock.advance(61_000)
        running.housekeeper.tick()
    assert world.fetch("t", wait_ms=100).error_code == ErrorCode.NONE


def test_a_log_that_cannot_be_made_is_made_later_and_its_topic_is_not_called_ready_before(
    world: Simulation,
) -> None:
    world.start()
    world.files.fail_next_open(errno.ENOSPC, match="t_0")
    other = world.another_client()
    assert world.create_topic("t", timeout_ms=500) == ErrorCode.REQUEST_TIMED_OUT
    assert other.metadata("t").topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    world.clock.advance(2_000)
    world.settle()
    world.settle()
    assert other.metadata("t").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_a_topic_whose_directory_somebody_removed_can_be_deleted(world: Simulation) -> None:
    world.start()
    world.create_topic("t", partitions=2)
    world.files.remove_tree(f"{DATA_DIR}/t_0")
    assert world.delete_topic("t") == ErrorCode.NONE
    assert not [name for name in world.files.list_dir(DATA_DIR) if name.startswith("t_")]


def test_one_topic_with_nonsense_in_zookeeper_does_not_keep_the_others_from_their_leaders(
    world: Simulation,
) -> None:
    world.start()
    world.create_topic("good")
    world.create_topic("bad")
    world.create_topic("odd")
    world.stop()
    zookeeper = world.zookeeper.connect()
    zookeeper.write(paths.partition_state_path("bad", 0), b"{")
    zookeeper.write(
        paths.topic_config_path("odd"),
        EntityConfig({"segment.ms": "soon", "of.a.later.release": "1"}).to_json(),
    )
    world.start()
    assert world.produce("good", b"x").error_code == ErrorCode.NONE
    assert world.produce("odd", b"x").error_code == ErrorCode.NONE


def test_settings_without_effect_in_this_version_are_named_at_creation(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    world.start()
    world.create_topic("t", cleanup_policy="compact", retention_ms="-1")
    assert "does not act on cleanup.policy" in caplog.text
    assert "retention.ms" not in caplog.text


# --- the beginning, and ZooKeeper away ----------------------------------------------------------------------


def test_metadata_asked_for_before_the_broker_knows_its_cluster_is_answered_when_it_does(
    world: Simulation,
) -> None:
    world.start()
    world.create_topic("t")
    world.stop()
    early = world.another_client()
    world.start(settle=False)
    early.begin(ApiKey.METADATA, 2, MetadataRequest(("t",)))
    world.network.run()
    world.settle()
    answer = early.finish()
    assert len(answer.brokers) == 1
    assert answer.topics[0].error_code == ErrorCode.NONE


def test_a_topic_that_many_ask_for_is_created_once(world: Simulation) -> None:
    running = world.start()
    assert world.store is not None
    world.zookeeper.suspend(world.store)
    submitted = []
    submit = running.broker.worker.submit

    def count(job: object) -> None:
        submitted.append(job)
        submit(job)  # type: ignore[arg-type]

    running.broker.worker.submit = count  # type: ignore[method-assign]
    for _ in range(20):
        world.metadata("wanted")
    assert len(submitted) == 1
    world.zookeeper.resume(world.store)
    world.settle()
    assert world.metadata("wanted").topics[0].error_code == ErrorCode.NONE
