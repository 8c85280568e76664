"""Topic names and ids."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import (
    BrokerAddress,
    TopicPartition,
    check_topic_name,
    has_collision,
    host_port,
    new_topic_id,
    topic_id_text,
    uuid_in,
    uuid_text,
)


@pytest.mark.parametrize("name", ["a", "my_topic", "A.b-c_0", "x" * 249, "__consumer_offsets", "..."])
def test_legal_topic_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a:b"])
def test_other_topic_names_are_refused_with_their_reason(name: str) -> None:
    with pytest.raises(BrokerError, match="topic name") as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC


def test_dots_and_underscores_collide() -> None:
    assert has_collision("a.b_c", "a_b.c")
    assert not has_collision("a.b", "a-b")


def test_a_uuid_has_22_characters() -> None:
    assert uuid_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_in("AAECAwQFBgcICQoLDA0ODw") == bytes(range(16))
    with pytest.raises(ValueError, match="16 bytes for a UUID, got 3"):
        uuid_text(b"abc")


@pytest.mark.parametrize(
    "text", ["", "abc", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0ODx", "ä"]
)
def test_other_texts_are_no_uuid(text: str) -> None:
    assert uuid_in(text) is None


def test_an_unknown_topic_id_has_no_text() -> None:
    assert topic_id_text(bytes(16)) is None
    assert topic_id_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"


def test_a_new_topic_id_is_a_random_uuid_that_is_no_option() -> None:
    given = [b"\xf8" + bytes(15), bytes(range(16))]
    assert new_topic_id(lambda size: given.pop(0)).hex() == "000102030405460788090a0b0c0d0e0f"
    assert not given


def test_partitions_sort_by_topic_and_then_by_number() -> None:
    names = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert [str(name) for name in sorted(names)] == ["a-9", "a-10", "b-0"]


def test_a_broker_address_reads_well() -> None:
    assert str(BrokerAddress(1, "h", 9092)) == "broker 1 at h:9092"


def test_only_hosts_with_colons_are_in_brackets() -> None:
    assert host_port("localhost", 9092) == "localhost:9092"
    assert host_port("::1", 9092) == "[::1]:9092"
