"""One broker in simulation: what it promises, and what crashes do to it."""

from __future__ import annotations

import errno
import json

import pytest

from minikafka.base.errors import ConfigError, DirectoryLocked, ErrorCode
from minikafka.records.message_set import Codec, Record, build_message_set
from minikafka.registry import paths
from minikafka.registry.memory import MemoryStore
from tests.scenarios.simulation import DATA_DIR, HOST, PORT, Simulation

DURABLE = {"log_flush_interval_messages": "1"}


@pytest.fixture
def world() -> Simulation:
    return Simulation()


def observer(world: Simulation) -> MemoryStore:
    return world.zookeeper.connect()


# --- messages -----------------------------------------------------------------------------------------------


def test_what_is_produced_can_be_fetched_in_order(world: Simulation) -> None:
    world.start()
    assert world.create_topic("t") == ErrorCode.NONE
    assert world.produce("t", b"a", b"b").base_offset == 0
    assert world.produce("t", b"c").base_offset == 2
    assert [(record.offset, record.value) for record in world.records("t")] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_a_fetch_waits_until_somebody_produces(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    began_ms = world.clock.monotonic_ms()
    producer = world.another_client()
    late = [lambda: producer.produce("t", b"at last", acks=0)]

    def after_a_while() -> None:
        if late and world.clock.monotonic_ms() >= began_ms + 200:
            late.pop()()

    world.network.on_step(after_a_while)
    answer = world.fetch("t", 0, wait_ms=5000)
    assert answer.records
    assert 200 <= world.clock.monotonic_ms() - began_ms < 300


def test_a_fetch_with_nothing_to_give_ends_at_its_deadline(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    began_ms = world.clock.monotonic_ms()
    answer = world.fetch("t", 0, wait_ms=500)
    assert answer.error_code == ErrorCode.NONE
    assert 500 <= world.clock.monotonic_ms() - began_ms < 600


def test_a_corrupt_message_set_is_refused_and_nothing_of_it_is_written(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    damaged = bytearray(build_message_set([Record(None, b"good"), Record(None, b"bad")]))
    damaged[-1] ^= 1
    assert world.produce_set("t", bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert world.records("t") == []
    assert world.produce("t", b"next").base_offset == 0


def test_an_old_consumer_gets_messages_of_magic_0(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    world.produce_set("t", build_message_set([Record(b"k", b"v", 5)], codec=Codec.GZIP))
    answer = world.fetch("t", 0, version=1)
    assert bytes(answer.records)[16] == 0


def test_a_fetch_outside_the_log_says_so(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    assert world.fetch("t", 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_partitions_are_named_as_such(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    assert world.produce("t", b"x", partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.fetch("ghost").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_waits_is_answered_when_the_broker_stops(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    began_ms = world.clock.monotonic_ms()
    once = [world.stop]

    def after_a_while() -> None:
        if once and world.clock.monotonic_ms() >= began_ms + 100:
            once.pop()()

    world.network.on_step(after_a_while)
    assert world.fetch("t", 0, wait_ms=30_000).error_code == ErrorCode.NONE
    assert world.clock.monotonic_ms() - began_ms < 1000


# --- durability ---------------------------------------------------------------------------------------------


def test_with_a_flush_for_each_message_the_answer_leaves_after_the_fsync(world: Simulation) -> None:
    world.start(**DURABLE)
    world.create_topic("t")
    world.produce("t", b"first")
    world.files.operations.clear()
    world.produce("t", b"second")
    world.files.note("answer")
    kinds = [operation.kind for operation in world.files.operations]
    assert kinds.index("write") < kinds.index("sync") < kinds.index("answer")


@pytest.mark.parametrize("seed", range(20))
def test_an_acknowledged_and_flushed_message_survives_a_power_cut(seed: int) -> None:
    world = Simulation(seed)
    world.start(**DURABLE)
    world.create_topic("t")
    for number in range(5):
        assert world.produce("t", b"%d" % number).error_code == ErrorCode.NONE
    world.power_cut(partly=True)
    world.start(**DURABLE)
    assert [record.value for record in world.records("t")] == [b"0", b"1", b"2", b"3", b"4"]


def test_every_acknowledged_message_survives_the_death_of_the_process(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    world.produce("t", b"a", b"b", b"c")
    world.kill()
    world.start()
    assert [record.value for record in world.records("t")] == [b"a", b"b", b"c"]


def test_after_a_power_cut_without_flush_the_log_is_a_prefix_and_takes_more(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    for number in range(50):
        world.produce("t", b"%d" % number)
    world.power_cut(partly=True)
    world.start()
    kept = [int(record.value) for record in world.records("t")]
    assert kept == list(range(len(kept)))
    assert world.produce("t", b"more").base_offset == len(kept)


def test_a_full_disk_fails_the_producer_and_nobody_else(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    world.produce("t", b"before")
    world.files.fail_next_write(errno.ENOSPC, after_bytes=10, match="00000000000.kafka")
    assert world.produce("t", b"does not fit").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [record.value for record in world.records("t")] == [b"before"]
    assert world.produce("t", b"after").base_offset == 1


def test_a_failed_flush_is_never_acknowledged(world: Simulation) -> None:
    world.start(**DURABLE)
    world.create_topic("t")
    world.files.fail_next_sync(match="00000000000.kafka")
    assert world.produce("t", b"lost?").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.records("t") == []


# --- topics and ZooKeeper -----------------------------------------------------------------------------------


def test_a_new_topic_stands_in_zookeeper_as_the_release_writes_it(world: Simulation) -> None:
    world.start()
    world.create_topic("t", partitions=2, retention_ms="1000")
    zookeeper = observer(world)
    assert json.loads(zookeeper.read("/brokers/topics/t")[0]) == {
        "version": 1,
        "partitions": {"0": [0], "1": [0]},
    }
    assert json.loads(zookeeper.read("/config/topics/t")[0]) == {
        "version": 1,
        "config": {"retention.ms": "1000"},
    }
    data, stat = zookeeper.read("/brokers/topics/t/partitions/1/state")
    assert json.loads(data) == {
        "controller_epoch": 1,
        "leader": 0,
        "version": 1,
        "leader_epoch": 0,
        "isr": [0],
    }
    assert stat.ephemeral_owner == 0


def test_asking_for_an_unknown_topic_creates_it_where_that_is_configured(world: Simulation) -> None:
    world.start(num_partitions="3")
    assert world.metadata("new").topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    world.settle()
    assert len(world.metadata("new").topics[0].partitions) == 3


def test_asking_for_an_unknown_topic_creates_nothing_where_that_is_switched_off(world: Simulation) -> None:
    world.start(auto_create_topics_enable="false")
    assert world.metadata("new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.settle()
    assert world.metadata().topics == ()


@pytest.mark.parametrize(
    ("name", "partitions", "config", "code"),
    [
        ("no/slash", 1, {}, ErrorCode.INVALID_TOPIC),
        ("known", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("kno_wn.x", 1, {}, ErrorCode.INVALID_TOPIC),
        ("none", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("odd", 1, {"no_such_thing": "1"}, ErrorCode.INVALID_CONFIG),
        ("odd", 1, {"segment_bytes": "x"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_by_its_reason(
    world: Simulation, name: str, partitions: int, config: dict[str, str], code: ErrorCode
) -> None:
    world.start()
    world.create_topic("known")
    world.create_topic("kno.wn.x")
    assert world.create_topic(name, partitions, **config) == code


def test_a_deleted_topic_leaves_neither_znodes_nor_files_and_can_be_made_again(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    world.produce("t", b"old")
    assert world.delete_topic("t") == ErrorCode.NONE
    zookeeper = observer(world)
    assert zookeeper.exists("/brokers/topics/t") is None
    assert zookeeper.exists("/config/topics/t") is None
    assert zookeeper.children("/admin/delete_topics") == []
    assert not [name for name in world.files.list_dir(DATA_DIR) if name.startswith("t_")]
    assert world.create_topic("t") == ErrorCode.NONE
    assert world.records("t") == []


def test_deleting_what_is_not_there_or_not_allowed_is_an_error(world: Simulation) -> None:
    world.start(delete_topic_enable="false")
    world.create_topic("t")
    assert world.delete_topic("ghost") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.delete_topic("t") == ErrorCode.INVALID_REQUEST


def test_topics_and_messages_are_there_after_a_clean_restart(world: Simulation) -> None:
    world.start()
    world.create_topic("t", partitions=2)
    world.produce("t", b"kept", partition=1)
    world.stop()
    world.start()
    assert [record.value for record in world.records("t", partition=1)] == [b"kept"]
    assert world.metadata("t").controller_id == 0


def test_while_zookeeper_is_away_messages_go_on_and_a_new_topic_comes_when_it_is_back(
    world: Simulation,
) -> None:
    world.start()
    world.create_topic("t")
    assert world.store is not None
    world.zookeeper.suspend(world.store)
    assert world.produce("t", b"still").error_code == ErrorCode.NONE
    assert [record.value for record in world.records("t")] == [b"still"]
    assert world.create_topic("new", timeout_ms=300) == ErrorCode.REQUEST_TIMED_OUT
    world.zookeeper.resume(world.store)
    world.settle()
    assert world.metadata("new").topics[0].error_code == ErrorCode.NONE


def test_after_its_session_expired_the_broker_registers_and_leads_again(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    assert world.store is not None
    world.zookeeper.expire(world.store)
    world.settle()
    zookeeper = observer(world)
    assert zookeeper.children("/brokers/ids") == ["0"]
    assert zookeeper.read("/controller_epoch")[0] == b"2"
    assert world.produce("t", b"on").error_code == ErrorCode.NONE
    assert world.create_topic("u") == ErrorCode.NONE


# --- who a broker is ----------------------------------------------------------------------------------------


def test_a_killed_broker_serves_again_at_once_although_its_session_still_lives(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    world.kill()
    assert observer(world).children("/brokers/ids") == ["0"]
    world.start()
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_a_broker_id_that_another_one_has_is_an_error_and_stays_the_others(world: Simulation) -> None:
    other = observer(world)
    registration = (
        b'{"version":3,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"1"}'
    )
    other.create(paths.broker_path(0), registration, ephemeral=True, make_parents=True)
    with pytest.raises(ConfigError, match="is registered already, by broker 0 at h:1"):
        world.start()
    assert other.exists(paths.broker_path(0)) is not None


def test_a_second_broker_in_the_cluster_is_refused_for_now(world: Simulation) -> None:
    other = observer(world)
    other.create(paths.broker_path(7), b"{}", ephemeral=True, make_parents=True)
    with pytest.raises(ConfigError, match="one broker a cluster"):
        world.start()


def test_a_second_broker_on_one_directory_is_refused(world: Simulation) -> None:
    world.start()
    with pytest.raises(DirectoryLocked):
        world.start()


def test_the_cluster_id_is_made_once_and_never_replaced(world: Simulation) -> None:
    world.start()
    first = world.metadata().cluster_id
    assert first is not None
    assert len(first) == 22
    world.stop()
    world.start()
    assert world.metadata().cluster_id == first


def test_a_broker_without_an_id_gets_one_above_the_reserved_ones_and_keeps_it(world: Simulation) -> None:
    assert world.start(broker_id="-1").address.broker_id == 1001
    world.stop()
    assert world.start(broker_id="-1").address.broker_id == 1001


# --- requests that are none ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\x00\x63\x00\x00\x00\x00\x00\x01\x00\x00",
        b"\x00\x03\x00\x63\x00\x00\x00\x01\x00\x00",
        b"\x00\x03\x00\x02\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["empty", "too short", "unknown API", "unknown version", "absurd array", "another protocol"],
)
def test_nonsense_ends_its_own_connection_and_nobody_elses(world: Simulation, frame: bytes) -> None:
    world.start()
    world.create_topic("t")
    stranger = world.network.connect(HOST, PORT)
    stranger.request([frame])
    world.network.run()
    assert stranger.closed
    assert world.produce("t", b"fine").error_code == ErrorCode.NONE


def test_a_newer_client_is_told_which_version_to_ask_with(world: Simulation) -> None:
    world.start()
    newer = world.network.connect(HOST, PORT)
    answer = newer.request([b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x01x\x00\x00"]).result()
    assert bytes(answer[:6]) == b"\x00\x00\x00\x07\x00\x23"


def test_a_failed_produce_without_acks_ends_the_connection(world: Simulation) -> None:
    world.start()
    world.create_topic("t")
    damaged = bytearray(build_message_set([Record(None, b"x")]))
    damaged[-1] ^= 1
    world.produce_set("t", bytes(damaged), acks=0)
    assert world.connection is not None
    assert world.connection.closed
