from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError, CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin import leader_elections, plan_files
from minikafka.clients.admin.zookeeper import elections
from minikafka.clients.admin.zookeeper.partitions import ZooKeeperPartitions
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.registry.topics import TopicAssignment
from tests.support.zookeeper_with_topics import cluster, set_state

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = {"t": {0: (0, 1), 1: (1, 2)}, "u": {0: (2,)}}


def test_all_partitions_are_shown_with_who_leads_and_who_should() -> None:
    store = cluster(TOPICS)
    set_state(store, "t", 1, 2, (2,))
    set_state(store, "u", 0, -1, (2,))
    found = {
        candidate.topic_partition: (candidate.leader, candidate.preferred, candidate.done)
        for candidate in leader_elections.candidates(ZooKeeperPartitions(store))
    }
    assert found == {T0: (0, 0, True), T1: (2, 1, False), U0: (None, 2, False)}


def test_a_topic_that_cannot_be_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store = cluster(TOPICS)
    store.create("/brokers/topics/twice", b'{"version":1,"partitions":{"0":[1,1]}}')
    store.write(paths.partition_state_path("u", 0), b"nonsense")
    found = {
        candidate.topic_partition: candidate.leader
        for candidate in leader_elections.candidates(ZooKeeperPartitions(store))
    }
    assert found == {T0: 0, T1: 1, U0: None}
    assert "/brokers/topics/twice: " in caplog.text
    assert "/brokers/topics/u/partitions/0/state: " in caplog.text


def test_partition_of_an_invalid_topic_is_refused_with_the_reason() -> None:
    store = cluster(TOPICS)
    store.write("/brokers/topics/u", b"nonsense")
    with pytest.raises(ConfigError, match="see /brokers/topics/u"):
        leader_elections.candidates(ZooKeeperPartitions(store), [U0])
    assert store.exists(paths.PREFERRED_ELECTION) is None


def test_the_request_stands_where_the_controller_looks() -> None:
    store = cluster(TOPICS)
    elections.request(store, [T1, U0])
    data, _ = store.read(paths.PREFERRED_ELECTION)
    assert PreferredElection.from_json(data).partitions == {T1, U0}


def test_its_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = cluster(TOPICS)
    assert elections.await_end(store, 0)
    elections.request(store, [T0])
    assert not elections.await_end(store, 0)
    looked: list[int] = []

    def sleep(seconds: float) -> None:
        looked.append(1)
        if len(looked) == 3:
            store.delete(paths.PREFERRED_ELECTION)

    monkeypatch.setattr("time.sleep", sleep)
    assert elections.await_end(store, 60)


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([TopicPartition("t", 7)], "partitions='t-7': topic 't' has partitions 0 to 1; nothing was changed"),
        ([TopicPartition("a\nb/c", 0)], r"there is no topic 'a\\nb/c'; nothing"),
        ([TopicPartition("tt", 0), T0], "topic='tt': there is no topic 'tt'; there is 't'; nothing"),
    ],
)
def test_what_there_is_not_is_refused(partitions: list[TopicPartition], words: str) -> None:
    store = cluster(TOPICS)
    with pytest.raises(ConfigError, match=words):
        leader_elections.candidates(ZooKeeperPartitions(store), partitions)


def test_a_topic_that_is_marked_for_deletion_is_refused() -> None:
    store = cluster(TOPICS)
    store.create(f"{paths.DELETE_TOPICS}/t")
    with pytest.raises(ConfigError, match="'t': marked for deletion"):
        leader_elections.candidates(ZooKeeperPartitions(store), [T0])


def test_a_second_request_is_refused_while_the_first_is_under_way() -> None:
    store = cluster(TOPICS)
    elections.request(store, [T0])
    with pytest.raises(CoordinationError, match="a preferred election has been in progress since 22:13:20"):
        elections.request(store, [T1])


def test_without_a_controller_nothing_is_asked_for() -> None:
    store = cluster(TOPICS)
    store.delete(paths.CONTROLLER)
    with pytest.raises(CoordinationError, match="there is no controller"):
        elections.request(store, [T0])
    assert store.exists(paths.PREFERRED_ELECTION) is None


def test_20000_partitions_fit_in_one_request_and_too_many_are_rejected() -> None:
    store = cluster({})
    name = "a-topic"
    numbers = 30_000
    known = dict.fromkeys(range(numbers), (0,))
    store.create(paths.topic_path(name), TopicAssignment(known).to_json())
    partitions = [TopicPartition(name, number) for number in range(numbers)]
    with pytest.raises(ConfigError, match=r"30000 partitions are \d+ bytes"):
        elections.request(store, partitions)
    assert store.exists(paths.PREFERRED_ELECTION) is None
    elections.request(store, partitions[:20_000])
    assert len(PreferredElection.from_json(store.read(paths.PREFERRED_ELECTION)[0]).partitions) == 20_000


def test_rounds_split_a_request_too_large_for_one_znode() -> None:
    partitions = [TopicPartition("ä" + "n" * 240, number) for number in range(20_000)]
    rounds = elections.rounds(reversed(partitions))
    assert [partition for share in rounds for partition in share] == partitions
    sizes = [len(PreferredElection(frozenset(share)).to_json()) for share in rounds]
    assert len(sizes) == 6
    assert max(sizes) <= DATA_MAX_BYTES
    assert all(size > 0.99 * DATA_MAX_BYTES for size in sizes[:-1])


def test_a_topic_stands_for_all_its_partitions() -> None:
    store = cluster(TOPICS)
    assert leader_elections.partitions_of(ZooKeeperPartitions(store), ["t"]) == {T0, T1}
    with pytest.raises(ConfigError, match="topic='v': there is no topic 'v'"):
        leader_elections.partitions_of(ZooKeeperPartitions(store), ["t", "v"])


@pytest.mark.parametrize("key", ["partitions", "partition"])
def test_the_file_has_the_form_of_the_release_or_of_the_text(key: str) -> None:
    data = b'{"%s": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 0}]}' % key.encode()
    assert plan_files.read_election(data) == {T0, U0}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"{", "invalid JSON"),
        (b"[]", "expected a JSON object$"),
        (b'{"partitions": [{"topic": "t"}]}', "a list of objects with topic and partition"),
        (
            b'{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "duplicate partition",
        ),
    ],
)
def test_a_file_of_another_form_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--file='e.json': [^:]*{words}"):
        plan_files.read_election(data, "--file", "e.json")
