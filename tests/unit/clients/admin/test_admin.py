"""``clients/admin/admin``: topics are created, deleted and described, with one result each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin, NewTopic
from minikafka.clients.admin.topics import BROKER_DEFAULT
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.net.memory import Fault
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from minikafka.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from minikafka.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from minikafka.wire.fields import ZERO_UUID
from tests.support.broker_harness import BrokerHarness


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 2, "__consumer_offsets": 1})


@pytest.fixture
def admin(brokers: BrokerHarness) -> Admin:
    return Admin(brokers.client())


def codes(errors: dict[str, BrokerError | None]) -> dict[str, ErrorCode]:
    return {name: ErrorCode.NONE if error is None else error.code for name, error in errors.items()}


def test_topics_are_made_with_one_result_each(brokers: BrokerHarness, admin: Admin) -> None:
    made = admin.create_topics([NewTopic("a", 3), NewTopic("t"), NewTopic("no good"), NewTopic("b")])
    assert codes(made) == {
        "a": ErrorCode.NONE,
        "t": ErrorCode.TOPIC_ALREADY_EXISTS,
        "no good": ErrorCode.INVALID_TOPIC,
        "b": ErrorCode.NONE,
    }
    assert len([tp for tp in brokers.leaders if tp.topic == "a"]) == 3
    (request,) = brokers.asked(ApiKey.CREATE_TOPICS)
    assert [topic.name for topic in request.topics] == ["a", "t", "b"]


def test_settings_and_assignments_reach_the_broker(brokers: BrokerHarness, admin: Admin) -> None:
    admin.create_topic(NewTopic("a", configs={"retention.ms": "5"}))
    admin.create_topic(NewTopic("b", assignments={1: [2, 1], 0: [1, 2]}))
    a, b = (request.topics[0] for request in brokers.asked(ApiKey.CREATE_TOPICS))
    assert (a.num_partitions, a.replication_factor, a.assignments) == (1, 1, ())
    assert [(c.name, c.value) for c in a.configs] == [("retention.ms", "5")]
    assert (b.num_partitions, b.replication_factor) == (-1, -1)
    assert [(x.partition_index, x.broker_ids) for x in b.assignments] == [(0, (1, 2)), (1, (2, 1))]


def test_without_racks_the_replicas_are_spread_here(brokers: BrokerHarness, admin: Admin) -> None:
    admin.create_topic(NewTopic("a", 4, 2, rack_aware=False))
    (request,) = brokers.asked(ApiKey.CREATE_TOPICS)
    (topic,) = request.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    live = sorted(admin.describe_cluster().brokers)
    assert [sorted(assignment.broker_ids) for assignment in topic.assignments] == [live] * 4
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topic(NewTopic("b", 1, 3, rack_aware=False))
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        admin.create_topic(NewTopic("b", BROKER_DEFAULT, 1, rack_aware=False))


def test_numbers_that_the_broker_chooses_are_sent_as_such(brokers: BrokerHarness, admin: Admin) -> None:
    assert admin.create_topics([NewTopic("a", BROKER_DEFAULT, BROKER_DEFAULT)]).keys() == {"a"}
    (topic,) = brokers.asked(ApiKey.CREATE_TOPICS)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_defaults_are_not_asked_of_a_broker_that_has_none(brokers: BrokerHarness) -> None:
    admin = Admin(brokers.client(newest_versions={ApiKey.CREATE_TOPICS: 3}))
    with pytest.raises(BrokerError, match=r"UNSUPPORTED_VERSION: default .* but broker \d supports 3"):
        admin.create_topic(NewTopic("a", BROKER_DEFAULT))


def test_a_topic_is_made_also_by_who_may_not_see_it(
    brokers: BrokerHarness, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = brokers.serve
    hidden = MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a", False, ())
    brokers.always(ApiKey.METADATA, lambda *asked: replace(answer(*asked), topics=(hidden,)))
    assert codes(admin.create_topics([NewTopic("a")], timeout_ms=1_000)) == {"a": ErrorCode.NONE}


def test_the_call_returns_when_all_partitions_have_leaders(brokers: BrokerHarness, admin: Admin) -> None:
    def slowly(broker_id: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        brokers.add_topic("a", 2)
        brokers.lose_leader(TopicPartition("a", 1))
        return CreateTopicsResponse(0, (CreatableTopicResult("a", int(ErrorCode.REQUEST_TIMED_OUT)),))

    def elect(milliseconds: int) -> None:
        brokers.advance(milliseconds)
        if brokers.clock.monotonic_ms() >= 1_000:
            brokers.move_leader(TopicPartition("a", 1), 2)

    brokers.script(ApiKey.CREATE_TOPICS, slowly)
    brokers.waiter.wait = elect  # type: ignore[method-assign]
    assert admin.create_topics([NewTopic("a", 2)]) == {"a": None}
    assert brokers.leaders[TopicPartition("a", 1)] == 2


def test_a_topic_that_gets_no_leaders_is_told_after_the_deadline(
    brokers: BrokerHarness, admin: Admin
) -> None:
    def never(broker_id: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        brokers.add_topic("a", 1)
        brokers.lose_leader(TopicPartition("a", 0))
        return CreateTopicsResponse(0, (CreatableTopicResult("a", 0),))

    brokers.script(ApiKey.CREATE_TOPICS, never)
    made = admin.create_topics([NewTopic("a")], timeout_ms=2_000)
    assert codes(made) == {"a": ErrorCode.LEADER_NOT_AVAILABLE}
    assert "was created, but its partitions have no leaders yet" in str(made["a"])


def test_the_controller_is_followed_when_it_moves(brokers: BrokerHarness, admin: Admin) -> None:
    def moves(broker_id: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        brokers.move_controller(2)
        return brokers.serve(broker_id, request)

    brokers.script(ApiKey.CREATE_TOPICS, moves)
    admin.create_topic(NewTopic("a"))
    assert [b for b, key, _, _ in brokers.requests if key is ApiKey.CREATE_TOPICS] == [1, 2]


def test_no_controller_is_waited_for_and_then_told(brokers: BrokerHarness, admin: Admin) -> None:
    serve = brokers.serve
    brokers.always(ApiKey.METADATA, lambda *asked: replace(serve(*asked), controller_id=-1))
    with pytest.raises(
        BrokerError, match=r"CreateTopics for a failed for 3000 ms: .*no controller"
    ) as caught:
        admin.create_topics([NewTopic("a")], timeout_ms=3_000)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


def test_after_a_lost_answer_an_existing_topic_may_be_ours(brokers: BrokerHarness, admin: Admin) -> None:
    def lost(broker_id: int, request: CreateTopicsRequest) -> Fault:
        brokers.serve(broker_id, request)
        return Fault.CUT_REQUEST

    brokers.script(ApiKey.CREATE_TOPICS, lost)
    made = admin.create_topics([NewTopic("a")])
    assert codes(made) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert "an earlier attempt was lost" in str(made["a"])


def test_topics_are_removed_with_one_result_each(brokers: BrokerHarness, admin: Admin) -> None:
    assert codes(admin.delete_topics(["t", "x", "t"])) == {
        "t": ErrorCode.NONE,
        "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert admin.list_topics() == []


def test_a_removal_that_takes_its_time_is_told_as_going_on(brokers: BrokerHarness, admin: Admin) -> None:
    row = DeletableTopicResult("t", int(ErrorCode.REQUEST_TIMED_OUT))
    brokers.script(ApiKey.DELETE_TOPICS, lambda *_: DeleteTopicsResponse(0, (row,)))
    error = admin.delete_topics(["t"])["t"]
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert "the operation continues, check again later" in str(error)
    assert len(brokers.asked(ApiKey.DELETE_TOPICS)) == 1


@pytest.mark.parametrize("version", [0, 4, 5, 7])
def test_new_topic_is_returned_as_brokers_made_it(brokers: BrokerHarness, admin: Admin, version: int) -> None:
    brokers.newest[ApiKey.CREATE_TOPICS] = version
    created = admin.create_topic(NewTopic("a", 3, 2, configs={"retention.ms": "5"}))
    assert (created.name, created.partitions, created.replication_factor) == ("a", 3, 2)
    assert created.topic_id == brokers.client().metadata(["a"]).topic_id("a") != ZERO_UUID
    if version < 5:
        assert created.configs is None
    else:
        assert created.configs is not None
        assert (created.configs["retention.ms"], created.configs["min.insync.replicas"]) == ("5", "1")


@pytest.mark.parametrize("version", [4, 7])
def test_numbers_that_the_broker_chose_are_returned(
    brokers: BrokerHarness, admin: Admin, version: int
) -> None:
    brokers.newest[ApiKey.CREATE_TOPICS] = version
    created = admin.create_topic(NewTopic("a", BROKER_DEFAULT, BROKER_DEFAULT))
    assert (created.partitions, created.replication_factor) == (1, 1)
    assigned = admin.create_topic(NewTopic("b", assignments={0: [2, 1], 1: [1, 2]}))
    assert (assigned.partitions, assigned.replication_factor) == (2, 2)


def test_topic_that_may_not_be_described_has_the_numbers_of_the_request(
    brokers: BrokerHarness, admin: Admin
) -> None:
    hidden = MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a", False, ())
    brokers.newest[ApiKey.CREATE_TOPICS] = 4

    def without_it(broker_id: int, request: MetadataRequest) -> MetadataResponse:
        served: MetadataResponse = brokers.serve(broker_id, request)
        return replace(served, topics=(hidden,) if request.names == ("a",) else served.topics)

    brokers.always(ApiKey.METADATA, without_it)
    created = admin.create_topic(NewTopic("a", 3))
    assert (created.partitions, created.replication_factor, created.topic_id) == (3, 1, ZERO_UUID)


@pytest.mark.parametrize(("version", "names"), [(0, ("a",)), (5, ("a",)), (6, ())])
def test_topics_are_deleted_by_name_in_every_version(
    brokers: BrokerHarness, admin: Admin, version: int, names: tuple[str, ...]
) -> None:
    brokers.newest[ApiKey.DELETE_TOPICS] = version
    admin.create_topic(NewTopic("a"))
    assert admin.delete_topics(["a"]) == {"a": None}
    assert "a" not in admin.list_topics()
    (request,) = brokers.asked(ApiKey.DELETE_TOPICS)
    assert (request.topic_names, [topic.name for topic in request.topics]) == (names, ["a"][len(names) :])


def test_requests_over_the_quota_of_changes_are_repeated(brokers: BrokerHarness, admin: Admin) -> None:
    throttled = CreatableTopicResult("a", ErrorCode.THROTTLING_QUOTA_EXCEEDED, "used up")
    made = CreatableTopicResult("b", ErrorCode.NONE)
    brokers.add_topic("b", 1)
    brokers.script(ApiKey.CREATE_TOPICS, lambda *_: CreateTopicsResponse(0, (throttled, made)))
    assert admin.create_topics([NewTopic("a"), NewTopic("b")]) == {"a": None, "b": None}
    first, second = brokers.asked(ApiKey.CREATE_TOPICS)
    assert [[topic.name for topic in request.topics] for request in (first, second)] == [["a", "b"], ["a"]]


def test_a_quota_that_stays_used_up_is_the_error_of_its_topics(brokers: BrokerHarness, admin: Admin) -> None:
    def throttle(_: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        made = (CreatableTopicResult("b", ErrorCode.NONE),) * any(
            topic.name == "b" for topic in request.topics
        )
        return CreateTopicsResponse(0, (CreatableTopicResult("a", code, "used up"), *made))

    brokers.add_topic("b", 1)
    brokers.always(ApiKey.CREATE_TOPICS, throttle)
    found = admin.create_topics([NewTopic("a"), NewTopic("b")], timeout_ms=2_000)
    assert codes(found) == {"a": ErrorCode.THROTTLING_QUOTA_EXCEEDED, "b": ErrorCode.NONE}
    assert "used up" in str(found["a"])


def refused(brokers: BrokerHarness, code: ErrorCode) -> None:
    """The next request about topics is answered with ``code`` for each of them."""
    brokers.script(
        ApiKey.CREATE_TOPICS,
        lambda _, request: CreateTopicsResponse(
            0, tuple(CreatableTopicResult(topic.name, int(code)) for topic in request.topics)
        ),
    )
    brokers.script(
        ApiKey.DELETE_TOPICS,
        lambda _, request: DeleteTopicsResponse(
            0, tuple(DeletableTopicResult(topic.name, int(code)) for topic in request.topics)
        ),
    )


@pytest.mark.parametrize(
    ("code", "topic", "words"),
    [
        (ErrorCode.INVALID_TOPIC, NewTopic("a_b"), "'a_b' collides with topic 'a.b'"),
        (ErrorCode.INVALID_TOPIC, NewTopic("c"), "rejected the name 'c'"),
        (ErrorCode.INVALID_PARTITIONS, NewTopic("c", 7), "rejected the number of partitions 7"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, NewTopic("c", 1, 3), "3 replicas .*; the cluster has 2"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, NewTopic("c", 1, 2), "rejected the number of replicas 2"),
        (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            NewTopic("c", assignments={0: [9]}),
            r"\{0: \[9\]\} does not fit the live brokers \[1, 2\]",
        ),
        (ErrorCode.INVALID_CONFIG, NewTopic("c", configs={"segment.bytes": "x"}), "segment.bytes='x'"),
        (ErrorCode.INVALID_CONFIG, NewTopic("c", configs={"retention.ms": "1"}), "settings retention.ms=1"),
        (ErrorCode.POLICY_VIOLATION, NewTopic("c"), "policy .* does not allow this topic to be created"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NewTopic("c"), "not authorized: Create on the cluster"),
        (ErrorCode.UNKNOWN, NewTopic("c"), "CreateTopics of topic 'c', response of broker 1"),
    ],
)
def test_a_refusal_to_make_a_topic_is_told_in_words(
    brokers: BrokerHarness, admin: Admin, code: ErrorCode, topic: NewTopic, words: str
) -> None:
    brokers.add_topic("a.b", 1)
    refused(brokers, code)
    with pytest.raises(BrokerError, match=words) as caught:
        admin.create_topic(topic)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (NewTopic("a b"), "only letters, digits"),
        (NewTopic("a", 0), "1 to 2147483647 partitions, got 0"),
        (NewTopic("a", 1 << 31), "partitions, got 2147483648"),
        (NewTopic("a", 1, 0), "1 to 32767 replicas, got 0"),
        (NewTopic("a", 1, 1 << 15), "replicas, got 32768"),
    ],
)
def test_what_no_cluster_could_take_is_not_sent(
    brokers: BrokerHarness, admin: Admin, topic: NewTopic, words: str
) -> None:
    with pytest.raises(BrokerError, match=words):
        admin.create_topic(topic)
    assert brokers.requests == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'flihgts'; there is 'flights'"),
        (ErrorCode.INVALID_REQUEST, "delete.topic.enable is false"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized: Delete on topic 'flihgts' (see `minikafka"),
        (ErrorCode.UNKNOWN, "DeleteTopics of topic 'flihgts', response of broker 1"),
    ],
)
def test_a_refusal_to_delete_a_topic_is_told_in_words(
    brokers: BrokerHarness, admin: Admin, code: ErrorCode, words: str
) -> None:
    brokers.add_topic("flights", 1)
    refused(brokers, code)
    error = admin.delete_topics(["flihgts"])["flihgts"]
    assert error is not None
    assert error.code is code
    assert words in str(error)


def test_a_cluster_that_says_no_more_does_not_hide_the_refusal(brokers: BrokerHarness, admin: Admin) -> None:
    def refuse_and_go(_: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        brokers.script(ApiKey.METADATA, *[lambda *_: Fault.CUT_REQUEST] * 100)
        return CreateTopicsResponse(0, (CreatableTopicResult("c", int(ErrorCode.INVALID_TOPIC)),))

    brokers.script(ApiKey.CREATE_TOPICS, refuse_and_go)
    with pytest.raises(BrokerError, match="INVALID_TOPIC: the cluster rejected the name 'c'"):
        admin.create_topic(NewTopic("c"))


def test_an_error_of_one_topic_is_raised_by_the_short_form(admin: Admin) -> None:
    with pytest.raises(BrokerError, match=r"^TOPIC_ALREADY_EXISTS: topic t exists$"):
        admin.create_topic(NewTopic("t"))


def test_topics_are_listed_sorted_and_kafkas_own_on_demand(admin: Admin) -> None:
    admin.create_topics([NewTopic("b"), NewTopic("a")])
    assert admin.list_topics() == ["a", "b", "t"]
    assert admin.list_topics(internal=True) == ["__consumer_offsets", "a", "b", "t"]


def test_describing_never_names_a_topic_to_the_broker(brokers: BrokerHarness, admin: Admin) -> None:
    found = admin.describe_topics(["t", "x"])
    described, missing = found["t"], found["x"]
    assert isinstance(described, TopicMetadata)
    assert [p.leader_id for p in described.partitions] == [1, 2]
    assert isinstance(missing, BrokerError)
    assert str(missing) == (
        "UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'x', or this client may not describe it"
    )
    assert {request.topics for request in brokers.asked(ApiKey.METADATA)} == {None}


def test_the_cluster_and_offsets_are_described(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.fill(TopicPartition("t", 1), b"a", b"b")
    cluster = admin.describe_cluster()
    cluster_id = brokers.client().metadata().cluster_id
    assert (sorted(cluster.brokers), cluster.controller_id, cluster.cluster_id) == ([1, 2], 1, cluster_id)
    assert admin.offsets({TopicPartition("t", 1): LATEST}) == {TopicPartition("t", 1): 2}


def test_no_topics_need_no_request(brokers: BrokerHarness, admin: Admin) -> None:
    assert admin.create_topics([]) == {}
    assert admin.delete_topics([]) == {}
    assert brokers.requests == []


def test_a_cluster_that_is_away_is_a_network_error(brokers: BrokerHarness, admin: Admin) -> None:
    brokers.stop(1)
    brokers.stop(2)
    with pytest.raises(NetworkError, match="memory:9001"):
        admin.create_topics([NewTopic("a")], timeout_ms=1_000)
