"""The partitions that a client names in the requests of a fetch session."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.apis.fetch import (
    NEW_SESSION_EPOCH,
    NO_IDS,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
)
from minikafka.wire.fetch_session_handler import FetchSessionHandler

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = 7
FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))
"""Ids of a topic."""


@pytest.fixture
def session() -> FetchSessionHandler:
    return FetchSessionHandler()


def request(
    session: FetchSessionHandler, topic_ids: Mapping[str, bytes] = NO_IDS, **offsets: int
) -> FetchRequest:
    """The next request for these partitions, from these offsets on."""
    keys = {"a": A, "b": B}
    parts = {keys[name]: FetchPartition(keys[name].partition, 3, at, 0, 100) for name, at in offsets.items()}
    return session.request(parts, max_wait_ms=0, min_bytes=1, max_bytes=100, topic_ids=topic_ids)


def answer(code: ErrorCode = ErrorCode.NONE, session_id: int = ID) -> FetchResponse:
    return FetchResponse(0, code, session_id, ())


def named(session: FetchSessionHandler, **offsets: int) -> list[int]:
    """The partitions that the next request names."""
    sent = request(session, **offsets)
    assert session.answered(answer())
    return [part.index for topic in sent.topics for part in topic.partitions]


def test_a_partition_is_named_once_and_again_when_its_offset_changes(session: FetchSessionHandler) -> None:
    assert named(session, a=0, b=0) == [0, 1]
    assert named(session, a=0, b=0) == []
    assert named(session, a=0, b=5) == [1]


def test_the_same_rows_again_name_only_partitions_followed_anew(session: FetchSessionHandler) -> None:
    parts = {key: FetchPartition(key.partition, 3, 0, 0, 100) for key in (A, B)}

    def sent_again() -> list[int]:
        request = session.request(parts, max_wait_ms=0, min_bytes=1, max_bytes=100)
        assert session.answered(answer())
        assert request.forgotten_topics == ()
        return [part.index for topic in request.topics for part in topic.partitions]

    assert [sent_again(), sent_again()] == [[0, 1], []]
    session.follow_anew(B)
    assert [sent_again(), sent_again()] == [[1], []]


def test_a_partition_that_is_followed_anew_is_named_again_once(session: FetchSessionHandler) -> None:
    named(session, a=0, b=0)
    session.follow_anew(A)
    assert named(session, a=0, b=0) == [0]
    assert named(session, a=0, b=0) == []


def test_a_partition_that_is_not_fetched_any_more_is_forgotten(session: FetchSessionHandler) -> None:
    named(session, a=0, b=0)
    assert request(session, b=0).forgotten_topics == (ForgottenTopic("t", (0,)),)
    session.answered(answer())
    assert named(session, a=0, b=0) == [0]


def test_the_requests_of_a_session_have_its_id_and_rising_epochs(session: FetchSessionHandler) -> None:
    sent = []
    for _ in range(3):
        sent.append(request(session, a=0))
        session.answered(answer())
    ids = [(each.session_id, each.session_epoch) for each in sent]
    assert ids == [(NO_SESSION, 0), (ID, 1), (ID, 2)]


def test_without_a_session_of_the_broker_each_request_names_all(session: FetchSessionHandler) -> None:
    for _ in range(2):
        sent = request(session, a=0)
        assert (sent.session_id, sent.session_epoch, len(sent.topics)) == (NO_SESSION, 0, 1)
        session.answered(answer(session_id=NO_SESSION))


@pytest.mark.parametrize(
    ("code", "closed"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ID),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ID),
    ],
)
def test_after_an_error_a_new_session_closes_the_earlier_one(
    session: FetchSessionHandler, code: ErrorCode, closed: int
) -> None:
    named(session, a=0)
    request(session, a=0)
    assert not session.answered(answer(code, NO_SESSION))
    sent = request(session, a=0)
    assert (sent.session_id, sent.session_epoch, len(sent.topics)) == (closed, 0, 1)


def begins_anew(session: FetchSessionHandler, topic_ids: Mapping[str, bytes]) -> bool:
    """True if the next request, by these ids, begins a new session, which closes the earlier one."""
    sent = request(session, topic_ids, a=0)
    assert session.answered(answer())
    assert sent.session_epoch or sent.session_id == ID
    return sent.session_epoch == NEW_SESSION_EPOCH


def test_topics_are_named_and_forgotten_by_their_ids(session: FetchSessionHandler) -> None:
    ids = {"t": FIRST}
    (topic,) = request(session, ids, a=0, b=0).topics
    assert (topic.name, topic.topic_id) == ("t", FIRST)
    session.answered(answer())
    # The leaders were looked up again: the topic has no partition that is still fetched.
    other = request(session, {"other": SECOND}, b=0)
    assert other.forgotten_topics == (ForgottenTopic("t", (0,), topic_id=FIRST),)


def test_topics_looked_up_later_join_the_session(session: FetchSessionHandler) -> None:
    ids = {"other": SECOND}
    request(session, ids, a=0)
    session.answered(answer())
    ids["t"] = FIRST
    assert not begins_anew(session, ids)
    assert not begins_anew(session, {"t": FIRST})


def test_topic_made_again_begins_a_new_session(session: FetchSessionHandler) -> None:
    request(session, {"t": FIRST}, a=0)
    session.answered(answer())
    assert not begins_anew(session, {"t": FIRST})
    assert begins_anew(session, {"t": SECOND})
    assert not begins_anew(session, {"t": SECOND})


def test_ids_of_topics_that_left_the_session_are_not_kept(session: FetchSessionHandler) -> None:
    """A consumer of a pattern may meet any number of topics."""
    for number in range(5):
        parts = {TopicPartition(f"t{number}", 0): FetchPartition(0, 3, 0, 0, 100)}
        ids = {f"t{number}": bytes([number + 1]) * 16}
        sent = session.request(parts, max_wait_ms=0, min_bytes=1, max_bytes=100, topic_ids=ids)
        assert session.answered(answer())
        assert [topic.name for topic in sent.forgotten_topics] == [f"t{number - 1}"] * (number > 0)
        assert sent.session_epoch == number
    assert session._earlier_ids.keys() == {"t3"}


def test_session_of_names_is_not_continued_by_ids(session: FetchSessionHandler) -> None:
    named(session, a=0)
    assert begins_anew(session, {"t": FIRST})
    assert begins_anew(session, NO_IDS)
    assert not begins_anew(session, NO_IDS)


def test_a_lost_response_begins_a_new_session(session: FetchSessionHandler) -> None:
    named(session, a=0)
    request(session, a=5)
    session.begin_anew()
    sent = request(session, a=0)
    assert (sent.session_id, sent.session_epoch, len(sent.topics)) == (ID, 0, 1)
