"""The paths of znodes, and values of some kinds that earlier and later releases write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.registry import paths
from minikafka.registry.cluster import ProducerIdBlock
from minikafka.registry.controller import ControllerRegistration
from minikafka.registry.entity_configs import ConfigChange, EntityConfig
from minikafka.registry.topics import PartitionState, TopicAssignment

GOLDEN = Path(__file__).parents[2] / "data" / "zookeeper"


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, ConfigChange("topics", "orders")),
        (1, ConfigChange("clients", "client-a")),
        (2, ConfigChange("users", "user1/clients/<default>")),
        (3, ConfigChange("brokers", "0")),
    ],
)
def test_recorded_config_change_is_read_and_written_alike(number: int, change: ConfigChange) -> None:
    path = f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}{number:010d}"
    node = json.loads((GOLDEN / "05-configs-changed.json").read_text(encoding="utf-8"))[path]
    assert ConfigChange.from_json(node["data"].encode(), path) == change
    assert change.to_json() == node["data"].encode()


def test_a_notification_of_an_earlier_release_is_read() -> None:
    data = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert ConfigChange.from_json(data, "/p") == ConfigChange("topics", "t")


def test_no_data_are_no_settings() -> None:
    assert EntityConfig.from_json(b"", "/p") == EntityConfig({})


def test_an_assignment_is_in_the_order_of_its_partitions() -> None:
    data = b'{"version":1,"partitions":{"10":[1],"9":[2,1],"0":[1]}}'
    assert list(TopicAssignment.from_json(data, "/p").partitions.items()) == [
        (0, (1,)),
        (9, (2, 1)),
        (10, (1,)),
    ]


def test_an_assignment_with_an_id_has_the_form_of_kafka_2_8() -> None:
    assignment = TopicAssignment({0: (1, 2)}, bytes(range(16)))
    data = assignment.to_json()
    assert data == (
        b'{"partitions":{"0":[1,2]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}'
    )
    assert TopicAssignment.from_json(data, "/p") == assignment


def test_an_assignment_without_an_id_has_the_form_of_0_10_1() -> None:
    assert TopicAssignment({0: (1,)}).to_json() == b'{"version":1,"partitions":{"0":[1]}}'


@pytest.mark.parametrize("text", ["", "abc", "A" * 22, "A" * 21 + "Q", "AAECAwQFBgcICQoLDA0ODx", 7])
def test_a_topic_id_is_no_other_text_and_none_of_the_reserved_ones(text: object) -> None:
    data = json.dumps({"version": 3, "partitions": {"0": [1]}, "topic_id": text}).encode()
    with pytest.raises(CoordinationError, match="'topic_id' must be"):
        TopicAssignment.from_json(data, "/p")


@pytest.mark.parametrize("replicas", [[], [1, 1], [2, 1, 2]])
def test_a_partition_needs_replicas_each_once(replicas: list[int]) -> None:
    data = json.dumps({"version": 1, "partitions": {"0": [1], "1": replicas}}).encode()
    with pytest.raises(CoordinationError, match=r"^/some/path/7: .*\[.*for partition 1\b"):
        TopicAssignment.from_json(data, "/some/path/7")


def test_a_reassignment_under_way_leaves_lists_of_different_lengths() -> None:
    data = b'{"version":1,"partitions":{"0":[1],"1":[2,1,3]}}'
    assert TopicAssignment.from_json(data, "/p").partitions == {0: (1,), 1: (2, 1, 3)}


def test_a_partition_may_have_no_leader() -> None:
    state = PartitionState(leader=-1, leader_epoch=4, isr=(), controller_epoch=2)
    assert PartitionState.from_json(state.to_json(), "/p") == state


def test_the_controller_of_an_early_release_is_read() -> None:
    assert ControllerRegistration.from_json(b"12") == ControllerRegistration(12, -1)


def test_the_paths_are_those_of_kafka() -> None:
    nodes = json.loads((GOLDEN / "02-topics-created.json").read_text(encoding="utf-8"))
    ours = {
        paths.broker_path(0),
        paths.topic_path("orders"),
        paths.partitions_path("orders"),
        paths.partition_state_path("orders", 1),
        paths.topic_config_path("payments"),
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
        paths.CLUSTER_ID,
        *paths.PERSISTENT_PATHS,
    }
    assert ours <= set(nodes)


def test_the_paths_of_a_group_are_those_of_kafkas_old_consumers() -> None:
    nodes = json.loads((GOLDEN / "03-old-consumers-running.json").read_text(encoding="utf-8"))
    ours = {
        paths.consumer_id_path("old-group", "old-group_c1"),
        paths.consumer_owner_path("old-group", "orders", 1),
        paths.consumer_offset_path("old-group", "orders", 0),
        paths.consumer_offsets_path("white-group"),
    }
    assert ours <= set(nodes)


def test_a_consumer_is_named_as_0_10_1_names_it() -> None:
    made = paths.consumer_id("g", "host", 1795241013651, "0a1b2c3d4e5f60718293a4b5c6d7e8f9")
    assert made == "g_host-1795241013651-0a1b2c3d"


@pytest.mark.parametrize("group", ["", "a/b", ".", "..", "a\0b", "a\nb", "a\x1b", "\x85"])
def test_a_group_that_cannot_be_part_of_a_path_is_refused(group: str) -> None:
    with pytest.raises(BrokerError, match="INVALID_GROUP_ID"):
        paths.consumer_ids_path(group)


def test_a_setting_outside_ascii_survives() -> None:
    config = EntityConfig({"note": "größer"})
    assert EntityConfig.from_json(config.to_json(), "/p") == config


@pytest.mark.parametrize(
    "ends", [(-1, 5), (7, 6), (0, 1 << 63)], ids=["before 0", "backwards", "more than an int64"]
)
def test_a_block_of_producer_ids_that_cannot_be_is_refused(ends: tuple[int, int]) -> None:
    with pytest.raises(CoordinationError, match="block_end"):
        ProducerIdBlock.from_json(ProducerIdBlock(0, *ends).to_json())


def test_a_topic_says_which_replicas_a_reassignment_adds_and_removes() -> None:
    topic = TopicAssignment({0: (3, 1, 2), 1: (1,)}, adding={0: (3,)}, removing={0: (2,)})
    data = topic.to_json()
    assert json.loads(data) == {
        "version": 2,
        "partitions": {"0": [3, 1, 2], "1": [1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [2]},
    }
    assert TopicAssignment.from_json(data, "/p") == topic


def test_a_topic_of_kafka_3_9_is_one_that_is_not_reassigned() -> None:
    data = b'{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}'
    found = TopicAssignment.from_json(data, "/p")
    assert (found.partitions, found.adding, found.removing) == ({0: (1,)}, {}, {})
    with pytest.raises(CoordinationError, match="adding_replicas"):
        TopicAssignment.from_json(b'{"partitions":{"0":[1]},"adding_replicas":[1]}', "/p")
